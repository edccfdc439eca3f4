//! The order of writes to the store, calls to the master and events; restarts; kills.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use transom_cluster::v1::TaskState;
use transom_common::Backoff;
use transom_plugin_host::matcher::Task;

use super::rig::Rig;
use crate::testing::{offer, record, spec, task_request};
use crate::{Phase, RunSpec, SchedulerApi, TaskRecord};

fn tasks_of(call: &Value) -> Vec<&str> {
    let tasks = call["reconcile"]["tasks"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    tasks
        .iter()
        .map(|task| task["task_id"]["value"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn intent_is_stored_before_accept_and_update_before_acknowledge() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;

    let subscribe = &rig.master.calls("SUBSCRIBE")[0];
    assert_eq!(subscribe.body["framework_id"], Value::Null);
    let accept = &rig.master.calls("ACCEPT")[0];
    assert_eq!(accept.stored["framework-id"], "F-1");
    let intent = &accept.stored["tasks/t1"];
    assert_eq!(
        (&intent["phase"], &intent["state"]),
        (&json!("Intent"), &json!("TASK_STAGING"))
    );
    assert_eq!(intent["metadata"]["host"], "host-a1");
    let info = &accept.body["accept"]["operations"][0]["launch"]["task_infos"][0];
    assert_eq!(
        (&info["task_id"]["value"], &info["agent_id"]["value"]),
        (&json!("t1"), &json!("a1"))
    );
    assert_eq!(info["resources"][0]["scalar"]["value"], 0.5);
    assert_eq!(accept.body["accept"]["filters"]["refuse_seconds"], 60.0);

    let acknowledge = rig.master.call("ACKNOWLEDGE", 1).await;
    assert_eq!(acknowledge.stored["tasks/t1"]["state"], "TASK_RUNNING");
    assert_eq!(acknowledge.body["acknowledge"]["uuid"], "run-t1");

    // A repeated status is acknowledged but not delivered. The next one is delivered.
    rig.master.update("t1", "TASK_RUNNING", "run-t1");
    rig.master.call("ACKNOWLEDGE", 2).await;
    rig.master.update("t1", "TASK_FINISHED", "end");
    assert_eq!(rig.event_text().await, "updated t1 TASK_FINISHED");
    let acknowledge = rig.master.call("ACKNOWLEDGE", 3).await;
    assert_eq!(acknowledge.stored["tasks/t1"]["phase"], "Terminal");
    assert!((rig.metric("transom_scheduler_duplicate_status_updates_total") - 1.0).abs() < f64::EPSILON);

    rig.purge("t1").await;
    assert_eq!(rig.record("t1"), None);
    rig.master.update("t1", "TASK_FINISHED", "late");
    assert_eq!(rig.event_text().await, "unknown t1 TASK_FINISHED");
    let acknowledge = rig.master.call("ACKNOWLEDGE", 4).await;
    assert!(!acknowledge.stored.contains_key("tasks/t1"));
}

#[tokio::test]
async fn restart_keeps_the_framework_id_and_launches_nothing_twice() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    let mut rig = rig.restart().await;
    assert_eq!(
        rig.record("t1").unwrap().state,
        TaskState::Running,
        "known before the first subscription"
    );

    let spec = Arc::new(spec("/app"));
    rig.submit(&spec, &["t1", "t2"]).await;
    let subscribe = rig.master.call("SUBSCRIBE", 2).await;
    assert_eq!(subscribe.body["framework_id"]["value"], "F-1");
    assert_eq!(rig.event_text().await, "reregistered");
    let reconcile = rig
        .master
        .call_where("RECONCILE", 1, |call| !tasks_of(&call.body).is_empty())
        .await;
    assert_eq!(tasks_of(&reconcile.body), ["t1"]);
    assert_eq!(reconcile.body["reconcile"]["tasks"][0]["agent_id"]["value"], "a1");
    rig.master.update("t1", "TASK_RUNNING", "");

    rig.master.offer(&[offer("o2", "a2", 4.0, &[])]);
    assert_eq!(rig.event_text().await, "launched t2 TASK_STAGING");
    let launched: Vec<_> = rig
        .master
        .calls("ACCEPT")
        .iter()
        .flat_map(|call| {
            call.body["accept"]["operations"][0]["launch"]["task_infos"]
                .as_array()
                .unwrap()
                .clone()
        })
        .map(|info| info["task_id"]["value"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(launched, ["t1", "t2"]);
    // Running tasks count for the constraints of their run spec, even on an agent without offers.
    let (task, agent_set) = rig.script.last_call.lock().unwrap().clone().unwrap();
    assert_eq!(
        task.placed
            .iter()
            .map(|handle| agent_set[handle].id.as_str())
            .collect::<Vec<_>>(),
        ["a1"]
    );
    assert_eq!(
        agent_set[&task.placed[0]].attributes.len(),
        1,
        "its attributes were kept with the record"
    );
}

impl Rig {
    /// The last input of the matcher: the agents of the agent set, those of placed instances, and
    /// those of instances that are being killed.
    fn last_matcher_call(&self) -> (Vec<String>, Vec<String>, Vec<String>) {
        let (task, agent_set) = self.script.last_call.lock().unwrap().clone().unwrap();
        let id = |handle: &u32| agent_set[handle].id.clone();
        let ending = task.extensions.iter().find(|(name, _)| name == Task::ENDING);
        let ending = ending.map_or("", |(_, handles)| handles.as_str());
        (
            agent_set.values().map(|agent| agent.id.clone()).collect(),
            task.placed.iter().map(id).collect(),
            ending
                .split_whitespace()
                .map(|handle| id(&handle.parse().unwrap()))
                .collect(),
        )
    }
}

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A master reports a lost agent by the statuses of its tasks, by a failure, or by both.
#[tokio::test]
async fn lost_agent_and_its_instances_are_ignored_until_it_offers_again() {
    let failure = json!({"type": "FAILURE", "failure": {"agent_id": {"value": "a1"}}});
    for status in ["TASK_UNREACHABLE", "TASK_GONE_BY_OPERATOR", "FAILURE"] {
        let mut rig = Rig::new().await;
        rig.start_task("t1").await;
        if status == "FAILURE" {
            rig.master.send(&failure);
            assert_eq!(rig.event_text().await, "lost a1");
            rig.master.update("t1", "TASK_UNREACHABLE", "lost");
            assert_eq!(rig.event_text().await, "updated t1 TASK_UNREACHABLE");
        } else {
            rig.master.update("t1", status, "lost");
            assert_eq!(rig.event_text().await, format!("updated t1 {status}"));
        }
        let spec = Arc::new(spec("/app"));
        rig.submit(&spec, &["t2"]).await;
        rig.master.offer(&[offer("o2", "a2", 4.0, &[])]);
        assert_eq!(rig.event_text().await, "launched t2 TASK_STAGING");
        assert_eq!(
            rig.last_matcher_call(),
            (texts(&["a2"]), vec![], vec![]),
            "{status}"
        );

        // The agent returns.
        rig.submit(&spec, &["t3"]).await;
        rig.master.offer(&[offer("o3", "a1", 4.0, &[])]);
        assert_eq!(rig.event_text().await, "launched t3 TASK_STAGING");
        assert_eq!(
            rig.last_matcher_call(),
            (texts(&["a2", "a1"]), texts(&["a2"]), vec![]),
            "{status}"
        );
    }
}

#[tokio::test]
async fn lost_agent_without_tasks_is_ignored() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.event_text().await, "registered F-1");
    let spec = Arc::new(RunSpec {
        cpus: 4.0,
        ..spec("/app")
    });
    rig.submit(&spec, &["t1"]).await;
    rig.master.offer(&[offer("o1", "a1", 1.0, &[])]);
    rig.master.call("DECLINE", 1).await;
    let revived = rig.master.calls("REVIVE").len();
    rig.master
        .send(&json!({"type": "FAILURE", "failure": {"agent_id": {"value": "a1"}}}));
    assert_eq!(rig.event_text().await, "lost a1");
    // A pending task may now fit an offer that it did not fit before.
    rig.master.call("REVIVE", revived + 1).await;
    rig.master.offer(&[offer("o2", "a2", 4.0, &[])]);
    assert_eq!(rig.event_text().await, "launched t1 TASK_STAGING");
    assert_eq!(rig.last_matcher_call(), (texts(&["a2"]), vec![], vec![]));
}

#[tokio::test]
async fn draining_agent_is_ignored_while_its_tasks_end_and_afterwards() {
    for state in ["TASK_KILLING", "TASK_KILLED"] {
        let mut rig = Rig::new().await;
        rig.start_task("t1").await;
        let status = json!({
            "task_id": {"value": "t1"}, "state": state, "agent_id": {"value": "a1"}, "uuid": "drained",
            "reason": "REASON_AGENT_DRAINING",
        });
        rig.master
            .send(&json!({"type": "UPDATE", "update": {"status": status}}));
        assert_eq!(rig.event_text().await, format!("updated t1 {state}"));
        rig.submit(&Arc::new(spec("/app")), &["t2"]).await;
        rig.master.offer(&[offer("o2", "a2", 4.0, &[])]);
        assert_eq!(rig.event_text().await, "launched t2 TASK_STAGING");
        assert_eq!(
            rig.last_matcher_call(),
            (texts(&["a2"]), vec![], vec![]),
            "{state}"
        );
    }
}

#[tokio::test]
async fn restarted_task_is_killed_and_marked_as_restarting_until_a_later_kill() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.scheduler.restart(vec!["t1".into()], None);
    rig.master.call("KILL", 1).await;
    let rig = rig.restart().await;
    let record = rig.record("t1").unwrap();
    assert!(record.killing && record.restarting);
    rig.kill("t1", None).await;
    let record = rig.record("t1").unwrap();
    assert!(record.killing && !record.restarting);
}

#[tokio::test]
async fn matcher_receives_the_instances_that_are_being_killed() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.kill("t1", None).await;
    rig.master.call("KILL", 1).await;
    rig.submit(&Arc::new(spec("/app")), &["t2"]).await;
    rig.master.offer(&[offer("o2", "a2", 4.0, &[])]);
    assert_eq!(rig.event_text().await, "launched t2 TASK_STAGING");
    assert_eq!(
        rig.last_matcher_call(),
        (texts(&["a1", "a2"]), texts(&["a1"]), texts(&["a1"]))
    );
}

