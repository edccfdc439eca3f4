//! Wires the core of a term: bus, checks and actor, with the scheduler of the term.

use std::sync::Arc;

use arc_swap::ArcSwap;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_cluster::Client;
use transom_cluster::agent::Agents;
use transom_framework::feasibility::{self, AgentList, ConstraintSets, Feasibility, MatchSessions};
use transom_framework::{Abdication, LeaderHandles, LeaderTerm, RunningTerm};
use transom_plugin_host::Plugins;
use transom_registry::network::Reserved;
use transom_scheduler::{SchedulerApi, SubscriptionStatus};
use transom_store::typed::TypedStore;
use transom_web::RequestMetrics;

use super::command::Command;
use super::snapshot::Snapshot;
use super::state_metrics::StateMetrics;
use super::{CoreParts, StoredState};
use super::{metrics, planning};
use crate::bus::{self, Bus};
use crate::callbacks::{self, Callbacks};
use crate::deploy::Deadline;
use crate::model::DefinitionSettings;
use crate::policies::Policies;
use crate::probes::{self, Checker, Limits, REPORT_QUEUE_CAPACITY};
use crate::task::LaunchSettings;
use crate::{Config, Result};

/// Capacity of the queue of requests to the core.
const COMMAND_QUEUE_CAPACITY: usize = 256;

/// The handles that only a leader has.
#[derive(Debug)]
pub(crate) struct Handles {
    pub(crate) core: mpsc::Sender<Command>,
    pub(crate) bus: Bus,
    pub(crate) callbacks: Callbacks,
    pub(crate) scheduler: Arc<dyn SchedulerApi>,
    pub(crate) feasibility: Arc<Feasibility>,
    pub(crate) abdication: Abdication,
}

impl LeaderHandles for Handles {
    fn subscription(&self) -> SubscriptionStatus {
        self.scheduler.subscription()
    }
}

/// Counters, kept across terms.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    bus: bus::Metrics,
    callbacks: callbacks::Metrics,
    probes: probes::Metrics,
    core: metrics::Metrics,
    /// Requests to the port.
    pub(crate) requests: RequestMetrics,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            bus: bus::Metrics::register(registry),
            callbacks: callbacks::Metrics::register(registry),
            probes: probes::Metrics::register(registry),
            core: metrics::Metrics::register(registry),
            requests: RequestMetrics::register(registry, "transom_apps"),
        }
    }
}

/// The agents of the cluster and the matcher.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    agents: Arc<dyn AgentList>,
    matcher: Arc<dyn MatchSessions>,
}

impl Placement {
    /// Keeps known what pending instances need and no agent has.
    fn survey(
        self,
        known: &Arc<Feasibility>,
        scheduler: &Arc<dyn SchedulerApi>,
        tracker: &TaskTracker,
        token: &CancellationToken,
    ) {
        let (sets_in, sets) = watch::channel(ConstraintSets::default());
        let (scheduler, known) = (Arc::clone(scheduler), Arc::clone(known));
        tracker.spawn(feasibility::follow_pending(scheduler, sets_in, token.clone()));
        let kept = feasibility::keep_current(known, self.agents, self.matcher, sets, token.clone());
        tracker.spawn(kept);
    }
}

/// The other parts of the daemon that the service uses, and its metrics.
#[derive(Debug)]
pub struct Dependencies {
    pub(crate) policies: Arc<dyn Policies>,
    /// The agents' API, for checks; none in tests.
    pub(crate) agents: Option<Agents>,
    /// This daemon's own ports and servers, which callbacks reach only if the settings name them
    /// explicitly.
    pub(crate) reserved: Reserved,
    pub(crate) metrics: Metrics,
    /// The agents and the matcher, for what no agent can run; none in tests.
    pub(crate) placement: Option<Placement>,
    /// The snapshot for readers; empty until the service starts.
    pub(crate) snapshot: Arc<ArcSwap<Snapshot>>,
}

