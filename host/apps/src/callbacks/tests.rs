//! Which destinations are allowed. Deliveries are tested over HTTP, with the API.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::net::IpAddr;

use async_trait::async_trait;
use transom_registry::network::{LookupError, Reserved, Resolver};

use super::*;
use crate::settings::destinations;

struct Names;

#[async_trait]
impl Resolver for Names {
    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, LookupError> {
        let texts: &[&str] = match host {
            "hooks.test" => &["10.0.0.7"],
            "both.test" => &["10.0.0.8", "192.0.2.8"],
            "inside.test" => &["127.0.0.1"],
            "metadata.test" => &["169.254.169.254"],
            "localhost" => &["127.0.0.1", "::1"],
            _ => return Err(LookupError::Unresolved),
        };
        Ok(texts.iter().map(|text| text.parse().unwrap()).collect())
    }
}

fn policy(allow: &[&str]) -> Policy {
    let texts: Vec<String> = allow.iter().map(|text| (*text).to_owned()).collect();
    let reserved = Reserved::default();
    reserved.listener("the admin port of this daemon", "127.0.0.1:8000".parse().unwrap());
    Policy::new(destinations(&texts).unwrap(), reserved).with_names(Arc::new(Names))
}

#[tokio::test]
async fn callbacks_reach_only_allowed_destinations() {
    // The allowed destinations, the URL, and a part of the rejection.
    let cases: [(&[&str], &str, Option<&str>); 24] = [
        (&["hooks.test"], "http://hooks.test/in?a=b", None),
        (&["hooks.test"], "https://HOOKS.test:9/", None),
        (&["hooks.test:80"], "http://hooks.test/", None),
        (
            &["hooks.test:80"],
            "http://hooks.test:81/",
            Some("port 81, is not allowed"),
        ),
        (&["10.0.0.0/8"], "http://hooks.test/", None),
        (&["10.0.0.0/8"], "http://10.9.9.9:1234/x", None),
        (
            &["10.0.0.0/8:443"],
            "http://hooks.test/",
            Some("port 80, is not allowed"),
        ),
        (&["10.0.0.0/8"], "http://11.0.0.1/", Some("11.0.0.1, port 80")),
        (&["10.0.0.7"], "http://hooks.test/", None),
        // Only the allowed one of its addresses is connected to.
        (&["10.0.0.0/8"], "http://both.test/", None),
        (&["192.0.2.0/24"], "http://hooks.test/", Some("10.0.0.7, port 80")),
        // Names that resolve to internal addresses.
        (
            &["inside.test"],
            "http://inside.test/",
            Some("loopback address, which must be named"),
        ),
        (&["metadata.test"], "http://metadata.test/", Some("link-local")),
        (&["127.0.0.1"], "http://127.0.0.1:9999/", None),
        (&["127.0.0.1"], "http://localhost:9999/", None),
        (&["localhost"], "http://localhost:9999/", None),
        (&["::1"], "http://[::1]:9999/", None),
        (
            &["127.0.0.1"],
            "http://127.0.0.1:8000/",
            Some("the admin port of this daemon"),
        ),
        (&["127.0.0.1:8000"], "http://127.0.0.1:8000/", None),
        (
            &["0.0.0.0/0"],
            "http://0.0.0.0/",
            Some("an unspecified, multicast or broadcast address"),
        ),
        (&["0.0.0.0/0"], "http://127.0.0.1/", Some("loopback")),
        (&["hooks.test"], "http://nowhere.test/", Some("does not resolve")),
        (&["hooks.test"], "ftp://hooks.test/", Some("scheme http or https")),
        (
            &["hooks.test"],
            "http://user:secret@hooks.test/",
            Some("without user and password"),
        ),
    ];
    for (allow, url, rejection) in cases {
        let found = policy(allow).check(url).await;
        match (&found, rejection) {
            (Ok(_), None) => {}
            (Err(denied), Some(part)) => {
                let text = denied.to_string();
                assert!(text.contains(part) && !text.contains("secret"), "{url}: {text}");
            }
            _ => panic!("{allow:?} {url}: {found:?}"),
        }
    }
    let both = policy(&["10.0.0.0/8"]);
    let endpoint = both.check("http://both.test/").await.unwrap().endpoint;
    assert_eq!(
        both.addresses(&endpoint).await.unwrap(),
        ["10.0.0.8".parse::<IpAddr>().unwrap()]
    );
    for text in [
        "",
        "nonsense",
        "http://",
        &format!("http://h/{}", "x".repeat(3000)),
    ] {
        let denied = policy(&["hooks.test"]).check(text).await.unwrap_err();
        assert!(
            matches!(denied, DestinationError::Malformed { .. }),
            "{text}: {denied}"
        );
    }
}

