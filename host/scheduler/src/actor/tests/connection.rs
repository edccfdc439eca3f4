//! Subscriptions that end, framework ids that are removed, and services that read no events.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use transom_cluster::v1::TaskState;
use transom_common::Backoff;
use transom_common::ambient::{self, Ambient};

use super::super::MAX_OUTBOX_BYTES;
use super::master::Call;
use super::rig::Rig;
use crate::testing::{offer, record, spec, task_request};
use crate::{Event, Phase, Reason, SchedulerApi, TaskRecord};

#[tokio::test]
async fn subscription_is_renewed_with_the_same_id_and_tasks_are_reconciled() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    let earlier_calls = rig.master.calls("RECONCILE").len();
    rig.master.hang_up();
    assert_eq!(rig.event_text().await, "disconnected");
    assert_eq!(rig.event_text().await, "reregistered");
    let subscribe = rig.master.call("SUBSCRIBE", 2).await;
    assert_eq!(subscribe.body["framework_id"]["value"], "F-1");
    rig.master.call("RECONCILE", earlier_calls + 1).await;
    let connection = rig.scheduler.subscription();
    assert!(connection.connected);
    assert_eq!(connection.master.as_deref(), Some("master:5050"));
    assert_eq!(connection.framework_id.unwrap().as_str(), "F-1");
}

/// A master without a registry knows no task until its agents have registered with it again.
#[tokio::test]
async fn task_unknown_is_reconciled_again_shortly_after_a_subscription() {
    let mut rig = Rig::with_timeouts(|timeouts| {
        timeouts.reconcile_retry = Backoff {
            base: Duration::from_secs(2),
            max: Duration::from_secs(2),
        };
    })
    .await;
    rig.start_task("t1").await;
    for known in [true, false] {
        let before = rig.master.calls("RECONCILE").len();
        rig.master.hang_up();
        assert_eq!(rig.event_text().await, "disconnected");
        assert_eq!(rig.event_text().await, "reregistered");
        let about = |call: &Call| call.body["reconcile"]["tasks"][0]["task_id"]["value"] == "t1";
        let reconcile_number = rig
            .master
            .calls("RECONCILE")
            .iter()
            .filter(|call| about(call))
            .count();
        let reconcile_number = if rig.master.calls("RECONCILE").len() > before {
            reconcile_number
        } else {
            reconcile_number + 1
        };
        rig.master.call_where("RECONCILE", reconcile_number, about).await;
        rig.master.update("t1", "TASK_UNKNOWN", "");
        // The service receives no event, and the task is reconciled again.
        rig.master
            .call_where("RECONCILE", reconcile_number + 1, about)
            .await;
        assert_eq!(rig.record("t1").unwrap().state, TaskState::Running);
        if known {
            rig.master.update("t1", "TASK_RUNNING", "");
        } else {
            rig.master.update("t1", "TASK_UNKNOWN", "");
            assert_eq!(rig.event_text().await, "updated t1 TASK_UNKNOWN");
        }
    }
}

/// A clock that may be wrong.
#[derive(Default)]
struct Clock(Cell<SignedDuration>);

impl Ambient for Clock {
    fn now(&self) -> Timestamp {
        Timestamp::now() + self.0.get()
    }

    fn random(&self) -> u64 {
        rand::random()
    }
}

/// The time since the subscription counts, not the time of day at which it began.
#[tokio::test]
async fn clock_that_was_wrong_at_the_subscription_changes_nothing() {
    let clock = Rc::new(Clock::default());
    ambient::simulate(Some(Rc::clone(&clock) as _));
    clock.0.set(SignedDuration::from_hours(1));
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    clock.0.set(SignedDuration::ZERO);
    // The passing of time is what is tested: this is longer than TASK_UNKNOWN is not believed.
    tokio::time::sleep(Duration::from_millis(50)).await;
    rig.master.update("t1", "TASK_UNKNOWN", "");
    assert_eq!(rig.event_text().await, "updated t1 TASK_UNKNOWN");
    ambient::simulate(None);
}

/// Known tasks are reconciled explicitly, unknown ones implicitly: immediately, and then periodically.
#[tokio::test]
async fn tasks_are_reconciled_at_intervals() {
    let mut rig = Rig::with_timeouts(|timeouts| timeouts.reconcile = Duration::from_millis(100)).await;
    rig.start_task("t1").await;
    let implicit = |call: &Call| {
        call.body["reconcile"]["tasks"]
            .as_array()
            .is_none_or(Vec::is_empty)
    };
    let explicit = |call: &Call| !implicit(call);
    for n in 1..5 {
        rig.master.call_where("RECONCILE", n, implicit).await;
    }
    // Each reconciliation is answered, so that none is repeated because of a missing answer.
    for n in 1..4 {
        let reconciled_tasks = rig.master.call_where("RECONCILE", n, explicit).await;
        assert_eq!(
            reconciled_tasks.body["reconcile"]["tasks"][0]["agent_id"]["value"],
            "a1"
        );
        rig.master.update("t1", "TASK_RUNNING", "");
    }
}

