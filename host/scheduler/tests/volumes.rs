//! Persistent volumes and several roles on a real (mini)cluster, across restarts of the scheduler.
//! What the tasks wrote is read from the agents' disks.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod support;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use support::{Cluster, Subject, cluster_config, wait_until};
use transom_cluster::TaskId;
use transom_cluster::v1::{self, TaskState};
use transom_common::trace::TraceContext;
use transom_scheduler::{
    Build, BuildGroup, BuildTask, DiskKind, Group, GroupPlacement, Member, Placement, Reservation, RunSpec,
    SchedulerApi, TaskRecord, TaskRequest, VolumeRequest,
};
use transom_store::Store;

/// Writes the task's id into the file `log` of the volume `data`.
fn writer(task: &TaskId) -> v1::TaskInfo {
    v1::TaskInfo {
        name: task.to_string(),
        command: Some(v1::CommandInfo {
            value: Some(format!("echo {task} >> data/log; exec sleep 1000")),
            ..v1::CommandInfo::default()
        }),
        ..v1::TaskInfo::default()
    }
}

#[derive(Debug)]
struct Writer;

impl BuildTask for Writer {
    fn build(&self, placement: &Placement) -> Option<v1::TaskInfo> {
        Some(writer(&placement.task))
    }
}

/// A group of one task, which mounts the volume of its executor.
#[derive(Debug)]
struct Pod;

impl BuildGroup for Pod {
    fn executor(&self, _placement: &GroupPlacement) -> v1::ExecutorInfo {
        v1::ExecutorInfo::default()
    }

    fn task(&self, placement: &GroupPlacement, member: usize) -> v1::TaskInfo {
        let shared = json!({
            "type": "MESOS",
            "volumes": [{
                "container_path": "data",
                "mode": "RW",
                "source": {"type": "SANDBOX_PATH", "sandbox_path": {"type": "PARENT", "path": "data"}},
            }],
        });
        v1::TaskInfo {
            container: Some(serde_json::from_value(shared).unwrap()),
            ..writer(&placement.members[member].task)
        }
    }
}

fn spec(id: &str, build: Build) -> Arc<RunSpec> {
    Arc::new(RunSpec {
        id: id.to_owned(),
        version: "1".to_owned(),
        instances: 1,
        cpus: 0.5,
        mem: 64.0,
        disk: 16.0,
        gpus: 0.0,
        avoid_gpus: false,
        ports: Vec::new(),
        role: Some("prod".to_owned()),
        constraints: Vec::new(),
        roles: Vec::new(),
        volumes: vec![VolumeRequest {
            container_path: "data".to_owned(),
            size: 32,
            disk: DiskKind::Root,
            constraints: Vec::new(),
        }],
        executor: transom_scheduler::ExecutorResources::default(),
        build,
    })
}

fn pod() -> Build {
    Build::Group(Group {
        members: vec![Member {
            name: "writer".to_owned(),
            cpus: 0.1,
            mem: 32.0,
            ..Member::default()
        }],
        build: Arc::new(Pod),
    })
}

fn submit(subject: &Subject, task: &str, key: &str, spec: &Arc<RunSpec>) {
    subject.scheduler.submit(vec![TaskRequest {
        id: task.into(),
        spec: Arc::clone(spec),
        not_before: None,
        priority: 0,
        reservation: Some(key.to_owned()),
        trace: TraceContext::default(),
    }]);
}

async fn record(subject: &Subject, task: &str, is: impl Fn(&TaskRecord) -> bool) -> Arc<TaskRecord> {
    wait_until(&format!("{task} to be as expected"), async || {
        let records = subject.scheduler.tasks();
        let record = records.get(&TaskId::from(task)).cloned();
        record
            .filter(|record| is(record))
            .ok_or_else(|| format!("{records:?}; pending: {:?}", subject.scheduler.pending().to_vec()))
    })
    .await
}

async fn running(subject: &Subject, task: &str) -> Arc<TaskRecord> {
    record(subject, task, |record| record.state == TaskState::Running).await
}

async fn ended(subject: &Subject, task: &str) {
    subject.scheduler.kill(vec![task.into()], None);
    record(subject, task, TaskRecord::is_terminal).await;
}

fn volume_of(cluster: &Cluster, reservation: &Reservation) -> PathBuf {
    let agent = cluster
        .dir
        .path()
        .join("agents")
        .join(reservation.agent.id.as_str());
    let id = &reservation.volumes[0].persistence_id;
    agent.join("volumes/roles/prod").join(id)
}

