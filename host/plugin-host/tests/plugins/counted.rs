//! Metrics, spans and the table row of a serving version.

use transom_plugin_host::{Change, State};

use crate::support::{
    Server, Site, Waiting, component, custom, logged, response, stamped, wait_until, write_file,
};

const MANIFEST: &str = "world = \"check-probe\"\n[grants]\nnetwork = [\"task\"]\n[limits]\nmemory = \"16MiB\"\n\
                        cpu = \"300ms\"\nwall-clock = \"50s\"\nlog-lines = 1\n[probation]\nmax-faults = 1000\n";

/// `version="0.1.0+3f9a1c2b"` of the serving version.
fn label(site: &Site, name: &str) -> String {
    let status = site.status(name);
    let digest = status.digest.unwrap();
    let digest = digest.strip_prefix("sha256:").unwrap();
    format!("version=\"{}+{}\"", status.version.unwrap(), &digest[..8])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_a_version_are_counted_under_its_label() {
    let site = Site::with(&[("tests/faulty-probe", "counts", Some(MANIFEST))]).await;
    let version = label(&site, "counts");
    let labels = ["plugin=\"counts\"", version.as_str()];
    let server = Server::http(|_| async { response(200, "", "") }).await;
    let at = Some(&server.endpoint);
    for (settings, answers) in [
        ("{}", true),
        (r#"{"do":"fail"}"#, false),
        (r#"{"do":"trap"}"#, false),
        (r#"{"do":"loop"}"#, false),
        (r#"{"do":"connect","host":"192.0.2.1","port":1}"#, true),
        (r#"{"do":"log","lines":100,"bytes":10}"#, true),
    ] {
        let found = site.probe("counts", settings, at).await;
        assert_eq!(found.is_ok(), answers, "{settings}: {found:?}");
    }
    let found = site.probe("counts", r#"{"do":"http","path":"/"}"#, at).await;
    assert_eq!(found, Ok(custom(r#"{"status": 200, "bytes": 0}"#)));

    let count = |name: &str| site.sum(&format!("transom_plugins_{name}"), &labels);
    let ended = |outcome: &str| {
        let outcome = format!("outcome=\"{outcome}\"");
        site.sum("transom_plugins_calls_total", &[labels[0], labels[1], &outcome])
    };
    // An attempt with two steps makes two calls.
    assert_eq!(
        ["ok", "error", "trap", "timeout", "busy", "disabled"].map(ended),
        [6, 1, 1, 1, 0, 0]
    );
    for (name, value) in [
        ("call_duration_seconds_count", 9),
        ("queue_wait_seconds_count", 9),
        ("denials_total", 1),
        ("in_flight", 0),
        ("queue", 0),
    ] {
        assert_eq!(count(name), value, "{name}: {}", site.metrics());
    }
    assert!((1..=2).contains(&count("instances")), "{}", site.metrics());
    assert!(count("log_drops_total") >= 90, "{}", site.metrics());
    let peak = site.status("counts").memory_peak;
    assert_eq!(count("memory_peak_bytes"), peak);
    assert!((64 << 10..=16 << 20).contains(&peak), "{peak}");
    let cpu = site.values("transom_plugins_cpu_seconds_total", &labels)[0];
    assert!(cpu > 0.3, "the loop alone uses more: {cpu}");

    for outcome in ["ok", "error", "trap", "timeout"] {
        let outcome = format!("outcome=\"{outcome}\"");
        let parts = [
            "plugin_call{plugin=\"counts\"",
            &version,
            "world=\"check-probe\"",
            &outcome,
        ];
        assert!(logged(&parts), "no span with {outcome}");
    }
    site.stop().await;
}

/// Swaps leave neither series nor measurements of previous versions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn series_are_removed_with_their_version() {
    let site = Site::with(&[("tests/faulty-probe", "swapped", Some(MANIFEST))]).await;
    let original = std::fs::read(component("tests/faulty-probe")).unwrap();
    assert!(site.probe("swapped", r#"{"do":"trap"}"#, None).await.is_err());
    for stamp in 0..4 {
        let bytes = stamped(&original, stamp);
        let change = site
            .change_files(|| write_file(site.dir.path(), "swapped.wasm", &bytes))
            .await;
        assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
        let status = site.status("swapped");
        assert_eq!(
            (status.p50_micros, status.cpu_p99_micros, status.queue_p99_micros),
            (None, None, None),
            "this version has answered no call yet"
        );
        assert_eq!(status.last_trap, None);
        assert!(site.probe("swapped", "{}", None).await.is_ok());
        let status = site.status("swapped");
        assert!(status.p50_micros.is_some() && status.cpu_p99_micros.is_some());
        assert!(status.queue_p99_micros.is_some() && status.memory_peak > 0);
    }
    let version = label(&site, "swapped");
    // The series of a previous version disappears when its task has ended.
    wait_until("the versions before to leave nothing behind", || {
        let text = site.metrics();
        let mut lines = text
            .lines()
            .filter(|it| it.contains("plugin=\"swapped\",version="));
        lines.all(|it| it.contains(&version))
    })
    .await;
    assert_eq!(
        site.sum("transom_plugins_swaps_total", &["plugin=\"swapped\""]),
        4
    );
    let status = site.status("swapped");
    assert_eq!(
        (status.calls, status.traps),
        (1, 0),
        "the trap belongs to a previous version"
    );

    std::fs::remove_file(site.dir.path().join("swapped.wasm")).unwrap();
    site.plugins.rescan().await;
    wait_until("what was taken away to leave nothing behind", || {
        !site.metrics().contains("plugin=\"swapped\"")
    })
    .await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_calls_are_counted() {
    let manifest = MANIFEST.replace("cpu = \"300ms\"", "cpu = \"2s\"\ninstances = 1");
    let site = Site::with(&[("tests/faulty-probe", "waits", Some(&manifest))]).await;
    let looping = site.probe("waits", r#"{"do":"loop"}"#, None);
    let waiting = async {
        // This call is queued behind the loop, which occupies the only instance.
        wait_until("the loop to run", || {
            let status = site.status("waits");
            (status.in_flight, status.instances, status.queue) == (1, 1, 0)
        })
        .await;
        site.probe("waits", "{}", None).await
    };
    let watching = async {
        wait_until("the other to wait", || {
            let status = site.status("waits");
            (status.in_flight, status.queue) == (2, 1)
        })
        .await;
        assert_eq!(site.sum("transom_plugins_queue", &["plugin=\"waits\""]), 1);
    };
    let (looped, waited, ()) = tokio::join!(looping, waiting, watching);
    assert!(looped.is_err() && waited.is_ok());
    let status = site.status("waits");
    assert_eq!((status.queue, status.state), (0, State::Serving));
    // The call waited for most of the two seconds.
    assert!(status.queue_p99_micros.unwrap() > 500_000, "{status:?}");
    assert!(status.cpu_millis >= 2000, "{status:?}");
    let trap = status.last_trap.unwrap();
    assert!(trap.fault.contains("limits.cpu"), "{trap:?}");
    assert!(!trap.backtrace.is_empty(), "{trap:?}");
    site.stop().await;
}

/// Calls in flight are counted per version. An attempt that began before a swap does not count for
/// the new version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_flight_attempts_are_counted_per_version() {
    let site = Site::with(&[("tests/faulty-probe", "flies", Some(MANIFEST))]).await;
    let old = label(&site, "flies");
    let (server, mut waiting) = Waiting::server().await;
    let attempt = site.probe("flies", r#"{"do":"http","path":"/"}"#, Some(&server.endpoint));
    let swap = async {
        waiting.arrived().await;
        let bytes = stamped(&std::fs::read(component("tests/faulty-probe")).unwrap(), 7);
        site.change_files(|| write_file(site.dir.path(), "flies.wasm", &bytes))
            .await;
        let new = label(&site, "flies");
        assert_ne!(old, new);
        let status = site.status("flies");
        assert_eq!((status.in_flight, status.in_flight_now), (1, 0));
        for (version, in_flight) in [(&old, 1), (&new, 0)] {
            assert_eq!(site.sum("transom_plugins_in_flight", &[version]), in_flight);
        }
        waiting.release();
    };
    let (found, ()) = tokio::join!(attempt, swap);
    assert!(found.is_ok(), "{found:?}");
    site.stop().await;
}
