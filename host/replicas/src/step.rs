//! The state transitions of one replica.

use std::time::Duration;

use jiff::Timestamp;

use crate::unreachable::elapsed;
use crate::{Condition, Goal, Replica, TaskView, UnreachableStrategy};

/// An event or a request that affects a replica.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// The scheduler launched the current task.
    Launched(TaskView<'a>),
    /// The scheduler received a status update of the current task.
    Updated(TaskView<'a>),
    /// The current task is to be killed; the next one takes its place.
    Restart,
    /// The replica is to be removed.
    Decommission,
    /// Time has passed.
    Tick,
}

/// An action for the service. The service executes the effects of a step in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The condition has changed to this one.
    Changed(Condition),
    /// Kill the task of this incarnation, or withdraw its request if it is not launched.
    Kill {
        /// The number of the task.
        incarnation: u32,
    },
    /// The task of this incarnation has ended; the scheduler may delete its record.
    Ended {
        /// The number of the task.
        incarnation: u32,
        /// How it ended.
        condition: Condition,
        /// Whether it was killed so that the next one takes its place.
        restarting: bool,
    },
    /// Request the current task. If the last one failed, count its failure for the backoff first.
    Launch {
        /// Whether the last task failed.
        after_failure: bool,
    },
}

/// The settings of the service for a replica.
#[derive(Clone, Copy, Debug)]
pub struct Policy<V> {
    /// The definition from which the next task is launched.
    pub version: V,
    /// The strategy for an unreachable agent.
    pub unreachable: UnreachableStrategy,
    /// How long a launched task that does not run yet may stay in one condition. A task that exceeds
    /// this is killed, and the next one takes its place.
    pub launch_timeout: Duration,
    /// Whether a task that ended is replaced; false while the run spec is being deleted.
    pub replace: bool,
    /// Whether volumes bind the replica to its agent.
    pub resident: bool,
}

/// Applies an input to a replica. Returns the replica afterwards (`None`: it is removed) and the
/// effects.
pub fn step<V: Clone + PartialEq>(
    replica: &Replica<V>,
    input: Input<'_>,
    policy: &Policy<V>,
    now: Timestamp,
) -> (Option<Replica<V>>, Vec<Effect>) {
    let mut next = replica.clone();
    match input {
        Input::Launched(task) => {
            let waiting = replica.condition == Condition::Scheduled;
            let changed = waiting && next.observe(&task, now);
            let condition = next.condition;
            (Some(next), effects(changed, condition))
        }
        Input::Updated(task) => {
            let changed = next.observe(&task, now);
            let mut effects = effects(changed, next.condition);
            if next.condition.is_unreachable() && (!next.is_wanted() || next.restarting) {
                // The task is being killed already, and its end may never be reported.
                let (next, launch_again) = abandon_task(&next, policy, now);
                effects.extend(launch_again);
                return (next, effects);
            }
            if !next.condition.is_terminal() {
                if task.is_ending_on_drained_agent() && !policy.resident && !next.restarting {
                    // Another replica replaces it on another agent while it ends.
                    next.goal = Goal::Decommissioned;
                }
                return (Some(next), effects);
            }
            effects.push(Effect::Ended {
                incarnation: next.incarnation,
                condition: next.condition,
                restarting: next.restarting,
            });
            if !next.is_wanted() || !policy.replace {
                return (None, effects);
            }
            effects.push(Effect::Launch {
                after_failure: (next.condition.is_failure() || task.is_killed_by_check()) && !next.restarting,
            });
            (Some(next.with_next_task(policy.version.clone(), now)), effects)
        }
        Input::Restart => {
            next.restarting = true;
            let mut effects = vec![kill(&next)];
            if !next.condition.is_unreachable() {
                return (Some(next), effects);
            }
            let (next, launch_again) = abandon_task(&next, policy, now);
            effects.extend(launch_again);
            (next, effects)
        }
        Input::Decommission => {
            next.goal = Goal::Decommissioned;
            let kill = kill(&next);
            // A scheduled replica has no task to wait for, and an unreachable task may never end. If
            // its launch is under way or its agent returns, the task is an orphan, and the service
            // kills it when it appears.
            let waits = next.condition != Condition::Scheduled && !next.condition.is_unreachable();
            (waits.then_some(next), vec![kill])
        }
        Input::Tick => tick(next, policy, now),
    }
}

/// Stops waiting for the end of a killed task on an unreachable agent. The replica is removed, or it
/// continues with its next task.
fn abandon_task<V: Clone + PartialEq>(
    replica: &Replica<V>,
    policy: &Policy<V>,
    now: Timestamp,
) -> (Option<Replica<V>>, Option<Effect>) {
    if !replica.is_wanted() || !policy.replace {
        return (None, None);
    }
    let launch = Effect::Launch { after_failure: false };
    (
        Some(replica.with_next_task(policy.version.clone(), now)),
        Some(launch),
    )
}

fn tick<V>(mut replica: Replica<V>, policy: &Policy<V>, now: Timestamp) -> (Option<Replica<V>>, Vec<Effect>) {
    let strategy = policy.unreachable;
    let lost_at = replica.unreachable_since.unwrap_or(replica.since);
    let waits = replica.condition.is_launching() && replica.is_wanted() && !replica.restarting;
    if waits && elapsed(replica.since, now) >= policy.launch_timeout {
        replica.restarting = true;
        let kill = kill(&replica);
        return (Some(replica), vec![kill]);
    }
    match replica.condition {
        Condition::Unreachable if strategy.is_inactive(lost_at, now) => {
            replica.condition = Condition::UnreachableInactive;
            replica.since = now;
            let effects = effects(true, replica.condition);
            (Some(replica), effects)
        }
        Condition::UnreachableInactive if strategy.is_expunged(lost_at, now) => {
            let kill = kill(&replica);
            (None, vec![kill])
        }
        _ => (Some(replica), Vec::new()),
    }
}

fn effects(changed: bool, condition: Condition) -> Vec<Effect> {
    changed
        .then_some(Effect::Changed(condition))
        .into_iter()
        .collect()
}

fn kill<V>(replica: &Replica<V>) -> Effect {
    Effect::Kill {
        incarnation: replica.incarnation,
    }
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
