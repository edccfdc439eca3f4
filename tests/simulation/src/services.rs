//! The services of a daemon: apps, workflow, Kubernetes and discovery, without ports.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use prometheus_client::registry::Registry;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use transom_cluster::{Client, v1};
use transom_discovery::simulation::Reader;
use transom_framework::{Framework, FrameworkService};
use transom_kubernetes::settings::Period;
use transom_plugin_host::simulation::ScriptedPlugins;
use transom_scheduler::{MaintenanceMode, Matchers, Metrics};
use transom_store::{Election, Store};

use crate::candidate::{Board, TTL};
use crate::http::{Link, Port};

/// The frameworks, which are also the prefixes of their keys and leases.
pub(crate) const APPS: &str = "marathon";
pub(crate) const WORKFLOW: &str = "Airflow";
pub(crate) const KUBERNETES: &str = "fw";
pub(crate) const FRAMEWORKS: [&str; 3] = [APPS, WORKFLOW, KUBERNETES];
/// The counts of servers and agents of the Kubernetes cluster at its first start.
pub(crate) const SERVERS: u32 = 1;
pub(crate) const AGENTS: u32 = 2;
/// How long a drain may take.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a daemon that could not start waits before it is started again, in virtual time.
const RESTART_INTERVAL: Duration = Duration::from_secs(1);
/// As in `transom-apps` and `transom-workflow`.
const REVIVE_INTERVAL: Duration = Duration::from_secs(5);

/// What a daemon sees of the world.
pub(crate) struct World {
    pub(crate) host: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cluster: Client,
    pub(crate) transport: Arc<Link>,
    pub(crate) check: transom_apps::simulation::Check,
    pub(crate) plugins: ScriptedPlugins,
    pub(crate) orchestrator: Arc<dyn transom_kubernetes::simulation::World>,
}

/// What the world sees of the services.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running {
    pub(crate) apps: Option<Router>,
    pub(crate) workflow: Option<Router>,
    pub(crate) kubernetes: Option<Router>,
    pub(crate) discovery: Option<Reader>,
    /// Why a service has ended, which must not happen.
    pub(crate) failure: Option<String>,
}

impl Running {
    pub(crate) fn router(&self, port: Port) -> Option<Router> {
        match port {
            Port::Apps => self.apps.clone(),
            Port::Workflow => self.workflow.clone(),
            Port::Kubernetes => self.kubernetes.clone(),
        }
    }
}

/// Runs all services, without end.
pub(crate) async fn run(world: &World, board: &Board) {
    let discovery = transom_discovery::Config::from(transom_discovery::Settings::default());
    let reader = transom_discovery::simulation::start(&discovery, world.cluster.clone());
    board.with(|observed| observed.services.discovery = Some(reader));
    tokio::join!(
        apps(world, board),
        workflow(world, board),
        kubernetes(world, board)
    );
}

async fn apps(world: &World, board: &Board) {
    let settings = transom_apps::Settings {
        hostname: world.host.clone(),
        ..transom_apps::Settings::default()
    };
    let (info, address) = (settings.framework(None), Port::Apps.of(&world.host));
    let config = match transom_apps::Config::new(settings) {
        Ok(config) => config,
        Err(error) => return fail(board, &error),
    };
    let election = election(world, APPS, &address);
    loop {
        let parts = transom_apps::simulation::World {
            address: address.clone(),
            store: Arc::clone(&world.store),
            cluster: world.cluster.clone(),
            transport: Arc::clone(&world.transport) as _,
            election: election.leadership(),
            check: Arc::clone(&world.check),
            plugins: world.plugins.clone(),
        };
        match transom_apps::simulation::start(config.clone(), parts).await {
            Ok((router, runner)) => {
                board.with(|observed| observed.services.apps = Some(router));
                return Box::pin(lead(world, APPS, info, election, runner, board)).await;
            }
            // The store does not answer. Virtual time.
            Err(_) => sleep(RESTART_INTERVAL).await,
        }
    }
}

async fn workflow(world: &World, board: &Board) {
    let settings = transom_workflow::Settings {
        hostname: world.host.clone(),
        containers: false,
        role: "*".to_owned(),
        ..transom_workflow::Settings::default()
    };
    let (info, address) = (settings.framework(None), Port::Workflow.of(&world.host));
    let election = election(world, WORKFLOW, &address);
    let started = transom_workflow::simulation::start(
        settings,
        &address,
        world.cluster.clone(),
        Arc::clone(&world.transport) as _,
        election.leadership(),
        world.plugins.clone(),
    );
    match started {
        Ok((router, runner)) => {
            board.with(|observed| observed.services.workflow = Some(router));
            lead(world, WORKFLOW, info, election, runner, board).await;
        }
        Err(error) => fail(board, &format!("workflow did not start: {error}")),
    }
}

async fn kubernetes(world: &World, board: &Board) {
    let settings = transom_kubernetes::Settings {
        hostname: world.host.clone(),
        // A network in which containers have names.
        container_cni: "cluster".to_owned(),
        // Its certificates would be random.
        ds_mysql_tls: false,
        orch_server_count: SERVERS,
        orch_agent_count: AGENTS,
        drain_timeout: Period::seconds(DRAIN_TIMEOUT.as_secs()),
        // Each agent has room for all of them but a second agent, whatever else runs there.
        ds_cpu: 0.01,
        ds_mem: 300.0,
        ds_disk: 1_000.0,
        orch_server_cpu: 0.01,
        orch_server_mem: 300.0,
        orch_agent_cpu: 0.01,
        orch_agent_mem: 300.0,
        orch_agent_disk: 6_000.0,
        ..transom_kubernetes::Settings::default()
    };
    let (info, address) = (settings.framework(None), Port::Kubernetes.of(&world.host));
    let election = election(world, KUBERNETES, &address);
    let started = transom_kubernetes::simulation::start(
        transom_kubernetes::Config::new(settings),
        &address,
        world.cluster.clone(),
        Arc::clone(&world.transport) as _,
        election.leadership(),
        Arc::clone(&world.orchestrator),
        world.plugins.clone(),
    );
    match started {
        Ok((router, runner)) => {
            board.with(|observed| observed.services.kubernetes = Some(router));
            lead(world, KUBERNETES, info, election, runner, board).await;
        }
        Err(error) => fail(board, &format!("Kubernetes did not start: {error}")),
    }
}

fn election(world: &World, framework: &str, address: &str) -> Election {
    Election::new(
        Arc::clone(&world.store),
        Framework::lease(framework),
        address,
        TTL,
    )
}

/// Campaigns and leads.
async fn lead<S: FrameworkService>(
    world: &World,
    name: &str,
    info: v1::FrameworkInfo,
    election: Election,
    runner: S,
    board: &Board,
) {
    let framework = Framework {
        election,
        info,
        prefix: name.to_owned(),
        cluster: world.cluster.clone(),
        matchers: Matchers::Scripted(world.plugins.clone()),
        revive_interval: REVIVE_INTERVAL,
        refuse_rest: None,
        maintenance: MaintenanceMode::default(),
        metrics: Metrics::register(&mut Registry::default(), name),
    };
    let outcome = framework.run(runner, CancellationToken::new()).await;
    fail(board, &format!("the framework {name} ended: {outcome:?}"));
}

fn fail(board: &Board, why: &str) {
    board.with(|observed| observed.services.failure = Some(why.to_owned()));
}
