//! A canary that exceeds a limit is aborted, and no caller notices.

use std::time::Duration;

use transom_plugin_host::{
    AdmissionOutcome, Change,
    events::{Decision, Event, Query},
    probe::{Failure, Kind, Outcome, Reason},
};

use crate::canary::{
    CANARY_TASKS, MANUAL, ODD, OTHER_TASKS, canary, next_change, outcomes, probe, probe_task, start_canary,
};
use crate::support::{Server, Site, request, wait_until};

const AUTO: &str = "rollout = \"canary\"\ncanary = { percent = 50 }";

async fn odd_site() -> Site {
    Site::with(&[(ODD, "odd", Some(&probe("", "mark = \"v1\"")))]).await
}

/// Expects that the next change is the abort of the canary; returns the reason.
async fn aborted(changes: &mut tokio::sync::broadcast::Receiver<Change>) -> String {
    match next_change(changes).await {
        Change::Aborted { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trapping_canary_is_aborted_and_no_attempt_is_lost() {
    let site = odd_site().await;
    start_canary(&site, ODD, "odd", &probe(AUTO, "attempt = { do = \"trap\" }")).await;
    let mut changes = site.plugins.changes();
    for task in CANARY_TASKS.iter().chain(OTHER_TASKS) {
        let found = probe_task(&site, task).await;
        assert!(
            matches!(&found, Ok(Outcome::Custom(report)) if report.contains("v1")),
            "{task}: {found:?}"
        );
    }
    let reason = aborted(&mut changes).await;
    assert!(
        reason.starts_with(
            "1 faults, at most 0 are allowed (canary.max-faults); last fault: plugin `odd` trapped"
        ),
        "{reason}"
    );
    assert_eq!(canary(&site, "odd"), None);
    let status = site.status("odd");
    assert_eq!(
        (status.calls, status.traps, status.last_trap),
        (10, 0, None),
        "the canary's faults do not count for the serving version"
    );
    assert_eq!(
        outcomes(&site, "odd")[0],
        (AdmissionOutcome::Aborted, "canary".to_owned())
    );
    let failed = site.metric("transom_plugins_canary_answers_total{plugin=\"odd\",result=\"failed\"}");
    assert!((1..=7).contains(&failed), "{failed}");
    assert_eq!(site.metric("transom_plugins_aborts_total{plugin=\"odd\"}"), 1);
    site.stop().await;
}

/// The allowed number of faults has no effect. One more aborts the canary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn canary_may_have_as_many_faults_as_the_manifest_says() {
    let site = odd_site().await;
    let plan = "rollout = \"canary-manual\"\ncanary = { percent = 50, max-faults = 2 }";
    start_canary(&site, ODD, "odd", &probe(plan, "attempt = { do = \"trap\" }")).await;
    let mut changes = site.plugins.changes();
    for _ in 0..2 {
        assert!(probe_task(&site, CANARY_TASKS[0]).await.is_ok());
    }
    let rollout = canary(&site, "odd").unwrap();
    assert_eq!((rollout.faults, rollout.calls), (2, 0));
    assert!(changes.try_recv().is_err());
    assert!(probe_task(&site, CANARY_TASKS[0]).await.is_ok());
    let reason = aborted(&mut changes).await;
    assert!(reason.starts_with("3 faults, at most 2 are allowed"), "{reason}");
    site.stop().await;
}

/// An attempt that has performed steps is not repeated on the serving version. It ends without a
/// result, which does not change the state of the task, and not finishing counts as a fault.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn canary_that_never_finishes_is_aborted() {
    let site = odd_site().await;
    start_canary(&site, ODD, "odd", &probe(AUTO, "attempt = { do = \"steps\" }")).await;
    let mut changes = site.plugins.changes();
    let mut request = request(Some(&Server::closed().await));
    request.task = CANARY_TASKS[0].to_owned();
    let found = site.plugins.probe(Kind::Named("odd".into()), request, None).await;
    assert!(
        matches!(&found, Err(Failure { reason: Reason::Plugin, message }) if message.contains("limits.steps")),
        "{found:?}"
    );
    let reason = aborted(&mut changes).await;
    assert!(reason.contains("did not finish within 64 steps"), "{reason}");
    assert!(probe_task(&site, CANARY_TASKS[0]).await.is_ok());
    site.stop().await;
}

/// The attempt runs into its timeout. The failure names the plugin and not `timed-out`, which would
/// count against the task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_canary_is_not_a_failure_of_the_task() {
    let site = odd_site().await;
    let slow = format!(
        "world = \"check-probe\"\n{MANUAL}\n[limits]\nmemory = \"16MiB\"\ninstances = 1\ncpu = \"20s\"\nwall-clock = \"20s\"\n\
         [config]\nattempt = {{ do = \"loop\" }}\n"
    );
    start_canary(&site, ODD, "odd", &slow).await;
    let mut request = request(None);
    request.task = CANARY_TASKS[0].to_owned();
    request.timeout = Duration::from_millis(200);
    let began = std::time::Instant::now();
    let found = site.plugins.probe(Kind::Named("odd".into()), request, None).await;
    assert!(
        matches!(&found, Err(Failure { reason: Reason::Plugin, message }) if message.contains("canary")),
        "{found:?}"
    );
    // Its caller waits only a second longer than the timeout, and would then report a failure of
    // the task.
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert!(probe_task(&site, OTHER_TASKS[0]).await.is_ok());
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slower_canary_is_aborted() {
    let site = odd_site().await;
    let plan = "rollout = \"canary\"\n\
                canary = { percent = 50, min-calls = 30, compare-percent = 0, max-latency-ratio = 3, latency-floor = \"1us\" }";
    // Hundreds of log lines make an attempt slow, although the rate limit drops most of them.
    let slow = "attempt = { do = \"log\", lines = 400, bytes = 1000 }";
    start_canary(&site, ODD, "odd", &probe(plan, slow)).await;
    let mut changes = site.plugins.changes();
    let asking = async {
        loop {
            assert!(probe_task(&site, CANARY_TASKS[0]).await.is_ok());
            assert!(probe_task(&site, OTHER_TASKS[0]).await.is_ok());
        }
    };
    let reason = tokio::select! {
        reason = aborted(&mut changes) => reason,
        () = asking => unreachable!(),
    };
    assert!(site.status("odd").calls >= 30);
    assert!(
        reason.starts_with("the p99 of its calls is") && reason.contains("canary.max-latency-ratio"),
        "{reason}"
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn canary_that_answers_differently_is_aborted_if_so_configured() {
    let site = odd_site().await;
    let plan = "rollout = \"canary\"\n\
                canary = { percent = 50, min-calls = 10, max-differences-percent = 20 }";
    start_canary(&site, ODD, "odd", &probe(plan, "mark = \"v2\"")).await;
    let mut changes = site.plugins.changes();
    for compared in 1..=2 {
        assert!(probe_task(&site, CANARY_TASKS[0]).await.is_ok());
        wait_until("it to be compared", || {
            canary(&site, "odd").is_some_and(|it| it.compared == compared)
        })
        .await;
    }
    assert!(changes.try_recv().is_err(), "2 of 10 may differ");
    assert!(probe_task(&site, CANARY_TASKS[0]).await.is_ok());
    assert_eq!(
        aborted(&mut changes).await,
        "3 of 3 compared answers differ, at most 20 % may (canary.max-differences-percent)"
    );
    site.stop().await;
}

/// Whatever the canary does, neither opening a query nor deciding fails for a subscriber.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_do_not_notice_a_failing_canary() {
    let filter = |rollout: &str, fault: &str| {
        format!(
            "world = \"event-filter\"\n{rollout}\n[limits]\nmemory = \"16MiB\"\ninstances = 1\ncpu = \"20ms\"\n\
             [config]\nfault = \"{fault}\"\n"
        )
    };
    let installed = [("tests/faulty-events", "faulty-events", Some(&*filter("", "none")))];
    let site = Site::with(&installed).await;
    // The key of this query has place 11 of 100, so that the canary answers it.
    let query = Query {
        event_types: vec!["a".to_owned()],
        ..Query::default()
    };
    let event = Event {
        sequence: 1,
        kind: "a".into(),
        subject: None,
        body: "{}".into(),
    };
    for fault in [
        "trap-open",
        "loop-open",
        "trap",
        "loop",
        "allocate",
        "short",
        "bad-json",
    ] {
        start_canary(
            &site,
            "tests/faulty-events",
            "faulty-events",
            &filter(AUTO, fault),
        )
        .await;
        let mut changes = site.plugins.changes();
        let view = site.plugins.open_view(query.clone()).await.unwrap();
        assert_eq!(
            view.decide(std::slice::from_ref(&event)).await.unwrap(),
            [Decision::Pass],
            "{fault}"
        );
        let reason = aborted(&mut changes).await;
        assert!(reason.contains("canary.max-faults"), "{fault}: {reason}");
    }
    assert_eq!(site.status("faulty-events").traps, 0);
    site.stop().await;
}

/// When the serving version fails and is disabled, its canary ends, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serving_version_that_fails_ends_the_canary() {
    let failing = "[probation]\nmax-faults = 1\n";
    let serving = format!("{}{failing}", probe("", "attempt = { do = \"trap\" }"));
    let site = Site::with(&[(ODD, "odd", Some(&serving))]).await;
    start_canary(&site, ODD, "odd", &probe(MANUAL, "mark = \"v2\"")).await;
    let mut changes = site.plugins.changes();
    for _ in 0..2 {
        assert!(probe_task(&site, OTHER_TASKS[0]).await.is_err());
    }
    let change = next_change(&mut changes).await;
    assert!(matches!(change, Change::Disabled { .. }), "{change:?}");
    assert_eq!(canary(&site, "odd"), None);
    let found = probe_task(&site, CANARY_TASKS[0]).await;
    assert!(
        matches!(&found, Err(Failure { message, .. }) if message.contains("is disabled")),
        "{found:?}"
    );
    // An operator can roll back to the canary's record.
    let (records, _) = site.plugins.history("odd");
    let canary = records
        .iter()
        .find(|it| it.outcome == AdmissionOutcome::Canary)
        .unwrap();
    let change = site.plugins.rollback("odd", Some(canary.sequence), "grace").await;
    assert!(matches!(change, Ok(Change::RolledBack { .. })), "{change:?}");
    assert!(probe_task(&site, CANARY_TASKS[0]).await.is_ok());
    site.stop().await;
}
