//! Polls the cluster manager, the store and the process in the background. They publish no snapshots,
//! and a request for the overview must not wait for them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use jiff::Timestamp;
use tokio::time::{sleep, timeout};
use transom_cli::overview::{Agents, Amounts, Cluster, Process, Store};
use transom_cluster::Client;
use transom_cluster::operator::{Agent, GetAgents};
use transom_cluster::v1::Resource;
use transom_common::ZooKeeperPath;
use transom_plugin_host::printable;

use crate::process;

/// The pause between two polls of the cluster manager, and of the store.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// The pause after a poll of the cluster manager is at least this multiple of the poll's duration.
const PAUSE_TO_POLL_RATIO: u32 = 20;
/// Timeout of a poll of the cluster manager, whose answer contains all agents.
const CLUSTER_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a read of the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between two reads of the process's resource usage.
const PROCESS_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum number of host names of agents that are not active.
const MAX_INACTIVE_NAMES: usize = 20;
/// The maximum number of characters of an error.
const MAX_ERROR_CHARS: usize = 500;

/// The store, and its address for the overview.
#[derive(Clone, Debug)]
pub(crate) struct ObservedStore {
    pub(crate) store: Arc<dyn transom_store::Store>,
    /// The address without credentials.
    pub(crate) server: String,
}

/// The results of the last polls.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) cluster: ArcSwap<Cluster>,
    pub(super) store: ArcSwapOption<Store>,
    pub(super) process: ArcSwapOption<Process>,
}

impl Observed {
    /// The state before the first poll.
    pub(super) fn new(client: &Client, store: Option<&ObservedStore>) -> Self {
        let masters = client.config().masters.iter();
        let cluster = Cluster {
            masters: masters
                .map(|master| transom_common::masked(master).into_owned())
                .collect(),
            ..Cluster::default()
        };
        Self {
            cluster: ArcSwap::from_pointee(cluster),
            store: ArcSwapOption::from_pointee(store.map(initial_store)),
            process: ArcSwapOption::empty(),
        }
    }

