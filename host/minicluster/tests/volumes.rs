//! Reservations and persistent volumes: the effects of operations on offers and on tasks.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod support;

use serde_json::{Value, json};
use std::{path::Path, time::Duration};
use support::{Cluster, Framework, journal, modern, scalar, task};
use transom_testkit::wait_for;

fn recorded(name: &str) -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/cluster/6-operator")
        .join(name);
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// The recorded framework.
fn alpha() -> Value {
    let mut info = modern();
    info["roles"] = json!(["alpha"]);
    info
}

/// The recorded ACCEPT for this offer.
fn accept(offer: &Value) -> Value {
    let mut call = recorded("volume.request.json");
    call["accept"]["offer_ids"] = json!([offer["id"]]);
    call["accept"]["operations"][2]["launch"]["task_infos"][0]["agent_id"] = offer["agent_id"].clone();
    call
}

/// The outcome of an operation, which is acknowledged.
async fn outcome(framework: &mut Framework, id: &str) -> Value {
    let event = framework
        .until(|event| event["update_operation_status"]["status"]["operation_id"]["value"] == id)
        .await;
    let status = event["update_operation_status"]["status"].clone();
    if let Some(uuid) = status["uuid"]["value"].as_str() {
        let part = json!({"agent_id": status["agent_id"], "operation_id": {"value": id}, "uuid": uuid});
        framework
            .accepted(json!({"type": "ACKNOWLEDGE_OPERATION_STATUS", "acknowledge_operation_status": part}))
            .await;
    }
    status
}

fn operation(kind: &str, id: &str, list: &str, resource: &Value) -> Value {
    let mut operation = json!({"type": kind, "id": {"value": id}});
    operation[kind.to_ascii_lowercase()] = json!({ list: [resource] });
    operation
}

/// The reserved disk of an offer.
fn reserved(offer: &Value) -> Option<&Value> {
    let mut resources = offer["resources"].as_array().unwrap().iter();
    resources.find(|resource| resource.get("reservations").is_some())
}

/// The offer with the volume of a finished task. It may arrive before the update that the task
/// finished, which waits for the acknowledgements of the earlier ones.
async fn finished_and_offered(framework: &mut Framework, task: &str) -> Value {
    let (mut finished, mut offered) = (false, None);
    loop {
        let event = framework.event().await;
        let status = &event["update"]["status"];
        if status["task_id"]["value"] == task {
            assert_ne!(status["state"], "TASK_FAILED", "{status}");
            finished |= status["state"] == "TASK_FINISHED";
        }
        let offer = &event["offers"]["offers"][0];
        if offer.is_object() && reserved(offer).is_some() {
            offered = Some(offer.clone());
        }
        if let Some(offer) = offered.as_ref().filter(|_| finished) {
            return offer.clone();
        }
    }
}

#[tokio::test]
async fn a_volume_outlives_its_task_and_is_destroyed_on_request() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &alpha()).await;
    let offer = framework.offer().await;
    framework.accepted(accept(&offer)).await;
    for id in ["op-r", "op-c"] {
        let status = outcome(&mut framework, id).await;
        assert_eq!(status["state"], "OPERATION_FINISHED", "{status}");
        assert_eq!(status["agent_id"], offer["agent_id"]);
    }
    framework.state("vol-task", "TASK_RUNNING").await;
    let page = &cluster.get("/slaves").await["slaves"][0];
    let like = &recorded("volume_slaves.json")["slaves"][0];
    for part in ["reserved_resources", "reserved_resources_full"] {
        assert_eq!(page[part], like[part], "{part}");
    }
    let used = |page: &Value| {
        page["used_resources_full"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone()
    };
    assert_eq!(used(page), used(like));
    assert_eq!(page["unreserved_resources"]["disk"], 924.0);
    let kept = cluster.dir.path().join("agents");
    let volumes = kept
        .join(offer["agent_id"]["value"].as_str().unwrap())
        .join("volumes/roles/alpha/vol-1");
    wait_for("the files of the volume", async || {
        let volume = std::fs::read_dir(&volumes)
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        std::fs::read_to_string(volume.join("x")).is_ok_and(|text| text == "hello\n")
    })
    .await;
    framework.kill("vol-task").await;
    framework.state("vol-task", "TASK_KILLED").await;
    let offer = framework
        .until(|event| event["type"] == "OFFERS" && reserved(&event["offers"]["offers"][0]).is_some())
        .await["offers"]["offers"][0]
        .clone();
    let volume = reserved(&offer).unwrap().clone();
    assert_eq!(volume["disk"]["persistence"]["id"], "vol-1");
    let mut reader = task("reader", &offer, "grep -q hello data/x");
    reader["resources"].as_array_mut().unwrap().push(volume.clone());
    framework.launch(&offer, json!([reader])).await;
    let offer = finished_and_offered(&mut framework, "reader").await;
    let count = || std::fs::read_dir(&volumes).unwrap().count();
    assert_eq!(count(), 1);
    let mut bare = volume.clone();
    bare.as_object_mut().unwrap().remove("disk");
    let operations = json!([
        operation("DESTROY", "op-d", "volumes", &volume),
        operation("UNRESERVE", "op-u", "resources", &bare),
    ]);
    framework.accept(&offer, operations).await;
    for id in ["op-d", "op-u"] {
        assert_eq!(
            outcome(&mut framework, id).await["state"],
            "OPERATION_FINISHED",
            "{id}"
        );
    }
    let offer = framework.offer().await;
    assert!(reserved(&offer).is_none());
    assert_eq!(
        cluster.get("/slaves").await["slaves"][0]["reserved_resources"],
        json!({})
    );
    assert_eq!(
        cluster.get("/slaves").await["slaves"][0]["unreserved_resources"]["disk"],
        1024.0
    );
    wait_for("the volume to be deleted", async || count() == 0).await;
    cluster.stop().await;
}

