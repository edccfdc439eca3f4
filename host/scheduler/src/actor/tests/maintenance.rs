//! Inverse offers, and agents that tasks have to leave for maintenance.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::rig::Rig;
use crate::testing::{offer, spec};
use crate::{Reason, RunSpec, SchedulerApi};
use jiff::Timestamp;
use transom_cluster::v1;
use transom_plugin_host::matcher::Agent;

/// A window that starts this many seconds from now and has no end.
fn window(seconds: i64) -> Value {
    let start = Timestamp::now().as_nanosecond() as i64 + seconds * 1_000_000_000;
    json!({"start": {"nanoseconds": start}})
}

impl Rig {
    fn inverse_offer(&self, id: &str, agent: &str, seconds: i64) {
        let offer = json!({
            "id": {"value": id},
            "framework_id": {"value": "F-1"},
            "agent_id": {"value": agent},
            "unavailability": window(seconds),
        });
        self.master
            .send(&json!({"type": "INVERSE_OFFERS", "inverse_offers": {"inverse_offers": [offer]}}));
    }
}

#[tokio::test]
async fn inverse_offer_is_accepted_and_maintenance_is_due_before_its_window() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    // In these tests, tasks have to leave the agent one minute before the window.
    rig.inverse_offer("i1", "a1", 3600);
    let accepted = rig.master.call("ACCEPT_INVERSE_OFFERS", 1).await;
    let accepted = &accepted.body["accept_inverse_offers"];
    assert_eq!(accepted["inverse_offer_ids"], json!([{"value": "i1"}]));
    assert_eq!(accepted["filters"]["refuse_seconds"], 600.0);
    rig.inverse_offer("i2", "a1", 59);
    assert_eq!(rig.event_text().await, "maintenance due a1");
    rig.master.call("ACCEPT_INVERSE_OFFERS", 2).await;
    // The operator moves the window.
    rig.inverse_offer("i3", "a1", 3600);
    assert_eq!(rig.event_text().await, "maintenance over a1");
    rig.inverse_offer("i4", "a1", 0);
    assert_eq!(rig.event_text().await, "maintenance due a1");
    rig.master
        .send(&json!({"type": "FAILURE", "failure": {"agent_id": {"value": "a1"}}}));
    assert_eq!(rig.event_text().await, "maintenance over a1");
    assert_eq!(rig.event_text().await, "lost a1");
}

#[tokio::test]
async fn offer_without_a_window_shows_that_maintenance_was_cancelled() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.inverse_offer("i1", "a1", 0);
    assert_eq!(rig.event_text().await, "maintenance due a1");
    rig.master.offer(&[offer("o9", "a1", 1.0, &[])]);
    assert_eq!(rig.event_text().await, "maintenance over a1");
}

#[tokio::test]
async fn inverse_offer_is_answered_again_after_a_backoff_when_the_master_rejected_the_answer() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.master.configure(|rules| {
        rules.rejected_calls.insert("ACCEPT_INVERSE_OFFERS");
    });
    rig.inverse_offer("i1", "a1", 3600);
    let started_at = Instant::now();
    // The answer is repeated after 20, 40 and 40 ms, each jittered down to at least its half.
    let repeated = rig.master.call("ACCEPT_INVERSE_OFFERS", 4).await;
    assert!(
        started_at.elapsed() >= Duration::from_millis(50),
        "{:?}",
        started_at.elapsed()
    );
    let ids = &repeated.body["accept_inverse_offers"]["inverse_offer_ids"];
    assert_eq!(*ids, json!([{"value": "i1"}]));
}

#[tokio::test]
async fn task_on_an_agent_in_maintenance_does_not_count_and_no_task_joins_it() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.inverse_offer("i1", "a1", 0);
    assert_eq!(rig.event_text().await, "maintenance due a1");
    let spec = Arc::new(RunSpec {
        instances: 2,
        ..spec("/app")
    });
    rig.submit(&spec, &["t2"]).await;
    let closed = v1::Offer {
        unavailability: Some(serde_json::from_value(window(0)).unwrap()),
        ..offer("o8", "a1", 4.0, &[(31_000, 32_000)])
    };
    rig.master.offer(&[closed]);
    rig.master.call("DECLINE", 1).await;
    rig.wait_for_turn().await;
    let waiting = rig.scheduler.pending().to_vec();
    assert!(
        waiting[0].reasons.last.contains_key(&Reason::AgentMaintenance),
        "{waiting:?}"
    );
    rig.master.offer(&[offer("o9", "a2", 4.0, &[(31_000, 32_000)])]);
    assert_eq!(rig.event_text().await, "launched t2 TASK_STAGING");
    let last_call = || rig.script.last_call.lock().unwrap().clone().unwrap();
    let (task, agents) = last_call();
    assert_eq!(task.placed, [] as [u32; 0]);
    let agent_ids = |agents: &BTreeMap<u32, Agent>| -> Vec<String> {
        agents.values().map(|agent| agent.id.clone()).collect()
    };
    assert_eq!(agent_ids(&agents), ["a2"], "no task may be spread to a1");
}

#[tokio::test]
async fn agent_returns_to_the_agent_set_when_its_window_is_cancelled() {
    let mut rig = Rig::new().await;
    let closed = v1::Offer {
        unavailability: Some(serde_json::from_value(window(0)).unwrap()),
        ..offer("o1", "a1", 4.0, &[(31_000, 32_000)])
    };
    let spec = Arc::new(spec("/app"));
    rig.submit(&spec, &["t1"]).await;
    assert_eq!(rig.event_text().await, "registered F-1");
    rig.master.offer(&[closed]);
    rig.master.call("DECLINE", 1).await;
    rig.master.offer(&[offer("o2", "a1", 4.0, &[(31_000, 32_000)])]);
    assert_eq!(rig.event_text().await, "launched t1 TASK_STAGING");
    let (_, agents) = rig.script.last_call.lock().unwrap().clone().unwrap();
    assert_eq!(agents.len(), 1);
}