#[tokio::test]
async fn intent_is_reconciled_until_answered_and_accepted_once() {
    let mut rig = Rig::with_records(&[record("t1")]).await;
    assert_eq!(rig.event_text().await, "reregistered");
    let matcher_calls = |n| {
        rig.master
            .call_where("RECONCILE", n, |call| tasks_of(&call.body) == ["t1"])
    };
    matcher_calls(1).await;
    matcher_calls(3).await;
    rig.submit(&Arc::new(spec("/app")), &["t1"]).await;
    rig.master.offer(&[offer("o", "a1", 4.0, &[])]);
    rig.master.call("DECLINE", 1).await;
    rig.master.update("t1", "TASK_UNKNOWN", "");
    assert_eq!(rig.event_text().await, "updated t1 TASK_UNKNOWN");
    let known = rig.record("t1").unwrap();
    assert_eq!((known.phase, known.is_terminal()), (Phase::Terminal, true));
    assert_eq!(rig.master.calls("ACCEPT").len(), 0);
}

#[tokio::test]
async fn rejected_accept_is_reconciled_and_its_offer_declined() {
    let mut rig = Rig::new().await;
    rig.master.configure(|rules| {
        rules.rejected_calls.insert("ACCEPT");
    });
    rig.submit(&Arc::new(spec("/app")), &["t1"]).await;
    assert_eq!(rig.event_text().await, "registered F-1");
    rig.master.offer(&[offer("o", "a1", 4.0, &[])]);
    rig.master.call("ACCEPT", 1).await;
    rig.master
        .call_where("RECONCILE", 1, |call| tasks_of(&call.body) == ["t1"])
        .await;
    let declined = rig.master.call("DECLINE", 1).await.body;
    assert_eq!(declined["decline"]["offer_ids"], json!([{"value": "o"}]));
    // The master had accepted the launch, so that it ignores the DECLINE.
    rig.master.update("t1", "TASK_RUNNING", "");
    assert_eq!(rig.event_text().await, "launched t1 TASK_RUNNING");
    assert_eq!(rig.event_text().await, "updated t1 TASK_RUNNING");
    assert_eq!(rig.master.calls("ACCEPT").len(), 1);
}