impl Dependencies {
    /// The plugin host, the cluster manager, and this daemon's own destinations. The metrics are
    /// registered in `registry`.
    pub fn new(plugins: Plugins, cluster: &Client, reserved: Reserved, registry: &mut Registry) -> Self {
        Self {
            placement: Some(Placement {
                agents: Arc::new(cluster.clone()),
                matcher: Arc::new(plugins.clone()),
            }),
            policies: Arc::new(plugins),
            agents: Some(cluster.agents()),
            reserved,
            metrics: Metrics::register(registry),
            snapshot: counted_snapshot(registry),
        }
    }
}

/// A snapshot whose contents are counted by metrics.
pub(crate) fn counted_snapshot(registry: &mut Registry) -> Arc<ArcSwap<Snapshot>> {
    let snapshot = Arc::new(ArcSwap::from_pointee(Snapshot::default()));
    registry.register_collector(Box::new(StateMetrics(Arc::clone(&snapshot))));
    snapshot
}

impl Dependencies {
    /// Reads the stored state and starts the core on it.
    pub(crate) async fn start(
        &self,
        config: &Config,
        snapshot: &Arc<ArcSwap<Snapshot>>,
        term: LeaderTerm,
    ) -> Result<(Handles, RunningTerm)> {
        let records = TypedStore::new(Arc::clone(&term.store), &config.settings.framework_name)
            .with_timeout(config.store_timeout);
        let stored = StoredState::load(term.store, config, term.scheduler.as_ref()).await?;
        // Every task of this term ends when the term ends.
        let (token, tracker) = (term.token.child_token(), TaskTracker::new());
        let (commands_in, commands) = mpsc::channel(COMMAND_QUEUE_CAPACITY);
        let (reports_in, reports) = mpsc::channel(REPORT_QUEUE_CAPACITY);
        let bus = Bus::new(
            stored.term,
            &config.settings.events,
            Arc::clone(&self.policies),
            self.metrics.bus.clone(),
            tracker.clone(),
            token.clone(),
        );
        tracker.spawn(bus.clone().publish_plugin_changes());
        let callbacks = Callbacks::start(
            &config.settings.callbacks,
            callbacks::Policy::new(config.callback_destinations.clone(), self.reserved.clone()),
            records,
            bus.clone(),
            self.metrics.callbacks.clone(),
            tracker.clone(),
            token.clone(),
        )
        .await?;
        let limits = Limits {
            checks: config.settings.checks.concurrency.get(),
            health: config.settings.health.concurrency.get(),
        };
        let checker = Checker::start(
            Arc::clone(&self.policies),
            self.agents.clone(),
            limits,
            reports_in,
            self.metrics.probes.clone(),
            &tracker,
            token.clone(),
        );
        let parts = CoreParts {
            scheduler: Arc::clone(&term.scheduler),
            events: term.events,
            commands,
            reports,
            checker,
            bus: bus.clone(),
            metrics: self.metrics.core.clone(),
            settings: planning::Settings {
                definitions: DefinitionSettings::new(&config.settings),
                checks: config.settings.checks,
                deadline: config
                    .settings
                    .deployments
                    .deadline_seconds
                    .map(|seconds| Deadline {
                        seconds,
                        on_deadline: config.settings.deployments.on_deadline,
                    }),
                max_running_deployments: config.settings.max_running_deployments,
                max_apps: config.settings.max_apps,
                max_instances: config.settings.max_instances,
                max_versions: config.settings.max_versions,
                max_definitions_bytes: config.settings.max_definitions_bytes,
                max_versions_bytes: config.settings.max_versions_bytes,
                service_ports: config.settings.service_ports(),
                plan_form: config.settings.events.plan_format,
            },
            launch: LaunchSettings {
                gpus: config.settings.gpu_scheduling_behavior,
                checks: config.settings.checks,
                env_vars_prefix: config.settings.env_vars_prefix.as_str().into(),
            },
            launch_timeout: config.settings.launch_timeout(),
            snapshot: Arc::clone(snapshot),
        };
        let feasibility = Arc::new(Feasibility::default());
        if let Some(placement) = self.placement.clone() {
            placement.survey(&feasibility, &term.scheduler, &tracker, &token);
        }
        let core = super::start(stored, parts, &tracker, token.clone());
        let handles = Handles {
            core: commands_in,
            bus,
            callbacks,
            scheduler: term.scheduler,
            feasibility,
            abdication: term.abdication,
        };
        Ok((handles, RunningTerm::new(core, tracker, token)))
    }
}
