//! With keys configured each component needs a signature, whatever its origin.

use std::{fs, path::Path};

use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use transom_plugin_host::{Change, CommandError, Config, PublicKey, Registries, Signatures, State};

use crate::{
    registry::DockerRegistry,
    sources::{push_variant, serving, variant, wait_for_status},
    support::{Site, write_file},
};

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!("../data/signing/", $name)).as_slice()
    };
}

fn signatures(key: &[u8], required: bool) -> Signatures {
    Signatures {
        keys: vec![PublicKey {
            name: "team.pub".to_owned(),
            pem: key.to_vec(),
        }],
        required,
    }
}

/// A detached signature, as `openssl dgst -sha256 -sign` writes it.
pub(crate) fn sign(pem: &[u8], component: &[u8]) -> Vec<u8> {
    use ring::{rand::SystemRandom, signature};
    use rustls_pki_types::pem::PemObject;
    let key = rustls_pki_types::PrivatePkcs8KeyDer::from_pem_slice(pem).unwrap();
    let random = SystemRandom::new();
    let key = signature::EcdsaKeyPair::from_pkcs8(
        &signature::ECDSA_P256_SHA256_ASN1_SIGNING,
        key.secret_pkcs8_der(),
        &random,
    );
    key.unwrap().sign(&random, component).unwrap().as_ref().to_vec()
}

const PLAIN: &str = "world = \"check-probe\"\n[limits]\nmemory = \"16MiB\"\n[config]\nmark = \"v1\"\n";

/// Puts a version into the directory. The signature comes first, so that a scan that finds the
/// component finds its signature, too.
fn install(dir: &Path, component: &[u8], signature: Option<&[u8]>) {
    let signature_file = dir.join("odd.wasm.sig");
    match signature {
        Some(signature) => write_file(dir, "odd.wasm.sig", signature),
        None if signature_file.exists() => fs::remove_file(signature_file).unwrap(),
        None => {}
    }
    write_file(dir, "odd.toml", PLAIN.as_bytes());
    write_file(dir, "odd.wasm", component);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_without_a_valid_signature_is_rejected() {
    let (one, two) = (variant(1), variant(2));
    let good = sign(file!("p256.key"), &one);
    let site = Site::with_config(&[], |config: &mut Config| {
        config.signatures = signatures(file!("p256.pub"), true);
        install(&config.dir, &one, Some(&good));
    })
    .await;
    let status = site.status("odd");
    assert_eq!(status.state, State::Serving, "{:?}", status.refusal);
    let signer = status.signed_by.unwrap();
    assert!(signer.starts_with("team.pub (sha256:"), "{signer}");
    let first = status.digest;
    let (records, _) = site.plugins.history("odd");
    assert_eq!(records[0].signed_by.as_ref(), Some(&signer));
    assert_eq!(records[0].source, None);

    let of_other_key = sign(file!("other.key"), &two);
    for (what, signature, expected) in [
        ("none", None, "odd.wasm.sig is missing"),
        (
            "of the previous version",
            Some(good.as_slice()),
            "invalid signature",
        ),
        (
            "by another key",
            Some(of_other_key.as_slice()),
            "invalid signature",
        ),
    ] {
        let change = site
            .change_files(|| install(site.dir.path(), &two, signature))
            .await;
        let Change::Rejected { reason, .. } = &change else {
            panic!("{what}: {change:?}")
        };
        assert!(reason.contains(expected), "{what}: {reason}");
        let status = site.status("odd");
        assert_eq!((status.state, &status.digest), (State::Serving, &first), "{what}");
        assert!(site.probe("odd", "{}", None).await.is_ok());
    }
    // The missing signature is added later, without other changes.
    let signature = sign(file!("p256.key"), &two);
    let change = site
        .change_files(|| write_file(site.dir.path(), "odd.wasm.sig", &signature))
        .await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    // When the signature is removed, the component is rejected, even after a restart.
    let change = site
        .change_files(|| fs::remove_file(site.dir.path().join("odd.wasm.sig")).unwrap())
        .await;
    assert!(matches!(change, Change::Rejected { .. }), "{change:?}");
    // A manifest cannot turn the check off.
    let more = format!("signatures = false\n{PLAIN}");
    let change = site
        .change_files(|| write_file(site.dir.path(), "odd.toml", more.as_bytes()))
        .await;
    assert!(
        matches!(&change, Change::Rejected { reason, .. } if reason.contains("unknown key")),
        "{change:?}"
    );
    write_file(site.dir.path(), "odd.toml", PLAIN.as_bytes());
    let strict = |config: &mut Config| config.signatures = signatures(file!("p256.pub"), true);
    let site = site.restart(|_| (), strict).await;
    assert_eq!(site.status("odd").state, State::Rejected);
    assert!(site.probe("odd", "{}", None).await.is_err());
    let lax = |config: &mut Config| config.signatures = signatures(file!("p256.pub"), false);
    let site = site.restart(|_| (), lax).await;
    let status = site.status("odd");
    assert_eq!((status.state, status.signed_by), (State::Serving, None));
    site.stop().await;
}

/// A rollback verifies the signature against the keys that are configured now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollback_verifies_the_signature_again() {
    let (unsigned, signed) = (variant(1), variant(2));
    let state = TempDir::new().unwrap();
    let store = transom_store::open(&format!("file:{}", state.path().display()))
        .await
        .unwrap();
    let with = |key: Option<&'static [u8]>| {
        let store = store.clone();
        move |config: &mut Config| {
            config.store = Some(store);
            if let Some(key) = key {
                config.signatures = signatures(key, true);
            }
        }
    };
    let site = Site::with_config(&[], |config: &mut Config| {
        install(&config.dir, &unsigned, None);
        with(None)(config);
    })
    .await;
    assert_eq!(site.status("odd").state, State::Serving);
    let signature = sign(file!("p256.key"), &signed);
    let next = |dir: &Path| install(dir, &signed, Some(&signature));
    let site = site.restart(next, with(Some(file!("p256.pub")))).await;
    assert_eq!(site.status("odd").state, State::Serving);
    let first = site.plugins.rollback("odd", Some(1), "x").await;
    let Err(CommandError::Rejected { reason, .. }) = &first else {
        panic!("{first:?}")
    };
    assert!(reason.contains("it is not signed"), "{reason}");
    let third = variant(3);
    let of_third = sign(file!("p256.key"), &third);
    let change = site
        .change_files(|| install(site.dir.path(), &third, Some(&of_third)))
        .await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    let back = site.plugins.rollback("odd", Some(2), "x").await;
    assert!(matches!(back, Ok(Change::RolledBack { .. })), "{back:?}");
    let record = &site.plugins.history("odd").0[0];
    assert!(
        record.signed_by.is_some(),
        "the signature is stored with the version: {record:?}"
    );

    // With another key, neither the version of the rollback nor the files in the directory are
    // admitted.
    let site = site.restart(|_| (), with(Some(file!("other.pub")))).await;
    assert_eq!(site.status("odd").state, State::Rejected);
    let back = site.plugins.rollback("odd", Some(2), "x").await;
    assert!(matches!(back, Err(CommandError::Rejected { .. })), "{back:?}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn image_without_a_valid_signature_is_rejected() {
    let mut registry = DockerRegistry::start().await;
    push_variant(&registry, 1, "latest", Some(file!("p256.key"))).await;
    let settings = registry.settings();
    let with = |key: &'static [u8]| {
        let settings: Registries = settings.clone();
        move |config: &mut Config| {
            config.registries = settings;
            config.signatures = signatures(key, true);
        }
    };
    let text = format!("source = \"{}\"\n{PLAIN}", registry.source(":latest"));
    let site = Site::with_config(&[], |config: &mut Config| {
        write_file(&config.dir, "odd.toml", text.as_bytes());
        with(file!("p256.pub"))(config);
    })
    .await;
    let first = serving(&site).await;
    assert!(first.signed_by.is_some());

    for key in [None, Some(file!("other.key"))] {
        let mark = if key.is_some() { 3 } else { 2 };
        push_variant(&registry, mark, "latest", key).await;
        site.plugins.rescan().await;
        let expected = if key.is_some() {
            "none of the configured keys signed it"
        } else {
            "the registry has no signature"
        };
        let status = wait_for_status(&site, expected, |it| {
            it.refusal.as_ref().is_some_and(|it| it.contains(expected))
        })
        .await;
        assert_eq!((status.state, &status.digest), (State::Serving, &first.digest));
        assert!(site.probe("odd", "{}", None).await.is_ok());
    }
    // A valid signature is added next to the invalid one. The image does not change.
    push_variant(&registry, 3, "latest", Some(file!("p256.key"))).await;
    site.plugins.rescan().await;
    let status = wait_for_status(&site, "signed afterwards", |it| it.digest != first.digest).await;
    assert!(status.signed_by.is_some() && status.refusal.is_none());

    // A component fetched earlier is verified with the current keys.
    registry.stop();
    let site = site.restart(|_| (), with(file!("p256.pub"))).await;
    assert_eq!(site.status("odd").digest, status.digest);
    let site = site.restart(|_| (), with(file!("other.pub"))).await;
    let status = site.status("odd");
    // The image is signed with both keys.
    assert_eq!(status.state, State::Serving, "{:?}", status.refusal);
    let site = site.restart(|_| (), with(file!("ed25519.pub"))).await;
    let status = site.status("odd");
    assert_eq!(status.state, State::Rejected);
    assert!(status.refusal.unwrap().contains("invalid signature"));
    site.stop().await;
}

