//! Persistent volumes on additional disks of the agents.

use std::path::Path;

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::site::Site;

/// An app of one instance that appends a line to a file in its volume at each start.
fn database(kind: &str, size: u32) -> Value {
    json!({
        "id": format!("/dev/{kind}"), "role": "dev", "cpus": 0.1, "mem": 32, "instances": 1,
        "cmd": "echo started >> data/starts; exec sleep 1000000",
        "container": {"type": "MESOS", "volumes": [
            {"containerPath": "data", "mode": "RW", "persistent": {"type": kind, "size": size}},
        ]},
    })
}

/// The number of lines that tasks wrote to these files below a directory.
fn count_starts(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let below = entries.map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => count_starts(&entry.path()),
        _ if entry.file_name() == "starts" => {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            text.lines().count()
        }
        _ => 0,
    });
    below.sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn path_and_mount_volumes_are_on_disks_of_their_type_and_survive_their_tasks() {
    let disks = ["--extra-disk", "path:256", "--extra-disk", "mount:64"];
    let site = Site::start_on(&disks, "").await;
    // A mount disk is used as a whole, so it may be larger than the volume that the app requests.
    for (kind, size) in [("path", 32), ("mount", 48)] {
        site.post_app(&database(kind, size)).await;
    }
    let disks = site.cluster.work_dir().join("disks");
    for kind in ["path", "mount"] {
        let app = format!("/dev/{kind}");
        let before = site.wait_until_running(&app, 1).await.remove(0);
        let volume = &before["localVolumes"][0];
        assert_eq!(volume["containerPath"], "data", "{before}");
        let task = before["id"].as_str().expect("an id");
        site.cluster.kill_process(task);
        let next = format!("the next task of {app}, with the same volume");
        site.tasks_when(&app, &next, |tasks| {
            tasks.len() == 1 && tasks[0]["id"] != before["id"] && tasks[0]["state"] == "TASK_RUNNING"
        })
        .await;
        let after = site.wait_until_running(&app, 1).await.remove(0);
        assert_eq!(after["localVolumes"], before["localVolumes"]);
        assert_eq!(after["slaveId"], before["slaveId"]);
    }
    eventually("two starts on each of two disks", || async {
        let found = count_starts(&disks);
        if found == 4 {
            Ok(())
        } else {
            Err(found.to_string())
        }
    })
    .await;
    // No agent has a second mount disk of that size.
    site.post_app(&json!({
        "id": "/dev/large", "role": "dev", "cmd": "true", "cpus": 0.1, "mem": 32, "instances": 1,
        "container": {"type": "MESOS", "volumes": [
            {"containerPath": "data", "mode": "RW", "persistent": {"type": "mount", "size": 65}},
        ]},
    }))
    .await;
    eventually("the reason why it waits", || async {
        let queue = site.get(&site.apps("/v2/queue")).await?;
        let reasons = queue["queue"][0]["processedOffersSummary"]["rejectSummaryLastOffers"].clone();
        let disk = reasons.as_array().and_then(|reasons| {
            let disk = reasons.iter().find(|one| one["reason"] == "InsufficientDisk");
            disk?["declined"].as_u64()
        });
        if disk.unwrap_or(0) > 0 {
            Ok(())
        } else {
            Err(queue.to_string())
        }
    })
    .await;
    site.cluster.stop_after(site.daemon);
}