#[tokio::test]
async fn many_tasks_are_reconciled_in_several_calls() {
    let records: Vec<_> = (0..2500)
        .map(|number| TaskRecord {
            phase: Phase::Launched,
            state: TaskState::Running,
            ..record(&format!("t{number}"))
        })
        .collect();
    let rig = Rig::with_records(&records).await;
    let task_count = |call: &Call| call.body["reconcile"]["tasks"].as_array().map_or(0, Vec::len);
    let mut seen = BTreeSet::new();
    for number in 1..4 {
        let call = rig
            .master
            .call_where("RECONCILE", number, |call| task_count(call) > 0)
            .await;
        assert!(task_count(&call) <= 1000, "{}", task_count(&call));
        let tasks = call.body["reconcile"]["tasks"].as_array().unwrap().clone();
        let ids = tasks.iter().map(|task| task["task_id"]["value"].to_string());
        seen.extend(ids);
    }
    assert_eq!(seen.len(), records.len());
}

/// Orphaned tasks on agents that register later are found soon, instead of with the next regular
/// reconciliation.
#[tokio::test]
async fn implicit_reconciliation_is_more_frequent_after_a_subscription() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.event_text().await, "registered F-1");
    let started_at = Instant::now();
    // Implicit reconciliations follow after 20, 40, 80 and 160 ms; the regular interval is ten
    // minutes.
    rig.master.call("RECONCILE", 5).await;
    assert!(
        started_at.elapsed() >= Duration::from_millis(80),
        "{:?}",
        started_at.elapsed()
    );
    rig.master.update("orphan", "TASK_RUNNING", "");
    assert_eq!(rig.event_text().await, "unknown orphan TASK_RUNNING");
    rig.master.call("KILL", 1).await;
}

#[tokio::test]
async fn subscribe_backs_off_when_credentials_are_rejected() {
    let mut rig = Rig::with_timeouts(|timeouts| {
        timeouts.reconnect = Backoff {
            base: Duration::from_millis(20),
            max: Duration::from_millis(320),
        };
    })
    .await;
    assert_eq!(rig.event_text().await, "registered F-1");
    rig.master.configure(|rules| {
        rules.rejected_calls.insert("SUBSCRIBE");
    });
    rig.master.hang_up();
    assert_eq!(rig.event_text().await, "disconnected");
    let started_at = Instant::now();
    // The backoffs are 20, 20, 40, 80, 160 and 320 ms, each jittered down to at least its half.
    rig.master.call("SUBSCRIBE", 7).await;
    assert!(
        started_at.elapsed() >= Duration::from_millis(310),
        "{:?}",
        started_at.elapsed()
    );
    rig.master.configure(|rules| rules.rejected_calls.clear());
    assert_eq!(rig.event_text().await, "reregistered");
}

#[tokio::test]
async fn subscription_without_heartbeats_is_renewed() {
    let mut rig = Rig::with_records(&[]).await;
    rig.master.configure(|rules| rules.heartbeat = Some(0.05));
    rig.master.hang_up_when_subscribed().await;
    assert_eq!(rig.event_text().await, "reregistered");
    // The first stream had the usual heartbeats and was ended. The second one announces frequent
    // heartbeats and sends none.
    assert_eq!(rig.event_text().await, "disconnected");
    assert_eq!(rig.event_text().await, "reregistered");
    assert_eq!(rig.event_text().await, "disconnected");
}

#[tokio::test]
async fn removed_framework_registers_with_a_new_id_and_reconciles_its_tasks() {
    let mut rig = Rig::with_records(&[record("t1")]).await;
    assert_eq!(rig.event_text().await, "reregistered");
    rig.master.configure(|rules| {
        rules.removed.insert("F-0".to_owned());
    });
    rig.master.hang_up();
    assert_eq!(rig.event_text().await, "disconnected");
    assert_eq!(rig.event_text().await, "registered F-1");
    let reconcile = rig.master.call_where("RECONCILE", 1, |call| {
        call.stored["framework-id"] == "F-1" && !call.body["reconcile"]["tasks"].is_null()
    });
    reconcile.await;
    assert!((rig.metric("transom_scheduler_framework_registrations_total") - 1.0).abs() < f64::EPSILON);
    rig.master.update("t1", "TASK_GONE", "");
    assert_eq!(rig.event_text().await, "updated t1 TASK_GONE");
}

#[tokio::test]
async fn new_framework_id_is_stored_with_retries() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.event_text().await, "registered F-1");
    rig.master.configure(|rules| {
        rules.removed.insert("F-1".to_owned());
    });
    rig.store.down.store(true, Ordering::SeqCst);
    rig.master.hang_up();
    assert_eq!(rig.event_text().await, "disconnected");
    for _ in 0..3 {
        rig.store.rejected.notified().await;
    }
    rig.store.down.store(false, Ordering::SeqCst);
    assert_eq!(rig.event_text().await, "registered F-2");
    assert_eq!(rig.scheduler.subscription().framework_id.unwrap().as_str(), "F-2");
}

