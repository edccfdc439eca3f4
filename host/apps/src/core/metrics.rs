//! Metrics of the core: deployments, launches, and the work itself.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::deploy::Deployment;
use crate::time::Moment;

/// How a deployment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeploymentEnd<'a> {
    /// All of its steps are done.
    Succeeded,
    /// A client cancelled or reverted it, or forced another deployment of its apps.
    Cancelled(&'a str),
    /// It missed its deadline, or its canary failed.
    Failed(&'a str),
}

impl<'a> DeploymentEnd<'a> {
    /// The reason for ending it before it is done.
    pub(super) fn reason(self) -> Option<&'a str> {
        match self {
            Self::Succeeded => None,
            Self::Cancelled(reason) | Self::Failed(reason) => Some(reason),
        }
    }

    fn outcome(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Cancelled(_) => "cancelled",
            Self::Failed(_) => "failed",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AgentResultLabel {
    purpose: &'static str,
    outcome: &'static str,
}

transom_common::metrics! {
    /// Kept across terms. Clones share everything.
    pub(crate) struct Metrics {
        deployments: Family<OutcomeLabel, Counter>
            => "transom_apps_deployments",
            "Deployments that ended, by outcome; failed: by their deadline or canary";
        // Up to about two hours.
        deployment_seconds: Histogram = durations(0.125, 17)
            => "transom_apps_deployment_seconds",
            "Time from the start of a deployment to its end, whatever its outcome";
        // Up to about 27 minutes.
        launch_seconds: Histogram = durations(0.05, 16)
            => "transom_apps_launch_seconds",
            "Time from the moment at which a task of an instance became wanted, to TASK_RUNNING";
        agent_results: Family<AgentResultLabel, Counter>
            => "transom_apps_agent_checks",
            "Changed results of checks and health checks that agents make, by purpose and outcome";
        // Up to more than the timeout of the store.
        commit_seconds: Histogram = durations(0.0005, 16)
            => "transom_apps_store_commit_seconds",
            "Time that a commit of definitions and deployments to the store took, also if it failed";
        turn_seconds: Histogram = durations(0.0005, 16)
            => "transom_apps_turn_seconds",
            "Time that one turn of the actor that owns the apps took, commits of at most 64 records included";
    }
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::registered(registry);
        // The counters exist from the start, so that the first event of each is an increase.
        for outcome in [
            DeploymentEnd::Succeeded,
            DeploymentEnd::Cancelled(""),
            DeploymentEnd::Failed(""),
        ] {
            drop(metrics.deployments.get_or_create(&label(outcome)));
        }
        metrics
    }

    pub(super) fn record_end(&self, deployment: &Deployment, ending: DeploymentEnd<'_>) {
        self.deployments.get_or_create(&label(ending)).inc();
        // The version is the time of the request, also if another daemon leads now.
        self.deployment_seconds
            .observe(elapsed_since(deployment.version).as_secs_f64());
    }

    /// Records the time from the request for a task until it runs.
    pub(super) fn record_launch(&self, wanted: Moment) {
        self.launch_seconds.observe(elapsed_since(wanted).as_secs_f64());
    }

    pub(super) fn record_agent_check(&self, purpose: &'static str, passed: bool) {
        let outcome = if passed { "passed" } else { "failed" };
        let labels = AgentResultLabel { purpose, outcome };
        self.agent_results.get_or_create(&labels).inc();
    }

    pub(super) fn record_commit(&self, duration: Duration) {
        self.commit_seconds.observe(duration.as_secs_f64());
    }

    pub(super) fn record_turn(&self, duration: Duration) {
        self.turn_seconds.observe(duration.as_secs_f64());
    }
}

/// Buckets of which each is twice as large as the one before.
fn durations(first: f64, count: u16) -> Histogram {
    Histogram::new(exponential_buckets(first, 2.0, count))
}

fn label(ending: DeploymentEnd<'_>) -> OutcomeLabel {
    OutcomeLabel {
        outcome: ending.outcome(),
    }
}

/// The time since then; zero if the clock was set back.
fn elapsed_since(earlier: Moment) -> Duration {
    let millis = Moment::now().millis_since(earlier);
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}
