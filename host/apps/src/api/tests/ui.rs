//! The user interface on the port of the API.

use std::fs;

use serde_json::json;
use transom_web::{Credentials, Folder, LoopbackTrust};

use super::sleeper;
use crate::Config;
use crate::testing::World;

/// A folder with a user interface.
async fn built() -> (tempfile::TempDir, Folder) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("index.html"), "<script src=main.js></script>").unwrap();
    fs::write(dir.path().join("main.js"), "run()").unwrap();
    let folder = Folder::open(dir.path()).await.unwrap();
    (dir, folder)
}

async fn with_ui(folder: Folder) -> World {
    let config = Config {
        ui: Some(folder),
        ..Config::default()
    };
    World::start_with(config).await
}

#[tokio::test]
async fn ui_is_served_next_to_the_api_for_get_and_head_only() {
    let (dir, folder) = built().await;
    let world = with_ui(folder).await;
    for path in ["/", "/ui"] {
        let answer = world.call("GET", path, None).await;
        assert_eq!(
            (answer.status, answer.headers["location"].as_str()),
            (302, "/ui/")
        );
    }
    let index = world.call("GET", "/ui/", None).await;
    assert_eq!(
        (index.status, index.headers["content-type"].as_str()),
        (200, "text/html")
    );
    assert_eq!(index.body, json!("<script src=main.js></script>"));
    let script = world.call("GET", "/ui/main.js", None).await;
    assert_eq!((script.status, &script.body), (200, &json!("run()")));
    // Browsers may cache the file, but must revalidate it.
    assert_eq!(script.headers["cache-control"], "no-cache");
    assert_eq!(script.headers["x-frame-options"], "DENY");
    let modified = format!("If-Modified-Since: {}\r\n", script.headers["last-modified"]);
    let unchanged = world.send_with("GET", "/ui/main.js", &modified, json!("")).await;
    assert_eq!(unchanged.status, 304, "{unchanged:?}");
    fs::write(dir.path().join("main.js"), "walk()").unwrap();
    let changed = world.call("GET", "/ui/main.js", None).await;
    assert_eq!(changed.body, json!("walk()"));

    let head = world.call("HEAD", "/ui/main.js", None).await;
    assert_eq!((head.status, head.headers["content-length"].as_str()), (200, "6"));
    for (method, path) in [
        ("POST", "/ui/"),
        ("PUT", "/ui/main.js"),
        ("DELETE", "/ui/main.js"),
        ("POST", "/"),
    ] {
        let answer = world.call(method, path, Some("{}")).await;
        assert_eq!(answer.status, 405, "{method} {path}: {answer:?}");
        assert_eq!(
            answer.body["message"],
            format!("{method} is not allowed on {path}")
        );
    }
    for (path, status) in [
        ("/ui/absent.js", 404),
        ("/ui/../Cargo.toml", 400),
        ("/ui//main.js/", 404),
        ("/uix", 404),
    ] {
        let answer = world.call("GET", path, None).await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert!(answer.body["message"].is_string(), "{path}: {answer:?}");
    }
    // The API behaves as it does without a user interface.
    let created = world.send("POST", "/v2/apps", sleeper("/a")).await;
    assert_eq!(
        (created.status, created.headers["cache-control"].as_str()),
        (201, "no-cache, no-store, must-revalidate")
    );
    world.settled("/a", 1).await;
    assert_eq!(world.call("GET", "//v2//apps/", None).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn paths_of_the_ui_are_not_found_without_one() {
    let world = World::start().await;
    for path in ["/", "/ui", "/ui/", "/ui/main.js"] {
        assert_eq!(world.call("GET", path, None).await.status, 404, "{path}");
    }
    world.stop().await;
}

#[tokio::test]
async fn ui_requires_the_credentials_of_the_port_and_rejects_other_sites() {
    let (_dir, folder) = built().await;
    let credentials = Credentials {
        username: "u".to_owned(),
        password: "p".into(),
    };
    let authorization = format!("Authorization: {}\r\n", credentials.authorization());
    let mut config = Config {
        ui: Some(folder),
        ..Config::default()
    };
    config.port.credentials = Some(credentials);
    config.port.loopback_trust = LoopbackTrust::UnlessCredentials;
    let world = World::start_with(config).await;
    let from_page =
        |site: &str| format!("{authorization}Sec-Fetch-Mode: no-cors\r\nSec-Fetch-Site: {site}\r\n");
    for path in ["/", "/ui", "/ui/", "/ui/main.js"] {
        for (headers, expected) in [
            (String::new(), &[401][..]),
            (authorization.clone(), &[200, 302]),
            (from_page("same-origin"), &[200, 302]),
            (from_page("cross-site"), &[403]),
        ] {
            let answer = world.send_with("GET", path, &headers, json!("")).await;
            assert!(expected.contains(&answer.status), "{path} {headers}: {answer:?}");
        }
    }
    world.stop().await;
}
