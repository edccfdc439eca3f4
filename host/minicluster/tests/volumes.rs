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
use support::{Cluster, Framework, framework_info, journal, scalar, task};
use transom_minicluster::{Disk, DiskKind};
use transom_testkit::wait_for;

fn recorded(name: &str) -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/cluster/6-operator")
        .join(name);
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// The recorded framework.
fn alpha() -> Value {
    let mut info = framework_info();
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

/// Waits for the outcome of an operation and acknowledges it.
async fn operation_status(framework: &mut Framework, id: &str) -> Value {
    let event = framework
        .wait_until(|event| event["update_operation_status"]["status"]["operation_id"]["value"] == id)
        .await;
    let status = event["update_operation_status"]["status"].clone();
    if let Some(uuid) = status["uuid"]["value"].as_str() {
        let part = json!({"agent_id": status["agent_id"], "operation_id": {"value": id}, "uuid": uuid});
        framework
            .expect_accepted(
                json!({"type": "ACKNOWLEDGE_OPERATION_STATUS", "acknowledge_operation_status": part}),
            )
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
fn reserved_resource(offer: &Value) -> Option<&Value> {
    let mut resources = offer["resources"].as_array().unwrap().iter();
    resources.find(|resource| resource.get("reservations").is_some())
}

/// Waits until the task has this state and an offer fits, and returns the last such offer. The
/// offer may arrive before the update, which waits until the earlier ones are acknowledged.
async fn wait_for_offer_and_state(
    framework: &mut Framework,
    task: &str,
    state: &str,
    condition: impl Fn(&Value) -> bool,
) -> Value {
    let (mut reached, mut offered) = (false, None);
    loop {
        let event = framework.next_event().await;
        let status = &event["update"]["status"];
        if status["task_id"]["value"] == task {
            assert_ne!(status["state"], "TASK_FAILED", "{status}");
            reached |= status["state"] == state;
        }
        let offer = &event["offers"]["offers"][0];
        if offer.is_object() && condition(offer) {
            offered = Some(offer.clone());
        }
        if let Some(offer) = offered.as_ref().filter(|_| reached) {
            return offer.clone();
        }
    }
}

/// Waits until the task has finished, and returns an offer with its volume.
async fn finished_and_offered(framework: &mut Framework, task: &str) -> Value {
    wait_for_offer_and_state(framework, task, "TASK_FINISHED", |offer| {
        reserved_resource(offer).is_some()
    })
    .await
}

#[tokio::test]
async fn a_volume_outlives_its_task_and_is_destroyed_on_request() {
    let cluster = Cluster::start(1, |_| ()).await;
    let mut framework = Framework::subscribe(cluster.master(), &alpha()).await;
    let offer = framework.offer().await;
    framework.expect_accepted(accept(&offer)).await;
    for id in ["op-r", "op-c"] {
        let status = operation_status(&mut framework, id).await;
        assert_eq!(status["state"], "OPERATION_FINISHED", "{status}");
        assert_eq!(status["agent_id"], offer["agent_id"]);
    }
    framework.wait_for_state("vol-task", "TASK_RUNNING").await;
    let page = &cluster.get("/slaves").await["slaves"][0];
    let recorded_agent = &recorded("volume_slaves.json")["slaves"][0];
    for part in ["reserved_resources", "reserved_resources_full"] {
        assert_eq!(page[part], recorded_agent[part], "{part}");
    }
    let used = |page: &Value| {
        page["used_resources_full"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone()
    };
    assert_eq!(used(page), used(recorded_agent));
    assert_eq!(page["unreserved_resources"]["disk"], 924.0);
    let agents_dir = cluster.dir.path().join("agents");
    let volumes = agents_dir
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
    framework.wait_for_state("vol-task", "TASK_KILLED").await;
    let offer = framework
        .wait_until(|event| {
            event["type"] == "OFFERS" && reserved_resource(&event["offers"]["offers"][0]).is_some()
        })
        .await["offers"]["offers"][0]
        .clone();
    let volume = reserved_resource(&offer).unwrap().clone();
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
            operation_status(&mut framework, id).await["state"],
            "OPERATION_FINISHED",
            "{id}"
        );
    }
    let offer = framework.offer().await;
    assert!(reserved_resource(&offer).is_none());
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
    // While the owner suppresses offers, the remaining resources are offered to other frameworks.
    owner.expect_accepted(json!({"type": "SUPPRESS"})).await;
    let mut cpu = scalar("cpus", 1.5);
    cpu["reservations"] = json!([{"type": "DYNAMIC", "role": "alpha"}]);
    owner
        .accept(&offer, json!([operation("RESERVE", "r", "resources", &cpu)]))
        .await;
    operation_status(&mut owner, "r").await;
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
    // At the same time the owner is offered the resources that are reserved for its role.
    owner.expect_accepted(json!({"type": "REVIVE"})).await;
    let offer = owner.offer().await;
    assert_eq!(offer["resources"].as_array().unwrap().len(), 1);
    assert_eq!(reserved_resource(&offer).unwrap()["scalar"]["value"], 1.5);
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
        let status = operation_status(&mut framework, id).await;
        assert_eq!(status["state"], "OPERATION_ERROR", "{status}");
        assert!(status["message"].as_str().unwrap().contains(why), "{status}");
        assert!(status.get("uuid").is_none());
    }
    let is_status_of_operation =
        |event: &Value| event["update_operation_status"]["status"]["operation_id"]["value"] == "some";
    let first = framework.wait_until(is_status_of_operation).await;
    let resent = framework.wait_until(is_status_of_operation).await;
    assert_eq!(first, resent);
    let reconcile =
        json!({"operations": [{"operation_id": {"value": "some"}}, {"operation_id": {"value": "x"}}]});
    let reconcile = json!({"type": "RECONCILE_OPERATIONS", "reconcile_operations": reconcile});
    framework.expect_accepted(reconcile.clone()).await;
    assert_eq!(
        operation_status(&mut framework, "some").await["state"],
        "OPERATION_FINISHED"
    );
    assert_eq!(
        operation_status(&mut framework, "x").await["state"],
        "OPERATION_UNKNOWN"
    );
    framework.expect_accepted(reconcile).await;
    let known = framework
        .wait_until(|event| {
            is_status_of_operation(event)
                && event["update_operation_status"]["status"]["state"] != "OPERATION_FINISHED"
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
    let mut framework = Framework::subscribe(cluster.master(), &framework_info()).await;
    let offer = framework.offer().await;
    let message = json!({"agent_id": offer["agent_id"], "executor_id": {"value": "e"}, "data": "aGk="});
    framework
        .expect_accepted(json!({"type": "MESSAGE", "message": message}))
        .await;
    let line = &journal(&cluster.dir)[0];
    assert_eq!(
        (&line["event"], &line["data"]),
        (&json!("message"), &json!("aGk="))
    );
    cluster.stop().await;
}

/// An agent with a `PATH` disk `p` of 100 MB and a `MOUNT` disk `m` of 200 MB.
async fn cluster_with_disks() -> (Cluster, tempfile::TempDir) {
    let roots = tempfile::tempdir().unwrap();
    let disk = |kind, name: &str, size| Disk {
        kind,
        root: roots.path().join(name),
        size,
    };
    let disks = vec![
        disk(DiskKind::Path, "p", 100.0),
        disk(DiskKind::Mount, "m", 200.0),
    ];
    let cluster = Cluster::start(1, |config| config.agents[0].disks = disks).await;
    (cluster, roots)
}

/// The `DiskInfo.Source` of such a disk.
fn source(roots: &tempfile::TempDir, kind: &str) -> Value {
    let name = if kind == "PATH" { "p" } else { "m" };
    let root = roots.path().canonicalize().unwrap().join(name);
    let mut source = json!({ "type": kind });
    source[kind.to_ascii_lowercase()] = json!({ "root": root });
    source
}

/// The disks and volumes of an offer with this source, in the order of their sizes.
fn disks(offer: &Value, source: &Value) -> Vec<Value> {
    let resources = offer["resources"].as_array().unwrap().iter();
    let mut disks: Vec<Value> = resources
        .filter(|resource| resource["disk"]["source"] == *source)
        .cloned()
        .collect();
    let size = |disk: &Value| disk["scalar"]["value"].as_f64().unwrap();
    disks.sort_by(|a, b| size(a).total_cmp(&size(b)));
    disks
}

/// A part of an offered disk, reserved for the framework.
fn reserved_part(disk: &Value, size: f64) -> Value {
    let mut part = disk.clone();
    part["scalar"]["value"] = json!(size);
    part["reservations"] = json!([{"type": "DYNAMIC", "role": "alpha", "principal": "p"}]);
    part
}

/// The reserved disk as a persistent volume that is mounted at `data`.
fn volume_on(disk: &Value, id: &str) -> Value {
    let mut volume = disk.clone();
    volume["disk"]["persistence"] = json!({"id": id, "principal": "p"});
    volume["disk"]["volume"] = json!({"container_path": "data", "mode": "RW"});
    volume
}

/// The files below a root, with their contents.
fn files_below(root: &Path) -> Vec<String> {
    let mut contents = Vec::new();
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            contents.extend(files_below(&path));
        } else {
            contents.push(std::fs::read_to_string(path).unwrap());
        }
    }
    contents
}

#[tokio::test]
async fn further_disks_are_offered_with_their_sources() {
    let (cluster, roots) = cluster_with_disks().await;
    let mut framework = Framework::subscribe(cluster.master(), &alpha()).await;
    let offer = framework.offer().await;
    for (kind, size) in [("PATH", 100.0), ("MOUNT", 200.0)] {
        let source = source(&roots, kind);
        let offered = disks(&offer, &source);
        assert_eq!(offered.len(), 1, "{offer}");
        assert_eq!(offered[0]["name"], "disk");
        assert_eq!(offered[0]["scalar"]["value"], size);
        assert_eq!(offered[0]["disk"], json!({"source": source}));
    }
    let page = cluster.get("/slaves").await["slaves"][0].clone();
    assert_eq!(page["resources"]["disk"], 1324.0);
    let full = page["unreserved_resources_full"].as_array().unwrap();
    assert_eq!(
        full.iter().filter(|resource| resource["name"] == "disk").count(),
        3
    );
    // A task may use a disk without a volume on it.
    let mut user = task("user", &offer, "exec sleep 600");
    let mut part = disks(&offer, &source(&roots, "PATH")).remove(0);
    part["scalar"]["value"] = json!(40.0);
    user["resources"].as_array_mut().unwrap().push(part);
    framework.launch(&offer, json!([user])).await;
    let remaining_offer = wait_for_offer_and_state(&mut framework, "user", "TASK_RUNNING", |_| true).await;
    let remaining_disk = disks(&remaining_offer, &source(&roots, "PATH")).remove(0);
    assert_eq!(remaining_disk["scalar"]["value"], 60.0);
    cluster.stop().await;
}

#[tokio::test]
async fn volume_on_a_path_disk_takes_a_part_of_it_and_has_its_files_there() {
    let (cluster, roots) = cluster_with_disks().await;
    let source = source(&roots, "PATH");
    let mut framework = Framework::subscribe(cluster.master(), &alpha()).await;
    let offer = framework.offer().await;
    let part = reserved_part(&disks(&offer, &source)[0], 30.0);
    let volume = volume_on(&part, "v");
    let mut writer = task("writer", &offer, "echo hello > data/x; exec sleep 600");
    writer["resources"].as_array_mut().unwrap().push(volume.clone());
    let operations = json!([
        operation("RESERVE", "r", "resources", &part),
        operation("CREATE", "c", "volumes", &volume),
        {"type": "LAUNCH", "launch": {"task_infos": [writer]}},
    ]);
    framework.accept(&offer, operations).await;
    for id in ["r", "c"] {
        let status = operation_status(&mut framework, id).await;
        assert_eq!(status["state"], "OPERATION_FINISHED", "{status}");
    }
    let remaining_offer = wait_for_offer_and_state(&mut framework, "writer", "TASK_RUNNING", |_| true).await;
    let root = roots.path().join("p");
    wait_for("the file in the volume", async || {
        files_below(&root) == ["hello\n"]
    })
    .await;
    assert_eq!(disks(&remaining_offer, &source)[0]["scalar"]["value"], 70.0);
    // When both are free, the rest of the disk and the volume come in one offer.
    framework.expect_accepted(json!({"type": "SUPPRESS"})).await;
    framework
        .expect_accepted(json!({"type": "DECLINE", "decline": {"offer_ids": [remaining_offer["id"]]}}))
        .await;
    framework.kill("writer").await;
    framework.wait_for_state("writer", "TASK_KILLED").await;
    framework.expect_accepted(json!({"type": "REVIVE"})).await;
    let offer = framework.offer().await;
    assert_eq!(disks(&offer, &source).len(), 2);
    let returned_disk = disks(&offer, &source).remove(0);
    assert_eq!(returned_disk["disk"], volume["disk"]);
    let operations = json!([
        operation("DESTROY", "d", "volumes", &returned_disk),
        operation("UNRESERVE", "u", "resources", &part),
    ]);
    framework.accept(&offer, operations).await;
    for id in ["d", "u"] {
        let status = operation_status(&mut framework, id).await;
        assert_eq!(status["state"], "OPERATION_FINISHED", "{status}");
    }
    let offer = framework.offer().await;
    let all = disks(&offer, &source);
    assert_eq!((all.len(), &all[0]["scalar"]["value"]), (1, &json!(100.0)));
    wait_for("the files to be deleted", async || files_below(&root).is_empty()).await;
    cluster.stop().await;
}

#[tokio::test]
async fn mount_disk_is_reserved_and_used_as_a_whole_only() {
    let (cluster, roots) = cluster_with_disks().await;
    let source = source(&roots, "MOUNT");
    let mut framework = Framework::subscribe(cluster.master(), &alpha()).await;
    let offer = framework.offer().await;
    let disk = disks(&offer, &source).remove(0);
    let (part, whole) = (reserved_part(&disk, 50.0), reserved_part(&disk, 200.0));
    let half = volume_on(&part, "half");
    let operations = json!([
        operation("RESERVE", "part", "resources", &part),
        operation("RESERVE", "whole", "resources", &whole),
        operation("CREATE", "half", "volumes", &half),
        operation("CREATE", "volume", "volumes", &volume_on(&whole, "v")),
    ]);
    framework.accept(&offer, operations).await;
    for (id, state) in [
        ("part", "OPERATION_ERROR"),
        ("whole", "OPERATION_FINISHED"),
        ("half", "OPERATION_ERROR"),
        ("volume", "OPERATION_FINISHED"),
    ] {
        let status = operation_status(&mut framework, id).await;
        assert_eq!(status["state"], state, "{status}");
        if state == "OPERATION_ERROR" {
            assert!(status["message"].as_str().unwrap().contains("does not contain"));
        }
    }
    let offer = framework.offer().await;
    let volume = disks(&offer, &source).remove(0);
    assert_eq!(volume["disk"]["persistence"]["id"], "v");
    let mut less = volume.clone();
    less["scalar"]["value"] = json!(50.0);
    let mut partial = task("partial", &offer, "true");
    partial["resources"].as_array_mut().unwrap().push(less);
    let mut writer = task("writer", &offer, "echo hello > data/x");
    writer["resources"].as_array_mut().unwrap().push(volume.clone());
    framework.launch(&offer, json!([partial, writer])).await;
    let rejected = framework.wait_for_state("partial", "TASK_ERROR").await;
    assert_eq!(rejected["reason"], "REASON_TASK_INVALID");
    let offer = finished_and_offered(&mut framework, "writer").await;
    assert_eq!(files_below(&roots.path().join("m")), ["hello\n"]);
    let mut reader = task("reader", &offer, "grep -q hello data/x");
    reader["resources"].as_array_mut().unwrap().push(volume.clone());
    framework.launch(&offer, json!([reader])).await;
    let offer = finished_and_offered(&mut framework, "reader").await;
    framework
        .accept(&offer, json!([operation("DESTROY", "d", "volumes", &volume)]))
        .await;
    assert_eq!(
        operation_status(&mut framework, "d").await["state"],
        "OPERATION_FINISHED"
    );
    let offer = framework.offer().await;
    let remaining_disk = disks(&offer, &source).remove(0);
    assert_eq!(
        remaining_disk["disk"],
        json!({ "source": source }),
        "the disk stays reserved"
    );
    assert!(reserved_resource(&offer).is_some());
    cluster.stop().await;
}
