//! Start and stop: first the listeners, then the agents, then the clock.

use crate::{
    agent,
    config::Config,
    error::{Error, Result},
    http::serve,
    master,
    shared::{RunFunctions, Shared},
    state::{self, AgentId, Master, Port, State, epoch},
};
use futures::future::BoxFuture;
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Interval of the clock, and so the precision of heartbeats, retries and timeouts.
const TICK: Duration = Duration::from_millis(50);

/// A running cluster. Dropping it does not stop it: cancel the token, then await
/// [`Minicluster::stopped`].
#[derive(Clone, Debug)]
pub struct Minicluster {
    shared: Arc<Shared>,
    master: SocketAddr,
    standby: Option<SocketAddr>,
    agents: Vec<(AgentId, SocketAddr)>,
}

impl Config {
    /// Starts the master and all agents. When this returns, the master answers and every agent is
    /// registered.
    ///
    /// Cancelling the token stops the cluster; [`Minicluster::stopped`] waits for it.
    pub async fn start(self, token: CancellationToken) -> Result<Minicluster> {
        self.check()?;
        let work_dir = create_dir(&self.work_dir)?;
        let mut config = Self { work_dir, ..self };
        for disk in config.agents.iter_mut().flat_map(|agent| &mut agent.disks) {
            disk.root = create_dir(&disk.root)?;
        }
        // Checked again, because different paths may lead to the same directory.
        config.check()?;
        let (listener, addr) = bind("master", config.listen).await?;
        let standby = match config.standby {
            Some(requested_addr) => Some(bind("standby master", requested_addr).await?),
            None => None,
        };
        let standby_addr = standby.as_ref().map(|(_, addr)| *addr);
        let mut sockets = Vec::with_capacity(config.agents.len());
        for agent in &config.agents {
            let purpose = format!("agent {}", agent.hostname);
            let requested_addr = SocketAddr::from((agent.ip, agent.port));
            let (listener, addr) = bind(&purpose, requested_addr).await?;
            sockets.push((agent.clone(), listener, addr));
        }
        let master = Master {
            id: state::new_uuid().to_string(),
            hostname: config.hostname.clone(),
            cluster: config.cluster.clone(),
            addr,
            started: epoch(),
        };
        let standbys = standby_addr.map(|addr| (config.hostname.clone(), addr));
        let standbys = standbys.into_iter().collect();
        let state = State::new(config.clone(), master, standbys, Instant::now());
        let run = RunFunctions {
            task: Box::new(|shared, launch, kills| {
                Box::pin(async move { agent::runner::run(&shared, launch, kills).await })
            }),
            executor: Box::new(|shared, launch, kill| {
                Box::pin(async move { agent::executor::run(&shared, launch, &kill).await })
            }),
        };
        let shared = Shared::new(config, state, token, check_client()?, run);
        shared.launcher.start().await?;
        let tracker = shared.tracker.clone();
        for (listener, own_addr) in std::iter::once((listener, addr)).chain(standby) {
            let handler = move |shared, request| {
                Box::pin(master::http::handle(shared, own_addr, request)) as BoxFuture<_>
            };
            tracker.spawn(serve(
                listener,
                Port::Master(own_addr),
                Arc::clone(&shared),
                handler,
            ));
        }
        let mut agents = Vec::with_capacity(sockets.len());
        for (config, listener, addr) in sockets {
            let id = shared.with_state(State::new_agent_id);
            let work_dir = create_dir(&shared.config.work_dir.join("agents").join(id.as_str()))?;
            shared.journals.open(&id, &work_dir)?;
            let first_id = id.clone();
            let handler = move |shared, request| {
                Box::pin(agent::http::handle(shared, addr, first_id.clone(), request)) as BoxFuture<_>
            };
            tracker.spawn(serve(listener, Port::Agent(addr), Arc::clone(&shared), handler));
            shared.with_state(|state| state.add_agent(id.clone(), config, addr, work_dir, Instant::now()));
            agents.push((id, addr));
        }
        tracker.spawn(run_clock(Arc::clone(&shared)));
        tracker.close();
        Ok(Minicluster {
            shared,
            master: addr,
            standby: standby_addr,
            agents,
        })
    }
}

