//! Deployments: the steps from one definition to another, and their progress.
//!
//! All of it is pure. [`plan`] computes the steps. [`advance`] and [`keep_count`] compute the next
//! actions from the instances, with [`transom_replicas`], and the core executes them. A step is
//! evaluated after every change until it is done. It has no state, so a restart of the daemon does
//! not affect it.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

mod canary;
mod change;
pub(crate) mod plan;
pub(crate) mod policy;

use transom_replicas::{Action, Directive, Member};

use crate::ids::InstanceId;
use crate::model::Spec;

pub(crate) use canary::{Amount, Canary};
pub(crate) use change::{Change, ChangedSpec};
pub(crate) use plan::{ActionKind, Deadline, Deployment, Step};

/// The next actions on the instances in a step of the plan. `canary`: the number of instances that
/// a restart may replace.
pub(crate) fn advance(
    action: ActionKind,
    canary: Option<u32>,
    spec: &Spec,
    instances: &[Member<InstanceId>],
) -> Directive<InstanceId> {
    let action = match action {
        ActionKind::Start => return Directive::done(),
        ActionKind::Stop => Action::Stop,
        ActionKind::Scale => Action::Scale,
        ActionKind::Restart => canary.map_or(Action::Restart, Action::Canary),
    };
    transom_replicas::advance(action, &policy::scaling(spec), instances)
}

/// The next actions on the instances outside of a deployment: their number is kept.
pub(crate) fn keep_count(spec: &Spec, instances: &[Member<InstanceId>]) -> Directive<InstanceId> {
    transom_replicas::advance(Action::Scale, &policy::scaling(spec), instances)
}
