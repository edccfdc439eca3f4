//! Instances with volumes: their resources are reserved, used for launches and released, also if
//! the master is lost, an operation is lost or the scheduler restarts in between.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use transom_cluster::v1;
use transom_common::Backoff;

use super::master::Call;
use super::rig::Rig;
use crate::testing::{offer, pair_spec, resources_after, spec, task_request};
use crate::{DiskKind, Reason, RunSpec, SchedulerApi, TaskRequest, VolumeRequest};

fn resident(of: RunSpec) -> Arc<RunSpec> {
    Arc::new(RunSpec {
        role: Some("prod".to_owned()),
        volumes: vec![VolumeRequest {
            container_path: "data".to_owned(),
            size: 30,
            disk: DiskKind::Root,
            constraints: Vec::new(),
        }],
        ..of
    })
}

fn operations(accept: &Call) -> Vec<v1::Operation> {
    serde_json::from_value(accept.body["accept"]["operations"].clone()).unwrap()
}

fn kinds(accept: &Call) -> Vec<String> {
    let kinds = operations(accept).into_iter();
    kinds.map(|operation| operation.r#type.to_string()).collect()
}

/// The task of a LAUNCH.
fn launched(accept: &Call) -> v1::TaskInfo {
    operations(accept)[0].launch.as_ref().unwrap().task_infos[0].clone()
}

/// An offer of the resources that the call reserved.
fn offer_of(id: &str, agent: &str, accept: &Call) -> v1::Offer {
    v1::Offer {
        resources: resources_after(&operations(accept)),
        ..offer(id, agent, 0.0, &[])
    }
}

impl Rig {
    async fn subscribed() -> Self {
        let mut rig = Self::new().await;
        assert_eq!(rig.event_text().await, "registered F-1");
        rig
    }

    /// Submits a task of the instance `i`.
    async fn submit_without_reservation(&self, task: &str, spec: &Arc<RunSpec>) {
        self.scheduler.submit(vec![TaskRequest {
            reservation: Some("i".to_owned()),
            ..task_request(task, spec)
        }]);
        self.wait_for_turn().await;
    }

    /// Offers resources of agent `a1`, and returns the call that reserves them for the instance `i`.
    async fn reserve(&mut self, spec: &Arc<RunSpec>) -> Call {
        self.submit_without_reservation("i.1", spec).await;
        let before = self.master.calls("ACCEPT").len();
        self.master.offer(&[offer("o1", "a1", 4.0, &[(7000, 7009)])]);
        let accept = self.master.call("ACCEPT", before + 1).await;
        assert_eq!(self.event_text().await, "reservation i requested");
        accept
    }

    /// Offers the reserved resources, and returns the call that launches the task on them.
    async fn launch_on(&mut self, task: &str, reserve: &Call) -> Call {
        let before = self.master.calls("ACCEPT").len();
        let offered = offer_of(&format!("o-{task}"), "a1", reserve);
        self.master.offer(&[offered]);
        let accept = self.master.call("ACCEPT", before + 1).await;
        assert_eq!(self.event_text().await, format!("launched {task} TASK_STAGING"));
        assert_eq!(self.event_text().await, format!("reservation i used by {task}"));
        accept
    }

    fn reasons(&self) -> Vec<Reason> {
        let pending = self.scheduler.pending().to_vec();
        pending[0].reasons.last.keys().copied().collect()
    }
}

#[tokio::test]
async fn instance_is_launched_on_the_volumes_that_were_reserved_for_it() {
    let mut rig = Rig::subscribed().await;
    let spec = resident(spec("/db"));
    let reserve = rig.reserve(&spec).await;
    let stored = &reserve.stored["reservations/i"];
    assert_eq!(
        (
            &stored["agent"]["id"]["value"],
            &stored["created"],
            &stored["task"]
        ),
        (&json!("a1"), &json!(false), &Value::Null)
    );
    assert_eq!(kinds(&reserve), ["RESERVE", "CREATE"]);
    assert_eq!(reserve.body["accept"]["filters"]["refuse_seconds"], 0.0);
    let create = &reserve.body["accept"]["operations"][1]["create"]["volumes"][0];
    assert_eq!(
        create["disk"]["persistence"]["id"],
        stored["volumes"][0]["persistence_id"]
    );
    assert_eq!(
        create["disk"]["volume"],
        json!({"container_path": "data", "mode": "RW"})
    );
    let labels = &create["reservations"][0]["labels"]["labels"];
    let pairs = labels.as_array().unwrap().iter();
    let pairs: Vec<_> = pairs
        .map(|label| (label["key"].as_str().unwrap(), label["value"].as_str().unwrap()))
        .collect();
    let id = stored["id"].as_str().unwrap();
    assert_eq!(
        pairs,
        [
            ("transom_framework_id", "F-1"),
            ("transom_reservation", "i"),
            ("transom_reservation_id", id)
        ]
    );
    assert_eq!(rig.scheduler.pending().len(), 1, "it is not launched yet");

    let launch = rig.launch_on("i.1", &reserve).await;
    assert_eq!(launch.stored["tasks/i.1"]["phase"], "Intent");
    let stored = &launch.stored["reservations/i"];
    assert_eq!(
        (&stored["created"], &stored["task"]["value"]),
        (&json!(true), &json!("i.1"))
    );
    let info = launched(&launch);
    assert_eq!(info.resources, resources_after(&operations(&reserve)));

    // The next incarnation runs on the same agent.
    rig.master.update("i.1", "TASK_FAILED", "end");
    assert_eq!(rig.event_text().await, "updated i.1 TASK_FAILED");
    rig.submit_without_reservation("i.2", &spec).await;
    rig.master.offer(&[offer("o2", "a2", 4.0, &[])]);
    rig.master
        .call_where("DECLINE", 1, |call| {
            call.body["decline"]["offer_ids"][0]["value"] == "o2"
        })
        .await;
    rig.wait_for_turn().await;
    assert_eq!(rig.reasons(), [Reason::NoCorrespondingReservationFound]);
    rig.launch_on("i.2", &reserve).await;
    assert_eq!(rig.scheduler.reservations()["i"].volumes.len(), 1);
}

#[tokio::test]
async fn no_restart_loses_a_reservation() {
    let mut rig = Rig::subscribed().await;
    let spec = resident(spec("/db"));
    let reserve = rig.reserve(&spec).await;

    // Restart before the resources are offered.
    let mut rig = rig.restart().await;
    assert!(
        !rig.scheduler.reservations()["i"].created,
        "the reservation is known before the subscription"
    );
    rig.submit_without_reservation("i.1", &spec).await;
    rig.master.call("SUBSCRIBE", 2).await;
    assert_eq!(rig.event_text().await, "reregistered");
    rig.master.offer(&[offer("o2", "a2", 4.0, &[])]);
    rig.master.call("DECLINE", 1).await;
    rig.launch_on("i.1", &reserve).await;

    // Restart while its task runs, and after it is released.
    let mut rig = rig.restart().await;
    rig.master.call("SUBSCRIBE", 3).await;
    assert_eq!(rig.event_text().await, "reregistered");
    assert_eq!(rig.scheduler.reservations()["i"].task, Some("i.1".into()));
    rig.scheduler.release_reservation("i");
    assert_eq!(rig.event_text().await, "reservation i released");
    // Only a part of the resources is offered while the task runs.
    let mut part = offer_of("o3", "a1", &reserve);
    part.resources.truncate(1);
    rig.master.offer(&[part]);
    rig.master
        .call_where("DECLINE", 1, |call| {
            call.body["decline"]["offer_ids"][0]["value"] == "o3"
        })
        .await;

    let mut rig = rig.restart().await;
    rig.master.call("SUBSCRIBE", 4).await;
    assert_eq!(rig.event_text().await, "reregistered");
    rig.master.update("i.1", "TASK_FINISHED", "end");
    assert_eq!(rig.event_text().await, "updated i.1 TASK_FINISHED");
    let before = rig.master.calls("ACCEPT").len();
    rig.master.offer(&[offer_of("o4", "a1", &reserve)]);
    let removal = rig.master.call("ACCEPT", before + 1).await;
    assert_eq!(kinds(&removal), ["DESTROY", "UNRESERVE"]);
    assert_eq!(removal.stored["reservations/i"]["releasing"], true);
    assert_eq!(rig.event_text().await, "reservation i removed");
    rig.purge("i.1").await;
    let kill = rig.master.calls("KILL");
    assert!(kill.is_empty(), "a release kills no task: {kill:?}");
    let rig = rig.restart().await;
    assert!(
        rig.scheduler.reservations().is_empty(),
        "the record of the reservation is deleted"
    );
}

#[tokio::test]
async fn lost_reservation_is_tried_again_and_its_remnants_are_removed() {
    let mut rig = Rig::with_timeouts(|timeouts| timeouts.reservation = Duration::from_millis(50)).await;
    assert_eq!(rig.event_text().await, "registered F-1");
    let spec = resident(spec("/db"));
    let first = rig.reserve(&spec).await;
    assert_eq!(rig.event_text().await, "reservation i removed");
    rig.master.offer(&[offer("o2", "a1", 4.0, &[])]);
    let second = rig.master.call("ACCEPT", 2).await;
    assert_eq!(kinds(&second), ["RESERVE", "CREATE"]);
    let id = |accept: &Call| accept.stored["reservations/i"]["id"].clone();
    assert_ne!(id(&first), id(&second));
    // In the end both attempts have succeeded, on the same agent. Remnants of the later attempt,
    // after another timeout, do not matter here.
    rig.master.offer(&[offer_of("o3", "a1", &first)]);
    let removal = rig.master.call("ACCEPT", 3).await;
    assert_eq!(kinds(&removal), ["DESTROY", "UNRESERVE"]);
    let destroyed = operations(&removal)[0].destroy.clone().unwrap().volumes;
    assert_eq!(destroyed, operations(&first)[1].create.clone().unwrap().volumes);
}

#[tokio::test]
async fn reservation_without_its_volumes_is_removed() {
    let mut rig = Rig::with_timeouts(|timeouts| timeouts.reservation = Duration::from_millis(200)).await;
    assert_eq!(rig.event_text().await, "registered F-1");
    let reserve = rig.reserve(&resident(spec("/db"))).await;
    // An offer after CREATE failed: the resources are reserved, without volumes.
    let bare = v1::Offer {
        resources: resources_after(&operations(&reserve)[..1]),
        ..offer("o2", "a1", 0.0, &[])
    };
    rig.master.offer(std::slice::from_ref(&bare));
    rig.master.call("DECLINE", 1).await;
    assert_eq!(rig.event_text().await, "reservation i removed");
    rig.master.offer(&[bare]);
    let removal = rig.master.call("ACCEPT", 2).await;
    assert_eq!(kinds(&removal), ["UNRESERVE"]);
}

#[tokio::test]
async fn reservations_of_other_frameworks_are_left_alone() {
    let mut rig = Rig::subscribed().await;
    let spec = resident(spec("/db"));
    let reserve = rig.reserve(&spec).await;
    // An offer of resources that are reserved under another key.
    let other = |id: &str, framework: &str| {
        let mut offer = offer_of(id, "a1", &reserve);
        for resource in &mut offer.resources {
            let labels = resource.reservations[0].labels.as_mut().unwrap();
            for label in &mut labels.labels {
                match label.key.as_str() {
                    "transom_framework_id" => label.value = Some(framework.to_owned()),
                    "transom_reservation" => label.value = Some("unknown".to_owned()),
                    _ => {}
                }
            }
        }
        offer
    };
    rig.master.offer(&[other("o2", "F-other")]);
    rig.master.call("DECLINE", 1).await;
    assert_eq!(rig.master.calls("ACCEPT").len(), 1);
    // A reservation of this framework without a record.
    rig.master.offer(&[other("o3", "F-1")]);
    let removal = rig.master.call("ACCEPT", 2).await;
    assert_eq!(kinds(&removal), ["DESTROY", "UNRESERVE"]);
    assert_eq!(removal.body["accept"]["offer_ids"][0]["value"], "o3");
    assert!(removal.stored.contains_key("reservations/i"));
}

#[tokio::test]
async fn rejected_removal_is_repeated_with_a_backoff() {
    let hour = Backoff {
        base: Duration::from_hours(1),
        max: Duration::from_hours(1),
    };
    let mut rig = Rig::with_timeouts(|timeouts| timeouts.reconcile_retry = hour).await;
    assert_eq!(rig.event_text().await, "registered F-1");
    let spec = resident(spec("/db"));
    let reserve = rig.reserve(&spec).await;
    rig.scheduler.release_reservation("i");
    assert_eq!(rig.event_text().await, "reservation i released");
    rig.kill("i.1", None).await;
    assert_eq!(rig.event_text().await, "never launched i.1");
    rig.master.offer(&[offer_of("o2", "a1", &reserve)]);
    let removal = rig.master.call("ACCEPT", 2).await;
    assert_eq!(kinds(&removal), ["DESTROY", "UNRESERVE"]);
    assert_eq!(rig.event_text().await, "reservation i removed");
    rig.master.offer(&[offer_of("o3", "a1", &reserve)]);
    rig.master
        .call_where("DECLINE", 1, |call| {
            call.body["decline"]["offer_ids"][0]["value"] == "o3"
        })
        .await;
    assert_eq!(rig.master.calls("ACCEPT").len(), 2);
}

#[tokio::test]
async fn reserved_resources_are_not_used_by_other_run_specs() {
    let mut rig = Rig::subscribed().await;
    let reserve = rig.reserve(&resident(spec("/db"))).await;
    rig.kill("i.1", None).await;
    assert_eq!(rig.event_text().await, "never launched i.1");
    let plain = Arc::new(RunSpec {
        role: Some("prod".to_owned()),
        ..spec("/app")
    });
    rig.submit(&plain, &["t"]).await;
    rig.master.offer(&[offer_of("o2", "a1", &reserve)]);
    rig.master.call("DECLINE", 1).await;
    let mut more = offer_of("o3", "a1", &reserve);
    more.resources.extend(offer("o", "a1", 4.0, &[]).resources);
    rig.master.offer(&[more]);
    assert_eq!(rig.event_text().await, "reservation i created");
    let accept = rig.master.call("ACCEPT", 2).await;
    let info = launched(&accept);
    assert!(
        info.resources
            .iter()
            .all(|resource| resource.reservations.is_empty())
    );
}

#[tokio::test]
async fn instance_with_a_reservation_waits_for_its_agent() {
    let mut rig = Rig::subscribed().await;
    let spec = resident(spec("/db"));
    let reserve = rig.reserve(&spec).await;
    rig.launch_on("i.1", &reserve).await;
    rig.master.update("i.1", "TASK_GONE", "end");
    assert_eq!(rig.event_text().await, "updated i.1 TASK_GONE");
    rig.master
        .send(&json!({"type": "FAILURE", "failure": {"agent_id": {"value": "a1"}}}));
    assert_eq!(rig.event_text().await, "lost a1");
    rig.submit_without_reservation("i.2", &spec).await;
    rig.master.offer(&[offer("o2", "a2", 4.0, &[])]);
    rig.master.call("DECLINE", 1).await;
    rig.wait_for_turn().await;
    assert_eq!(rig.reasons(), [Reason::NoCorrespondingReservationFound]);
    assert!(rig.scheduler.reservations()["i"].created);
    rig.launch_on("i.2", &reserve).await;
}

#[tokio::test]
async fn instance_with_a_released_reservation_reserves_other_resources() {
    let mut rig = Rig::subscribed().await;
    let spec = resident(spec("/db"));
    let reserve = rig.reserve(&spec).await;
    rig.launch_on("i.1", &reserve).await;
    rig.scheduler.release_reservation("unknown");
    rig.scheduler.release_reservation("i");
    assert_eq!(rig.event_text().await, "reservation i released");
    rig.submit_without_reservation("i.2", &spec).await;
    rig.master.update("i.1", "TASK_KILLED", "end");
    assert_eq!(rig.event_text().await, "updated i.1 TASK_KILLED");
    // The instance waits until its volume is destroyed.
    rig.master.offer(&[offer("o2", "a2", 4.0, &[])]);
    rig.master.call("DECLINE", 1).await;
    rig.master.offer(&[offer_of("o3", "a1", &reserve)]);
    let removal = rig.master.call("ACCEPT", 3).await;
    assert_eq!(kinds(&removal), ["DESTROY", "UNRESERVE"]);
    assert_eq!(rig.event_text().await, "reservation i removed");
    rig.master.offer(&[offer("o4", "a2", 4.0, &[])]);
    let again = rig.master.call("ACCEPT", 4).await;
    assert_eq!(kinds(&again), ["RESERVE", "CREATE"]);
    assert_eq!(again.stored["reservations/i"]["agent"]["id"]["value"], "a2");
}

#[tokio::test]
async fn released_reservation_that_is_never_offered_is_dropped() {
    let mut rig = Rig::with_timeouts(|timeouts| timeouts.release = Duration::from_millis(1)).await;
    assert_eq!(rig.event_text().await, "registered F-1");
    let reserve = rig.reserve(&resident(spec("/db"))).await;
    rig.launch_on("i.1", &reserve).await;
    rig.scheduler.release_reservation("i");
    assert_eq!(rig.event_text().await, "reservation i released");
    // The reservation is not dropped while its task may run.
    rig.wait_for_turn().await;
    rig.wait_for_turn().await;
    assert!(rig.scheduler.reservations().contains_key("i"));
    rig.master.update("i.1", "TASK_GONE", "end");
    assert_eq!(rig.event_text().await, "updated i.1 TASK_GONE");
    assert_eq!(rig.event_text().await, "reservation i removed");
}

#[tokio::test]
async fn nothing_is_reserved_before_the_store_has_the_record() {
    let mut rig = Rig::subscribed().await;
    rig.submit_without_reservation("i.1", &resident(spec("/db")))
        .await;
    rig.store.down.store(true, Ordering::SeqCst);
    rig.master.offer(&[offer("o1", "a1", 4.0, &[])]);
    rig.master.call("DECLINE", 1).await;
    assert!(rig.master.calls("ACCEPT").is_empty());
    rig.wait_for_turn().await;
    assert_eq!(rig.reasons(), [Reason::StoreUnavailable]);
    rig.store.down.store(false, Ordering::SeqCst);
    rig.wait_for_turn().await;
    let revived = rig.master.calls("REVIVE").len();
    rig.master.call("REVIVE", revived + 1).await;
    rig.master.offer(&[offer("o2", "a1", 4.0, &[])]);
    let accept = rig.master.call("ACCEPT", 1).await;
    assert!(accept.stored.contains_key("reservations/i"));
    assert_eq!(rig.event_text().await, "reservation i requested");
}

#[tokio::test]
async fn volumes_of_a_group_are_those_of_its_executor() {
    let mut rig = Rig::subscribed().await;
    let reserve = rig.reserve(&resident(pair_spec("/pod"))).await;
    rig.master.offer(&[offer_of("o2", "a1", &reserve)]);
    let accept = rig.master.call("ACCEPT", 2).await;
    for task in ["i.1.0", "i.1.1"] {
        assert_eq!(rig.event_text().await, format!("launched {task} TASK_STAGING"));
    }
    assert_eq!(rig.event_text().await, "reservation i used by i.1");
    let launch = operations(&accept)[0].launch_group.clone().unwrap();
    let created = operations(&reserve)[1].create.clone().unwrap().volumes;
    assert_eq!(launch.executor.resources[2..], created);
    let reserved = |resource: &v1::Resource| resource.reservations.len() == 1;
    let tasks = launch.task_group.tasks;
    assert!(tasks.iter().all(|task| task.resources.iter().all(reserved)));
}

#[tokio::test]
async fn reserved_agent_counts_for_the_constraints_of_other_instances() {
    let mut rig = Rig::subscribed().await;
    let spec = resident(spec("/db"));
    let reserve = rig.reserve(&spec).await;
    rig.scheduler.submit(vec![task_request("j", &spec)]);
    rig.wait_for_turn().await;
    rig.master.offer(&[offer("o2", "a2", 4.0, &[])]);
    rig.master.call("ACCEPT", 2).await;
    assert_eq!(
        rig.event_text().await,
        "reservation j requested",
        "the default key is the id of the task"
    );
    let placed = |rig: &Rig| {
        let (task, agents) = rig.script.last_call.lock().unwrap().clone().unwrap();
        let ids = task.placed.iter().map(|handle| agents[handle].id.clone());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(placed(&rig), ["a1"]);
    rig.launch_on("i.1", &reserve).await;
    assert_eq!(placed(&rig), ["a2"], "its own reservation does not count");
}

#[tokio::test]
async fn invalid_volumes_are_rejected() {
    let mut rig = Rig::subscribed().await;
    let good = resident(spec("/db"));
    let change = |change: fn(&mut RunSpec)| {
        let mut bad = RunSpec::clone(&good);
        change(&mut bad);
        Arc::new(bad)
    };
    let cases = [
        (change(|spec| spec.role = None), "`*`"),
        (
            change(|spec| spec.volumes.push(spec.volumes[0].clone())),
            "same path",
        ),
        (change(|spec| spec.volumes[0].size = 0), "without a size"),
        (
            change(|spec| {
                spec.volumes[0].disk = DiskKind::Mount {
                    max_size: Some(29),
                    profile: None,
                };
            }),
            "maximum",
        ),
        (change(|spec| spec.role = Some("a b".to_owned())), "space"),
    ];
    for (spec, why) in cases {
        rig.submit(&spec, &["bad"]).await;
        let event_text = rig.event_text().await;
        assert!(
            event_text.starts_with("rejected bad: ") && event_text.contains(why),
            "{event_text}"
        );
    }
    assert!(rig.scheduler.pending().is_empty());
}
