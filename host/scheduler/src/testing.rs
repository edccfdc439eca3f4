//! Fixtures for tests.

use std::sync::Arc;

use jiff::Timestamp;
use transom_cluster::v1::{self, TaskState};
use transom_common::trace::TraceContext;

use crate::{
    AgentLocation, Build, BuildGroup, BuildTask, Group, GroupPlacement, Member, Phase, Placement,
    PortRequest, Reservation, RunSpec, TaskRecord, TaskRequest,
};

/// A new intent.
pub(crate) fn record(id: &str) -> TaskRecord {
    let now = Timestamp::UNIX_EPOCH;
    TaskRecord {
        id: id.into(),
        run_spec: "/app".to_owned(),
        version: "1".to_owned(),
        group: None,
        agent: Arc::new(AgentLocation {
            id: "a1".into(),
            hostname: "host-a1".to_owned(),
            region: None,
            zone: None,
            endpoint: None,
        }),
        agent_attributes: Arc::default(),
        host_ports: Vec::new(),
        phase: Phase::Intent,
        state: TaskState::Staging,
        status: None,
        intended_at: now,
        staged_at: None,
        started_at: None,
        updated_at: now,
        killing: false,
        kill_grace: None,
        restarting: false,
        metadata: Arc::default(),
    }
}

/// A reservation on agent `a1` that is stored and was not offered yet.
pub(crate) fn reservation(key: &str, id: &str) -> Reservation {
    let record = record("t");
    Reservation {
        key: key.to_owned(),
        id: id.to_owned(),
        run_spec: record.run_spec,
        role: "prod".to_owned(),
        agent: record.agent,
        agent_attributes: record.agent_attributes,
        volumes: Vec::new(),
        since: record.intended_at,
        created: false,
        task: None,
        releasing: false,
    }
}

/// The resources that result from RESERVE and CREATE.
pub(crate) fn resources_after(operations: &[v1::Operation]) -> Vec<v1::Resource> {
    let reserved = operations.iter().flat_map(|operation| &operation.reserve);
    let mut resources: Vec<_> = reserved.flat_map(|reserve| reserve.resources.clone()).collect();
    let created = operations.iter().flat_map(|operation| &operation.create);
    for volume in created.flat_map(|create| &create.volumes) {
        let source = volume.disk.as_ref().unwrap().source.clone();
        let disk = v1::Resource {
            disk: source.map(|source| v1::DiskInfo {
                source: Some(source),
                ..v1::DiskInfo::default()
            }),
            ..volume.clone()
        };
        let at = resources.iter().position(|resource| *resource == disk);
        resources[at.expect("volumes are created on reserved disks")] = volume.clone();
    }
    resources
}

/// An offer with this number of CPUs, 1000 MB each of memory and disk, and these ports. The
/// attribute `rack` is the agent's id.
pub(crate) fn offer(id: &str, agent: &str, cpus: f64, ports: &[(u64, u64)]) -> v1::Offer {
    v1::Offer {
        id: id.into(),
        framework_id: "f".into(),
        agent_id: agent.into(),
        hostname: format!("host-{agent}"),
        resources: vec![
            v1::Resource::scalar("cpus", cpus),
            v1::Resource::scalar("mem", 1000.0),
            v1::Resource::scalar("disk", 1000.0),
            v1::Resource::ranges("ports", ports),
        ],
        attributes: vec![v1::Attribute::text("rack", agent)],
        ..v1::Offer::default()
    }
}

/// A builder that names the task after its id.
#[derive(Debug)]
pub(crate) struct SleepBuilder;

impl BuildTask for SleepBuilder {
    fn build(&self, placement: &Placement) -> Option<v1::TaskInfo> {
        let command = v1::CommandInfo {
            value: Some("sleep 1000".to_owned()),
            ..v1::CommandInfo::default()
        };
        Some(v1::TaskInfo {
            name: placement.task.to_string(),
            command: Some(command),
            ..v1::TaskInfo::default()
        })
    }

    fn metadata(&self, placement: &Placement) -> serde_json::Value {
        serde_json::json!({"host": placement.agent.hostname})
    }
}

/// A run spec of 0.5 CPU and 100 MB memory.
pub(crate) fn spec(id: &str) -> RunSpec {
    RunSpec {
        id: id.to_owned(),
        version: "1".to_owned(),
        instances: 1,
        cpus: 0.5,
        mem: 100.0,
        disk: 0.0,
        gpus: 0.0,
        avoid_gpus: false,
        ports: Vec::new(),
        role: None,
        volumes: Vec::new(),
        constraints: Vec::new(),
        roles: Vec::new(),
        executor: crate::ExecutorResources::default(),
        build: Arc::new(SleepBuilder).into(),
    }
}

pub(crate) fn task_request(id: &str, spec: &Arc<RunSpec>) -> TaskRequest {
    TaskRequest {
        id: id.into(),
        spec: Arc::clone(spec),
        not_before: None,
        priority: 0,
        reservation: None,
        trace: TraceContext::default(),
    }
}

/// A builder for a web server and a helper. It names the executor after group and host, and each
/// task after its id and its ports.
#[derive(Debug)]
pub(crate) struct PairBuilder;

impl BuildGroup for PairBuilder {
    fn executor(&self, placement: &GroupPlacement) -> v1::ExecutorInfo {
        v1::ExecutorInfo {
            name: Some(format!("{} on {}", placement.group, placement.agent.hostname)),
            // The scheduler overwrites both fields.
            resources: vec![v1::Resource::scalar("cpus", 99.0)],
            framework_id: Some("other".into()),
            ..v1::ExecutorInfo::default()
        }
    }

    fn task(&self, placement: &GroupPlacement, member: usize) -> v1::TaskInfo {
        let member_placement = &placement.members[member];
        v1::TaskInfo {
            name: format!("{} {:?}", member_placement.task, member_placement.host_ports),
            ..v1::TaskInfo::default()
        }
    }

    fn metadata(&self, placement: &GroupPlacement, member: usize) -> serde_json::Value {
        serde_json::json!({"of": placement.members.len(), "member": member})
    }
}

/// A run spec with an executor of 0.1 CPU and 32 MB; `web` with 0.5 CPU, 100 MB and a port of 7000
/// to 7009; and `helper` with 0.2 CPU and 50 MB.
pub(crate) fn pair_spec(id: &str) -> RunSpec {
    let web = Member {
        name: "web".to_owned(),
        cpus: 0.5,
        mem: 100.0,
        ports: vec![PortRequest::Range(7000, 7009)],
        ..Member::default()
    };
    let helper = Member {
        name: "helper".to_owned(),
        cpus: 0.2,
        mem: 50.0,
        ..Member::default()
    };
    RunSpec {
        cpus: 0.1,
        mem: 32.0,
        build: Build::Group(Group {
            members: vec![web, helper],
            build: Arc::new(PairBuilder),
        }),
        ..spec(id)
    }
}
