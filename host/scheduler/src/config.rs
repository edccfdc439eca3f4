//! How a scheduler is set up and started.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use transom_cluster::{Client, v1};
use transom_plugins::Plugins;
use transom_store::Store;

use crate::actor::{Dependencies, Timeouts};
use crate::matching::matcher::PluginMatchers;
use crate::subscription::retry::Backoff;
use crate::{Events, Metrics, Result, Scheduler};

/// One framework's scheduler. [`Config::new`] fills in the usual times.
#[derive(Clone)]
pub struct Config {
    /// The cluster to subscribe to.
    pub cluster: Client,
    /// Who subscribes. `id` is filled from the store and what the scheduler understands is added to
    /// `capabilities`; `role` moves to `roles`; `checkpoint` left out becomes true and `failover_timeout`
    /// [`Config::FAILOVER`].
    pub framework: v1::FrameworkInfo,
    /// Where framework id and task records live.
    pub store: Arc<dyn Store>,
    /// What their keys begin with, without a slash at the end. Two schedulers must not share one.
    pub prefix: String,
    /// The attribute matcher is one of these.
    pub plugins: Plugins,
    /// How long a refused offer is not offered again, unless new demand revives it.
    pub decline: Duration,
    /// A launched task without any status for this long is asked about.
    pub launch_timeout: Duration,
    /// How often the states of all live tasks are asked for.
    pub reconcile_interval: Duration,
    /// Refused offers are called back at most this often, and offers are suppressed after this long without
    /// demand.
    pub revive_interval: Duration,
}

impl Config {
    /// How long the cluster keeps the tasks of a framework that is away: a week.
    pub const FAILOVER: Duration = Duration::from_hours(24 * 7);

    /// A configuration with the usual times: decline 120 s, launch timeout 300 s, reconciliation every 600 s,
    /// revive at most every second.
    pub fn new(
        cluster: Client,
        framework: v1::FrameworkInfo,
        store: Arc<dyn Store>,
        prefix: impl Into<String>,
        plugins: Plugins,
    ) -> Self {
        Self {
            cluster,
            framework,
            store,
            prefix: prefix.into(),
            plugins,
            decline: Duration::from_mins(2),
            launch_timeout: Duration::from_mins(5),
            reconcile_interval: Duration::from_mins(10),
            revive_interval: Duration::from_secs(1),
        }
    }

    /// Loads the records, then subscribes in the background and keeps at it until `token` is cancelled. The
    /// handle's snapshots hold all stored records when this returns. Fails only if the store cannot be read.
    pub async fn start(self, metrics: Metrics, token: CancellationToken) -> Result<(Scheduler, Events)> {
        let backoff = |base, max| Backoff {
            base: Duration::from_secs(base),
            max: Duration::from_secs(max),
        };
        let times = Timeouts {
            decline: self.decline,
            launch: self.launch_timeout,
            reconcile: self.reconcile_interval,
            revive: self.revive_interval,
            reconnect: Backoff {
                base: Duration::from_millis(500),
                max: Duration::from_secs(30),
            },
            store: Backoff {
                base: Duration::from_millis(200),
                max: Duration::from_secs(10),
            },
            kill: backoff(5, 60),
            ask: backoff(5, 300),
            matcher: backoff(1, 60),
            stall: Duration::from_secs(30),
        };
        let Self {
            cluster,
            framework,
            store,
            prefix,
            plugins,
            ..
        } = self;
        let matchers = Box::new(PluginMatchers::new(plugins));
        Dependencies {
            cluster,
            framework,
            store,
            prefix,
            matchers,
            times,
        }
        .start(metrics, token)
        .await
    }
}