#[tokio::test]
async fn launch_without_a_status_is_reconciled() {
    let mut rig = Rig::new().await;
    rig.submit(&Arc::new(spec("/app")), &["t1"]).await;
    assert_eq!(rig.event_text().await, "registered F-1");
    rig.master.offer(&[offer("o", "a1", 4.0, &[])]);
    assert_eq!(rig.event_text().await, "launched t1 TASK_STAGING");
    rig.master
        .call_where("RECONCILE", 1, |call| tasks_of(&call.body) == ["t1"])
        .await;
    rig.master.update("t1", "TASK_GONE", "");
    assert_eq!(rig.event_text().await, "updated t1 TASK_GONE");
}

#[tokio::test]
async fn kill_is_repeated_until_the_task_is_terminal() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.purge("t1").await;
    let rejected = rig.event_text().await;
    assert!(
        rejected.starts_with("rejected t1: task `t1` is not terminal"),
        "{rejected}"
    );
    rig.kill("t1", Some(Duration::from_secs(3))).await;
    let kill = rig.master.call("KILL", 1).await;
    assert_eq!(kill.body["kill"]["task_id"]["value"], "t1");
    assert_eq!(kill.body["kill"]["agent_id"]["value"], "a1");
    assert_eq!(
        kill.body["kill"]["kill_policy"]["grace_period"]["nanoseconds"],
        3_000_000_000_i64
    );
    rig.master.call("KILL", 3).await;
    rig.master.update("t1", "TASK_KILLED", "end");
    assert_eq!(rig.event_text().await, "updated t1 TASK_KILLED");
    assert!(rig.record("t1").unwrap().killing);
}

