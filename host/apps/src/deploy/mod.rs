//! Deployments: the steps from one definition to another, and their progress.
//!
//! All of it is pure. [`plan`] computes the steps. [`advance`] and [`keep_count`] compute the next
//! actions, with [`transom_replicas`], from the counts of the instances, and from the instances
//! themselves only if some have to be selected. The core executes them. A step is evaluated after
//! every change until it is done. It has no state, so a restart of the daemon does not affect it.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

mod canary;
mod change;
mod layers;
pub(crate) mod plan;
mod plan_texts;
pub(crate) mod policy;

use transom_replicas::{Action, Directive, Member, ReplicaCounts, ScalingPolicy};

use crate::ids::InstanceId;
use crate::model::Spec;

pub(crate) use canary::{Amount, Canary};
pub(crate) use change::{Change, ChangedSpec};
pub(crate) use plan::{ActionKind, Deadline, Deployment, Step};
pub(crate) use plan_texts::{PlanTexts, SharedTexts};

/// The instances of an app or pod, as deployments see them.
pub(crate) struct Instances<F, M> {
    pub(crate) counts: ReplicaCounts,
    /// See [`transom_replicas::advance_by_counts`].
    pub(crate) first_old: F,
    /// All of them.
    pub(crate) members: M,
}

/// Old instances in the order of removal.
type FirstOld = Option<Vec<InstanceId>>;

/// The next actions on the instances in a step of the plan. `canary`: the number of instances that
/// a restart may replace.
pub(crate) fn advance(
    action: ActionKind,
    canary: Option<u32>,
    spec: &Spec,
    instances: Instances<impl FnOnce(usize) -> FirstOld, impl FnOnce() -> Vec<Member<InstanceId>>>,
) -> Directive<InstanceId> {
    let action = match action {
        ActionKind::Start => return Directive::done(),
        ActionKind::Stop => Action::Stop,
        ActionKind::Scale => Action::Scale,
        ActionKind::Restart => canary.map_or(Action::Restart, Action::Canary),
    };
    by_counts_or_members(action, &policy::scaling(spec), instances)
}

/// The next actions on the instances outside of a deployment: their number is kept.
pub(crate) fn keep_count(
    spec: &Spec,
    instances: Instances<impl FnOnce(usize) -> FirstOld, impl FnOnce() -> Vec<Member<InstanceId>>>,
) -> Directive<InstanceId> {
    by_counts_or_members(Action::Scale, &policy::scaling(spec), instances)
}

/// The next actions while a deployment waits to replace the definition `before` by `after`. Instances
/// that `after` omits stay, but are not started again: the request may have killed them.
pub(crate) fn keep_count_before(
    before: &Spec,
    after: &Spec,
    instances: Instances<impl FnOnce(usize) -> FirstOld, impl FnOnce() -> Vec<Member<InstanceId>>>,
) -> Directive<InstanceId> {
    let (most, least) = (before.instances(), before.instances().min(after.instances()));
    let wanted = instances.counts.counted().clamp(least, most);
    keep_count(&before.with_instances(wanted), instances)
}

/// Most events need no selection among all instances, so their cost does not grow with the app.
fn by_counts_or_members(
    action: Action,
    policy: &ScalingPolicy,
    instances: Instances<impl FnOnce(usize) -> FirstOld, impl FnOnce() -> Vec<Member<InstanceId>>>,
) -> Directive<InstanceId> {
    let Instances {
        counts,
        first_old,
        members,
    } = instances;
    let by_counts = transom_replicas::advance_by_counts(action, policy, &counts, first_old);
    by_counts.unwrap_or_else(|| transom_replicas::advance(action, policy, &members()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use transom_replicas::{Fitness, Replica};

    use super::*;
    use crate::testing::app;
    use crate::time::Moment;

    #[test]
    fn waiting_app_keeps_its_number_of_instances_but_not_killed_ones() {
        let spec = |instances: u32| {
            Spec::from(app(
                &json!({"id": "/a", "cmd": "sleep 1", "instances": instances}),
            ))
        };
        // The number before and after the change, the present one, and how many are started and removed.
        for (before, after, present, start, removed) in [
            (3, 1, 3, 0, 0),
            (3, 1, 2, 0, 0),
            (3, 1, 0, 1, 0),
            (3, 1, 4, 0, 1),
            (3, 5, 2, 1, 0),
            (3, 5, 3, 0, 0),
        ] {
            let (before, after) = (spec(before), spec(after));
            let replica = Replica::new(before.version(), Moment::now().timestamp());
            let members: Vec<_> = (0..present)
                .map(|_| replica.member(InstanceId::new(before.id()), true, Fitness::Unchecked))
                .collect();
            let instances = Instances {
                counts: members.iter().collect(),
                first_old: |_| None,
                members: || members,
            };
            let found = keep_count_before(&before, &after, instances);
            assert_eq!(
                (found.start, found.decommission.len()),
                (start, removed),
                "{present} of {before:?}, then {after:?}"
            );
        }
    }
}
