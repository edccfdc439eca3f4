//! What the running step of a deployment asks for, given the instances as they are. Asked again after every change until it
//! says that it is done; it remembers nothing, so a restart of the daemon makes no difference to it.

use super::ActionKind;
use super::restart::{self, Now};
use super::scale::{self, Candidate};
use crate::condition::Condition;
use crate::ids::InstanceId;
use crate::model::App;
use crate::time::Moment;

/// One instance as a step sees it.
#[derive(Clone, Debug)]
pub(crate) struct InstanceView {
    pub(crate) id: InstanceId,
    pub(crate) condition: Condition,
    pub(crate) since: Moment,
    /// Meant to run; false for those that are being ended.
    pub(crate) wanted: bool,
    /// Of a configuration before the present one.
    pub(crate) old: bool,
}

impl InstanceView {
    /// Takes a place among the instances of its app. One that nobody hears from any more does not, once it was given up.
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

/// What is to be done next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Directive {
    /// Instances to end, in this order.
    pub(crate) decommission: Vec<InstanceId>,
    /// How many to start.
    pub(crate) start: u32,
    /// Whether nothing is left to do or to wait for.
    pub(crate) done: bool,
}

/// What an action asks for now.
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

/// As many instances as the definition wants. It is what a scaling does, and what keeps an app going without a deployment.
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

/// Instances of the present configuration in the place of older ones, as fast as the upgrade strategy allows.
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

    // What is not launched yet is replaced without anybody noticing; then those that do not run, then the rest.
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
        // Old instances that do not even run must not keep the new ones out: nobody is worse off without one of them.
        kill = usize::from(
            order
                .first()
                .is_some_and(|seen| seen.condition != Condition::Running),
        );
    }
    let decommission: Vec<InstanceId> = order.iter().take(kill).map(|seen| seen.id.clone()).collect();
    // A killed instance takes its room until it is gone, one that was never launched does not.
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
