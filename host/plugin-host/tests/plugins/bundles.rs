//! Sigstore bundles that refer to an image: signatures by key are verified, other bundles are
//! shown.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use oci_client::{Reference, secrets::RegistryAuth};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream};
use transom_plugin_host::{Config, PublicKey, Registries, Signatures, State};

use crate::{
    registry::DockerRegistry,
    signatures::sign,
    sources::{CONFIG, LAYER, manifest, push_variant, rejected, serving, sha256, variant, wait_for_status},
    support::{Server, Site, read_head, write_file},
};

const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The predicate type of a signature.
const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";
const SLSA: &str = "https://slsa.dev/provenance/v1";

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!("../data/signing/", $name)).as_slice()
    };
}

/// A bundle as cosign 3 makes it with a key.
fn bundle(key: &[u8], image: &str, predicate_type: &str) -> Value {
    let payload = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "", "digest": {"sha256": image.strip_prefix("sha256:").unwrap()}}],
        "predicateType": predicate_type,
        "predicate": {"runDetails": {"builder": {"id": "https://example.com/builder"}}},
    })
    .to_string();
    let kind = "application/vnd.in-toto+json";
    let signed = format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len());
    let signature = BASE64_STANDARD.encode(sign(key, signed.as_bytes()));
    json!({
        "mediaType": BUNDLE,
        "verificationMaterial": {"publicKey": {"hint": "key"}, "tlogEntries": [{"logIndex": "1"}]},
        "dsseEnvelope": {
            "payload": BASE64_STANDARD.encode(payload),
            "payloadType": kind,
            "signatures": [{"sig": signature}],
        },
    })
}

/// The manifest of an artefact that holds a bundle and refers to an image.
fn artefact(image: &str, media_type: &str, content: &[u8]) -> Vec<u8> {
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": BUNDLE,
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": sha256(b"{}"), "size": 2},
        "layers": [{"mediaType": media_type, "digest": sha256(content), "size": content.len()}],
        "subject": {"mediaType": MANIFEST, "digest": image, "size": 2},
    })
    .to_string()
    .into_bytes()
}

/// A list of referrers, the oldest first.
fn index(manifests: &[Vec<u8>]) -> Vec<u8> {
    let entries = manifests.iter().enumerate().map(|(minute, it)| {
        json!({
            "mediaType": MANIFEST, "digest": sha256(it), "size": it.len(), "artifactType": BUNDLE,
            "annotations": {"org.opencontainers.image.created": format!("2026-11-20T10:{minute:02}:00Z")},
        })
    });
    json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries.collect::<Vec<_>>()})
        .to_string()
        .into_bytes()
}

/// A plugin host that requires a signature by `p256.key`.
async fn trusting(registries: Registries, text: String) -> Site {
    Site::with_config(&[], |config: &mut Config| {
        config.registries = registries;
        config.signatures = Signatures {
            keys: vec![PublicKey {
                name: "team.pub".to_owned(),
                pem: file!("p256.pub").to_vec(),
            }],
            required: true,
        };
        write_file(&config.dir, "odd.toml", text.as_bytes());
    })
    .await
}

