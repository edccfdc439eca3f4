//! A summary of the service for operators: counts, and conditions that need attention. All of it is
//! read from snapshots.

use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use serde::Serialize;
use transom_framework::Leader;
use transom_replicas::Condition;
use transom_scheduler::{Waiting, waiting};

use crate::core::snapshot::Snapshot;
use crate::core::term::Handles;
use crate::failing::Failing;
use crate::time::Moment;

/// The maximum length of the lists of a [`Summary`].
const MAX_ENTRIES: usize = 20;

/// Reads summaries. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SummaryReader {
    pub(crate) snapshot: Arc<ArcSwap<Snapshot>>,
    pub(crate) leader: Leader<Handles>,
}

/// The state of the service. A standby counts the leader's stored records, which contain neither
/// pending tasks nor health.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// The counts.
    pub numbers: Numbers,
    /// Apps and pods with instances that are not launched, longest first; at most 20.
    pub waiting: Vec<Waiting>,
    /// Apps and pods whose tasks or checks fail, and the causes; at most 20.
    pub failing: Vec<Failing>,
    /// Apps and pods with unhealthy instances, and their numbers of these; largest first, at most
    /// 20.
    pub unhealthy: Vec<(String, u64)>,
    /// Running deployments, oldest first; at most 20.
    pub deployments: Vec<RunningDeployment>,
}

/// Counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// Apps.
    pub apps: u64,
    /// Pods.
    pub pods: u64,
    /// Groups with a definition of their own.
    pub groups: u64,
    /// Instances that apps and pods ask for.
    pub instances_wanted: u64,
    /// Instances whose task runs.
    pub instances_running: u64,
    /// Instances whose health checks all succeed.
    pub instances_healthy: u64,
    /// Instances that fail a health check.
    pub instances_unhealthy: u64,
    /// Instances that are launched and do not run yet.
    pub instances_staged: u64,
    /// Instances that are not launched yet.
    pub instances_queued: u64,
    /// Apps and pods with instances that are not launched yet.
    pub waiting: u64,
    /// Running deployments.
    pub deployments: u64,
}

/// A running deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunningDeployment {
    /// Its id.
    pub id: String,
    /// The only app or pod that it changes, or their group.
    pub subject: String,
    /// When it was requested.
    pub since: Timestamp,
    /// The number of the current step, from 1.
    pub step: usize,
    /// The number of steps.
    pub steps: usize,
}

impl SummaryReader {
    /// The present state.
    pub fn read(&self) -> Summary {
        let pending = self.leader.handles().map(|handles| handles.scheduler.pending());
        let (waiting, all) = waiting(&pending.unwrap_or_default(), MAX_ENTRIES);
        let mut summary = count(&self.snapshot.load(), Moment::now());
        summary.numbers.waiting = all;
        summary.waiting = waiting;
        summary
    }
}

/// The part of a summary that is computed from the snapshot.
fn count(snapshot: &Snapshot, now: Moment) -> Summary {
    let totals = &snapshot.totals;
    let instances = &totals.instances;
    let numbers = Numbers {
        apps: snapshot.specs.len() as u64 - totals.pods,
        pods: totals.pods,
        groups: snapshot.groups.len() as u64,
        instances_wanted: totals.wanted,
        instances_running: instances.of(Condition::Running).into(),
        instances_healthy: instances.healthy.into(),
        instances_unhealthy: instances.unhealthy.into(),
        instances_staged: instances.launching().into(),
        instances_queued: instances.of(Condition::Scheduled).into(),
        waiting: 0,
        deployments: snapshot.deployments.len() as u64,
    };
    let unhealthy = totals.unhealthy.iter();
    let mut unhealthy: Vec<_> = unhealthy
        .map(|(id, count)| (id.to_string(), u64::from(*count)))
        .collect();
    unhealthy.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    unhealthy.truncate(MAX_ENTRIES);
    let failing = totals.failing.values().filter_map(|view| Failing::of(view, now));
    let deployments = snapshot.deployments.values().take(MAX_ENTRIES);
    let deployments = deployments.map(|deployment| RunningDeployment {
        id: deployment.id.clone(),
        subject: deployment.subject(),
        since: deployment.version.timestamp(),
        step: (deployment.current + 1).min(deployment.steps.len()),
        steps: deployment.steps.len(),
    });
    Summary {
        numbers,
        waiting: Vec::new(),
        failing: failing.take(MAX_ENTRIES).collect(),
        unhealthy,
        deployments: deployments.collect(),
    }
}
