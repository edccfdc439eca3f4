//! A summary of the service for operators: counts, and conditions that need attention. All of it is
//! read from snapshots.

use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use serde::Serialize;
use transom_framework::Leader;
use transom_replicas::Condition;
use transom_scheduler::{Waiting, waiting};

use crate::core::failing::{Failing, launch};
use crate::core::snapshot::Snapshot;
use crate::core::term::Handles;
use crate::deploy::{ActionKind, Step};
use crate::ids::SpecId;
use crate::model::Spec;
use crate::time::Moment;

/// What a step of a deployment does with an app whose configuration has changed.
const RESTART: &str = "replaces the instances of";
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
    /// Apps and pods whose tasks or checks fail, or that no agent can run, and the causes; at most 20.
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
    /// The apps and pods of the step, and what it does with them.
    #[serde(skip)]
    actions: Vec<(String, &'static str)>,
    /// Why the step cannot go on, if an app or pod of it fails: what it waits for, and the limit that
    /// applies.
    pub blocked: Option<String>,
}

impl SummaryReader {
    /// The present state.
    pub fn read(&self) -> Summary {
        let snapshot = self.snapshot.load();
        let now = Moment::now();
        let mut summary = count(&snapshot, now);
        let Some(handles) = self.leader.handles() else {
            return summary;
        };
        let pending = handles.scheduler.pending();
        (summary.waiting, summary.numbers.waiting) = waiting(&pending, MAX_ENTRIES);
        for one in &summary.waiting {
            let failing = &mut summary.failing;
            if failing.len() < MAX_ENTRIES && !failing.iter().any(|known| known.name == one.run_spec) {
                failing.extend(launch::failing(&handles, &pending, &one.run_spec, now));
            }
        }
        summary.find_blocked(&snapshot);
        summary
    }
}

impl Summary {
    /// Finds the deployments whose step waits for an app or pod that fails.
    fn find_blocked(&mut self, snapshot: &Snapshot) {
        for deployment in &mut self.deployments {
            let mut blocked = deployment.actions.iter().filter_map(|(name, verb)| {
                let failing = self.failing.iter().find(|one| one.name == *name)?;
                let view = snapshot.specs.get(&SpecId::parse(name).ok()?)?;
                Some(described(failing, verb, &view.record.spec))
            });
            deployment.blocked = blocked.next();
        }
    }
}

/// Why a step that does this with an app or pod cannot go on.
fn described(failing: &Failing, verb: &str, spec: &Spec) -> String {
    let limit = spec.upgrade_strategy().minimum_health_capacity;
    let limit = match verb {
        RESTART => format!(", and minimumHealthCapacity is {limit}"),
        _ => String::new(),
    };
    format!("it {verb} {} ({}){limit}", failing.name, failing.kind)
}

/// The apps and pods of a step, and what it does with them.
fn actions(step: &Step) -> Vec<(String, &'static str)> {
    let shown = step.actions.iter().filter_map(|action| {
        let verb = match action.kind {
            ActionKind::Scale => "scales",
            ActionKind::Restart => RESTART,
            ActionKind::Start | ActionKind::Stop => return None,
        };
        Some((action.id.to_string(), verb))
    });
    shown.take(MAX_ENTRIES).collect()
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
        actions: deployment.step().map(actions).unwrap_or_default(),
        blocked: None,
    });
    Summary {
        numbers,
        waiting: Vec::new(),
        failing: failing.take(MAX_ENTRIES).collect(),
        unhealthy,
        deployments: deployments.collect(),
    }
}
