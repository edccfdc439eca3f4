//! A canary answers a share of the calls, and is promoted, aborted or continued after a restart.

use std::sync::Arc;

use tempfile::TempDir;
use transom_plugin_host::{
    AdmissionOutcome, Change, CommandError, Config, Rollout, RolloutKind,
    bootstrap::{Context, Role},
    events::{Decision, Event, Query, View},
    matcher::{Agent, Candidate, Constraint, Task, Verdict},
    probe::{Kind, Outcome},
};

use crate::support::{Site, TIMEOUT, component, request, stamped, wait_until, write_file};

pub(crate) const ODD: &str = "tests/faulty-probe";

/// A manifest of the hostile probe.
pub(crate) fn probe(rollout: &str, config: &str) -> String {
    format!(
        "world = \"check-probe\"\n{rollout}\n[limits]\nmemory = \"16MiB\"\ninstances = 1\n[config]\n{config}\n"
    )
}

/// A canary with half of the tasks, which an operator promotes.
pub(crate) const MANUAL: &str = "rollout = \"canary-manual\"\ncanary = { percent = 50 }";

/// With 50 %, the canary of the plugin `odd` answers for these tasks.
pub(crate) const CANARY_TASKS: &[&str] = &["t0", "t2", "t4", "t6", "t7", "t8", "t9"];
pub(crate) const OTHER_TASKS: &[&str] = &["t1", "t3", "t5"];

pub(crate) async fn probe_task(
    site: &Site,
    task: &str,
) -> Result<Outcome, transom_plugin_host::probe::Failure> {
    let mut request = request(None);
    request.task = task.to_owned();
    site.plugins
        .probe(Kind::Named("odd".to_owned()), request, None)
        .await
}

/// The mark of the version that probes this task.
async fn mark(site: &Site, task: &str) -> String {
    let Ok(Outcome::Custom(report)) = probe_task(site, task).await else {
        panic!("{task}");
    };
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    report["mark"].as_str().unwrap().to_owned()
}

/// Checks that this version probes the canary's tasks, and "v1" the others.
async fn assert_marks(site: &Site, canary: &str) {
    for &task in CANARY_TASKS {
        assert_eq!(mark(site, task).await, canary, "{task}");
    }
    for &task in OTHER_TASKS {
        assert_eq!(mark(site, task).await, "v1", "{task}");
    }
}

pub(crate) fn canary(site: &Site, name: &str) -> Option<Rollout> {
    let rollout = site.status(name).rollout?;
    assert_eq!(rollout.kind, RolloutKind::Canary);
    Some(rollout)
}

pub(crate) async fn start_canary(site: &Site, source: &str, name: &str, manifest: &str) {
    let change = site.replace(source, name, manifest).await;
    assert!(matches!(change, Change::Canary { .. }), "{change:?}");
}

/// The next change of any plugin.
pub(crate) async fn next_change(changes: &mut tokio::sync::broadcast::Receiver<Change>) -> Change {
    let change = tokio::time::timeout(TIMEOUT, changes.recv()).await;
    change.expect("a change").unwrap()
}

pub(crate) fn outcomes(site: &Site, name: &str) -> Vec<(AdmissionOutcome, String)> {
    let (records, _) = site.plugins.history(name);
    records.into_iter().map(|it| (it.outcome, it.by)).collect()
}

