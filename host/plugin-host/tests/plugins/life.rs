//! Failing versions are rolled back or disabled automatically.

use transom_plugin_host::{
    AdmissionOutcome, Change, CommandError, State,
    events::{Decision, Event, OpenError, Query},
};

use crate::support::{Server, Site, TIMEOUT, custom, logged};

fn probe(mark: &str, attempt: &str, probation: &str) -> String {
    format!(
        "world = \"check-probe\"\n[limits]\nmemory = \"16MiB\"\n[probation]\n{probation}\n\
         [config]\nmark = \"{mark}\"\nattempt = {{ do = \"{attempt}\" }}\n"
    )
}

async fn next_change(changes: &mut tokio::sync::broadcast::Receiver<Change>) -> Change {
    tokio::time::timeout(TIMEOUT, changes.recv())
        .await
        .expect("a change")
        .unwrap()
}

fn reports(mark: &str, attempt: u32) -> transom_plugin_host::probe::Outcome {
    custom(&format!(r#"{{"mark": "{mark}", "attempt": {attempt}}}"#))
}

fn outcomes(site: &Site, name: &str) -> Vec<AdmissionOutcome> {
    let (records, _) = site.plugins.history(name);
    records.iter().map(|it| it.outcome).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_failing_on_probation_is_rolled_back() {
    let site = Site::with(&[("tests/faulty-probe", "returns", Some(&probe("v1", "report", "")))]).await;
    assert_eq!(
        site.status("returns").probation,
        None,
        "there is no previous version"
    );
    site.replace(
        "tests/faulty-probe",
        "returns",
        &probe("v2", "trap", "max-faults = 2\nwindow = \"1m\""),
    )
    .await;
    let remaining = site.status("returns").probation.unwrap();
    assert!((50..=60).contains(&remaining), "{remaining}");
    let mut changes = site.plugins.changes();
    for _ in 0..2 {
        assert!(site.probe("returns", "{}", None).await.is_err());
    }
    assert_eq!(
        outcomes(&site, "returns"),
        [AdmissionOutcome::Admitted, AdmissionOutcome::Admitted]
    );
    assert!(site.probe("returns", "{}", None).await.is_err());
    let change = next_change(&mut changes).await;
    let Change::RolledBack {
        name, from, reason, ..
    } = &change
    else {
        panic!("{change:?}")
    };
    assert_eq!((name.as_str(), from.is_some()), ("returns", true));
    assert!(
        reason.contains("3 faults within 60s") && reason.contains("trapped"),
        "{reason}"
    );
    assert_eq!(site.probe("returns", "{}", None).await, Ok(reports("v1", 1)));
    assert_eq!(
        outcomes(&site, "returns"),
        [
            AdmissionOutcome::RolledBack,
            AdmissionOutcome::Admitted,
            AdmissionOutcome::Admitted
        ]
    );
    assert_eq!(site.plugins.history("returns").0[0].by, "probation");
    assert_eq!(
        site.metric("transom_plugins_rollbacks_total{plugin=\"returns\"}"),
        1
    );
    assert!(logged(&["plugin=\"returns\"", "plugin rolled back: 3 faults"]));
    assert_eq!(
        site.status("returns").probation,
        None,
        "the restored version is not on probation"
    );

    // The files of the failed version are ignored until they change.
    assert_eq!(site.plugins.rescan().await, []);
    let change = site
        .replace("tests/faulty-probe", "returns", &probe("v3", "report", ""))
        .await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    assert_eq!(site.probe("returns", "{}", None).await, Ok(reports("v3", 1)));
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_version_without_predecessor_is_disabled() {
    let site = Site::with(&[(
        "tests/faulty-probe",
        "failing",
        Some(&probe("v1", "trap", "max-faults = 1")),
    )])
    .await;
    let mut changes = site.plugins.changes();
    for _ in 0..2 {
        assert!(site.probe("failing", "{}", None).await.is_err());
    }
    let change = next_change(&mut changes).await;
    assert!(
        matches!(&change, Change::Disabled { name, .. } if name == "failing"),
        "{change:?}"
    );
    let status = site.status("failing");
    assert_eq!(status.state, State::Disabled);
    assert!(status.disabled_reason.unwrap().contains("2 calls in a row"));
    let trap = status.last_trap.unwrap();
    assert!(trap.fault.contains("trapped"), "{trap:?}");
    assert!(!trap.backtrace.is_empty(), "{trap:?}");

    let failure = site.probe("failing", "{}", None).await.unwrap_err();
    assert!(failure.message.contains("`failing` is disabled"), "{failure}");
    assert_eq!(site.metric("transom_plugins_disabled{plugin=\"failing\"}"), 1);
    assert_eq!(site.calls_with_outcome("failing", "disabled"), 1);
    assert!(logged(&["plugin=\"failing\"", "plugin disabled, calls fail"]));
    assert_eq!(site.plugins.rescan().await, [], "the same files change nothing");

    let change = site
        .replace(
            "tests/faulty-probe",
            "failing",
            &probe("v2", "report", "max-faults = 1"),
        )
        .await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    assert_eq!(site.probe("failing", "{}", None).await, Ok(reports("v2", 1)));
    let status = site.status("failing");
    assert_eq!(
        (status.state, status.disabled_reason, status.probation),
        (State::Serving, None, None)
    );
    assert_eq!(site.metric("transom_plugins_disabled{plugin=\"failing\"}"), 0);
    assert_eq!(
        outcomes(&site, "failing"),
        [
            AdmissionOutcome::Admitted,
            AdmissionOutcome::Disabled,
            AdmissionOutcome::Admitted
        ]
    );
    site.stop().await;
}

/// A plugin that fails only on one subscriber's query or on one check's settings still serves the
/// others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn occasional_faults_do_not_disable_a_plugin() {
    let site = Site::with(&[(
        "tests/faulty-probe",
        "odd",
        Some(&probe("v1", "report", "max-faults = 1")),
    )])
    .await;
    for _ in 0..6 {
        assert!(site.probe("odd", r#"{"do":"trap"}"#, None).await.is_err());
        assert!(site.probe("odd", "{}", None).await.is_ok());
    }
    let status = site.status("odd");
    assert_eq!((status.state, status.traps), (State::Serving, 6));
    assert!(
        status.memory_peak > 0 && status.memory_peak <= 16 << 20,
        "{}",
        status.memory_peak
    );
    let (p50, p99) = (status.p50_micros.unwrap(), status.p99_micros.unwrap());
    assert!(0 < p50 && p50 <= p99, "{p50} {p99}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_a_disabled_filter_fail() {
    let manifest = |fault: &str| {
        format!(
            "world = \"event-filter\"\n[limits]\nmemory = \"16MiB\"\n[probation]\nmax-faults = 0\n\
             [config]\nfault = \"{fault}\"\ndrop = [\"a\"]\n"
        )
    };
    let events = [Event {
        sequence: 1,
        kind: "a".into(),
        subject: None,
        body: "{}".into(),
    }];
    let site = Site::with(&[("tests/faulty-events", "faulty-events", Some(&manifest("none")))]).await;
    let view = site.plugins.open_view(Query::default()).await.unwrap();
    assert_eq!(view.decide(&events).await.unwrap(), [Decision::Drop]);
    site.stop().await;

    let failing = manifest("trap");
    let site = Site::with(&[("tests/faulty-events", "faulty-events", Some(&failing))]).await;
    let mut changes = site.plugins.changes();
    let view = site.plugins.open_view(Query::default()).await.unwrap();
    assert!(view.decide(&events).await.is_err());
    let change = next_change(&mut changes).await;
    assert!(matches!(change, Change::Disabled { .. }), "{change:?}");
    let decided = view.decide(&events).await;
    let Err(OpenError::Call(error)) = decided else {
        panic!("{decided:?}")
    };
    assert!(
        error
            .to_string()
            .contains("is disabled and calls of filter fail until"),
        "{error}"
    );
    assert!(site.plugins.open_view(Query::default()).await.is_err());
    assert_eq!(site.calls_with_outcome("faulty-events", "disabled"), 2);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disabled_plugin_can_be_rolled_back() {
    let site = Site::with(&[("tests/faulty-probe", "odd", Some(&probe("v1", "report", "")))]).await;
    // The first version was removed, so that no predecessor is restored automatically.
    site.change_files(|| std::fs::remove_file(site.dir.path().join("odd.wasm")).unwrap())
        .await;
    site.replace(
        "tests/faulty-probe",
        "odd",
        &probe("v2", "trap", "max-faults = 0"),
    )
    .await;
    let mut changes = site.plugins.changes();
    assert!(site.probe("odd", "{}", None).await.is_err());
    assert!(matches!(next_change(&mut changes).await, Change::Disabled { .. }));
    let (records, _) = site.plugins.history("odd");
    let first = records.last().unwrap();
    let change = site
        .plugins
        .rollback("odd", Some(first.sequence), "a test")
        .await
        .unwrap();
    assert!(
        matches!(change, Change::RolledBack { from: None, .. }),
        "{change:?}"
    );
    assert_eq!(site.probe("odd", "{}", None).await, Ok(reports("v1", 1)));
    let disabled = records
        .iter()
        .find(|it| it.outcome == AdmissionOutcome::Disabled)
        .unwrap();
    assert_eq!(
        site.plugins
            .rollback("odd", Some(disabled.sequence), "a test")
            .await,
        Err(CommandError::NoRecord {
            name: "odd".into(),
            record: disabled.sequence
        })
    );
    site.stop().await;
}

/// The host ends each of these attempts: because of its number of steps, because of its timeout, or
/// because a call does not return. All earlier calls of the attempt were answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_that_never_end_count_for_probation() {
    let server = Server::new(|stream| async move {
        // The connection stays open, and no byte is sent.
        let _stream = stream;
        std::future::pending::<()>().await;
    })
    .await;
    for (attempt, limits, expected) in [
        ("steps", "steps = 3", "did not finish within 3 steps"),
        (
            "insist",
            "attempt-time = \"100ms\"",
            "requested another step after",
        ),
        (
            "loop",
            "attempt-time = \"100ms\"\nwall-clock = \"30m\"\ncpu = \"30m\"",
            "took longer than 5",
        ),
    ] {
        let site = Site::with(&[("tests/faulty-probe", "endless", Some(&probe("v1", "report", "")))]).await;
        let second = probe("v2", attempt, "max-faults = 1").replace(
            "[limits]",
            &format!("[grants]\nnetwork = [\"task\"]\n[limits]\n{limits}"),
        );
        site.replace("tests/faulty-probe", "endless", &second).await;
        let mut changes = site.plugins.changes();
        for _ in 0..2 {
            let found = site.probe("endless", "{}", Some(&server.endpoint)).await;
            assert!(found.is_err(), "{attempt}: {found:?}");
        }
        let Change::RolledBack { reason, .. } = next_change(&mut changes).await else {
            panic!("{attempt}")
        };
        assert!(
            reason.contains("2 faults") && reason.contains(expected),
            "{attempt}: {reason}"
        );
        assert_eq!(site.probe("endless", "{}", None).await, Ok(reports("v1", 1)));
        site.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_whose_attempts_never_end_is_disabled() {
    let server = Server::new(|_| async {}).await;
    let manifest = probe("v1", "steps", "max-faults = 1")
        .replace("[limits]", "[grants]\nnetwork = [\"task\"]\n[limits]\nsteps = 3");
    let site = Site::with(&[("tests/faulty-probe", "endless", Some(&manifest))]).await;
    let mut changes = site.plugins.changes();
    for _ in 0..2 {
        assert!(site.probe("endless", "{}", Some(&server.endpoint)).await.is_err());
    }
    let change = next_change(&mut changes).await;
    assert!(
        matches!(&change, Change::Disabled { reason, .. } if reason.contains("2 calls in a row")),
        "{change:?}"
    );
    let status = site.status("endless");
    assert_eq!((status.state, status.timeouts), (State::Disabled, 2));
    assert!(status.last_trap.unwrap().fault.contains("within 3 steps"));
    site.stop().await;
}

/// The counters of a version start at zero. They do not include the faults of the version that it
/// replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_belong_to_the_serving_version() {
    let site = Site::with(&[("tests/faulty-probe", "odd", Some(&probe("v1", "report", "")))]).await;
    for settings in [
        r#"{"do":"trap"}"#,
        r#"{"do":"connect","host":"192.0.2.1","port":1}"#,
    ] {
        drop(site.probe("odd", settings, None).await);
    }
    let status = site.status("odd");
    assert_eq!((status.calls, status.traps, status.denials), (3, 1, 1));
    site.replace("tests/faulty-probe", "odd", &probe("v2", "report", ""))
        .await;
    let status = site.status("odd");
    assert_eq!((status.calls, status.traps, status.denials), (0, 0, 0));
    assert!(site.probe("odd", "{}", None).await.is_ok());
    assert_eq!(site.status("odd").calls, 1);
    // After a rollback the restored version starts with empty counters, too.
    site.plugins.rollback("odd", Some(1), "x").await.unwrap();
    assert_eq!((site.status("odd").calls, site.status("odd").traps), (0, 0));
    site.stop().await;
}