/// Pushes bundles and their index, as cosign does if the registry has no referrers API.
async fn attach(registry: &DockerRegistry, image: &str, bundles: &[Value]) {
    let client = registry.client();
    let at = |version: &str| Reference::try_from(registry.source(version).split_off("oci://".len())).unwrap();
    let tag = at(&format!(":{}", image.replace(':', "-")));
    client
        .auth(
            &tag,
            &RegistryAuth::Anonymous,
            oci_client::RegistryOperation::Push,
        )
        .await
        .unwrap();
    client
        .push_blob(&tag, b"{}".to_vec(), &sha256(b"{}"))
        .await
        .unwrap();
    let mut manifests = Vec::new();
    for bundle in bundles {
        let content = bundle.to_string().into_bytes();
        client
            .push_blob(&tag, content.clone(), &sha256(&content))
            .await
            .unwrap();
        let manifest = artefact(image, BUNDLE, &content);
        let kind = http::HeaderValue::from_static(MANIFEST);
        client
            .push_manifest_raw(&at(&format!("@{}", sha256(&manifest))), manifest.clone(), kind)
            .await
            .unwrap();
        manifests.push(manifest);
    }
    let kind = http::HeaderValue::from_static(INDEX);
    client
        .push_manifest_raw(&tag, index(&manifests), kind)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bundles_under_the_fallback_tag_are_verified_and_shown() {
    let registry = DockerRegistry::start().await;
    let image = push_variant(&registry, 1, "latest", None).await;
    attach(
        &registry,
        &image,
        &[
            bundle(file!("other.key"), &image, SIGNED),
            bundle(file!("p256.key"), &image, SIGNED),
            bundle(file!("p256.key"), &image, SLSA),
        ],
    )
    .await;
    let site = trusting(registry.settings(), manifest(&registry.source(":latest"), "")).await;
    let status = serving(&site).await;
    let (records, _) = site.plugins.history("odd");
    let signer = records[0].signed_by.as_deref().unwrap();
    assert!(signer.starts_with("team.pub (sha256:"), "{signer}");
    // The bundle of another key is shown as not verified. The valid one is shown as the component's
    // signature.
    let attestations: Vec<(&str, bool)> = status
        .attestations
        .iter()
        .map(|it| (it.kind.as_str(), it.signed_by.is_some()))
        .collect();
    assert_eq!(attestations, [(SIGNED, false), (SLSA, true)]);
    let built = &status.attestations[1];
    assert_eq!(built.builder.as_deref(), Some("https://example.com/builder"));
    assert_eq!(built.not_verified, ["transparency log"]);

    // A signature is only valid for its own image.
    let next = push_variant(&registry, 2, "latest", None).await;
    attach(&registry, &next, &[bundle(file!("p256.key"), &image, SIGNED)]).await;
    site.plugins.rescan().await;
    let status = wait_for_status(&site, "the rejection", |it| it.refusal.is_some()).await;
    let rejection = status.refusal.unwrap();
    assert!(
        rejection.contains("the signature is for another image"),
        "{rejection}"
    );
    assert_eq!(status.state, State::Serving);
    site.stop().await;
}

/// A test server that implements the referrers API: it answers by path.
struct Referrers {
    server: Server,
    image: String,
    /// The requested paths of lists, without the part up to the repository.
    lists: Arc<Mutex<Vec<String>>>,
}

/// A page of a list: the index of its first referrer, the number of referrers, and its link to the
/// next page.
type Page = (usize, usize, String);
/// The pages of a list of referrers of an image.
type Pages = Box<dyn FnOnce(&str) -> Vec<Page>>;

impl Referrers {
    /// Starts a server. `files` returns, for each referrer, its manifest and the content that is
    /// sent for its layer.
    async fn start(files: impl FnOnce(&str) -> Vec<(Vec<u8>, Vec<u8>)>) -> Referrers {
        Referrers::in_pages(files, |_| Vec::new()).await
    }

    /// Starts a server whose list has these pages. `pages` receives the digest of the image. The
    /// first page is at the path of the API, the others are at `?page=1` and so on. A page without
    /// referrers is invalid JSON.
    async fn in_pages(
        files: impl FnOnce(&str) -> Vec<(Vec<u8>, Vec<u8>)>,
        pages: impl FnOnce(&str) -> Vec<Page>,
    ) -> Referrers {
        let component = variant(7);
        let document = json!({
            "schemaVersion": 2,
            "config": {"mediaType": CONFIG, "digest": sha256(b"{}"), "size": 2},
            "layers": [{"mediaType": LAYER, "digest": sha256(&component), "size": component.len()}],
        })
        .to_string()
        .into_bytes();
        let image = sha256(&document);
        let mut answers = BTreeMap::from([
            ("manifests/v1".to_owned(), document.clone()),
            (format!("manifests/{image}"), document),
            (format!("blobs/{}", sha256(&component)), component),
        ]);
        let mut manifests = Vec::new();
        for (manifest, content) in files(&image) {
            let layer = serde_json::from_slice::<Value>(&manifest).unwrap()["layers"][0]["digest"].clone();
            answers.insert(format!("blobs/{}", layer.as_str().unwrap()), content);
            answers.insert(format!("manifests/{}", sha256(&manifest)), manifest.clone());
            manifests.push(manifest);
        }
        let path = format!("referrers/{image}");
        answers.insert(path.clone(), index(&manifests));
        let mut links = BTreeMap::new();
        for (number, (from, count, link)) in pages(&image).into_iter().enumerate() {
            let page = match number {
                0 => path.clone(),
                number => format!("{path}?page={number}"),
            };
            let list = match count {
                0 => b"[".to_vec(),
                count => index(&manifests[from..from + count]),
            };
            answers.insert(page.clone(), list);
            links.insert(page, link);
        }
        let (answers, links) = (Arc::new(answers), Arc::new(links));
        let lists = Arc::<Mutex<Vec<String>>>::default();
        let list_requests = Arc::clone(&lists);
        let server = Server::new(move |mut stream: TcpStream| {
            let (answers, links, list_requests) = (
                Arc::clone(&answers),
                Arc::clone(&links),
                Arc::clone(&list_requests),
            );
            async move {
                let head = read_head(&mut stream).await;
                let path = head.split(' ').nth(1).unwrap_or_default();
                let end = path.strip_prefix("/v2/team/odd/").unwrap_or(path);
                if end.starts_with("referrers/") {
                    list_requests.lock().unwrap().push(end.to_owned());
                }
                let (status, body) = match answers.get(end) {
                    Some(body) => ("200 OK", body.as_slice()),
                    None => ("404 Not Found", b"{}".as_slice()),
                };
                let link = links
                    .get(end)
                    .map(|link| format!("Link: {link}\r\n"))
                    .unwrap_or_default();
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\n{link}Content-Length: {length}\r\nConnection: close\r\n\r\n"
                );
                // The peer may have closed the connection.
                let _ = stream.write_all(head.as_bytes()).await;
                let _ = stream.write_all(body).await;
            }
        })
        .await;
        Referrers { server, image, lists }
    }

    async fn site(&self) -> Site {
        let address = format!("127.0.0.1:{}", self.server.endpoint.port);
        let settings = Registries {
            plain_http: vec![address.clone()],
            idle_timeout: Duration::from_secs(5),
            ..Registries::default()
        };
        trusting(settings, manifest(&format!("oci://{address}/team/odd:v1"), "")).await
    }
}

