//! The model from a state document, `GET /state`.

use transom_cluster::v1::TaskState;
use transom_cluster::{AgentId, state};

use super::addresses::Status;
use super::{Addresses, Cluster, Discovery, Endpoint, Framework, Host, Task};

/// Reads a whole document.
pub fn read(document: &state::State) -> Cluster {
    let leader = document.leader.as_deref().and_then(Endpoint::from_pid);
    let mut cluster = Cluster {
        leader,
        skipped: document.left_out,
        ..Cluster::default()
    };
    for slave in &document.slaves {
        match Endpoint::from_pid(&slave.pid) {
            Some(endpoint) => drop(cluster.agents.insert(slave.id.clone(), endpoint)),
            None => cluster.skipped += 1,
        }
    }
    for framework in &document.frameworks {
        cluster
            .frameworks
            .insert(framework.id.clone(), described(framework));
        let tasks = cluster.tasks.entry(framework.id.clone()).or_default();
        for task in framework.tasks.iter().filter(|task| !task.state.is_terminal()) {
            tasks.insert(task.id.clone(), read_task(task));
        }
    }
    cluster
}

fn described(framework: &state::Framework) -> Framework {
    let by_pid = framework.pid.as_deref().and_then(Endpoint::from_pid);
    let by_name = || {
        let host = Some(Host::parse(&framework.hostname)).filter(|_| !framework.hostname.is_empty());
        host.map(|host| Endpoint { host, port: None })
    };
    Framework {
        name: framework.name.clone(),
        endpoint: by_pid.or_else(by_name),
    }
}

fn read_task(task: &state::Task) -> Task {
    let statuses = task.statuses.iter().map(|status| Status {
        state: &status.state,
        timestamp: status.timestamp,
        labels: &status.labels,
        container: status.container_status.as_ref(),
    });
    Task {
        name: task.name.clone(),
        agent: AgentId::clone(&task.slave_id),
        running: task.state == TaskState::Running,
        ports: port_ranges(task.resources.ports.as_deref().unwrap_or_default()),
        discovery: task.discovery.as_ref().and_then(Discovery::from_wire),
        addresses: Addresses::newest(statuses),
    }
}

/// Ranges as the document writes them: `[31000-31001, 31010-31010]`. What is no range is left out.
fn port_ranges(text: &str) -> Vec<(u64, u64)> {
    let text = text.strip_prefix('[').unwrap_or(text);
    let text = text.split(']').next().unwrap_or_default();
    let ranges = text.split(',').filter_map(|range| {
        let (first, last) = range.strip_prefix(' ').unwrap_or(range).split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?))
    });
    ranges.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // Tests: a failure is their answer.

    use super::*;

    #[test]
    fn port_ranges_are_as_ever() {
        let tables: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/fixtures/tables.json")).unwrap();
        for row in tables["port_ranges"].as_array().unwrap() {
            // Inputs that ended mesos-dns are left out here.
            if row["Panics"] == false {
                let ranges = port_ranges(row["In"].as_str().unwrap());
                let ports: Vec<_> = ranges
                    .iter()
                    .flat_map(|(first, last)| *first..=*last)
                    .map(|p| p.to_string())
                    .collect();
                assert_eq!(serde_json::json!(ports), row["Out"], "{row}");
            } else {
                port_ranges(row["In"].as_str().unwrap());
            }
        }
    }
}
