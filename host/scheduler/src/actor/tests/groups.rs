//! Groups are launched, killed and counted as a whole.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use transom_cluster::v1::TaskState;

use super::rig::Rig;
use crate::testing::{PairBuilder, offer, pair_spec, record, spec};
use crate::{Build, BuildGroup, Group, InGroup, Member, Phase, RunSpec, SchedulerApi, TaskRecord};

async fn registered_rig() -> Rig {
    let mut rig = Rig::new().await;
    assert_eq!(rig.event_text().await, "registered F-1");
    rig
}

/// A group `g` that runs on agent `a1`.
async fn rig_with_running_group() -> Rig {
    let mut rig = registered_rig().await;
    rig.submit(&Arc::new(pair_spec("/pod")), &["g"]).await;
    rig.master.offer(&[offer("o", "a1", 1.0, &[(7000, 7000)])]);
    for member in ["g.0", "g.1"] {
        assert_eq!(rig.event_text().await, format!("launched {member} TASK_STAGING"));
    }
    for member in ["g.0", "g.1"] {
        rig.master
            .update(member, "TASK_RUNNING", &format!("run-{member}"));
        assert_eq!(rig.event_text().await, format!("updated {member} TASK_RUNNING"));
    }
    rig
}

fn member(id: &str, number: usize, phase: Phase, state: TaskState) -> TaskRecord {
    let group = InGroup {
        id: id.into(),
        executor: id.into(),
        member: number.to_string(),
    };
    TaskRecord {
        group: Some(group),
        run_spec: "/pod".to_owned(),
        phase,
        state,
        ..record(&format!("{id}.{number}"))
    }
}

fn scalars(resources: &Value) -> Vec<(&str, f64)> {
    let scalars = resources.as_array().unwrap().iter();
    scalars
        .filter_map(|resource| Some((resource["name"].as_str()?, resource["scalar"]["value"].as_f64()?)))
        .collect()
}

#[tokio::test]
async fn group_is_launched_by_one_call_and_stored_in_one_batch() {
    let mut rig = registered_rig().await;
    rig.submit(&Arc::new(pair_spec("/pod")), &["g"]).await;
    rig.submit(&Arc::new(spec("/app")), &["t"]).await;
    assert_eq!(rig.scheduler.pending().to_vec()[0].task.as_str(), "g");
    rig.master.offer(&[offer("o", "a1", 2.0, &[(6999, 7000)])]);
    let accept = rig.master.call("ACCEPT", 1).await;

    let operations = &accept.body["accept"]["operations"];
    assert_eq!(
        (&operations[0]["type"], &operations[1]["type"]),
        (&json!("LAUNCH"), &json!("LAUNCH_GROUP"))
    );
    let launch = &operations[1]["launch_group"];
    let executor = &launch["executor"];
    assert_eq!(executor["type"], "DEFAULT");
    assert_eq!(executor["executor_id"]["value"], "g");
    assert_eq!(executor["framework_id"]["value"], "F-1");
    assert_eq!(executor["name"], "g on host-a1");
    assert_eq!(scalars(&executor["resources"]), [("cpus", 0.1), ("mem", 32.0)]);
    let tasks = &launch["task_group"]["tasks"];
    assert_eq!(
        (&tasks[0]["name"], &tasks[1]["name"]),
        (&json!("g.0 [7000]"), &json!("g.1 []"))
    );
    assert_eq!(
        (&tasks[0]["task_id"]["value"], &tasks[0]["agent_id"]["value"]),
        (&json!("g.0"), &json!("a1"))
    );
    assert_eq!(scalars(&tasks[0]["resources"]), [("cpus", 0.5), ("mem", 100.0)]);
    assert_eq!(scalars(&tasks[1]["resources"]), [("cpus", 0.2), ("mem", 50.0)]);
    assert_eq!(
        tasks[0]["resources"][2]["ranges"]["range"],
        json!([{"begin": 7000, "end": 7000}])
    );

    for (id, name, ports) in [("g.0", "web", json!([7000])), ("g.1", "helper", json!([]))] {
        let intent = &accept.stored[&format!("tasks/{id}")];
        assert_eq!(
            (&intent["phase"], &intent["group"]["id"]["value"]),
            (&json!("Intent"), &json!("g"))
        );
        assert_eq!(
            (&intent["group"]["member"], &intent["group"]["executor"]["value"]),
            (&json!(name), &json!("g"))
        );
        assert_eq!(
            (&intent["host_ports"], &intent["metadata"]["of"]),
            (&ports, &json!(2))
        );
    }
    assert_eq!(accept.stored["tasks/t"]["group"], Value::Null);
    let mut launched = Vec::new();
    for _ in 0..3 {
        launched.push(rig.event_text().await);
    }
    launched.sort();
    assert_eq!(
        launched,
        ["g.0", "g.1", "t"].map(|id| format!("launched {id} TASK_STAGING"))
    );
    assert!(rig.scheduler.pending().is_empty());
    assert_eq!(rig.record("g.1").unwrap().request_id().as_str(), "g");
}