#[tokio::test]
async fn scheduler_backs_off_when_another_one_takes_over() {
    let longest = Duration::from_millis(500);
    let mut rig = Rig::with_timeouts(|timeouts| {
        timeouts.reconnect.base = Duration::from_millis(1);
        timeouts.reconnect.max = longest;
    })
    .await;
    assert_eq!(rig.event_text().await, "registered F-1");
    for n in 2..4 {
        let started_at = Instant::now();
        rig.master
            .send(&json!({"type": "ERROR", "error": {"message": "Framework failed over"}}));
        rig.master.hang_up();
        assert_eq!(rig.event_text().await, "disconnected");
        let subscribe = rig.master.call("SUBSCRIBE", n).await;
        // The first backoff is already the maximum, jittered down to at least its half.
        assert!(started_at.elapsed() >= longest / 2, "{:?}", started_at.elapsed());
        assert_eq!(
            subscribe.body["framework_id"]["value"], "F-1",
            "the framework id is kept"
        );
        assert_eq!(rig.event_text().await, "reregistered");
    }
}

#[tokio::test]
async fn pending_tasks_report_disconnected_without_a_subscription() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.event_text().await, "registered F-1");
    rig.master.configure(|rules| {
        rules.rejected_calls.insert("SUBSCRIBE");
    });
    rig.master.hang_up();
    assert_eq!(rig.event_text().await, "disconnected");
    rig.submit(&Arc::new(spec("/app")), &["t1"]).await;
    assert!(
        rig.scheduler.pending().to_vec()[0]
            .reasons
            .last
            .contains_key(&Reason::Disconnected)
    );
    assert!(!rig.scheduler.subscription().connected);
}

#[tokio::test]
async fn messages_and_lost_agents_are_delivered_in_order() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.master.send(&json!({"type": "MESSAGE", "message":
        {"agent_id": {"value": "a1"}, "executor_id": {"value": "e"}, "data": "aGk="}}));
    rig.master.update("t1", "TASK_UNREACHABLE", "");
    rig.master
        .send(&json!({"type": "FAILURE", "failure": {"agent_id": {"value": "a1"}}}));
    rig.master.send(&json!({"type": "FAILURE", "failure":
        {"agent_id": {"value": "a1"}, "executor_id": {"value": "e"}, "status": 0}}));
    rig.master.update("t1", "TASK_RUNNING", "");
    let mut event_texts = Vec::new();
    for _ in 0..4 {
        event_texts.push(rig.event_text().await);
    }
    assert_eq!(
        event_texts,
        [
            "message aGk=",
            "updated t1 TASK_UNREACHABLE",
            "lost a1",
            "updated t1 TASK_RUNNING"
        ]
    );
}

#[tokio::test]
async fn slow_event_reader_loses_no_event_and_can_send_commands() {
    const TASK_COUNT: usize = 2000;
    let mut rig = Rig::new().await;
    assert_eq!(rig.event_text().await, "registered F-1");
    // Half of their texts fill the queues.
    let text = "x".repeat(2 * MAX_OUTBOX_BYTES / TASK_COUNT);
    for n in 0..TASK_COUNT {
        let status = json!({"task_id": {"value": format!("orphan{n}")}, "state": "TASK_FINISHED",
            "agent_id": {"value": "a1"}, "uuid": "u", "message": text});
        rig.master
            .send(&json!({"type": "UPDATE", "update": {"status": status}}));
    }
    rig.master.call("ACKNOWLEDGE", 900).await;
    // The queues are full now or soon will be, but requests are still carried out.
    for n in 0..100 {
        rig.submit(&Arc::new(spec("/app")), &[&format!("t{n}")]).await;
    }
    while rig.metric("transom_scheduler_event_backpressure_total") < 1.0 {
        tokio::task::yield_now().await;
    }
    assert!(
        rig.master.calls("ACKNOWLEDGE").len() < TASK_COUNT,
        "the events read ahead are bounded"
    );
    let mut reconciled = BTreeSet::new();
    for _ in 0..TASK_COUNT {
        let Event::Unknown { status } = rig.event().await else {
            panic!("only orphans were sent")
        };
        reconciled.insert(status.task_id);
    }
    assert_eq!(reconciled.len(), TASK_COUNT);
}

#[tokio::test]
async fn stopped_scheduler_ends_its_events_and_ignores_requests() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.event_text().await, "registered F-1");
    rig.master.offer(&[offer("o", "a1", 1.0, &[])]);
    rig.token.cancel();
    rig.scheduler.stopped().await;
    assert!(rig.events.next().await.is_none());
    rig.scheduler
        .submit(vec![task_request("t1", &Arc::new(spec("/app")))]);
    assert!(rig.scheduler.pending().is_empty());
}
