//! Components from a real registry.

use std::{fs, path::Path, time::Duration};

use oci_client::{Reference, secrets::RegistryAuth};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use transom_plugin_host::{Change, Config, FetchStatus, Registries, State, Status, probe::Kind};
use transom_plugin_tools::Push;

use crate::{
    registry::{DockerRegistry, Setup},
    support::{Site, TIMEOUT, component, custom, logged, request, write_file},
};

pub(crate) const CONFIG: &str = "application/vnd.wasm.config.v0+json";
pub(crate) const LAYER: &str = "application/wasm";

pub(crate) fn manifest(source: &str, more: &str) -> String {
    format!(
        "world = \"check-probe\"\nsource = \"{source}\"\n{more}\n[limits]\nmemory = \"16MiB\"\ncpu = \"2s\"\n[config]\nmark = \"v1\"\n"
    )
}

/// The component with another digest and the same behaviour: a custom section is appended.
pub(crate) fn variant(mark: u8) -> Vec<u8> {
    let mut bytes = fs::read(component("tests/faulty-probe")).unwrap();
    bytes.extend([0, 2, 1, mark]);
    bytes
}

pub(crate) async fn push_variant(
    registry: &DockerRegistry,
    mark: u8,
    tag: &str,
    key: Option<&[u8]>,
) -> String {
    let push = Push {
        component: variant(mark),
        key: key.map(<[u8]>::to_vec),
        ..Push::default()
    };
    let destination = registry.source(&format!(":{tag}"));
    let pushed = push.to(&destination, &registry.settings()).await.unwrap();
    pushed.split_once('@').unwrap().1.to_owned()
}

/// A host with one plugin, `odd`, from a registry.
pub(crate) async fn site(manifest: &str, settings: Registries) -> Site {
    Site::with_config(&[], |config: &mut Config| {
        config.registries = settings;
        write_file(&config.dir, "odd.toml", manifest.as_bytes());
    })
    .await
}