#[tokio::test]
async fn reserved_resources_are_offered_to_their_role_only() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut owner = Framework::subscribe(cluster.master(), &alpha()).await;
    let offer = owner.offer().await;
    // While it suppresses offers, the rest goes to others.
    owner.accepted(json!({"type": "SUPPRESS"})).await;
    let mut cpu = scalar("cpus", 1.5);
    cpu["reservations"] = json!([{"type": "DYNAMIC", "role": "alpha"}]);
    owner
        .accept(&offer, json!([operation("RESERVE", "r", "resources", &cpu)]))
        .await;
    outcome(&mut owner, "r").await;
    let other = json!({"user": "root", "name": "legacy", "role": "beta"});
    let mut other = Framework::subscribe(cluster.master(), &other).await;
    let offer = other.offer().await;
    let cpus: Vec<&Value> = offer["resources"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|resource| resource["name"] == "cpus")
        .collect();
    assert_eq!(cpus.len(), 1, "{cpus:?}");
    assert_eq!(cpus[0]["scalar"]["value"], 0.5);
    assert_eq!(cpus[0]["role"], "*");
    // The owner receives the rest at the same time.
    owner.accepted(json!({"type": "REVIVE"})).await;
    let offer = owner.offer().await;
    assert_eq!(offer["resources"].as_array().unwrap().len(), 1);
    assert_eq!(reserved(&offer).unwrap()["scalar"]["value"], 1.5);
    cluster.stop().await;
}

#[tokio::test]
async fn invalid_operations_fail_and_statuses_are_resent_until_acknowledged() {
    let cluster = Cluster::start(1, |config| config.update_retry = Duration::from_millis(200)).await;
    let mut framework = Framework::subscribe(cluster.master(), &alpha()).await;
    let offer = framework.offer().await;
    let mut much = scalar("disk", 9999.0);
    much["reservations"] = json!([{"type": "DYNAMIC", "role": "alpha", "principal": "p"}]);
    let mut some = much.clone();
    some["scalar"]["value"] = json!(10.0);
    let operations = json!([
        operation("RESERVE", "much", "resources", &much),
        operation("UNRESERVE", "none", "resources", &some),
        operation("GROW_VOLUME", "grow", "volumes", &some),
        operation("RESERVE", "some", "resources", &some),
    ]);
    framework.accept(&offer, operations).await;
    for (id, why) in [
        ("much", "does not contain"),
        ("none", "does not contain"),
        ("grow", "not supported"),
    ] {
        let status = outcome(&mut framework, id).await;
        assert_eq!(status["state"], "OPERATION_ERROR", "{status}");
        assert!(status["message"].as_str().unwrap().contains(why), "{status}");
        assert!(status.get("uuid").is_none());
    }
    let told = |event: &Value| event["update_operation_status"]["status"]["operation_id"]["value"] == "some";
    let first = framework.until(told).await;
    let again = framework.until(told).await;
    assert_eq!(first, again);
    let ask = json!({"operations": [{"operation_id": {"value": "some"}}, {"operation_id": {"value": "x"}}]});
    let ask = json!({"type": "RECONCILE_OPERATIONS", "reconcile_operations": ask});
    framework.accepted(ask.clone()).await;
    assert_eq!(
        outcome(&mut framework, "some").await["state"],
        "OPERATION_FINISHED"
    );
    assert_eq!(outcome(&mut framework, "x").await["state"], "OPERATION_UNKNOWN");
    framework.accepted(ask).await;
    let known = framework
        .until(|event| {
            told(event) && event["update_operation_status"]["status"]["state"] != "OPERATION_FINISHED"
        })
        .await;
    assert_eq!(
        known["update_operation_status"]["status"]["state"],
        "OPERATION_UNKNOWN"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn messages_for_executors_reach_their_agent() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &modern()).await;
    let offer = framework.offer().await;
    let message = json!({"agent_id": offer["agent_id"], "executor_id": {"value": "e"}, "data": "aGk="});
    framework
        .accepted(json!({"type": "MESSAGE", "message": message}))
        .await;
    let line = &journal(&cluster.dir)[0];
    assert_eq!(
        (&line["event"], &line["data"]),
        (&json!("message"), &json!("aGk="))
    );
    cluster.stop().await;
}