impl Minicluster {
    /// Address of the master that leads from the start.
    pub fn master(&self) -> SocketAddr {
        self.master
    }

    /// Address of the other master, if there is one.
    pub fn standby(&self) -> Option<SocketAddr> {
        self.standby
    }

    /// Addresses of the agents, in the order of the configuration.
    pub fn agents(&self) -> Vec<SocketAddr> {
        self.agents.iter().map(|(_, addr)| *addr).collect()
    }

    /// The agents' ids, in the same order. An agent gets a new id after the maintenance of its
    /// machine; while its process does not run, its first id is returned.
    pub fn agent_ids(&self) -> Vec<String> {
        let ids = (0..self.agents.len()).filter_map(|index| self.agent_id(index));
        ids.map(|id| id.to_string()).collect()
    }

    fn agent_id(&self, index: usize) -> Option<AgentId> {
        let (first, addr) = self.agents.get(index)?;
        let current = self.shared.with_state(|state| state.agent_id_at(*addr));
        Some(current.unwrap_or_else(|| first.clone()))
    }

    /// Breaks the connection between the master and an agent, as if the agent's process were
    /// killed: its offers are rescinded, tasks of frameworks that do not checkpoint are lost, and
    /// the others continue and become unreachable after [`Config::agent_timeout`]. An unknown index
    /// does nothing.
    pub fn disconnect_agent(&self, index: usize) {
        if let Some(id) = self.agent_id(index) {
            self.shared
                .with_state(|state| state.disconnect_agent(&id, Instant::now()));
        }
    }

    /// Reconnects an agent whose connection was broken, with the tasks that it still runs.
    pub fn reconnect_agent(&self, index: usize) {
        if let Some(id) = self.agent_id(index) {
            self.shared
                .with_state(|state| state.reconnect_agent(&id, Instant::now()));
        }
    }

    /// Describes the runtime for tasks with an image, such as `podman 4.3.1`. Searches for it if no
    /// task has needed it yet. The error gives the reason why none is available.
    pub async fn container_runtime(&self) -> std::result::Result<String, String> {
        let runtime = self.shared.launcher.runtime().await?;
        Ok(runtime.describe())
    }

    /// Waits until everything has ended: streams, listeners and all processes and containers of
    /// tasks. Returns only after the token is cancelled. Processes are killed immediately, without
    /// a grace period.
    pub async fn stopped(self) {
        self.shared.tracker.wait().await;
        self.shared.launcher.finish().await;
    }
}

async fn run_clock(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    while shared.token.run_until_cancelled(ticks.tick()).await.is_some() {
        shared.with_state(|state| state.tick(Instant::now()));
    }
}

/// A listener and its actual address.
async fn bind(what: &str, addr: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let to_error = |source| Error::Listen {
        what: what.to_owned(),
        addr,
        source,
    };
    let listener = TcpListener::bind(addr).await.map_err(to_error)?;
    let addr = listener.local_addr().map_err(to_error)?;
    Ok((listener, addr))
}

/// Creates a directory and returns its absolute path, because tasks have other working directories.
fn create_dir(path: &Path) -> Result<PathBuf> {
    let to_error = |source| Error::WorkDir {
        path: path.to_owned(),
        source,
    };
    std::fs::create_dir_all(path).map_err(to_error)?;
    path.canonicalize().map_err(to_error)
}

/// The HTTP client for checks. As in a real agent, redirects are followed and certificates are not
/// verified.
fn check_client() -> Result<reqwest::Client> {
    // Fails if a provider is already installed, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .tls_danger_accept_invalid_certs(true)
        .pool_max_idle_per_host(0)
        .build()
        .map_err(Error::CheckClient)
}