/// Waits until the tasks of an instance have written these lines.
async fn written(cluster: &Cluster, reservation: &Reservation, lines: &[&str]) {
    let volume = volume_of(cluster, reservation);
    let expected = lines.join("\n") + "\n";
    wait_until("the lines of the tasks", async || {
        let directory = std::fs::read_dir(&volume).map_err(|error| error.to_string())?;
        let place = directory.map(|entry| entry.unwrap().path()).next();
        let log = place.ok_or("an empty volume")?.join("log");
        let text = std::fs::read_to_string(log).map_err(|error| error.to_string())?;
        if text == expected { Ok(()) } else { Err(text) }
    })
    .await;
}

async fn reserved(cluster: &Cluster) -> Vec<Value> {
    let (_, body) = cluster.request("GET", "/slaves", "").await;
    let agents: Value = serde_json::from_str(&body).unwrap();
    let agents = agents["slaves"].as_array().unwrap().iter();
    agents.map(|agent| agent["reserved_resources"].clone()).collect()
}

async fn store(dir: &tempfile::TempDir) -> Arc<dyn Store> {
    transom_store::open(&format!("file:{}", dir.path().display()))
        .await
        .unwrap()
}

/// Runs two incarnations with a restart of the scheduler between them, and releases the reservation.
async fn keeps_its_volume(build: impl Fn() -> Build, task: fn(&str) -> String) {
    let cluster = Cluster::start(|_| ()).await;
    let masters = [cluster.minicluster.master()];
    let dir = tempfile::tempdir().unwrap();
    let subject = Subject::start(cluster_config(&masters), store(&dir).await).await;
    submit(&subject, "i.1", "i", &spec("/db", build()));
    let first = running(&subject, &task("i.1")).await;
    let reservation = subject.scheduler.reservations()["i"].clone();
    assert_eq!(reservation.agent, first.agent);
    written(&cluster, &reservation, &[&task("i.1")]).await;
    let of_role: Vec<Value> = reserved(&cluster).await;
    let reserved_disk = of_role.iter().find_map(|agent| agent["prod"]["disk"].as_f64());
    assert_eq!(reserved_disk, Some(48.0), "{of_role:?}");
    ended(&subject, &task("i.1")).await;
    subject.stop().await;

    let subject = Subject::start(cluster_config(&masters), store(&dir).await).await;
    submit(&subject, "i.2", "i", &spec("/db", build()));
    // A task of another role.
    let other = RunSpec {
        role: Some("dev".to_owned()),
        volumes: Vec::new(),
        ..RunSpec::clone(&spec("/app", Arc::new(Sleeper).into()))
    };
    submit(&subject, "t", "t", &Arc::new(other));
    let second = running(&subject, &task("i.2")).await;
    assert_eq!(second.agent, first.agent);
    written(&cluster, &reservation, &[&task("i.1"), &task("i.2")]).await;
    running(&subject, "t").await;
    let (_, frameworks) = cluster.request("GET", "/frameworks", "").await;
    let frameworks: Value = serde_json::from_str(&frameworks).unwrap();
    let roles = frameworks["frameworks"][0]["roles"].as_array().unwrap().len();
    assert_eq!(roles, 3, "{}", frameworks["frameworks"][0]["roles"]);

    // The reservation is released while its task runs.
    subject.scheduler.release_reservation("i");
    ended(&subject, &task("i.2")).await;
    wait_until("the release", async || {
        let known = subject.scheduler.reservations();
        if known.is_empty() {
            Ok(())
        } else {
            Err(format!("{known:?}"))
        }
    })
    .await;
    wait_until("the resources to be unreserved", async || {
        let remaining = reserved(&cluster).await;
        let all = remaining.iter().all(|agent| *agent == json!({}));
        if all {
            Ok(())
        } else {
            Err(format!("{remaining:?}"))
        }
    })
    .await;
    let volume = volume_of(&cluster, &reservation);
    wait_until("the volume to be deleted", async || {
        let remaining = std::fs::read_dir(&volume).map_or(0, Iterator::count);
        if remaining == 0 {
            Ok(())
        } else {
            Err(remaining.to_string())
        }
    })
    .await;
    subject.stop().await;
    cluster.stop().await;
}

#[derive(Debug)]
struct Sleeper;

impl BuildTask for Sleeper {
    fn build(&self, placement: &Placement) -> Option<v1::TaskInfo> {
        let mut info = writer(&placement.task);
        info.command.as_mut()?.value = Some("exec sleep 1000".to_owned());
        Some(info)
    }
}

#[tokio::test]
async fn volume_of_a_task_outlives_it_and_the_scheduler() {
    keeps_its_volume(|| Arc::new(Writer).into(), str::to_owned).await;
}

#[tokio::test]
async fn volume_of_a_group_outlives_it_and_the_scheduler() {
    keeps_its_volume(pod, |group| format!("{group}.0")).await;
}