fn outcomes_by(expected: &[(AdmissionOutcome, &str)]) -> Vec<(AdmissionOutcome, String)> {
    expected
        .iter()
        .map(|(outcome, by)| (*outcome, (*by).to_owned()))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn canary_answers_its_share_of_the_tasks() {
    let site = Site::with(&[(ODD, "odd", Some(&probe("", "mark = \"v1\"")))]).await;
    // Another component, so that the two versions have separate series.
    let other = stamped(&std::fs::read(component(ODD)).unwrap(), 1);
    let change = site
        .change_files(|| {
            write_file(
                site.dir.path(),
                "odd.toml",
                probe(MANUAL, "mark = \"v2\"").as_bytes(),
            );
            write_file(site.dir.path(), "odd.wasm", &other);
        })
        .await;
    let Change::Canary { digest, .. } = &change else {
        panic!("{change:?}");
    };
    assert_marks(&site, "v2").await;
    assert_marks(&site, "v2").await;
    wait_until("its calls to be compared", || {
        canary(&site, "odd").unwrap().compared == 14
    })
    .await;
    let rollout = canary(&site, "odd").unwrap();
    assert_eq!(
        (&rollout.digest, rollout.percent, rollout.automatic, rollout.calls),
        (digest, 50, false, 14)
    );
    assert_eq!((rollout.differences, rollout.faults, rollout.dropped), (14, 0, 0));
    let sample = &rollout.samples[0];
    assert!(
        sample.serving.contains("v1") && sample.candidate.contains("v2"),
        "{sample:?}"
    );
    assert!(rollout.p99_micros.is_some() && rollout.serving_p99_micros.is_some());
    assert_eq!(
        rollout.missing[1..],
        [
            "86 more calls that it answers (canary.min-calls)",
            "promotion by an operator (transom plugin promote odd)"
        ]
    );
    // Repeated calls do not count as calls of the serving version.
    let status = site.status("odd");
    assert_eq!(status.calls, 6);
    let label = |digest: &str| {
        format!(
            "version=\"{}+{}\"",
            rollout.version,
            &digest["sha256:".len()..][..8]
        )
    };
    for (digest, calls) in [(&rollout.digest, 14), (status.digest.as_ref().unwrap(), 6)] {
        let labels = ["plugin=\"odd\"", "outcome=\"ok\"", &label(digest)];
        assert_eq!(
            site.sum("transom_plugins_calls_total", &labels),
            calls,
            "{digest}"
        );
    }
    assert_eq!(
        site.metric("transom_plugins_canary_answers_total{plugin=\"odd\",result=\"different\"}"),
        14
    );

    let change = site.plugins.promote("odd", "grace").await.unwrap();
    assert!(
        matches!(&change, Change::Promoted { from, .. } if Some(from) == status.digest.as_ref()),
        "{change:?}"
    );
    assert_eq!(canary(&site, "odd"), None);
    for task in CANARY_TASKS.iter().chain(OTHER_TASKS) {
        assert_eq!(mark(&site, task).await, "v2", "{task}");
    }
    assert!(site.status("odd").probation.is_some(), "v1 can still be restored");
    assert_eq!(
        outcomes(&site, "odd")[..2],
        outcomes_by(&[
            (AdmissionOutcome::Promoted, "grace"),
            (AdmissionOutcome::Canary, "directory")
        ])
    );
    assert_eq!(site.metric("transom_plugins_promotions_total{plugin=\"odd\"}"), 1);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn canary_that_met_its_plan_is_promoted() {
    let site = Site::with(&[(ODD, "odd", Some(&probe("", "mark = \"v1\"")))]).await;
    let plan = "rollout = \"canary\"\n\
                canary = { percent = 50, min-duration = \"1ms\", min-calls = 5, max-differences-percent = 0 }";
    // Both versions give equal answers: each instance counts its attempts, and each task is probed
    // once.
    start_canary(&site, ODD, "odd", &probe(plan, "mark = \"v1\"\n# new")).await;
    let mut changes = site.plugins.changes();
    for task in &CANARY_TASKS[..4] {
        mark(&site, task).await;
    }
    wait_until("4 calls to be compared", || {
        canary(&site, "odd").is_some_and(|it| it.compared == 4)
    })
    .await;
    let rollout = canary(&site, "odd").unwrap();
    assert_eq!(rollout.differences, 0, "{rollout:?}");
    assert!(
        rollout.missing.iter().any(|it| it.starts_with("1 more calls")),
        "{rollout:?}"
    );
    mark(&site, CANARY_TASKS[4]).await;
    let change = next_change(&mut changes).await;
    let Change::Promoted { reason, .. } = &change else {
        panic!("{change:?}");
    };
    assert_eq!(
        reason,
        "it answered 5 calls with 0 faults; 0 of 5 compared answers differ"
    );
    assert_eq!(
        outcomes(&site, "odd")[0],
        (AdmissionOutcome::Promoted, "canary".to_owned())
    );
    site.stop().await;
}

/// After a restart with the same store, each task is probed by the same version as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_keep_their_version_after_a_restart_and_aborted_files_are_ignored() {
    let state = TempDir::new().unwrap();
    let server = format!("file:{}", state.path().display());
    let store = transom_store::open(&server).await.unwrap();
    let with_store = |config: &mut Config| config.store = Some(Arc::clone(&store));
    let first = probe("", "mark = \"v1\"");
    let site = Site::with_config(&[(ODD, "odd", Some(&first))], with_store).await;
    start_canary(&site, ODD, "odd", &probe(MANUAL, "mark = \"v2\"")).await;
    assert_marks(&site, "v2").await;
    let site = site.restart(|_| (), with_store).await;
    assert_marks(&site, "v2").await;
    assert_eq!(outcomes(&site, "odd").len(), 2, "a restart adds no record");

    let change = site.plugins.abort_candidate("odd", "grace").await.unwrap();
    assert!(
        matches!(&change, Change::Aborted { reason, .. } if reason == "aborted by grace"),
        "{change:?}"
    );
    assert_eq!(canary(&site, "odd"), None);
    assert_marks(&site, "v1").await;
    assert_eq!(
        site.plugins.rescan().await,
        [],
        "unchanged files are ignored after an abort"
    );
    assert_eq!(
        outcomes(&site, "odd")[..2],
        outcomes_by(&[
            (AdmissionOutcome::Aborted, "grace"),
            (AdmissionOutcome::Canary, "directory")
        ])
    );
    for (name, what, error) in [
        (
            "odd",
            "abort",
            CommandError::NoCandidate {
                name: "odd".into(),
                what: "abort",
            },
        ),
        (
            "odd",
            "promote",
            CommandError::NoCandidate {
                name: "odd".into(),
                what: "promote",
            },
        ),
        ("none", "abort", CommandError::Unknown { name: "none".into() }),
    ] {
        let found = match what {
            "promote" => site.plugins.promote(name, "x").await,
            _ => site.plugins.abort_candidate(name, "x").await,
        };
        assert_eq!(found, Err(error));
    }
    let site = site.restart(|_| (), with_store).await;
    assert_eq!(canary(&site, "odd"), None);
    assert_marks(&site, "v1").await;

    // Changed files run as a canary again. A rollback to the record of the aborted files serves
    // immediately.
    start_canary(&site, ODD, "odd", &probe(MANUAL, "mark = \"v3\"")).await;
    assert_marks(&site, "v3").await;
    let (records, _) = site.plugins.history("odd");
    let aborted = records
        .iter()
        .find(|it| it.outcome == AdmissionOutcome::Aborted)
        .unwrap();
    let change = site
        .plugins
        .rollback("odd", Some(aborted.sequence), "grace")
        .await;
    assert!(matches!(change, Ok(Change::RolledBack { .. })), "{change:?}");
    assert_eq!(canary(&site, "odd"), None);
    for task in CANARY_TASKS.iter().chain(OTHER_TASKS) {
        assert_eq!(mark(&site, task).await, "v2", "{task}");
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_or_removed_files_end_the_canary() {
    let site = Site::with(&[(ODD, "odd", Some(&probe("", "mark = \"v1\"")))]).await;
    start_canary(&site, ODD, "odd", &probe(MANUAL, "mark = \"v2\"")).await;
    start_canary(&site, ODD, "odd", &probe(MANUAL, "mark = \"v3\"")).await;
    assert_marks(&site, "v3").await;
    // Rejected files do not affect the canary.
    let rejected = site
        .replace(
            ODD,
            "odd",
            &probe("rollout = \"canary\"\ncanary = { percent = 0 }", ""),
        )
        .await;
    assert!(
        matches!(&rejected, Change::Rejected { reason, .. } if reason.contains("`canary.percent` is 0; expected 1 to 99")),
        "{rejected:?}"
    );
    assert_marks(&site, "v3").await;
    let other_world = format!("world = \"event-filter\"\n{MANUAL}\n");
    let rejected = site.replace("tests/faulty-events", "odd", &other_world).await;
    assert!(
        matches!(&rejected, Change::Rejected { reason, .. } if reason.contains("its world differs")),
        "{rejected:?}"
    );
    assert_marks(&site, "v3").await;
    let change = site.replace(ODD, "odd", &probe("", "mark = \"v4\"")).await;
    assert!(matches!(change, Change::Admitted { .. }), "{change:?}");
    assert_eq!(canary(&site, "odd"), None);
    start_canary(&site, ODD, "odd", &probe(MANUAL, "mark = \"v5\"")).await;
    let change = site
        .change_files(|| std::fs::remove_file(site.dir.path().join("odd.wasm")).unwrap())
        .await;
    assert!(matches!(change, Change::Removed { .. }), "{change:?}");
    assert!(site.plugins.list().iter().all(|it| it.name != "odd"));
    site.stop().await;
}

fn filter(rollout: &str, config: &str) -> String {
    format!(
        "world = \"event-filter\"\n{rollout}\n[limits]\nmemory = \"16MiB\"\ninstances = 1\n[config]\n{config}\n"
    )
}

/// The marks that the filters add to an event of each subscriber.
async fn marks(views: &[View]) -> Vec<String> {
    let mut marks = Vec::new();
    for view in views {
        let event = Event {
            sequence: 1,
            kind: view.query().event_types[0].clone(),
            subject: None,
            body: "{}".into(),
        };
        let decisions = view.decide(&[event]).await.unwrap();
        let [Decision::Replace(body)] = &decisions[..] else {
            panic!("{decisions:?}");
        };
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        marks.push(body["mark"].as_str().unwrap().to_owned());
    }
    marks
}

/// One filter of a chain has a canary. Its share is 50 %, which includes the query for `a` and not
/// the one for `b`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filter_in_a_chain_may_have_a_canary() {
    let (first, second) = (filter("", ""), filter("", "mark = \"v1\""));
    let installed = [
        ("tests/faulty-events", "first", Some(&*first)),
        ("tests/faulty-events", "second", Some(&*second)),
    ];
    let site = Site::with_config(&installed, |config| {
        config.bindings.filters = vec!["first".to_owned(), "second".to_owned()];
    })
    .await;
    // The views are opened before the canary starts. Their calls go to the canary, too.
    let mut views = Vec::new();
    for kind in ["a", "b"] {
        let query = Query {
            event_types: vec![kind.to_owned()],
            ..Query::default()
        };
        views.push(site.plugins.open_view(query).await.unwrap());
    }
    start_canary(
        &site,
        "tests/faulty-events",
        "second",
        &filter(MANUAL, "mark = \"v2\""),
    )
    .await;
    assert_eq!(marks(&views).await, ["v2", "v1"]);
    assert_eq!(canary(&site, "second").unwrap().calls, 1);
    assert_eq!(site.status("first").rollout, None);

    // When the canary traps, the serving version decides, and the chain continues.
    let mut changes = site.plugins.changes();
    let trapping = filter(
        "rollout = \"canary\"\ncanary = { percent = 50 }",
        "fault = \"trap\"",
    );
    start_canary(&site, "tests/faulty-events", "second", &trapping).await;
    assert_eq!(marks(&views).await, ["v1", "v1"]);
    assert!(matches!(next_change(&mut changes).await, Change::Canary { .. }));
    let change = next_change(&mut changes).await;
    assert!(
        matches!(&change, Change::Aborted { name, .. } if name == "second"),
        "{change:?}"
    );
    site.stop().await;
}

/// All calls about one app go to the same version of the matcher, and all calls about one container
/// of Kubernetes to the same version of the bootstrap handler.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn canary_of_matcher_and_bootstrap_is_chosen_by_app_and_container() {
    let matcher =
        |rollout: &str| format!("world = \"attribute-matcher\"\n{rollout}\n[limits]\nmemory = \"64MiB\"\n");
    let bootstrap =
        |rollout: &str| format!("world = \"bootstrap-handler\"\n{rollout}\n[limits]\nmemory = \"64MiB\"\n");
    let site = Site::with(&[
        ("attributes", "attributes", Some(&matcher(""))),
        ("bootstrap", "bootstrap", Some(&bootstrap(""))),
    ])
    .await;
    let mut agent_set = site.plugins.agent_set(None);
    let agents = (1..=3).map(|handle| Agent {
        handle,
        id: format!("a{handle}"),
        hostname: format!("a{handle}"),
        region: None,
        zone: None,
        attributes: vec![],
        extensions: vec![],
    });
    agent_set.update(agents.collect(), vec![]);
    start_canary(&site, "attributes", "attributes", &matcher(MANUAL)).await;
    start_canary(&site, "bootstrap", "bootstrap", &bootstrap(MANUAL)).await;

    let candidates = [1, 2].map(|agent| Candidate { agent, capacity: 1 });
    let on = |host: &str| Constraint::Field {
        field: "@hostname".into(),
        operator: "CLUSTER".into(),
        operand: Some(host.into()),
    };
    // The key of `/f` has place 6, that of `/b` place 66.
    for (app, calls) in [("/f", 3), ("/b", 3), ("/f", 6)] {
        let task = Task {
            run_spec: app.to_owned(),
            instances: 1,
            constraints: vec![on("a2")],
            placed: vec![1, 2],
            ..Task::default()
        };
        let verdicts = agent_set.evaluate(&task, &candidates).await.unwrap();
        assert_eq!(verdicts, [Verdict::Refused(0), Verdict::Fits], "{app}");
        assert_eq!(agent_set.place(&task, &candidates, 1).await.unwrap(), [2]);
        agent_set.select_kills(&task, 1).await.unwrap();
        assert_eq!(canary(&site, "attributes").unwrap().calls, calls, "{app}");
    }
    // The keys of these constraints have the places 29 and 86.
    for (constraint, calls) in [(on("a2"), 7), (Constraint::Expression("gpu:true".into()), 7)] {
        let wrong = site.plugins.validate_constraints(&[constraint]).await;
        assert_eq!(wrong, Ok(vec![]));
        assert_eq!(canary(&site, "attributes").unwrap().calls, calls);
    }
    wait_until("its calls to be compared", || {
        let rollout = canary(&site, "attributes").unwrap();
        rollout.compared + rollout.dropped == 7
    })
    .await;
    assert_eq!(canary(&site, "attributes").unwrap().differences, 0);

    // The keys of the agents 2 and 6 of `k8s` have the places 27 and 95. The task's id is not part
    // of the key.
    for (number, task, calls) in [(2, "x", 1), (6, "x", 1), (2, "y", 2)] {
        let context = Context {
            role: Role::Agent,
            framework: "k8s".to_owned(),
            task: task.to_owned(),
            number,
            host: String::new(),
            attributes: vec![],
            image: "k3s:1".to_owned(),
            ports: vec![],
            source: "https://example.com/run.sh".to_owned(),
            digest: String::new(),
            environment: vec![],
            arguments: vec![],
            extensions: vec![],
        };
        // The digest of the script is wrong, so that the component rejects. That counts as an
        // answer.
        let _ = site.plugins.prepare(context, b"#!/bin/sh\n".to_vec()).await;
        assert_eq!(canary(&site, "bootstrap").unwrap().calls, calls, "{number}");
    }
    site.stop().await;
}
