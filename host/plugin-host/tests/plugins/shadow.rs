//! A shadow version is compared with the serving one and promoted.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use tempfile::TempDir;
use transom_plugin_host::{
    AdmissionOutcome, Change, CommandError, Config, Rollout, RolloutKind,
    events::{Decision, Event, Query},
    matcher::{Agent, Candidate, Constraint, Task},
    probe::{Endpoint, Outcome},
};

use crate::support::{Server, Site, TIMEOUT, custom, response};

fn probe(promote: &str, config: &str) -> String {
    format!(
        "world = \"check-probe\"\n{promote}\n[grants]\nnetwork = [\"task\"]\n[limits]\nmemory = \"16MiB\"\ninstances = 1\n\
         [config]\n{config}\n"
    )
}

const MANUAL: &str = "rollout = \"shadow-manual\"";
const AUTO: &str = "rollout = \"shadow\"\nshadow = { min-duration = \"1ms\", min-calls = 3 }";

fn shadow(site: &Site, name: &str) -> Option<Rollout> {
    let rollout = site.status(name).rollout?;
    assert_eq!(rollout.kind, RolloutKind::Shadow);
    Some(rollout)
}

/// Waits until this number of answers was compared or dropped.
async fn await_compared(site: &Site, name: &str, calls: u64) -> Rollout {
    let done = async {
        loop {
            match shadow(site, name) {
                Some(it) if it.compared + it.dropped >= calls => return it,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(TIMEOUT, done).await.expect("compared")
}

async fn start_shadow(site: &Site, source: &str, name: &str, manifest: &str) {
    let change = site.replace(source, name, manifest).await;
    assert!(matches!(change, Change::Shadowing { .. }), "{change:?}");
}

/// A server, and the number of requests that it has received.
async fn server() -> (Server, Arc<AtomicU32>) {
    let request_count = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&request_count);
    let server = Server::http(move |_| {
        let count = Arc::clone(&count);
        async move {
            count.fetch_add(1, Relaxed);
            response(200, "", "0123456789")
        }
    })
    .await;
    (server, request_count)
}

async fn probe_odd(site: &Site, settings: &str, at: &Endpoint) -> Outcome {
    site.probe("odd", settings, Some(at)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn differences_are_counted_while_the_old_version_answers() {
    let site = Site::with(&[("tests/faulty-probe", "odd", Some(&probe("", "mark = \"v1\"")))]).await;
    start_shadow(
        &site,
        "tests/faulty-probe",
        "odd",
        &probe(MANUAL, "mark = \"v2\""),
    )
    .await;
    let (server, request_count) = server().await;
    let at = &server.endpoint;
    let fetch = r#"{"do":"http","path":"/","max_body":4}"#;
    for _ in 0..3 {
        assert_eq!(
            probe_odd(&site, fetch, at).await,
            custom(r#"{"status": 200, "bytes": 4}"#)
        );
    }
    let agreeing = await_compared(&site, "odd", 3).await;
    assert_eq!(
        (agreeing.compared, agreeing.differences, agreeing.faults),
        (3, 0, 0)
    );
    assert_eq!(
        request_count.load(Relaxed),
        3,
        "the host only performs the steps of the serving version"
    );

    assert_eq!(
        probe_odd(&site, "{}", at).await,
        custom(r#"{"mark": "v1", "attempt": 4}"#)
    );
    let differing = await_compared(&site, "odd", 4).await;
    assert_eq!((differing.differences, differing.automatic), (1, false));
    let sample = &differing.samples[0];
    assert!(sample.question.starts_with("attempt /shop/web"), "{sample:?}");
    assert!(
        sample.serving.contains("v1") && sample.candidate.contains("v2"),
        "{sample:?}"
    );
    assert_eq!(
        site.metric("transom_plugins_shadow_answers_total{plugin=\"odd\",result=\"different\"}"),
        1
    );
    // The calls of the shadow do not count for the plugin.
    let status = site.status("odd");
    assert_eq!((status.calls, status.traps, status.instances), (7, 0, 1));

    assert!(differing.missing[0].ends_with(" more (shadow.min-duration)"));
    assert_eq!(
        differing.missing[1..],
        [
            "96 more compared answers (shadow.min-calls)",
            "1 answers differ, at most 0 may (shadow.max-differences)",
            "promotion by an operator (transom plugin promote odd)"
        ]
    );

    let change = site.plugins.promote("odd", "operator").await.unwrap();
    assert!(
        matches!(&change, Change::Promoted { reason, .. } if reason == "promoted by operator"),
        "{change:?}"
    );
    assert_eq!(
        probe_odd(&site, "{}", at).await,
        custom(r#"{"mark": "v2", "attempt": 1}"#)
    );
    assert_eq!(shadow(&site, "odd"), None);
    assert!(
        site.status("odd").probation.is_some(),
        "the old version can still be restored"
    );
    let (records, _) = site.plugins.history("odd");
    let told: Vec<_> = records.iter().map(|it| (it.outcome, it.by.as_str())).collect();
    assert_eq!(
        told,
        [
            (AdmissionOutcome::Promoted, "operator"),
            (AdmissionOutcome::Shadowing, "directory"),
            (AdmissionOutcome::Admitted, "directory")
        ]
    );
    for (name, error) in [
        (
            "odd",
            CommandError::NoCandidate {
                name: "odd".into(),
                what: "promote",
            },
        ),
        ("none", CommandError::Unknown { name: "none".into() }),
    ] {
        assert_eq!(site.plugins.promote(name, "x").await, Err(error));
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agreeing_shadow_is_promoted_and_failing_one_is_not() {
    let site = Site::with(&[("tests/faulty-probe", "odd", Some(&probe("", "mark = \"v1\"")))]).await;
    // The shadow makes one attempt for each attempt of the serving version, so that both count the
    // same number.
    start_shadow(&site, "tests/faulty-probe", "odd", &probe(AUTO, "mark = \"v1\"")).await;
    let digest = |site: &Site| site.plugins.history("odd").0[0].manifest.clone();
    let new = digest(&site);
    let mut changes = site.plugins.changes();
    let asking = async {
        loop {
            assert!(site.probe("odd", "{}", None).await.is_ok());
        }
    };
    let change = tokio::select! {
        change = tokio::time::timeout(TIMEOUT, changes.recv()) => change.unwrap().unwrap(),
        () = asking => unreachable!(),
    };
    assert!(matches!(change, Change::Promoted { .. }), "{change:?}");
    let (records, _) = site.plugins.history("odd");
    assert_eq!(
        (records[0].outcome, records[0].by.as_str()),
        (AdmissionOutcome::Promoted, "shadow")
    );
    assert_eq!(records[0].manifest, new);
    assert!(
        records[0]
            .reason
            .as_deref()
            .unwrap()
            .contains("compared answers differ")
    );

    let failing = probe(AUTO, "mark = \"v1\"\nattempt = { do = \"trap\" }");
    start_shadow(&site, "tests/faulty-probe", "odd", &failing).await;
    for _ in 0..10 {
        assert!(site.probe("odd", "{}", None).await.is_ok());
    }
    let failed = await_compared(&site, "odd", 10).await;
    assert_eq!((failed.faults, failed.automatic), (failed.compared, true));
    assert!(
        failed.samples[0].candidate.contains("trapped"),
        "{:?}",
        failed.samples[0]
    );
    let status = site.status("odd");
    assert_eq!(
        (status.traps, status.disabled_reason),
        (0, None),
        "the shadow's faults do not count for the serving version"
    );
    // The next files also run as a shadow of the serving version.
    start_shadow(
        &site,
        "tests/faulty-probe",
        "odd",
        &probe(MANUAL, "mark = \"v9\""),
    )
    .await;
    assert_eq!(shadow(&site, "odd").unwrap().faults, 0);
    let other_world = site
        .replace(
            "tests/faulty-events",
            "odd",
            &format!("world = \"event-filter\"\n{MANUAL}\n"),
        )
        .await;
    assert!(
        matches!(&other_world, Change::Rejected { reason, .. } if reason.contains("its world differs")),
        "{other_world:?}"
    );
    site.stop().await;
}

/// A shadow that never answers does not delay the serving version: the queue of samples is bounded,
/// and further samples are dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_shadow_does_not_slow_the_serving_version() {
    let slow = "world = \"check-probe\"\nrollout = \"shadow-manual\"\n[limits]\nmemory = \"16MiB\"\ninstances = 1\ncpu = \"20s\"\n\
                wall-clock = \"20s\"\n[config]\nattempt = { do = \"loop\" }\n";
    let site = Site::with(&[("tests/faulty-probe", "odd", Some(&probe("", "")))]).await;
    start_shadow(&site, "tests/faulty-probe", "odd", slow).await;
    let asking = async {
        for _ in 0..500 {
            assert!(site.probe("odd", "{}", None).await.is_ok());
        }
    };
    tokio::time::timeout(TIMEOUT, asking)
        .await
        .expect("all calls are answered");
    let beside = shadow(&site, "odd").unwrap();
    assert!(beside.dropped >= 400, "{beside:?}");
    let change = site
        .replace("tests/faulty-probe", "odd", &probe("", "mark = \"v3\""))
        .await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    assert_eq!(shadow(&site, "odd"), None);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shadows_of_filters_and_matchers_are_compared() {
    let filter = |promote: &str, drop: &str| {
        format!(
            "world = \"event-filter\"\n{promote}\n[limits]\nmemory = \"16MiB\"\n[config]\ndrop = [{drop}]\n"
        )
    };
    let matcher =
        |promote: &str| format!("world = \"attribute-matcher\"\n{promote}\n[limits]\nmemory = \"64MiB\"\n");
    let site = Site::with(&[
        ("tests/faulty-events", "faulty-events", Some(&filter("", ""))),
        ("attributes", "attributes", Some(&matcher(""))),
    ])
    .await;
    start_shadow(
        &site,
        "tests/faulty-events",
        "faulty-events",
        &filter(MANUAL, "\"b\""),
    )
    .await;
    start_shadow(&site, "attributes", "attributes", &matcher(MANUAL)).await;

    let events = ["a", "b"].map(|kind| Event {
        sequence: 1,
        kind: kind.into(),
        subject: None,
        body: "{}".into(),
    });
    let view = site.plugins.open_view(Query::default()).await.unwrap();
    assert_eq!(
        view.decide(&events).await.unwrap(),
        [Decision::Pass, Decision::Pass]
    );
    let differing = await_compared(&site, "faulty-events", 2).await;
    assert_eq!((differing.compared, differing.differences), (2, 1));
    let sample = &differing.samples[0];
    assert_eq!(sample.question, "decide (b)");
    assert_eq!(
        (sample.serving.as_str(), sample.candidate.as_str()),
        ("\"pass\"", "\"drop\"")
    );

    let mut agent_set = site.plugins.agent_set(None);
    let agent = Agent {
        handle: 1,
        id: "a".into(),
        hostname: "a".into(),
        region: None,
        zone: None,
        attributes: vec![],
        extensions: vec![],
    };
    agent_set.update(vec![agent], vec![]);
    let task = Task {
        run_spec: "/a".into(),
        instances: 1,
        constraints: vec![Constraint::Expression("gpu:true".into())],
        ..Task::default()
    };
    let candidates = [Candidate {
        agent: 1,
        capacity: 1,
    }];
    site.plugins
        .validate_constraints(&task.constraints)
        .await
        .unwrap();
    agent_set.evaluate(&task, &candidates).await.unwrap();
    agent_set.place(&task, &candidates, 1).await.unwrap();
    let agreeing = await_compared(&site, "attributes", 3).await;
    assert_eq!(
        (agreeing.compared, agreeing.differences, agreeing.faults),
        (3, 0, 0)
    );
    site.stop().await;
}

/// After a restart the directory contains the new version, and the records say that the old one
/// serves. The new version runs as a shadow again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shadow_is_restored_after_a_restart() {
    let state = TempDir::new().unwrap();
    let server = format!("file:{}", state.path().display());
    let store = transom_store::open(&server).await.unwrap();
    let with_store = |config: &mut Config| config.store = Some(Arc::clone(&store));
    let first = probe("", "mark = \"v1\"");
    let site = Site::with_config(&[("tests/faulty-probe", "odd", Some(&first))], with_store).await;
    start_shadow(
        &site,
        "tests/faulty-probe",
        "odd",
        &probe(MANUAL, "mark = \"v2\""),
    )
    .await;
    let site = site.restart(|_| (), with_store).await;
    assert!(shadow(&site, "odd").is_some());
    assert_eq!(
        site.probe("odd", "{}", None).await,
        Ok(custom(r#"{"mark": "v1", "attempt": 1}"#))
    );
    let (records, _) = site.plugins.history("odd");
    assert_eq!(records.len(), 2, "a restart adds no record: {records:?}");
    site.plugins.promote("odd", "x").await.unwrap();
    let site = site.restart(|_| (), with_store).await;
    assert_eq!(shadow(&site, "odd"), None);
    assert_eq!(
        site.probe("odd", "{}", None).await,
        Ok(custom(r#"{"mark": "v2", "attempt": 1}"#))
    );
    site.stop().await;
}