#[tokio::test]
async fn kill_continues_after_a_restart() {
    let killing = TaskRecord {
        killing: true,
        phase: Phase::Launched,
        ..record("t1")
    };
    let rig = Rig::with_records(&[killing]).await;
    assert_eq!(
        rig.master.call("KILL", 1).await.body["kill"]["task_id"]["value"],
        "t1"
    );
}

#[tokio::test]
async fn killed_task_that_returns_is_killed_again() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.master.update("t1", "TASK_LOST", "");
    assert_eq!(rig.event_text().await, "updated t1 TASK_LOST");
    rig.kill("t1", None).await;
    rig.master.update("t1", "TASK_RUNNING", "");
    assert_eq!(rig.event_text().await, "updated t1 TASK_RUNNING");
    rig.master.call("KILL", 1).await;
    rig.master.update("t1", "TASK_KILLED", "end");
    assert_eq!(rig.event_text().await, "updated t1 TASK_KILLED");
}

/// While the task was unreachable, the backoff of its kill has grown.
#[tokio::test]
async fn killed_task_is_killed_immediately_when_its_agent_returns() {
    let mut rig = Rig::with_timeouts(|timeouts| {
        timeouts.kill = Backoff {
            base: Duration::from_mins(10),
            max: Duration::from_mins(10),
        };
    })
    .await;
    rig.start_task("t1").await;
    rig.master.update("t1", "TASK_UNREACHABLE", "");
    assert_eq!(rig.event_text().await, "updated t1 TASK_UNREACHABLE");
    rig.kill("t1", None).await;
    rig.master.call("KILL", 1).await;
    rig.master.update("t1", "TASK_RUNNING", "");
    assert_eq!(rig.event_text().await, "updated t1 TASK_RUNNING");
    rig.master.call("KILL", 2).await;
    rig.master.update("t1", "TASK_KILLED", "end");
    assert_eq!(rig.event_text().await, "updated t1 TASK_KILLED");
}

#[tokio::test]
async fn unknown_task_is_reported_acknowledged_and_killed() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.event_text().await, "registered F-1");
    rig.master.update("orphan", "TASK_RUNNING", "u");
    assert_eq!(rig.event_text().await, "unknown orphan TASK_RUNNING");
    rig.master.call("ACKNOWLEDGE", 1).await;
    let kill = rig.master.call("KILL", 3).await;
    assert_eq!(kill.body["kill"]["task_id"]["value"], "orphan");
    assert_eq!(kill.body["kill"]["agent_id"]["value"], "a1");
    // The service may set the grace period.
    rig.kill("orphan", Some(Duration::from_secs(3))).await;
    rig.master
        .call_where("KILL", 1, |call| call.body["kill"]["kill_policy"].is_object())
        .await;
    rig.master.update("orphan", "TASK_KILLED", "v");
    assert_eq!(rig.event_text().await, "unknown orphan TASK_KILLED");
    rig.master.call("ACKNOWLEDGE", 2).await;
}

