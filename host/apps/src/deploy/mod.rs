//! Deployments: the steps from one definition to another, and their progress.
//!
//! All of it is pure. [`plan`] computes the steps; [`advance`] and [`keep`] the next actions from
//! the instances, with [`transom_replicas`]. The core executes them. A step is evaluated after
//! every change until it is done. It has no state, so a restart of the daemon does not affect it.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

mod change;
pub(crate) mod plan;
pub(crate) mod policy;

use transom_replicas::{Action, Directive, Member};

use crate::ids::InstanceId;
use crate::model::App;

pub(crate) use change::Change;
#[cfg(test)]
pub(crate) use change::ChangedApp;
pub(crate) use plan::{ActionKind, Deadline, Deployment, Step};

/// The next actions of an action of the plan.
pub(crate) fn advance(
    action: ActionKind,
    app: &App,
    instances: &[Member<InstanceId>],
) -> Directive<InstanceId> {
    let action = match action {
        ActionKind::StartApplication => return Directive::done(),
        ActionKind::StopApplication => Action::Stop,
        ActionKind::ScaleApplication => Action::Scale,
        ActionKind::RestartApplication => Action::Restart,
    };
    transom_replicas::advance(action, &policy::scaling(app), instances)
}

/// The next actions of an app without a deployment: its number of instances is kept.
pub(crate) fn keep(app: &App, instances: &[Member<InstanceId>]) -> Directive<InstanceId> {
    transom_replicas::advance(Action::Scale, &policy::scaling(app), instances)
}