fn manifest_and_content(image: &str, content: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    (artefact(image, BUNDLE, &content), content)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusable_bundles_are_skipped_and_a_valid_one_is_found() {
    let referrers = Referrers::start(|image| {
        let good = bundle(file!("p256.key"), image, SIGNED).to_string().into_bytes();
        let mut huge = good.clone();
        huge.resize(5 << 20, b' ');
        let another = bundle(file!("p256.key"), image, SIGNED).to_string().into_bytes();
        let mut cut = manifest_and_content(image, another);
        cut.1.truncate(100);
        vec![
            manifest_and_content(image, good[..good.len() / 2].to_vec()),
            cut,
            manifest_and_content(image, huge),
            (artefact(image, "application/json", &good), good.clone()),
            (artefact(&sha256(b"another"), BUNDLE, &good), good.clone()),
            manifest_and_content(image, b"\xff\xfe".to_vec()),
            manifest_and_content(image, good),
        ]
    })
    .await;
    let site = referrers.site().await;
    let status = serving(&site).await;
    assert_eq!(
        status.source.and_then(|it| it.digest),
        Some(referrers.image.clone())
    );
    assert_eq!(status.attestations, []);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn component_without_a_bundle_signed_by_a_configured_key_is_rejected() {
    for (name, content, expected) in [
        (
            "another key",
            Some((file!("other.key"), SIGNED)),
            "none of the configured keys signed it",
        ),
        // An attestation is not a signature.
        (
            "attestation",
            Some((file!("p256.key"), SLSA)),
            "the registry has no signature",
        ),
        ("none", None, "the registry has no signature"),
    ] {
        let referrers = Referrers::start(|image| {
            let bundles = content.map(|(key, kind)| bundle(key, image, kind).to_string().into_bytes());
            bundles
                .map(|it| manifest_and_content(image, it))
                .into_iter()
                .collect()
        })
        .await;
        let site = referrers.site().await;
        let rejection = rejected(&site).await;
        assert!(rejection.contains(expected), "{name}: {rejection}");
        site.stop().await;
    }
}

/// Two referrers of an image: a bundle of another key, followed by a valid one.
fn other_and_good(image: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let content = |key| bundle(key, image, SIGNED).to_string().into_bytes();
    vec![
        manifest_and_content(image, content(file!("other.key"))),
        manifest_and_content(image, content(file!("p256.key"))),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signature_on_a_later_page_of_referrers_is_found() {
    let referrers = Referrers::in_pages(other_and_good, |image| {
        vec![
            // The first link is relative to the page, the second one to the registry.
            (0, 1, "<?page=1>; rel=\"next\"".to_owned()),
            (
                0,
                1,
                format!("<https://r.test/>; rel=prev, </v2/team/odd/referrers/{image}?page=2>; rel=next"),
            ),
            (1, 1, String::new()),
        ]
    })
    .await;
    let site = referrers.site().await;
    serving(&site).await;
    let path = format!("referrers/{}", referrers.image);
    let expected = [path.clone(), format!("{path}?page=1"), format!("{path}?page=2")];
    assert_eq!(referrers.lists.lock().unwrap()[..3], expected);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_of_referrers_ends_at_an_unusable_page() {
    // Another registry, which the source does not name, has the valid signature.
    let other = Referrers::start(other_and_good).await;
    let elsewhere = format!(
        "<http://127.0.0.1:{}/v2/team/odd/referrers/{}>; rel=next",
        other.server.endpoint.port, other.image
    );
    let next =
        |page: usize| move |image: &str| format!("</v2/team/odd/referrers/{image}?page={page}>; rel=next");
    let itself = |image: &str| format!("</v2/team/odd/referrers/{image}>; rel=next");
    let cases: Vec<(&str, Pages, usize)> = vec![
        ("another host", Box::new(move |_| vec![(0, 1, elsewhere)]), 1),
        ("itself", Box::new(move |image| vec![(0, 1, itself(image))]), 1),
        (
            "a circle",
            Box::new(move |image| vec![(0, 1, next(1)(image)), (0, 1, itself(image))]),
            2,
        ),
        (
            "a missing page",
            Box::new(move |image| vec![(0, 1, next(1)(image))]),
            2,
        ),
        (
            "an invalid page",
            Box::new(move |image| vec![(0, 1, next(1)(image)), (0, 0, String::new())]),
            2,
        ),
        (
            "too many pages",
            Box::new(move |image| {
                let mut pages: Vec<Page> = (1..=100).map(|page| (0, 1, next(page)(image))).collect();
                pages.push((1, 1, String::new()));
                pages
            }),
            32,
        ),
    ];
    for (name, pages, list_requests) in cases {
        let referrers = Referrers::in_pages(other_and_good, pages).await;
        let site = referrers.site().await;
        let rejection = rejected(&site).await;
        assert!(
            rejection.contains("none of the configured keys signed it"),
            "{name}: {rejection}"
        );
        let lists = referrers.lists.lock().unwrap().clone();
        let rounds = lists.iter().filter(|path| !path.contains('?')).count();
        assert_eq!(lists.len(), list_requests * rounds, "{name}: {lists:?}");
        site.stop().await;
    }
    assert_eq!(other.lists.lock().unwrap().len(), 0);
}