#[tokio::test]
async fn kill_of_an_unknown_id_is_sent() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.event_text().await, "registered F-1");
    rig.kill("orphan", None).await;
    rig.master.call("KILL", 2).await;
    rig.master.update("orphan", "TASK_UNKNOWN", "");
    assert_eq!(rig.event_text().await, "unknown orphan TASK_UNKNOWN");
}

/// Asserts that only `other`, an unknown task, is still killed: its kill is repeated several times
/// without a kill of any other task.
async fn kills_none_but(rig: &mut Rig, other: &str) {
    // After one more turn, all kills that were due have been sent.
    rig.wait_for_turn().await;
    let of_other = |call: &super::master::Call| call.body["kill"]["task_id"]["value"] == other;
    let kills_of_foreign_tasks = |rig: &Rig| {
        let kills = rig.master.calls("KILL");
        kills.iter().filter(|call| !of_other(call)).count()
    };
    let before = kills_of_foreign_tasks(rig);
    rig.kill(other, None).await;
    rig.master.call_where("KILL", 4, of_other).await;
    assert_eq!(kills_of_foreign_tasks(rig), before);
    rig.master.update(other, "TASK_UNKNOWN", "");
    assert_eq!(rig.event_text().await, format!("unknown {other} TASK_UNKNOWN"));
}

#[tokio::test]
async fn purged_task_that_returns_is_killed_once_reachable() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.master.update("t1", "TASK_UNREACHABLE", "");
    assert_eq!(rig.event_text().await, "updated t1 TASK_UNREACHABLE");
    rig.master.update("t1", "TASK_GONE_BY_OPERATOR", "");
    assert_eq!(rig.event_text().await, "updated t1 TASK_GONE_BY_OPERATOR");
    // The service replaces the task.
    rig.purge("t1").await;
    rig.master.update("t1", "TASK_UNREACHABLE", "");
    assert_eq!(rig.event_text().await, "unknown t1 TASK_UNREACHABLE");
    kills_none_but(&mut rig, "first").await;

    rig.master.update("t1", "TASK_RUNNING", "");
    assert_eq!(rig.event_text().await, "unknown t1 TASK_RUNNING");
    let duplicate = |call: &super::master::Call| call.body["kill"]["task_id"]["value"] == "t1";
    rig.master.call_where("KILL", 2, duplicate).await;
    rig.master.update("t1", "TASK_KILLED", "end");
    assert_eq!(rig.event_text().await, "unknown t1 TASK_KILLED");
    kills_none_but(&mut rig, "other").await;
}

#[tokio::test]
async fn completed_task_that_returns_is_killed_and_stays_completed() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.master.update("t1", "TASK_FAILED", "end");
    assert_eq!(rig.event_text().await, "updated t1 TASK_FAILED");
    rig.master.update("t1", "TASK_RUNNING", "");
    let kill = rig.master.call("KILL", 2).await;
    assert_eq!(kill.stored["tasks/t1"]["state"], "TASK_FAILED");
    assert_eq!(kill.body["kill"]["agent_id"]["value"], "a1");
    rig.master.update("t1", "TASK_KILLED", "late");
    rig.master.call("ACKNOWLEDGE", 3).await;
    kills_none_but(&mut rig, "other").await;
    let known = rig.record("t1").unwrap();
    assert_eq!((&known.state, known.killing), (&TaskState::Failed, false));
}

#[tokio::test]
async fn tasks_of_a_returning_agent_are_live_again() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    let started = rig.record("t1").unwrap().started_at;
    // `TASK_UNKNOWN` is trusted from the second reconciliation on.
    rig.master.call("RECONCILE", 2).await;
    for state in ["TASK_UNREACHABLE", "TASK_LOST", "TASK_GONE", "TASK_UNKNOWN"] {
        rig.master.update("t1", state, "");
        assert_eq!(rig.event_text().await, format!("updated t1 {state}"));
        let known = rig.record("t1").unwrap();
        assert_eq!(known.is_terminal(), state != "TASK_UNREACHABLE", "{state}");
        // The status comes from the master, which received it from the returning agent.
        rig.master.update("t1", "TASK_RUNNING", "");
        assert_eq!(rig.event_text().await, "updated t1 TASK_RUNNING");
        let known = rig.record("t1").unwrap();
        assert_eq!((known.phase, known.started_at), (Phase::Launched, started));
    }
    assert!(rig.master.calls("KILL").is_empty());
}

