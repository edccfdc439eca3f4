//! Versions are replaced under load.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Notify, mpsc};
use transom_plugin_host::{
    CallError, Change,
    events::{Decision, Event, OpenError, Query},
};

use crate::support::{Server, Site, TIMEOUT, custom, install, response, times_logged};

fn probe(network: &str) -> String {
    format!("world = \"check-probe\"\n[grants]\nnetwork = [{network}]\n[limits]\nmemory = \"16MiB\"\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_finish_on_the_version_they_began_with() {
    let site = Site::with(&[("tests/faulty-probe", "odd", Some(&probe("\"task\"")))]).await;
    let (arrived, mut arrivals) = mpsc::unbounded_channel();
    let release = Arc::new(Notify::new());
    let gate = release.clone();
    // The first response is a redirect that is sent after the swap. Only the grants of the old
    // version allow the attempt to follow it.
    let server = Server::http(move |line| {
        let (arrived, gate) = (arrived.clone(), gate.clone());
        async move {
            if line.starts_with("GET /after") {
                return response(200, "", "done");
            }
            arrived.send(()).unwrap();
            gate.notified().await;
            response(302, "Location: /after\r\n", "")
        }
    })
    .await;
    let settings = r#"{"do":"http","path":"/before","redirects":2,"max_body":100}"#;
    let old = site.probe("odd", settings, Some(&server.endpoint));
    let swap = async {
        arrivals.recv().await.unwrap();
        let change = site.replace("tests/faulty-probe", "odd", &probe("")).await;
        assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
        let new = site.probe("odd", settings, Some(&server.endpoint)).await;
        assert_eq!(new, Ok(custom(r#"{"http": "denied"}"#)));
        release.notify_one();
    };
    let (old, ()) = tokio::join!(old, swap);
    assert_eq!(old, Ok(custom(r#"{"status": 200, "bytes": 4}"#)));
    // The instances of the old version end with the last call that began on it.
    tokio::time::timeout(TIMEOUT, async {
        while site.plugins.list()[0].instances > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the old version's instances are dropped");
    site.stop().await;
}

/// Each instance logs a line when it is configured.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trial_instance_becomes_the_first_instance_unless_it_ran_self_tests() {
    let manifest = |more: &str| {
        format!(
            "world = \"check-probe\"\n[limits]\nmemory = \"16MiB\"\ninstances = 1\n\
             [config]\nmark = \"m\"\nconfigure = {{ do = \"log\", lines = 1, bytes = 9 }}\n{more}"
        )
    };
    let self_test = "[[self-test]]\nexpect = { custom = { mark = \"m\", attempt = 1 } }\n";
    for (name, more, before, made) in [("untested", "", 1, 1), ("self-tested", self_test, 0, 2)] {
        let text = manifest(more);
        let site = Site::with(&[("tests/faulty-probe", name, Some(&text))]).await;
        let configured = || times_logged(&[&format!("plugin=\"{name}\""), "xxxxxxxxx"]);
        assert_eq!(site.status(name).instances, before, "{name}");
        // The attempt of the self-test does not count in this instance.
        let first = Ok(custom(r#"{"mark": "m", "attempt": 1}"#));
        assert_eq!(site.probe(name, "{}", None).await, first, "{name}");
        assert_eq!((site.status(name).instances, configured()), (1, made), "{name}");

        // After a swap the same number of instances is configured again.
        let change = site
            .replace("tests/faulty-probe", name, &manifest(&format!("{more}# 2")))
            .await;
        assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
        assert_eq!(site.probe(name, "{}", None).await, first, "{name}");
        assert_eq!(configured(), made * 2, "{name}");
        site.stop().await;
    }
}

fn filter(config: &str) -> String {
    format!("world = \"event-filter\"\n[limits]\nmemory = \"16MiB\"\n[config]\n{config}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_reopen_on_the_new_version() {
    let site = Site::with(&[(
        "tests/faulty-events",
        "faulty-events",
        Some(&filter("mark = \"v1\"")),
    )])
    .await;
    let view = site.plugins.open_view(Query::default()).await.unwrap();
    let same = site.plugins.open_view(Query::default()).await.unwrap();
    let events = [Event {
        sequence: 1,
        kind: "a".into(),
        subject: None,
        body: "{}".into(),
    }];
    let marked = |mark: &str| [Decision::Replace(format!("{{\"mark\":\"{mark}\"}}"))];
    assert_eq!(view.decide(&events).await.unwrap(), marked("v1"));

    // Under load every answer comes from one of the two versions, and none is missing.
    let asking = async {
        let mut last = String::new();
        while last != "v2" {
            let decisions = same.decide(&events).await.unwrap();
            let mark = ["v1", "v2"]
                .into_iter()
                .find(|mark| decisions == marked(mark))
                .expect("v1 or v2");
            assert!(mark >= last.as_str(), "{mark} after {last}");
            last = mark.to_owned();
        }
    };
    let second = filter("mark = \"v2\"");
    let swapping = site.replace("tests/faulty-events", "faulty-events", &second);
    tokio::time::timeout(TIMEOUT, async { tokio::join!(asking, swapping) })
        .await
        .unwrap();
    assert_eq!(view.decide(&events).await.unwrap(), marked("v2"));

    site.replace(
        "tests/faulty-events",
        "faulty-events",
        &filter("fault = \"reject\""),
    )
    .await;
    let rejected = view.decide(&events).await;
    assert_eq!(rejected, Err(OpenError::Rejected("rejected, as asked".into())));

    site.replace("tests/faulty-events", "faulty-events", &filter("mark = \"v3\""))
        .await;
    assert_eq!(view.decide(&events).await.unwrap(), marked("v3"));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_component_stops_its_function() {
    let site = Site::with(&[("attributes", "attributes", None)]).await;
    assert_eq!(site.plugins.validate_constraints(&[]).await, Ok(vec![]));
    let change = site
        .change_files(|| std::fs::remove_file(site.dir.path().join("attributes.wasm")).unwrap())
        .await;
    assert_eq!(
        change,
        Change::Removed {
            name: "attributes".into()
        }
    );
    let error = site.plugins.validate_constraints(&[]).await.unwrap_err();
    let dir = site.dir.path().to_owned();
    assert_eq!(
        error,
        CallError::Missing {
            point: "matcher",
            name: "attributes".into(),
            dir: dir.clone()
        }
    );
    for part in ["matcher", "attributes.wasm", &dir.display().to_string()] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(site.plugins.list().is_empty());
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_directory_is_watched() {
    let site = Site::with(&[]).await;
    let mut changes = site.plugins.changes();
    let mut next = async || {
        tokio::time::timeout(TIMEOUT, changes.recv())
            .await
            .expect("a change")
            .unwrap()
    };
    // The manifest is written just before the component, and no rejection is published in between.
    install(site.dir.path(), "tests/faulty-probe", "odd", Some(&probe("")));
    assert!(matches!(next().await, Change::Admitted { .. }));
    let before = site.plugins.list().remove(0).admitted_at.unwrap();
    install(
        site.dir.path(),
        "tests/faulty-probe",
        "odd",
        Some(&probe("\"task\"")),
    );
    assert!(matches!(next().await, Change::Admitted { .. }));
    assert!(site.plugins.list().remove(0).admitted_at.unwrap() >= before);
    std::fs::remove_file(site.dir.path().join("odd.wasm")).unwrap();
    assert_eq!(next().await, Change::Removed { name: "odd".into() });
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_directory_is_read_again() {
    let root = tempfile::TempDir::new().unwrap();
    let dir = root.path().join("plugins");
    std::fs::create_dir(&dir).unwrap();
    let token = tokio_util::sync::CancellationToken::new();
    let mut config = transom_plugin_host::Config::new(&dir);
    config.rescan = Duration::from_millis(100);
    let plugins = config
        .start(
            &mut prometheus_client::registry::Registry::default(),
            token.clone(),
        )
        .await
        .unwrap();
    let mut changes = plugins.changes();
    let other = root.path().join("other");
    std::fs::create_dir(&other).unwrap();
    install(&other, "tests/faulty-probe", "odd", Some(&probe("")));
    std::fs::rename(&dir, root.path().join("old")).unwrap();
    std::fs::rename(&other, &dir).unwrap();
    let change = tokio::time::timeout(TIMEOUT, changes.recv())
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    token.cancel();
    plugins.stopped().await;
}
