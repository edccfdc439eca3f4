//! The engine with scripted components: it keeps its limits, and each attempt has exactly one
//! result.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::policies::Component;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::sync::{Semaphore, broadcast};
use transom_plugin_host::events::{OpenError, Query};
use transom_plugin_host::matcher::{Constraint, ConstraintError};
use transom_plugin_host::probe::{Kind, Reason, Request, Runner};
use transom_plugin_host::{CallError, Change};
use transom_testkit::wait_for;

use super::attempt::tests::probe;
use super::*;
use crate::policies::View;

/// A component whose attempts end when the test permits it.
#[derive(Debug)]
struct Gate {
    answer: Mutex<Result<Outcome, Failure>>,
    open: Semaphore,
    called: AtomicUsize,
    under_way: AtomicUsize,
    most: AtomicUsize,
    changes: broadcast::Sender<Change>,
}

impl Gate {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            answer: Mutex::new(Ok(Outcome::Http(200))),
            open: Semaphore::new(0),
            called: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            changes: broadcast::channel(16).0,
        })
    }

    fn called(&self) -> usize {
        self.called.load(Ordering::SeqCst)
    }

    fn admit(&self, name: &str) {
        let _ = self.changes.send(Change::Admitted {
            name: name.to_owned(),
            version: "2".to_owned(),
            digest: "sha256:00".to_owned(),
        });
    }
}

/// Counts a running attempt, until it is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Policies for Gate {
    fn components(&self) -> Vec<Component> {
        Vec::new()
    }

    async fn validate_constraints(&self, _: &[Constraint]) -> Result<Vec<ConstraintError>, CallError> {
        Ok(Vec::new())
    }

    async fn open_view(&self, _: Query) -> Result<Arc<dyn View>, OpenError> {
        Err(OpenError::Rejected("no view here".to_owned()))
    }

    async fn probe(&self, _: Kind, _: Request, _: Option<Arc<dyn Runner>>) -> Result<Outcome, Failure> {
        let now = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        let _counted = Counted(&self.under_way);
        self.called.fetch_add(1, Ordering::SeqCst);
        self.most.fetch_max(now, Ordering::SeqCst);
        self.open.acquire().await.unwrap().forget();
        self.answer.lock().unwrap().clone()
    }

    fn prober(&self, _: &Kind) -> String {
        "prober".to_owned()
    }

    fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }
}

struct World {
    gate: Arc<Gate>,
    checker: Checker,
    reports: mpsc::Receiver<Vec<Report>>,
    token: CancellationToken,
    tracker: TaskTracker,
}

impl World {
    fn start(checks: usize, health: usize) -> Self {
        let gate = Gate::new();
        let (sender, reports) = mpsc::channel(REPORT_QUEUE_CAPACITY);
        let (token, tracker) = (CancellationToken::new(), TaskTracker::new());
        let limits = Limits { checks, health };
        let metrics = Metrics::register(&mut Registry::default());
        let policies: Arc<dyn Policies> = gate.clone();
        let checker = Checker::start(policies, None, limits, sender, metrics, &tracker, token.clone());
        Self {
            gate,
            checker,
            reports,
            token,
            tracker,
        }
    }

    /// Makes a probe of a task now, and again only an hour later.
    fn add(&self, purpose: Purpose) -> InstanceId {
        let times = json!({"intervalSeconds": 3600, "timeoutSeconds": 600, "delaySeconds": 0});
        let mut check = times.clone();
        check["http"] = json!({});
        let probe = probe(&json!({"check": check, "healthChecks": [times]}), purpose);
        let instance = probe.instance.clone();
        self.checker.set(&instance, vec![probe], Occasion::Changed);
        instance
    }

    async fn report(&mut self) -> Vec<Report> {
        tokio::time::timeout(transom_testkit::WAIT_TIMEOUT, self.reports.recv())
            .await
            .unwrap()
            .unwrap()
    }

    async fn stop(self) {
        self.token.cancel();
        self.tracker.close();
        tokio::time::timeout(transom_testkit::WAIT_TIMEOUT, self.tracker.wait())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn number_of_concurrent_probes_is_limited() {
    let mut world = World::start(3, 2);
    for _ in 0..10 {
        world.add(Purpose::Check(0));
        world.add(Purpose::Health(0));
    }
    wait_for("every place is taken", async || {
        world.gate.under_way.load(Ordering::SeqCst) == 5
    })
    .await;
    world.gate.open.add_permits(20);
    let mut ended = 0;
    while ended < 20 {
        ended += world.report().await.len();
    }
    assert_eq!(world.gate.called(), 20);
    assert_eq!(world.gate.most.load(Ordering::SeqCst), 5);
    world.stop().await;
}

#[tokio::test]
async fn attempt_of_a_removed_probe_is_aborted_and_frees_its_place() {
    let mut world = World::start(1, 1);
    let first = world.add(Purpose::Check(0));
    wait_for("the first is under way", async || world.gate.called() == 1).await;
    let second = world.add(Purpose::Check(0));
    world.checker.end(&first);
    wait_for("the second has its place", async || world.gate.called() == 2).await;
    world.gate.open.add_permits(1);
    let reports = world.report().await;
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].probe.instance, second);
    world.stop().await;
}

/// The plugin is replaced while its last attempt is under way.
#[tokio::test]
async fn probe_is_repeated_if_its_plugin_was_replaced_during_a_failed_attempt() {
    let mut world = World::start(1, 1);
    *world.gate.answer.lock().unwrap() = Err(Failure {
        reason: Reason::Plugin,
        message: "trapped".to_owned(),
    });
    world.add(Purpose::Check(0));
    wait_for("the attempt is under way", async || world.gate.called() == 1).await;
    world.gate.admit("prober");
    world.gate.open.add_permits(1);
    let reports = world.report().await;
    assert!(
        matches!(reports[0].result, AttemptResult::Ended(Err(_))),
        "{reports:?}"
    );
    assert!(
        matches!(reports[1].result, AttemptResult::Obsolete),
        "{reports:?}"
    );
    wait_for("it is called again", async || world.gate.called() == 2).await;
    // The replacement of another plugin repeats no probe.
    world.gate.admit("other");
    *world.gate.answer.lock().unwrap() = Ok(Outcome::Http(200));
    world.gate.open.add_permits(1);
    let reports = world.report().await;
    assert!(
        matches!(reports[0].result, AttemptResult::Ended(Ok(Outcome::Http(200)))),
        "{reports:?}"
    );
    assert_eq!(world.gate.called(), 2);
    world.stop().await;
}
