//! WASI for guests: clocks and randomness unless denied, granted variables, and no files or
//! sockets.

use transom_plugin_host::{Change, Config, probe::Outcome};

use crate::support::{Server, Site, logged};

fn manifest(grants: &str) -> String {
    format!("world = \"check-probe\"\n[grants]\n{grants}\n[limits]\nmemory = \"16MiB\"\n")
}

fn environment(config: &mut Config) {
    config.environment = |name| match name {
        "COLOUR" => Some("green".to_owned()),
        "SECRET" => Some("x".to_owned()),
        _ => None,
    };
}

async fn report(site: &Site, name: &str, settings: &str) -> serde_json::Value {
    match site.probe(name, settings, None).await {
        Ok(Outcome::Custom(json)) => serde_json::from_str(&json).unwrap(),
        other => panic!("{settings}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_has_clocks_randomness_and_granted_variables() {
    for (grants, expected) in [
        ("", serde_json::json!({})),
        (
            "environment = [\"COLOUR\", \"UNSET\"]",
            serde_json::json!({"COLOUR": "green"}),
        ),
    ] {
        let grants = manifest(grants);
        let installed = [("tests/wasi-everything", "wasi-everything", Some(grants.as_str()))];
        let site = Site::with_config(&installed, environment).await;
        assert_eq!(
            report(&site, "wasi-everything", r#"{"use":"environment"}"#).await,
            expected
        );
        let seconds = report(&site, "wasi-everything", r#"{"use":"clock"}"#).await["seconds"].as_u64();
        assert!(seconds.unwrap() > 1_600_000_000, "{seconds:?}");
        let numbers = report(&site, "wasi-everything", r#"{"use":"random"}"#).await;
        assert_ne!(numbers["numbers"][0], numbers["numbers"][1]);
        site.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_import_is_rejected_by_name() {
    let site = Site::with(&[]).await;
    for (grants, reason) in [
        (
            "clock = false",
            "it imports `wasi:clocks/wall-clock@0.2.0`, which the manifest denies (grants.clock = false)",
        ),
        (
            "random = false",
            "it imports `wasi:random/random@0.2.0`, which the manifest denies (grants.random = false)",
        ),
    ] {
        let change = site
            .replace("tests/wasi-everything", "withdrawn", &manifest(grants))
            .await;
        assert!(
            matches!(&change, Change::Rejected { reason: it, .. } if it == reason),
            "{change:?}"
        );
        assert!(logged(&["plugin=\"withdrawn\"", reason]));
    }
    assert_eq!(
        site.metric("transom_plugins_refusals_total{plugin=\"withdrawn\"}"),
        2
    );
    site.stop().await;
}

/// Every access of a guest to the network through WASI is denied, counted and logged, even if its
/// grants allow the destination for its probes' steps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guest_has_no_direct_network_access() {
    let grants = manifest("network = [\"0.0.0.0/0\", \"localhost:*\"]\ncommand = true");
    let site = Site::with(&[("tests/wasi-everything", "reaching", Some(&grants))]).await;
    let (arrived, mut arrivals) = tokio::sync::mpsc::unbounded_channel();
    let server = Server::new(move |_| {
        let arrived = arrived.clone();
        async move {
            let _ = arrived.send(());
        }
    })
    .await;
    let port = server.endpoint.port;
    for (settings, member, wanted) in [
        (
            format!(r#"{{"use":"connect","port":{port}}}"#),
            "connect",
            "a TCP socket",
        ),
        (r#"{"use":"datagrams"}"#.to_owned(), "datagrams", "a UDP socket"),
        (
            r#"{"use":"lookup","name":"localhost"}"#.to_owned(),
            "lookup",
            "the addresses of localhost",
        ),
    ] {
        let before = site.status("reaching").denials;
        let found = report(&site, "reaching", &settings).await;
        assert_eq!(found[member], "access-denied", "{found}");
        assert_eq!(site.status("reaching").denials, before + 1, "{settings}");
        assert!(
            logged(&["plugin=\"reaching\"", wanted, "not granted"]),
            "{wanted}"
        );
    }
    assert_eq!(
        site.sum("transom_plugins_denials_total", &["plugin=\"reaching\""]),
        3
    );
    assert!(arrivals.try_recv().is_err(), "the guest connected");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upgrade_cannot_import_more_than_granted() {
    let site = Site::with(&[("tests/faulty-probe", "grows", Some(&manifest("")))]).await;
    let change = site
        .replace("tests/wasi-everything", "grows", &manifest(""))
        .await;
    let Change::Rejected { reason, .. } = &change else {
        panic!("{change:?}")
    };
    assert!(
        reason.contains("`wasi:clocks/wall-clock`") && reason.contains("grants.imports"),
        "{reason}"
    );
    assert!(
        site.probe("grows", "{}", None).await.is_ok(),
        "the old version still serves"
    );
    let some = "imports = [\"wasi:clocks\", \"wasi:random\", \"wasi:cli/environment\"]";
    let change = site
        .replace("tests/wasi-everything", "grows", &manifest(some))
        .await;
    let Change::Rejected { reason, .. } = &change else {
        panic!("{change:?}")
    };
    assert!(
        reason.contains("`wasi:sockets/tcp`") && !reason.contains("wasi:clocks"),
        "{reason}"
    );
    let all = "imports = [\"wasi:clocks\", \"wasi:random\", \"wasi:cli/environment\", \"wasi:sockets\"]";
    let change = site
        .replace("tests/wasi-everything", "grows", &manifest(all))
        .await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    // These are now the imports of the serving version, so that they need no grant any more.
    let change = site
        .replace("tests/wasi-everything", "grows", &manifest("command = true"))
        .await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    // The imports of a removed plugin do not count for a new plugin of the same name.
    site.change_files(|| std::fs::remove_file(site.dir.path().join("grows.wasm")).unwrap())
        .await;
    site.replace("tests/faulty-probe", "grows", &manifest("")).await;
    let change = site
        .replace("tests/wasi-everything", "grows", &manifest(""))
        .await;
    assert!(matches!(change, Change::Rejected { .. }), "{change:?}");
    site.stop().await;
}