#[tokio::test]
async fn launches_and_acknowledgements_pause_without_the_store() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.master.call("ACKNOWLEDGE", 1).await;
    rig.store.down.store(true, Ordering::SeqCst);
    rig.submit(&Arc::new(spec("/app")), &["t2"]).await;
    rig.master.offer(&[offer("o2", "a1", 4.0, &[])]);
    rig.store.rejected.notified().await;
    rig.master.call("DECLINE", 1).await;
    let waiting = rig.scheduler.pending().to_vec();
    assert!(
        waiting[0]
            .reasons
            .last
            .contains_key(&crate::Reason::StoreUnavailable),
        "{waiting:?}"
    );
    rig.master.update("t1", "TASK_FINISHED", "end");
    for _ in 0..3 {
        rig.store.rejected.notified().await;
    }
    assert_eq!(
        (
            rig.master.calls("ACCEPT").len(),
            rig.master.calls("ACKNOWLEDGE").len()
        ),
        (1, 1)
    );
    assert_eq!(rig.record("t1").unwrap().state, TaskState::Running);

    let revived = rig.master.calls("REVIVE").len();
    rig.store.down.store(false, Ordering::SeqCst);
    let acknowledge = rig.master.call("ACKNOWLEDGE", 2).await;
    assert_eq!(acknowledge.stored["tasks/t1"]["state"], "TASK_FINISHED");
    assert_eq!(rig.event_text().await, "updated t1 TASK_FINISHED");
    rig.master.call("REVIVE", revived + 1).await;
    rig.master.offer(&[offer("o3", "a1", 4.0, &[])]);
    let accept = rig.master.call("ACCEPT", 2).await;
    assert_eq!(accept.stored["tasks/t2"]["phase"], "Intent");
    assert_eq!(rig.event_text().await, "launched t2 TASK_STAGING");
}

#[tokio::test]
async fn task_in_the_store_is_not_launched_again() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.event_text().await, "registered F-1");
    let foreign_record = serde_json::to_vec(&record("t1")).unwrap();
    transom_store::Store::put(
        &*rig.store,
        "fw/tasks/t1",
        foreign_record.into(),
        transom_store::Expect::Absent,
    )
    .await
    .unwrap();
    rig.submit(&Arc::new(spec("/app")), &["t1"]).await;
    rig.master.offer(&[offer("o", "a1", 4.0, &[])]);
    rig.master
        .call_where("RECONCILE", 1, |call| tasks_of(&call.body) == ["t1"])
        .await;
    assert_eq!(rig.master.calls("ACCEPT").len(), 0);
    assert!(rig.scheduler.pending().is_empty() && rig.record("t1").is_some());
}

#[tokio::test]
async fn status_update_does_not_wait_for_all_of_a_large_launch() {
    let mut rig = Rig::new().await;
    rig.start_task("t1").await;
    rig.master.call("ACKNOWLEDGE", 1).await;
    let small = Arc::new(RunSpec {
        cpus: 0.001,
        mem: 0.001,
        ..spec("/many")
    });
    let requests = (0..750).map(|n| task_request(&format!("many{n}"), &small));
    rig.scheduler.submit(requests.collect());
    let status = json!({"task_id": {"value": "t1"}, "state": "TASK_FINISHED", "agent_id": {"value": "a1"}, "uuid": "end"});
    rig.master.configure(|behavior| {
        behavior.event_at_accept = Some(json!({"type": "UPDATE", "update": {"status": status}}));
    });
    // Each has room for 300 tasks, so that the launch has three parts.
    let offers: Vec<_> = (2..=4)
        .map(|n| offer(&format!("o{n}"), &format!("a{n}"), 0.3, &[]))
        .collect();
    rig.master.offer(&offers);
    rig.master.call("ACCEPT", 4).await;
    let kinds = rig.master.kinds();
    let position = |kind: &str, number: usize| {
        let mut positions = (0..kinds.len()).filter(|at| kinds[*at] == kind);
        positions.nth(number - 1)
    };
    let (acknowledged, last) = (position("ACKNOWLEDGE", 2), position("ACCEPT", 4));
    assert!(
        acknowledged.is_some() && acknowledged < last,
        "acknowledged as call {acknowledged:?}, last part launched as call {last:?}"
    );
}