#[tokio::test]
async fn group_stays_pending_when_a_member_does_not_fit() {
    let rig = registered_rig().await;
    rig.submit(&Arc::new(pair_spec("/pod")), &["g"]).await;
    // Each member alone would fit one of the two offers.
    rig.master.offer(&[
        offer("o1", "a1", 0.7, &[(7000, 7009)]),
        offer("o2", "a2", 0.7, &[(7000, 7009)]),
    ]);
    rig.master.call("DECLINE", 1).await;
    let waiting = rig.scheduler.pending().to_vec();
    assert_eq!(
        waiting[0].reasons.last.get(&crate::Reason::InsufficientCpus),
        Some(&2)
    );
    assert!(rig.master.calls("ACCEPT").is_empty() && rig.scheduler.tasks().is_empty());
}

#[tokio::test]
async fn kill_of_a_member_kills_the_group() {
    for released in ["g.1", "g"] {
        let mut rig = rig_with_running_group().await;
        rig.kill(released, Some(Duration::from_secs(3))).await;
        for member in ["g.0", "g.1"] {
            let kill = rig
                .master
                .call_where("KILL", 2, |call| call.body["kill"]["task_id"]["value"] == member)
                .await;
            assert_eq!(
                kill.body["kill"]["kill_policy"]["grace_period"]["nanoseconds"],
                3_000_000_000_i64
            );
            assert!(rig.record(member).unwrap().killing);
        }
        rig.master.update("g.0", "TASK_KILLED", "end-0");
        assert_eq!(rig.event_text().await, "updated g.0 TASK_KILLED");
        let earlier_kills = rig.master.calls("KILL").len();
        let kill = rig.master.call("KILL", earlier_kills + 1).await;
        assert_eq!(
            kill.body["kill"]["task_id"]["value"], "g.1",
            "the other one still runs"
        );

        // The records of a group are purged together, when all of its tasks have ended.
        rig.purge("g").await;
        let rejected = rig.event_text().await;
        assert!(
            rejected.starts_with("rejected g: task `g.1` is not terminal"),
            "{rejected}"
        );
        rig.master.update("g.1", "TASK_KILLED", "end-1");
        assert_eq!(rig.event_text().await, "updated g.1 TASK_KILLED");
        rig.purge("g").await;
        assert!(rig.scheduler.tasks().is_empty());
    }
}

#[tokio::test]
async fn killed_pending_group_is_dropped_without_a_kill_call() {
    let mut rig = registered_rig().await;
    rig.submit(&Arc::new(pair_spec("/pod")), &["g"]).await;
    rig.kill("g", None).await;
    assert_eq!(rig.event_text().await, "never launched g");
    assert!(rig.scheduler.pending().is_empty());
    assert!(rig.master.calls("KILL").is_empty());
}

