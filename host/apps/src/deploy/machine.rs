//! The next actions of a deployment's current step, computed from the instances. Evaluated after
//! every change until the step is done. It has no state, so a restart of the daemon does not affect
//! it.

use super::ActionKind;
use super::restart::{self, Now};
use super::scale::{self, Candidate};
use crate::condition::Condition;
use crate::ids::InstanceId;
use crate::model::App;
use crate::time::Moment;

/// An instance as a step sees it.
#[derive(Clone, Debug)]
pub(crate) struct InstanceView {
    pub(crate) id: InstanceId,
    pub(crate) condition: Condition,
    pub(crate) since: Moment,
    /// Whether it should run; false once it is being removed.
    pub(crate) wanted: bool,
    /// Whether its configuration is older than the current one.
    pub(crate) old: bool,
}

impl InstanceView {
    /// Whether it counts towards the app's instances. An unreachable instance that was given up
    /// does not.
    fn counts(&self) -> bool {
        self.wanted && self.condition != Condition::UnreachableInactive
    }

    fn candidate(&self) -> Candidate<InstanceId> {
        Candidate {
            id: self.id.clone(),
            condition: self.condition,
            since: self.since,
        }
    }
}

/// The next actions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Directive {
    /// Instances to remove, in this order.
    pub(crate) decommission: Vec<InstanceId>,
    /// Number of instances to start.
    pub(crate) start: u32,
    /// Whether the step is complete.
    pub(crate) done: bool,
}

/// The next actions of an action of the plan.
pub(crate) fn advance(action: ActionKind, app: &App, instances: &[InstanceView]) -> Directive {
    match action {
        ActionKind::StartApplication => Directive {
            done: true,
            ..Directive::default()
        },
        ActionKind::StopApplication => stop(instances),
        ActionKind::ScaleApplication => keep(app, instances),
        ActionKind::RestartApplication => replace(app, instances),
    }
}

fn stop(instances: &[InstanceView]) -> Directive {
    let decommission = instances
        .iter()
        .filter(|seen| seen.wanted)
        .map(|seen| seen.id.clone())
        .collect();
    Directive {
        decommission,
        start: 0,
        done: instances.is_empty(),
    }
}

/// Adjusts the number of instances to the definition. Used for scaling, and for apps without a
/// deployment.
pub(crate) fn keep(app: &App, instances: &[InstanceView]) -> Directive {
    let counted: Vec<&InstanceView> = instances.iter().filter(|seen| seen.counts()).collect();
    let candidates: Vec<_> = counted.iter().map(|seen| seen.candidate()).collect();
    let proposal = scale::propose(&candidates, &[], app.instances, app.kill_selection);
    let settled = proposal.decommission.is_empty() && proposal.start == 0;
    let quiet = instances
        .iter()
        .all(|seen| seen.wanted && (seen.condition == Condition::Running || !seen.counts()));
    Directive {
        done: settled && quiet,
        decommission: proposal.decommission,
        start: proposal.start,
    }
}

/// Replaces instances of older configurations, as fast as the upgrade strategy allows.
fn replace(app: &App, instances: &[InstanceView]) -> Directive {
    let (old, new): (Vec<&InstanceView>, Vec<&InstanceView>) = instances
        .iter()
        .filter(|seen| seen.counts())
        .partition(|seen| seen.old);
    if old.is_empty() {
        return keep(app, instances);
    }
    let running = |seen: &&&InstanceView| seen.condition == Condition::Running;
    let healthy = old.iter().filter(running).count() + new.iter().filter(running).count();
    let now = Now {
        wanted: app.instances,
        running: old.len() as u32,
        healthy: healthy as u32,
        resident: false,
    };
    let allowance = restart::allow(now, app.upgrade_strategy);

    // Instances that are not running, unlaunched ones among them, are replaced before the running
    // ones.
    let mut order = old.clone();
    order.sort_by(|a, b| {
        let by_health = running(&&&**a).cmp(&running(&&&**b));
        by_health.then_with(|| scale::kill_order(&a.candidate(), &b.candidate(), app.kill_selection))
    });
    let unlaunched = order
        .iter()
        .filter(|seen| seen.condition == Condition::Scheduled)
        .count();
    let mut kill = (allowance.kill as usize).max(unlaunched).min(order.len());

    let ending = instances.iter().filter(|seen| !seen.wanted).count();
    let missing = (app.instances as usize).saturating_sub(new.len());
    let occupied = |kill: usize| old.len() - kill + new.len() + ending;
    let room = |kill: usize| (allowance.capacity as usize).saturating_sub(occupied(kill));
    if missing > 0 && room(kill) == 0 && kill == 0 && ending == 0 {
        // Old instances that are not running must not block the new ones: removing one of them
        // loses no capacity.
        kill = usize::from(
            order
                .first()
                .is_some_and(|seen| seen.condition != Condition::Running),
        );
    }
    let decommission: Vec<InstanceId> = order.iter().take(kill).map(|seen| seen.id.clone()).collect();
    // A killed instance takes its place until it has ended; an unlaunched one does not.
    let launched_kills = order
        .iter()
        .take(kill)
        .filter(|seen| seen.condition != Condition::Scheduled)
        .count();
    let start = missing.min(room(kill).saturating_sub(launched_kills)) as u32;
    Directive {
        decommission,
        start,
        done: false,
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
