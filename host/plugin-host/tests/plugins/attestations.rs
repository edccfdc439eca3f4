//! Attestations that a registry attaches to an image are shown and do not affect admission.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use oci_client::{Reference, secrets::RegistryAuth};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream};
use transom_plugin_host::{Attestation, Config, PublicKey, Registries, Signatures, State};

use crate::{
    registry::DockerRegistry,
    signatures::sign,
    sources::{CONFIG, LAYER, manifest, push_variant, serving, sha256, site, variant, wait_for_status},
    support::{Server, Site, read_head, write_file},
};

const ENVELOPE: &str = "application/vnd.dsse.envelope.v1+json";

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!("../data/signing/", $name)).as_slice()
    };
}

/// An attestation as `cosign attest --key` makes it.
fn attestation(key: &[u8], image: &str, predicate_type: &str, predicate: &Value) -> Vec<u8> {
    let payload = json!({
        "_type": "https://in-toto.io/Statement/v0.1",
        "subject": [{"name": "team/odd", "digest": {"sha256": image.strip_prefix("sha256:").unwrap()}}],
        "predicateType": predicate_type,
        "predicate": predicate,
    })
    .to_string();
    let kind = "application/vnd.in-toto+json";
    let signed = format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len());
    let signature = BASE64_STANDARD.encode(sign(key, signed.as_bytes()));
    json!({
        "payloadType": kind,
        "payload": BASE64_STANDARD.encode(payload),
        "signatures": [{"keyid": "", "sig": signature}],
    })
    .to_string()
    .into_bytes()
}

/// Attaches layers (media type and content) to an image, as cosign does.
async fn attach(registry: &DockerRegistry, image: &str, kind: &str, layers: &[(&str, Vec<u8>)]) {
    let client = registry.client();
    let tag = format!(":{}.{kind}", image.replace(':', "-"));
    let name = registry.source(&tag).split_off("oci://".len());
    let reference = Reference::try_from(name).unwrap();
    let operation = oci_client::RegistryOperation::Push;
    client
        .auth(&reference, &RegistryAuth::Anonymous, operation)
        .await
        .unwrap();
    let mut descriptors = Vec::new();
    let config = ("application/vnd.oci.image.config.v1+json", b"{}".to_vec());
    for (media_type, content) in std::iter::once(&config).chain(layers) {
        let digest = sha256(content);
        client
            .push_blob(&reference, content.clone(), &digest)
            .await
            .unwrap();
        descriptors.push(json!({"mediaType": media_type, "digest": digest, "size": content.len()}));
    }
    let document = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptors[0],
        "layers": descriptors[1..],
    });
    let kind = http::HeaderValue::from_static("application/vnd.oci.image.manifest.v1+json");
    client
        .push_manifest_raw(&reference, document.to_string().into_bytes(), kind)
        .await
        .unwrap();
}

/// The kinds of attestations, and whether a configured key signed each.
fn kinds(attestations: &[Attestation]) -> Vec<(&str, bool)> {
    attestations
        .iter()
        .map(|it| (it.kind.as_str(), it.signed_by.is_some()))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn provenance_and_sboms_are_shown_at_admission() {
    let registry = DockerRegistry::start().await;
    let image = push_variant(&registry, 1, "latest", Some(file!("p256.key"))).await;
    let provenance = json!({
        "buildDefinition": {"resolvedDependencies": [{"uri": "git+https://example.com/odd"}]},
        "runDetails": {"builder": {"id": "https://example.com/builder"}},
    });
    let packages = json!({"packages": [{"name": "a"}, {"name": "b"}]});
    let slsa = "https://slsa.dev/provenance/v1";
    let spdx = "https://spdx.dev/Document";
    let layers = [
        (
            ENVELOPE,
            attestation(file!("p256.key"), &image, slsa, &provenance),
        ),
        (ENVELOPE, attestation(file!("other.key"), &image, spdx, &packages)),
        // These are left out: the first belongs to another image, the second is not an envelope.
        (
            ENVELOPE,
            attestation(file!("p256.key"), &sha256(b"other"), slsa, &provenance),
        ),
        (ENVELOPE, b"{}".to_vec()),
    ];
    attach(&registry, &image, "att", &layers).await;
    let cyclonedx = (
        "application/vnd.cyclonedx+json",
        br#"{"components": [{}]}"#.to_vec(),
    );
    attach(&registry, &image, "sbom", &[cyclonedx]).await;

    let text = manifest(&registry.source(":latest"), "");
    let settings = registry.settings();
    let site = Site::with_config(&[], |config: &mut Config| {
        config.registries = settings;
        let pem = file!("p256.pub").to_vec();
        config.signatures = Signatures {
            keys: vec![PublicKey {
                name: "team.pub".to_owned(),
                pem,
            }],
            required: true,
        };
        write_file(&config.dir, "odd.toml", text.as_bytes());
    })
    .await;
    let status = serving(&site).await;
    assert_eq!(
        kinds(&status.attestations),
        [
            (slsa, true),
            (spdx, false),
            ("application/vnd.cyclonedx+json", false)
        ]
    );
    let built = &status.attestations[0];
    assert_eq!(built.builder.as_deref(), Some("https://example.com/builder"));
    assert_eq!(built.source.as_deref(), Some("git+https://example.com/odd"));
    assert_eq!(status.attestations[1].packages, Some(2));
    assert_eq!(status.attestations[2].packages, Some(1));
    let (records, _) = site.plugins.history("odd");
    assert_eq!(records[0].attestations, status.attestations);

    // The next image has no attestations.
    let next = push_variant(&registry, 2, "latest", Some(file!("p256.key"))).await;
    site.plugins.rescan().await;
    let status = wait_for_status(&site, "the next image", |it| {
        it.source
            .as_ref()
            .is_some_and(|it| it.digest.as_ref() == Some(&next))
            && it.digest == Some(sha256(&variant(2)))
    })
    .await;
    assert_eq!(status.attestations, []);
    site.stop().await;
}

/// A registry that does not answer a request for attestations only delays the admission.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registry_that_withholds_attestations_does_not_prevent_an_admission() {
    let component = variant(7);
    let document = json!({
        "schemaVersion": 2,
        "config": {"mediaType": CONFIG, "digest": sha256(b"{}"), "size": 2},
        "layers": [{"mediaType": LAYER, "digest": sha256(&component), "size": component.len()}],
    })
    .to_string();
    let server = Server::new(move |mut stream: TcpStream| {
        let (document, component) = (document.clone(), component.clone());
        async move {
            let head = read_head(&mut stream).await;
            if head.contains(".att ") {
                std::future::pending::<()>().await;
            }
            let body = if head.contains("/blobs/") {
                component
            } else {
                document.into_bytes()
            };
            let length = body.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            // The peer may have closed the connection.
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(&body).await;
        }
    })
    .await;
    let address = format!("127.0.0.1:{}", server.endpoint.port);
    let settings = Registries {
        plain_http: vec![address.clone()],
        idle_timeout: Duration::from_secs(2),
        ..Registries::default()
    };
    let site = site(&manifest(&format!("oci://{address}/team/odd:v1"), ""), settings).await;
    let status = serving(&site).await;
    assert_eq!((status.state, status.attestations), (State::Serving, Vec::new()));
    site.stop().await;
}