/// A signature belongs to one image. A copy for another image is invalid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signature_of_another_image_is_rejected() {
    let registry = DockerRegistry::start().await;
    let signed = push_variant(&registry, 1, "one", Some(file!("ed25519.key"))).await;
    let unsigned = push_variant(&registry, 2, "two", Some(file!("other.key"))).await;
    // The registry is hostile: it answers with the first image's signature for the second image.
    let link = |digest: &str| {
        registry
            .manifests("odd")
            .join("tags")
            .join(format!("{}.sig", digest.replace(':', "-")))
            .join("current/link")
    };
    fs::copy(link(&signed), link(&unsigned)).unwrap();
    let site = Site::with_config(&[], |config: &mut Config| {
        config.registries = registry.settings();
        config.signatures = signatures(file!("ed25519.pub"), true);
        let text = format!("source = \"{}\"\n{PLAIN}", registry.source(":two"));
        write_file(&config.dir, "odd.toml", text.as_bytes());
    })
    .await;
    let status = wait_for_status(&site, "rejected", |it| it.refusal.is_some()).await;
    let why = status.refusal.unwrap();
    assert!(why.contains("the signature is for another image"), "{why}");
    write_file(
        site.dir.path(),
        "odd.toml",
        format!("source = \"{}\"\n{PLAIN}", registry.source(":one")).as_bytes(),
    );
    site.plugins.rescan().await;
    serving(&site).await;
    site.stop().await;
}

#[tokio::test]
async fn invalid_key_prevents_the_start() {
    let dir = TempDir::new().unwrap();
    let mut config = Config::new(dir.path());
    config.signatures = signatures(b"no key", true);
    let started = config
        .start(&mut Registry::default(), CancellationToken::new())
        .await;
    let error = started.unwrap_err().to_string();
    assert!(
        error.contains("team.pub") && error.contains("PUBLIC KEY"),
        "{error}"
    );
}
