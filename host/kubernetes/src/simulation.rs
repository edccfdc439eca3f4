//! The service without a port, components and connections, for simulations (feature `simulation`).

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use futures::stream::BoxStream;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use transom_cluster::agent::FileBytes;
use transom_cluster::{Client, FrameworkId};
use transom_common::{HostPort, ambient};
use transom_framework::Leader;
use transom_plugin_host::simulation::ScriptedPlugins;
use transom_store::Leadership;
use transom_web::{DaemonTransport, Forwarder};

use crate::bootstrap::{Bootstrap, Prepared, ScriptError, notifications};
use crate::dependencies::{Cluster, ClusterAdapter, Connector, SandboxFile};
use crate::kind::Kind;
use crate::kvstore::EtcdGateway;
use crate::orchestrator::{
    self, ClientConfig, ClientConfigError, Drained, Observation, Orchestrator, OrchestratorError, Pods,
};
use crate::start::{Parts, PreparedInstance, VIA};
use crate::task::Draft;
use crate::{Config, Error, Result, Runner, api};

/// The longest delay of a call of the orchestrator or of an agent, in milliseconds.
const MAX_DELAY: u64 = 100;
/// One of so many drains does not end before its deadline.
const STUCK_DRAINS: u64 = 8;
/// How long another one takes at most, in milliseconds.
const MAX_DRAIN: u64 = 20_000;

/// The sandboxes and the orchestrator as a daemon sees them. `None`: no answer.
pub trait World: Debug + Send + Sync {
    /// The client configuration in the sandbox of a task; `Some(None)`: it does not exist yet.
    fn client_config(&self, task: &str) -> Option<Option<String>>;

    /// The nodes, by the API at this address.
    fn nodes(&self, api: &HostPort) -> Option<Vec<Node>>;

    /// Changes a node, through the API at this address.
    fn change(&self, api: &HostPort, node: &str, change: Change) -> Option<()>;
}

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    /// The id of its task, which is its name as well.
    pub task: String,
    /// Whether it is ready.
    pub ready: bool,
    /// Whether it accepts no pods.
    pub cordoned: bool,
    /// Whether the service has cordoned it for a drain.
    pub draining: bool,
}

/// A change of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It accepts pods, or none.
    Cordon(bool),
    /// The eviction of its pods begins.
    BeginDrain,
    /// All its pods have ended.
    EndDrain,
    /// It is deleted.
    Remove,
}

/// The port's routes, behind its checks, and the runner. `address`: host and port at which other daemons
/// reach this one, with `transport`.
///
/// # Errors
/// [`Error::Web`] if the address is invalid.
pub fn start(
    config: Config,
    address: &str,
    cluster: Client,
    transport: Arc<dyn DaemonTransport>,
    election: watch::Receiver<Leadership>,
    world: Arc<dyn World>,
    plugins: ScriptedPlugins,
) -> Result<(Router, Runner)> {
    let forwarder = Forwarder::new(VIA, address).map_err(Error::Web)?;
    let port = config.port.clone();
    let parts = Parts {
        forwarder: forwarder.over(transport),
        leader: Leader::new(address, election),
        script_base: format!("http://{address}"),
        backup_base: format!("http://{address}"),
        bootstrap: Arc::new(Unchanged(plugins)),
        cluster: Arc::new(Sandboxes {
            world: Arc::clone(&world),
            cluster: ClusterAdapter::new(cluster),
        }),
        connector: Arc::new(Connection(world)),
        // No call: the simulated datastore is a SQL server.
        kvstore: Arc::new(EtcdGateway::new()?),
    };
    let prepared = PreparedInstance::assemble(&Arc::new(config), parts, &mut Registry::default());
    Ok((
        port.protect(prepared.router, api::access_rules()),
        prepared.runner,
    ))
}

async fn delay() {
    sleep(Duration::from_millis(ambient::random() % MAX_DELAY)).await;
}

/// A bootstrap component that changes nothing.
#[derive(Debug)]
struct Unchanged(ScriptedPlugins);