    /// Polls the cluster manager, the store and the process repeatedly, until it is dropped.
    pub(super) async fn keep_current(&self, client: &Client, store: Option<&ObservedStore>) -> Infallible {
        let never = async {
            match store {
                Some(store) => self.poll_store(store).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            never = self.poll_cluster(client) => never,
            never = never => never,
            never = self.poll_process() => never,
        }
    }

    async fn poll_cluster(&self, client: &Client) -> Infallible {
        loop {
            let started = Instant::now();
            let poll = async {
                let version = client.version().await;
                let (leader, agents) = client.get_agents_of_leader().await?;
                Ok::<_, transom_cluster::Error>((version.ok(), leader, agents))
            };
            let before = self.cluster.load();
            let mut cluster = Cluster::clone(&before);
            match timeout(CLUSTER_TIMEOUT, poll).await {
                Ok(Ok((version, leader, agents))) => {
                    cluster.reachable = Some(true);
                    cluster.error = None;
                    cluster.leader = Some(leader);
                    cluster.version = version.or(cluster.version);
                    cluster.seen = Some(Timestamp::now());
                    update_agents(&agents, &mut cluster);
                }
                Ok(Err(error)) => record_failure(&mut cluster, error_line(&error)),
                Err(_) => record_failure(&mut cluster, format!("no answer within {CLUSTER_TIMEOUT:?}")),
            }
            self.cluster.store(Arc::new(cluster));
            sleep(POLL_INTERVAL.max(started.elapsed() * PAUSE_TO_POLL_RATIO)).await;
        }
    }

    async fn poll_store(&self, observed: &ObservedStore) -> Infallible {
        loop {
            let started = Instant::now();
            let read = timeout(STORE_TIMEOUT, observed.store.get("transom/reachable")).await;
            let error = match read {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(error_line(&error)),
                Err(_) => Some(format!("no answer within {STORE_TIMEOUT:?}")),
            };
            let milliseconds = started.elapsed().as_secs_f64() * 1000.0;
            self.store.store(Some(Arc::new(Store {
                reachable: Some(error.is_none()),
                milliseconds: error.is_none().then_some(milliseconds),
                error,
                ..initial_store(observed)
            })));
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn poll_process(&self) -> Infallible {
        loop {
            // Counting many open files takes a while.
            if let Ok(process) = tokio::task::spawn_blocking(|| process_usage(process::usage())).await {
                self.process.store(Some(Arc::new(process)));
            }
            sleep(PROCESS_INTERVAL).await;
        }
    }
}

/// Values that the operating system does not report are 0.
fn process_usage(usage: process::Usage) -> Process {
    Process {
        id: std::process::id(),
        resident_bytes: usage.resident_bytes.unwrap_or_default(),
        open_files: usage.open_files.unwrap_or_default(),
        open_files_limit: usage.open_files_limit,
        threads: usage.threads.unwrap_or_default(),
        cpu_seconds: usage.cpu_seconds,
    }
}

/// The store before the first read.
fn initial_store(observed: &ObservedStore) -> Store {
    let file = observed.server.strip_prefix("file:");
    let kind = match file {
        Some(_) => "file",
        None if observed.server.starts_with(ZooKeeperPath::SCHEME) => "zookeeper",
        None => "redis",
    };
    Store {
        kind: kind.to_owned(),
        server: file.unwrap_or(&observed.server).to_owned(),
        durability: observed.store.durability().as_str().to_owned(),
        may_lose: observed.store.durability().may_lose().map(str::to_owned),
        ..Store::default()
    }
}

/// Records a failed poll. The last known leader, agents and resources stay, with the time at which they
/// were read.
fn record_failure(cluster: &mut Cluster, error: String) {
    cluster.reachable = Some(false);
    cluster.error = Some(error);
}

/// An error with its causes, as one line of bounded length.
fn error_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    printable(&text).chars().take(MAX_ERROR_CHARS).collect()
}

/// Agents and resources.
fn update_agents(listed: &GetAgents, cluster: &mut Cluster) {
    let mut agents = Agents {
        total: (listed.agents.len() + listed.recovered_agents.len()) as u64,
        ..Agents::default()
    };
    let mut inactive = Vec::new();
    cluster.resources = ["cpus", "mem", "disk", "gpus"]
        .map(|name| (name.to_owned(), Amounts::default()))
        .into();
    for agent in &listed.agents {
        match inactive_reason(agent) {
            None => agents.active += 1,
            Some(reason) => inactive.push((&agent.agent_info.hostname, reason)),
        }
        for (name, amounts) in &mut cluster.resources {
            amounts.total += sum(&agent.total_resources, name);
            amounts.used += sum(&agent.allocated_resources, name);
            amounts.offered += sum(&agent.offered_resources, name);
        }
    }
    let recovered = listed.recovered_agents.iter();
    inactive.extend(recovered.map(|agent| (&agent.hostname, "not seen since the master started")));
    agents.inactive = inactive
        .into_iter()
        .take(MAX_INACTIVE_NAMES)
        .map(|(host, reason)| format!("{host} ({reason})"))
        .collect();
    cluster.agents = agents;
}

fn inactive_reason(agent: &Agent) -> Option<&'static str> {
    if agent.active == Some(false) {
        Some("disconnected")
    } else if agent.deactivated == Some(true) {
        Some("deactivated")
    } else if agent.drain_info.is_some() {
        Some("draining")
    } else {
        None
    }
}

fn sum(resources: &[Resource], name: &str) -> f64 {
    let named = resources.iter().filter(|resource| resource.name == name);
    named.filter_map(Resource::scalar_value).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn agents_and_resources_are_summed() {
        let scalar =
            |name: &str, value: f64| json!({"name": name, "type": "SCALAR", "scalar": {"value": value}});
        let agent = |host: &str, active: bool, deactivated: bool| {
            json!({
                "agent_info": {"hostname": host, "id": {"value": host}},
                "active": active,
                "deactivated": deactivated,
                "total_resources": [scalar("cpus", 4.0), scalar("mem", 1024.0)],
                "allocated_resources": [scalar("cpus", 1.5), scalar("cpus", 0.5)],
                "offered_resources": [scalar("cpus", 2.0)],
            })
        };
        let listed: GetAgents = serde_json::from_value(json!({
            "agents": [agent("a", true, false), agent("b", false, false), agent("c", true, true)],
            "recovered_agents": [{"hostname": "d"}],
        }))
        .expect("agents");
        let mut cluster = Cluster::default();
        update_agents(&listed, &mut cluster);
        let expected = Agents {
            total: 4,
            active: 1,
            inactive: vec![
                "b (disconnected)".to_owned(),
                "c (deactivated)".to_owned(),
                "d (not seen since the master started)".to_owned(),
            ],
        };
        assert_eq!(cluster.agents, expected);
        let cpus = Amounts {
            total: 12.0,
            used: 6.0,
            offered: 6.0,
        };
        assert_eq!(cluster.resources["cpus"], cpus);
        let memory = Amounts {
            total: 3072.0,
            ..cluster.resources["mem"]
        };
        assert_eq!(cluster.resources["mem"], memory);
        assert_eq!(cluster.resources["gpus"], Amounts::default());
    }
}
