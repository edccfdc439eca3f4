//! Configures and starts a scheduler.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use transom_cluster::{Client, v1};
use transom_store::Store;

use crate::actor::{Dependencies, Timeouts};
use crate::{Events, Matchers, Metrics, Result, Scheduler};

/// The scheduler of one framework. [`Config::new`] sets the default times.
#[derive(Clone)]
pub struct Config {
    /// The cluster to subscribe to.
    pub cluster: Client,
    /// The framework. `id` is read from the store and the supported `capabilities` are added;
    /// `role` moves to `roles`; `checkpoint` defaults to true and `failover_timeout` to
    /// [`Config::FAILOVER`].
    pub framework: v1::FrameworkInfo,
    /// The store of the framework id and the task records.
    pub store: Arc<dyn Store>,
    /// The prefix of their keys, without a trailing slash. Two schedulers must not share one.
    pub prefix: String,
    /// What decides where tasks run.
    pub matchers: Matchers,
    /// How long a declined offer is not offered again, unless it is revived.
    pub decline: Duration,
    /// How long the unused rest of an accepted offer is not offered again, unless it is revived.
    pub refuse_rest: Duration,
    /// After this time a launched task without any status is reconciled.
    pub launch_timeout: Duration,
    /// Interval of the explicit reconciliation of all live tasks.
    pub reconcile_interval: Duration,
    /// Minimum interval of REVIVE for tasks that fit no offer, and the time without demand before
    /// SUPPRESS.
    pub revive_interval: Duration,
    /// How the framework treats agents for which maintenance is scheduled.
    pub maintenance: MaintenanceMode,
    /// A reservation whose resources and volumes are not offered within this time is dropped and
    /// tried again.
    pub reservation_timeout: Duration,
}

/// How a framework treats agents for which an operator has scheduled maintenance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaintenanceMode {
    /// It launches tasks there as on any other agent, and declines inverse offers.
    Ignored,
    /// It launches nothing there during the window. Its tasks stay until they end, so it declines
    /// inverse offers.
    #[default]
    Avoided,
    /// It accepts inverse offers. From `ahead` before the window on, it launches nothing there, and
    /// the service receives [`Event::MaintenanceDue`](crate::Event::MaintenanceDue) so that it
    /// moves its tasks.
    Evacuated {
        /// The time before the window.
        ahead: Duration,
    },
}

impl Config {
    /// How long the master keeps the tasks of a disconnected framework: a week.
    pub const FAILOVER: Duration = Duration::from_hours(24 * 7);

    /// A configuration with the default times: decline 120 s (also for the rest of an accepted
    /// offer), launch timeout 300 s, reconciliation every 600 s, REVIVE at most every second,
    /// reservations within 20 s. Nothing is launched on agents in maintenance.
    pub fn new(
        cluster: Client,
        framework: v1::FrameworkInfo,
        store: Arc<dyn Store>,
        prefix: impl Into<String>,
        matchers: impl Into<Matchers>,
    ) -> Self {
        let timeouts = Timeouts::default();
        Self {
            cluster,
            framework,
            store,
            prefix: prefix.into(),
            matchers: matchers.into(),
            decline: timeouts.decline,
            refuse_rest: timeouts.refuse_rest,
            launch_timeout: timeouts.launch,
            reconcile_interval: timeouts.reconcile,
            revive_interval: timeouts.revive,
            maintenance: MaintenanceMode::default(),
            reservation_timeout: timeouts.reservation,
        }
    }

    /// Loads the records, then subscribes in the background, with retries, until `token` is
    /// cancelled. The snapshots contain all stored records when this returns. Fails only if the
    /// store cannot be read.
    pub async fn start(self, metrics: Metrics, token: CancellationToken) -> Result<(Scheduler, Events)> {
        let timeouts = Timeouts {
            decline: self.decline,
            refuse_rest: self.refuse_rest,
            launch: self.launch_timeout,
            reconcile: self.reconcile_interval,
            revive: self.revive_interval,
            reservation: self.reservation_timeout,
            ..Timeouts::default()
        };
        let Self {
            cluster,
            framework,
            store,
            prefix,
            matchers,
            maintenance,
            ..
        } = self;
        Dependencies {
            cluster,
            framework,
            store,
            prefix,
            matchers: matchers.host(),
            timeouts,
            maintenance,
        }
        .start(metrics, token)
        .await
    }
}