#[async_trait]
impl Bootstrap for Unchanged {
    async fn prepare(&self, _: Kind, _: u32, _: &str, draft: Draft) -> Result<Prepared, ScriptError> {
        let called = self.0.call("kubernetes-bootstrap").await;
        called.map_err(|error| ScriptError::Component(error.to_string()))?;
        let script = b"#!/bin/sh\n".as_slice().into();
        Ok(Prepared { script, draft })
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        notifications(self.0.changes())
    }
}

/// The cluster manager, with the sandboxes of the world.
#[derive(Debug)]
struct Sandboxes {
    world: Arc<dyn World>,
    cluster: ClusterAdapter,
}

#[async_trait]
impl Cluster for Sandboxes {
    async fn read_file(&self, file: SandboxFile<'_>) -> transom_cluster::Result<Option<Vec<u8>>> {
        delay().await;
        let read = self.world.client_config(file.task.as_str());
        let read = read.ok_or_else(|| transom_cluster::Error::Config {
            what: "no answer".to_owned(),
        })?;
        Ok(read.map(String::into_bytes))
    }

    async fn read_bytes(
        &self,
        _: SandboxFile<'_>,
        _: u64,
        _: u64,
    ) -> transom_cluster::Result<Option<FileBytes>> {
        Ok(None)
    }

    async fn lists_framework(&self, id: &FrameworkId) -> transom_cluster::Result<bool> {
        self.cluster.lists_framework(id).await
    }
}

#[derive(Debug)]
struct Connection(Arc<dyn World>);

impl Connector for Connection {
    fn connect(
        &self,
        _: &ClientConfig,
        address: &HostPort,
    ) -> Result<Arc<dyn Orchestrator>, ClientConfigError> {
        Ok(Arc::new(Api {
            world: Arc::clone(&self.0),
            address: address.clone(),
        }))
    }
}

/// The API of one server.
#[derive(Debug)]
struct Api {
    world: Arc<dyn World>,
    address: HostPort,
}

impl Api {
    async fn change(&self, node: &str, change: Change) -> Result<(), OrchestratorError> {
        delay().await;
        let changed = self.world.change(&self.address, node, change);
        changed.ok_or_else(|| self.no_answer())
    }

    fn no_answer(&self) -> OrchestratorError {
        OrchestratorError::Unreachable {
            address: self.address.clone(),
            why: "no answer".to_owned(),
        }
    }
}

#[async_trait]
impl Orchestrator for Api {
    async fn observe(&self) -> Result<Observation, OrchestratorError> {
        delay().await;
        let nodes = self.world.nodes(&self.address);
        let nodes = nodes.ok_or_else(|| self.no_answer())?.into_iter();
        let nodes = nodes.map(|node| orchestrator::Node {
            name: node.task.clone(),
            task: Some(node.task),
            ready: node.ready,
            ready_since: None,
            cordoned: node.cordoned,
            draining: node.draining,
            deleting: false,
            allocatable: None,
            info: json!({}),
            control_plane: false,
        });
        Ok(Observation {
            version: "v1.31.5+k3s1".to_owned(),
            nodes: nodes.collect(),
        })
    }

    async fn pods(&self) -> Result<Pods, OrchestratorError> {
        Ok(Pods::default())
    }

    async fn cordon(&self, node: &str, cordoned: bool) -> Result<(), OrchestratorError> {
        self.change(node, Change::Cordon(cordoned)).await
    }

    async fn drain(&self, node: &str, deadline: Instant) -> Result<Drained, OrchestratorError> {
        self.change(node, Change::BeginDrain).await?;
        if ambient::random().is_multiple_of(STUCK_DRAINS) {
            sleep_until(deadline).await;
            return Ok(Drained {
                evicted: 0,
                remaining: vec!["a pod with a disruption budget".to_owned()],
            });
        }
        let lasts = Duration::from_millis(ambient::random() % MAX_DRAIN);
        sleep_until(deadline.min(Instant::now() + lasts)).await;
        self.change(node, Change::EndDrain).await?;
        Ok(Drained::default())
    }

    async fn remove_node(&self, node: &str) -> Result<(), OrchestratorError> {
        self.change(node, Change::Remove).await
    }
}