#[test]
fn url_of_a_stored_subscriber_is_checked_without_resolving_names() {
    // The allowed destinations, the URL, and whether an address of its host can be allowed.
    let cases: [(&[&str], &str, bool); 9] = [
        (&["nowhere.test"], "http://nowhere.test/", true),
        (&["10.0.0.0/8"], "http://nowhere.test/", true),
        (&["10.0.0.0/8:443"], "http://nowhere.test/", false),
        (&["nowhere.test:81"], "http://nowhere.test/", false),
        (&["hooks.test"], "http://nowhere.test/", false),
        (&["10.0.0.0/8"], "http://10.9.9.9/", true),
        (&["10.0.0.0/8"], "http://11.0.0.1/", false),
        (&["hooks.test"], "http://10.9.9.9/", false),
        (&["hooks.test"], "ftp://hooks.test/", false),
    ];
    for (allow, url, allowed) in cases {
        let found = policy(allow).check_unresolved(url);
        assert_eq!(found.is_ok(), allowed, "{allow:?} {url}: {found:?}");
    }
}

/// One of the names does not resolve, and one subscriber is no longer allowed.
#[tokio::test]
async fn stored_subscribers_are_kept_until_they_are_removed() {
    let config = crate::Config::from(crate::Settings {
        callbacks: Settings {
            allow: vec!["hooks.invalid".to_owned()],
            ..Settings::default()
        },
        ..crate::Settings::default()
    });
    let (kept, denied) = ("http://hooks.invalid/in", "http://10.0.0.1/in");
    let dir = tempfile::tempdir().unwrap();
    let store = transom_store::open(&format!("file:{}", dir.path().display()))
        .await
        .unwrap();
    let store = TypedStore::new(store, &config.settings.framework_name);
    let mut changes = Changes::default();
    for url in [kept, denied] {
        let record = Record {
            callback_url: url.to_owned(),
        };
        changes.put(key(url), &record, Expect::Any).unwrap();
    }
    store.commit(changes).await.unwrap();
    drop(store);
    let scheduler = transom_testkit::ScriptedScheduler::new(crate::testing::agent());
    let components = crate::testing::Components::new();
    let world = crate::testing::World::with(config, scheduler, components, dir).await;
    let listed = world.get("/v2/eventSubscriptions").await;
    assert_eq!(listed, serde_json::json!({"callbackUrls": [kept]}));
    for url in [kept, denied] {
        let path = format!("/v2/eventSubscriptions?callbackUrl={url}");
        let removed = world.delete(&path).await;
        assert_eq!(removed["callbackUrl"], url, "{removed}");
        let again = world.delete(&path).await;
        let message = format!("No subscriber has the callbackUrl {url}");
        assert_eq!(again["message"], message, "{again}");
    }
    world.stop().await;
}

#[test]
fn invalid_destinations_are_returned_as_errors() {
    let read = |text: &str| destinations(&[text.to_owned()]);
    for text in [
        "127.0.0.1",
        "::1",
        "[::1]:80",
        "10.0.0.0/8",
        "fd00::/8",
        "host",
        "host:80",
        "host:*",
    ] {
        assert!(read(text).is_ok(), "{text}");
    }
    for text in ["", "task", "http://host", "10.0.0.0/33", "ho st", "host:0"] {
        assert_eq!(read(text), Err(text.to_owned()));
    }
}