/// Waits until the plugin's status satisfies `holds`.
pub(crate) async fn wait_for_status(site: &Site, what: &str, holds: impl Fn(&Status) -> bool) -> Status {
    let wait = async {
        loop {
            let list = site.plugins.list();
            if let Some(status) = list.into_iter().find(|it| it.name == "odd" && holds(it)) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let found = tokio::time::timeout(TIMEOUT, wait).await;
    found.unwrap_or_else(|_| panic!("{what}: {:?}", site.plugins.list()))
}

/// Waits until the plugin serves and its admission record exists, which is added afterwards.
pub(crate) async fn serving(site: &Site) -> Status {
    let recorded = || !site.plugins.history("odd").0.is_empty();
    wait_for_status(site, "it serves", |it| it.state == State::Serving && recorded()).await
}

pub(crate) async fn rejected(site: &Site) -> String {
    let status = wait_for_status(site, "it is rejected", |it| it.refusal.is_some()).await;
    status.refusal.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_is_pulled_by_tag_and_by_digest() {
    let registry = DockerRegistry::start().await;
    let digest = registry.push("tests/faulty-probe", "v1").await;
    for version in [":v1".to_owned(), format!("@{digest}"), format!(":v0@{digest}")] {
        let source = registry.source(&version);
        let site = site(&manifest(&source, ""), registry.settings()).await;
        let status = serving(&site).await;
        assert_eq!(
            site.probe("odd", "{}", None).await,
            Ok(custom(r#"{"mark": "v1", "attempt": 1}"#))
        );
        let from = status.source.unwrap();
        assert_eq!(
            (from.reference.as_str(), from.digest.as_deref(), from.state),
            (source.as_str(), Some(digest.as_str()), FetchStatus::Current)
        );
        let (records, _) = site.plugins.history("odd");
        let at = if source.contains('@') {
            source.clone()
        } else {
            format!("{source}@{digest}")
        };
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].source.as_deref(), Some(at.as_str()));
        assert_eq!(records[0].signed_by, None, "no key is configured");
        let first = site.metric("transom_plugins_fetches_total{plugin=\"odd\",result=\"done\"}");
        assert_eq!(first, 1);
        // A change of the manifest alone makes another version of the same component, which is not
        // fetched again.
        let change = site
            .change_files(|| {
                write_file(
                    site.dir.path(),
                    "odd.toml",
                    manifest(&source, "# more").as_bytes(),
                );
            })
            .await;
        assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
        let change = site
            .change_files(|| fs::remove_file(site.dir.path().join("odd.toml")).unwrap())
            .await;
        assert!(matches!(change, Change::Removed { .. }), "{change:?}");
        assert!(site.plugins.list().is_empty());
        site.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_tag_swaps_the_version_without_a_failed_call() {
    let registry = DockerRegistry::start().await;
    push_variant(&registry, 1, "latest", None).await;
    let settings = Registries {
        refresh: Duration::from_millis(200),
        ..registry.settings()
    };
    let site = site(&manifest(&registry.source(":latest"), ""), settings).await;
    serving(&site).await;
    let stop = CancellationToken::new();
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (plugins, stop) = (site.plugins.clone(), stop.clone());
            tokio::spawn(async move {
                let mut calls = 0_u32;
                while !stop.is_cancelled() {
                    let answer = plugins
                        .probe(Kind::Named("odd".into()), request(None), None)
                        .await;
                    assert!(answer.is_ok(), "{answer:?}");
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    for mark in 2..5 {
        let image = push_variant(&registry, mark, "latest", None).await;
        let digest = Some(sha256(&variant(mark)));
        let now = wait_for_status(&site, "it was swapped", |it| it.digest == digest).await;
        assert_eq!(now.state, State::Serving);
        assert_eq!(now.source.unwrap().digest, Some(image));
    }
    stop.cancel();
    for caller in callers {
        assert!(caller.await.unwrap() > 0);
    }
    let (records, _) = site.plugins.history("odd");
    assert_eq!(records.len(), 4);
    let sources: std::collections::BTreeSet<_> = records.iter().map(|it| &it.source).collect();
    assert_eq!(sources.len(), 4, "each record names its image");
    site.stop().await;
}

/// Pushes an image after `change` has altered its manifest, as any client may do.
async fn push_odd(registry: &DockerRegistry, tag: &str, change: impl FnOnce(&mut Value)) {
    let client = registry.client();
    let name = registry.source(&format!(":{tag}")).split_off("oci://".len());
    let reference = Reference::try_from(name).unwrap();
    client
        .auth(
            &reference,
            &RegistryAuth::Anonymous,
            oci_client::RegistryOperation::Push,
        )
        .await
        .unwrap();
    let mut blobs = Vec::new();
    for content in [b"{}".to_vec(), variant(9)] {
        let digest = sha256(&content);
        client
            .push_blob(&reference, content.clone(), &digest)
            .await
            .unwrap();
        blobs.push((digest, content.len()));
    }
    let mut document = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": CONFIG, "digest": blobs[0].0, "size": blobs[0].1},
        "layers": [{"mediaType": LAYER, "digest": blobs[1].0, "size": blobs[1].1}],
    });
    change(&mut document);
    let kind = http::HeaderValue::from_static("application/vnd.oci.image.manifest.v1+json");
    client
        .push_manifest_raw(&reference, document.to_string().into_bytes(), kind)
        .await
        .unwrap();
}

pub(crate) fn sha256(content: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    format!("sha256:{:x}", Sha256::digest(content))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsupported_images_are_rejected_with_the_reason() {
    let registry = DockerRegistry::start().await;
    let digest = registry.push("tests/faulty-probe", "good").await;
    push_odd(&registry, "config", |it| {
        it["config"]["mediaType"] = json!("application/vnd.oci.image.config.v1+json");
    })
    .await;
    push_odd(&registry, "layer", |it| {
        it["layers"][0]["mediaType"] = json!("application/vnd.oci.image.layer.v1.tar+gzip");
    })
    .await;
    push_odd(&registry, "two", |it| {
        let layer = it["layers"][0].clone();
        it["layers"].as_array_mut().unwrap().push(layer);
    })
    .await;
    // The registry does not verify the size in the manifest.
    push_odd(&registry, "small", |it| it["layers"][0]["size"] = json!(100)).await;
    let unknown = format!("@sha256:{}", "0".repeat(64));
    let pin = format!("digest = \"sha256:{}\"", "0".repeat(64));
    let good = component("tests/faulty-probe");
    let length = fs::metadata(&good).unwrap().len();
    for (version, more, expected) in [
        (
            ":config",
            "",
            "its configuration is of type application/vnd.oci.image.config.v1+json",
        ),
        (
            ":layer",
            "",
            "its layer is of type application/vnd.oci.image.layer.v1.tar+gzip",
        ),
        (":two", "", "it has 2 layers"),
        (":small", "", "the component from"),
        (":none", "", "not found on"),
        (unknown.as_str(), "", "not found on"),
        (&format!(":none@{digest}"), &pin, "which the manifest pins"),
        (
            ":good",
            "limits.size = 1000",
            &format!("the component has {length} bytes, at most 1000 are allowed"),
        ),
    ] {
        let source = registry.source(version);
        let text = format!("world = \"check-probe\"\nsource = \"{source}\"\n{more}\n");
        let site = site(&text, registry.settings()).await;
        let why = rejected(&site).await;
        assert!(
            why.contains(expected) && why.contains(&source),
            "{version}: {why}"
        );
        let status = site.status("odd");
        assert_eq!((status.state, status.world), (State::Rejected, None));
        let (records, _) = site.plugins.history("odd");
        assert_eq!(records[0].reason.as_deref(), Some(why.as_str()));
        // An unchanged rejection adds no record.
        site.plugins.rescan().await;
        wait_for_status(&site, "asked again", |_| {
            site.metric("transom_plugins_fetches_total{plugin=\"odd\",result=\"failed\"}") > 1
        })
        .await;
        site.plugins.rescan().await;
        assert_eq!(site.plugins.history("odd").0.len(), 1, "{version}");
        site.stop().await;
    }

    // A component file together with a `source` is ambiguous, so that it is rejected. The previous
    // version still serves.
    let site = site(&manifest(&registry.source(":good"), ""), registry.settings()).await;
    serving(&site).await;
    let change = site
        .change_files(|| write_file(site.dir.path(), "odd.wasm", &fs::read(&good).unwrap()))
        .await;
    let Change::Rejected { reason, .. } = &change else {
        panic!("{change:?}")
    };
    assert!(reason.contains("both odd.wasm and a `source`"), "{reason}");
    assert!(site.probe("odd", "{}", None).await.is_ok());
    fs::remove_file(site.dir.path().join("odd.wasm")).unwrap();
    site.plugins.rescan().await;
    wait_for_status(&site, "fetched again", |it| {
        it.refusal.is_none() && it.source.is_some()
    })
    .await;
    // An unreadable manifest is rejected with the reason, although there is no component file.
    let change = site
        .change_files(|| write_file(site.dir.path(), "odd.toml", b"source = "))
        .await;
    assert!(matches!(change, Change::Rejected { .. }), "{change:?}");
    assert!(site.probe("odd", "{}", None).await.is_ok());
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_blob_in_the_registry_is_rejected() {
    let registry = DockerRegistry::start().await;
    let digest = registry.push("tests/faulty-probe", "v1").await;
    let whole = fs::read(component("tests/faulty-probe")).unwrap();
    let component = registry.blob(&sha256(&whole));
    let mut spoilt = whole.clone();
    spoilt[whole.len() / 2] ^= 1;
    fs::write(&component, &spoilt).unwrap();
    let tagged = site(&manifest(&registry.source(":v1"), ""), registry.settings()).await;
    let why = rejected(&tagged).await;
    assert!(why.contains("the component has the digest sha256:"), "{why}");
    fs::write(&component, &whole).unwrap();
    tagged.plugins.rescan().await;
    serving(&tagged).await;
    tagged.stop().await;

    // The same with a changed image manifest, whose digest the source pins.
    let file = registry.blob(&digest);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("faulty-probe", "faulty-prube")).unwrap();
    let source = registry.source(&format!("@{digest}"));
    let pinned = site(&manifest(&source, ""), registry.settings()).await;
    let why = rejected(&pinned).await;
    assert!(
        why.contains("image manifest has the digest") || why.contains("unexpected status"),
        "{why}"
    );
    pinned.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unavailable_registry_keeps_the_serving_version() {
    let mut registry = DockerRegistry::start().await;
    push_variant(&registry, 1, "latest", None).await;
    // The daemon may fetch the tag between the registry's restart and the push, so tags are fetched
    // again after a short interval.
    let settings = Registries {
        refresh: Duration::from_secs(2),
        ..registry.settings()
    };
    let with_settings = |config: &mut Config| config.registries = settings.clone();
    let site = site(&manifest(&registry.source(":latest"), ""), settings.clone()).await;
    let first = serving(&site).await;
    registry.stop();
    site.plugins.rescan().await;
    let status = wait_for_status(&site, "it says so", |it| {
        it.source
            .as_ref()
            .is_some_and(|it| it.state == FetchStatus::Failed)
    })
    .await;
    let source_error = status.source.unwrap().error.unwrap();
    // A connection of the previous pull may still have been open and be closed during this one.
    let why = ["refused", "closed", "reset"]
        .iter()
        .any(|it| source_error.contains(it));
    assert!(source_error.contains("cannot reach") && why, "{source_error}");
    assert_eq!((status.state, status.refusal), (State::Serving, None));
    assert!(site.probe("odd", "{}", None).await.is_ok());

    // The host starts while the registry is unavailable.
    let site = site.restart(|_| (), with_settings).await;
    let status = site.status("odd");
    assert_eq!(
        (status.state, &status.digest),
        (State::Serving, &first.digest),
        "the fetched version serves immediately"
    );
    let asked = |it: &Status| it.source.as_ref().is_some_and(|it| it.error.is_some());
    wait_for_status(&site, "it says so", asked).await;
    assert!(logged(&[
        &registry.address.to_string(),
        "keeping the fetched one"
    ]));
    assert!(site.probe("odd", "{}", None).await.is_ok());

    // The registry returns with a new image, which is fetched without a command.
    registry.restart().await;
    push_variant(&registry, 2, "latest", None).await;
    wait_for_status(&site, "the new one serves", |it| it.digest != first.digest).await;

    // A stored file that has changed on the disk is not trusted.
    registry.stop();
    let spoil = |dir: &Path| {
        for entry in fs::read_dir(dir.join(".transom/components")).unwrap() {
            let path = entry.unwrap().path();
            let mut content = fs::read(&path).unwrap();
            *content.last_mut().unwrap() ^= 1;
            fs::write(&path, content).unwrap();
        }
    };
    let site = site.restart(spoil, with_settings).await;
    let why = rejected(&site).await;
    assert!(why.contains("cannot reach"), "{why}");
    assert!(site.probe("odd", "{}", None).await.is_err());
    registry.restart().await;
    serving(&site).await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn password_authenticates_to_its_registry() {
    let users = Setup {
        users: true,
        tls: None,
    };
    let registry = DockerRegistry::with(users).await;
    let with = |password: &str| Registries {
        logins: vec![registry.login(password)],
        ..registry.settings()
    };
    let right = with("correct horse");
    registry.push_with("tests/faulty-probe", "v1", None, &right).await;
    let text = manifest(&registry.source(":v1"), "");
    for wrong in [with("battery staple"), registry.settings()] {
        let site = site(&text, wrong).await;
        let why = rejected(&site).await;
        assert!(why.contains("denies access"), "{why}");
        assert!(!why.contains("battery"), "{why}");
        site.stop().await;
    }
    assert!(!logged(&["battery staple"]));
    let site = site(&text, right).await;
    serving(&site).await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_http_needs_a_setting() {
    let registry = DockerRegistry::start().await;
    registry.push("tests/faulty-probe", "v1").await;
    let text = manifest(&registry.source(":v1"), "");
    let site = site(&text, Registries::default()).await;
    let why = rejected(&site).await;
    assert!(
        why.contains("cannot reach"),
        "this also applies to loopback: {why}"
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn custom_authority_needs_a_setting() {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap()
        .pem();
    let registry = DockerRegistry::with(Setup {
        users: false,
        tls: Some((certificate.clone(), key.serialize_pem())),
    })
    .await;
    let secure = Registries {
        plain_http: Vec::new(),
        authorities: certificate.into_bytes(),
        ..registry.settings()
    };
    registry
        .push_with("tests/faulty-probe", "v1", None, &secure)
        .await;
    let text = manifest(&registry.source(":v1"), "");
    let unknown = Registries {
        authorities: Vec::new(),
        ..secure.clone()
    };
    let stranger = site(&text, unknown).await;
    let why = rejected(&stranger).await;
    assert!(why.contains("certificate"), "{why}");
    stranger.stop().await;
    let site = site(&text, secure).await;
    serving(&site).await;
    site.stop().await;

    let dir = TempDir::new().unwrap();
    let mut config = Config::new(dir.path());
    config.registries.authorities =
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec();
    let started = config
        .start(
            &mut prometheus_client::registry::Registry::default(),
            CancellationToken::new(),
        )
        .await;
    let error = started.unwrap_err().to_string();
    assert!(error.contains("authority for registries"), "{error}");
}

/// A component fetched by digest stays available, with or without the registry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_digest_is_fetched_once() {
    let mut registry = DockerRegistry::start().await;
    let digest = registry.push("tests/faulty-probe", "v1").await;
    let settings = registry.settings();
    let with_settings = |config: &mut Config| config.registries = settings.clone();
    let source = registry.source(&format!("@{digest}"));
    let site = site(&manifest(&source, ""), settings.clone()).await;
    serving(&site).await;
    registry.stop();
    let site = site.restart(|_| (), with_settings).await;
    let status = site.status("odd");
    let from = status.source.unwrap();
    assert_eq!(
        (status.state, from.state, from.error),
        (State::Serving, FetchStatus::Current, None)
    );
    // The digest is not fetched again after a change of the manifest. A source with a tag is
    // resolved again, which fails now.
    let tagged = registry.source(&format!(":v9@{digest}"));
    let change = site
        .change_files(|| {
            write_file(
                site.dir.path(),
                "odd.toml",
                manifest(&source, "# more").as_bytes(),
            );
        })
        .await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    write_file(site.dir.path(), "odd.toml", manifest(&tagged, "").as_bytes());
    site.plugins.rescan().await;
    let why = rejected(&site).await;
    assert!(why.contains("cannot reach"), "another source is fetched: {why}");
    assert!(
        site.probe("odd", "{}", None).await.is_ok(),
        "the previous version still serves"
    );
    registry.restart().await;
    wait_for_status(&site, "the component is admitted at a later attempt", |it| {
        it.refusal.is_none()
    })
    .await;
    site.stop().await;
}

/// If a tag has moved to an image that is rejected, a restarted daemon still starts with the
/// previous image.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn daemon_starts_with_the_last_admitted_image() {
    let registry = DockerRegistry::start().await;
    push_variant(&registry, 1, "latest", None).await;
    let settings = registry.settings();
    let with_settings = |config: &mut Config| config.registries = settings.clone();
    let site = site(&manifest(&registry.source(":latest"), ""), settings.clone()).await;
    let first = serving(&site).await;
    let push = Push {
        component: b"\0asm\x0d\0\x01\0".to_vec(),
        ..Push::default()
    };
    push.to(&registry.source(":latest"), &settings).await.unwrap();
    site.plugins.rescan().await;
    let why = rejected(&site).await;
    assert!(why.contains("does not export"), "{why}");
    let site = site.restart(|_| (), with_settings).await;
    let status = site.status("odd");
    assert_eq!((status.state, &status.digest), (State::Serving, &first.digest));
    rejected(&site).await;
    assert!(site.probe("odd", "{}", None).await.is_ok());
    site.stop().await;
}