#[tokio::test]
async fn group_counts_as_one_instance_after_a_restart() {
    let records = [
        member("g", 0, Phase::Launched, TaskState::Running),
        member("g", 1, Phase::Launched, TaskState::Running),
    ];
    let mut rig = Rig::with_records(&records).await;
    assert_eq!(rig.event_text().await, "reregistered");
    rig.submit(&Arc::new(pair_spec("/pod")), &["g", "h"]).await;
    // Submitted in a later turn, so that the snapshot after the first request is published by then.
    rig.submit(&Arc::new(spec("/other")), &[]).await;
    assert_eq!(rig.scheduler.pending().len(), 1, "g is running and not pending");
    rig.master.offer(&[offer("o", "a2", 1.0, &[(7000, 7000)])]);
    for expected in ["launched h.0 TASK_STAGING", "launched h.1 TASK_STAGING"] {
        assert_eq!(rig.event_text().await, expected);
    }
    let (task, agent_set) = rig.script.last_call.lock().unwrap().clone().unwrap();
    let placed: Vec<_> = task
        .placed
        .iter()
        .map(|handle| agent_set[handle].id.as_str())
        .collect();
    assert_eq!(placed, ["a1"]);
    rig.kill("g.0", None).await;
    rig.master
        .call_where("KILL", 1, |call| call.body["kill"]["task_id"]["value"] == "g.1")
        .await;
}

#[tokio::test]
async fn group_is_not_launched_when_a_member_is_in_the_store() {
    let mut rig = registered_rig().await;
    let foreign_record = serde_json::to_vec(&member("g", 1, Phase::Intent, TaskState::Staging)).unwrap();
    let absent = transom_store::Expect::Absent;
    transom_store::Store::put(&*rig.store, "fw/tasks/g.1", foreign_record.into(), absent)
        .await
        .unwrap();
    rig.submit(&Arc::new(pair_spec("/pod")), &["g"]).await;
    rig.master.offer(&[offer("o", "a1", 4.0, &[(7000, 7000)])]);
    let asked = rig
        .master
        .call_where("RECONCILE", 1, |call| {
            call.body["reconcile"]["tasks"][0]["task_id"]["value"] == "g.1"
        })
        .await;
    assert!(
        !asked.stored.contains_key("tasks/g.0"),
        "either all intents are stored or none"
    );
    assert!(rig.master.calls("ACCEPT").is_empty());
    assert!(rig.scheduler.pending().is_empty() && rig.record("g.1").is_some());
    rig.master.update("g.1", "TASK_UNKNOWN", "");
    assert_eq!(rig.event_text().await, "updated g.1 TASK_UNKNOWN");
}

#[tokio::test]
async fn invalid_groups_are_rejected() {
    #[derive(Debug)]
    struct SameIdBuilder;

    impl BuildGroup for SameIdBuilder {
        fn task_id(&self, group: &transom_cluster::TaskId, _: usize) -> transom_cluster::TaskId {
            group.clone()
        }

        fn executor(&self, placement: &crate::GroupPlacement) -> transom_cluster::v1::ExecutorInfo {
            PairBuilder.executor(placement)
        }

        fn task(&self, placement: &crate::GroupPlacement, member: usize) -> transom_cluster::v1::TaskInfo {
            PairBuilder.task(placement, member)
        }
    }

    let mut rig = registered_rig().await;
    let table: [(usize, Arc<dyn BuildGroup>, &str); 2] = [
        (0, Arc::new(PairBuilder), "group `g` has no members"),
        (
            2,
            Arc::new(SameIdBuilder),
            "group `g` gives two of its members the same task id",
        ),
    ];
    for (count, build, expected) in table {
        let group = Group {
            members: vec![Member::default(); count],
            build,
        };
        let bad = Arc::new(RunSpec {
            build: Build::Group(group),
            ..spec("/pod")
        });
        let good = crate::testing::task_request("t", &Arc::new(spec("/app")));
        rig.scheduler
            .submit(vec![crate::testing::task_request("g", &bad), good]);
        assert_eq!(rig.event_text().await, format!("rejected g: {expected}"));
        let pending = rig.scheduler.pending().to_vec();
        assert_eq!(pending.len(), 1, "an invalid group delays no other request");
        assert_eq!(pending[0].task.as_str(), "t");
    }
}
