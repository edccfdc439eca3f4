//! The autoscaler's rule: a pure function that computes the count of agents from the pods that wait
//! for a node and the idle agents.
//!
//! # The rule
//!
//! * A count below `min` or above `max` becomes `min` or `max`.
//! * Up: pods count when the orchestrator's scheduler has reported them as unschedulable for
//!   `scale_up_delay`. The rule computes how many empty agents can hold their requests of CPU and
//!   memory. Idle agents, and agents that are not usable yet, are subtracted; nodes that another party
//!   has cordoned are not. At most `step` agents are added by one change.
//! * A pod that no empty agent can hold is left out, and a note names it.
//! * Down: agents that have been idle for `scale_down_delay` are removed, the youngest first; never
//!   while a pod waits for a node, and never while a wanted task is missing or not ready.
//! * At least `cooldown` passes between two changes of the count. Changes by request count as well.
//!
//! Some pods cannot run on an additional agent either, because of a node selector or a taint. Such a
//! pod adds at most the agents that would hold its requests, because these are then idle and count.

mod packing;
mod timers;

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::orchestrator::Resources;
use crate::settings::Autoscale;

pub(crate) use timers::Timers;

/// The maximum number of pods that a note names.
const MAX_NAMED_PODS: usize = 5;

/// The input of the rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// The wanted count of agents.
    pub(crate) count: u32,
    /// The agents whose nodes accept pods: ready and not cordoned.
    pub(crate) usable: Vec<Agent>,
    /// The number of agents that are ready but cordoned, neither by request nor by a drain of this
    /// service.
    pub(crate) closed: usize,
    /// The pods that wait for a node; `None`: they are not known.
    pub(crate) waiting: Option<Vec<PendingPod>>,
    /// The resources of an empty agent for pods; `None`: no agent is ready.
    pub(crate) empty: Option<Resources>,
    /// Whether everything wanted runs and is ready.
    pub(crate) settled: bool,
    /// Whether the agents' nodes are cordoned by request.
    pub(crate) cordoned: bool,
    /// When the count was changed, or this daemon began to lead.
    pub(crate) changed_at: Timestamp,
}

/// An agent.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    /// The id of its task.
    pub(crate) task: String,
    /// Since when it runs.
    pub(crate) since: Timestamp,
    /// Since when it runs no pod that would have to move; `None`: it runs such a pod.
    pub(crate) idle_since: Option<Timestamp>,
}

/// The last decision, stored with the count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Autoscaled {
    pub(crate) at: Timestamp,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) reason: String,
    /// The tasks of the agents that are removed.
    pub(crate) leaving: Vec<String>,
}

/// A pod that waits for a node.
#[derive(Clone, Debug)]
pub(crate) struct PendingPod {
    pub(crate) name: String,
    pub(crate) requests: Resources,
    /// Since when it is unschedulable; `None`: the orchestrator's scheduler has not tried it yet.
    pub(crate) unschedulable_since: Option<Timestamp>,
}

/// The result of the rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) change: Option<Change>,
    /// Why the count stays although there is a reason to change it, in sentences.
    pub(crate) notes: Vec<String>,
    /// When to apply the rule again if no event occurs before.
    pub(crate) recheck_at: Option<Timestamp>,
}

/// A change of the count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) count: u32,
    /// The tasks of the agents that are to end.
    pub(crate) leaving: Vec<String>,
    pub(crate) reason: String,
}

/// Applies the rule; see the module.
pub(crate) fn decide(config: &Autoscale, max: u32, observed: &Observed, now: Timestamp) -> Verdict {
    let mut decision = Decision {
        config,
        max,
        observed,
        now,
        verdict: Verdict::default(),
    };
    decision.decide();
    decision.verdict
}

struct Decision<'a> {
    config: &'a Autoscale,
    max: u32,
    observed: &'a Observed,
    now: Timestamp,
    verdict: Verdict,
}

impl<'a> Decision<'a> {
    fn decide(&mut self) {
        let (count, min, max) = (self.observed.count, self.config.min, self.max);
        if count < min || count > max {
            let (bound, limit) = if count < min { ("min", min) } else { ("max", max) };
            return self.change(limit, Vec::new(), format!("`{bound}` is {limit}"));
        }
        let Some(waiting) = &self.observed.waiting else {
            return;
        };
        let (waiting, too_large): (Vec<&PendingPod>, Vec<&PendingPod>) = waiting.iter().partition(|pod| {
            self.observed
                .empty
                .is_none_or(|empty| pod.requests.fits_in(empty))
        });
        if !too_large.is_empty() {
            self.note(format!(
                "ignored, because no agent can hold their requests: {}",
                names(&too_large)
            ));
        }
        let delay = self.config.scale_up_delay.duration();
        let since = waiting.iter().filter_map(|pod| pod.unschedulable_since);
        let next = since
            .map(|since| time_after(since, delay))
            .filter(|due| *due > self.now);
        self.recheck_at(next.min());
        let due = |pod: &&PendingPod| {
            pod.unschedulable_since
                .is_some_and(|since| time_after(since, delay) <= self.now)
        };
        let unschedulable: Vec<&PendingPod> = waiting.iter().copied().filter(due).collect();
        if unschedulable.is_empty() {
            self.scale_down(&waiting);
        } else {
            self.scale_up(&unschedulable);
        }
    }

    fn scale_up(&mut self, pods: &[&PendingPod]) {
        let (config, observed) = (self.config, self.observed);
        let why = format!(
            "pods unschedulable for {:?}: {}",
            config.scale_up_delay.duration(),
            names(pods)
        );
        if observed.cordoned {
            return self.note(format!("{why}; the agents' nodes are cordoned by request"));
        }
        let known = u32::try_from(observed.usable.len() + observed.closed).unwrap_or(u32::MAX);
        let (idle, coming) = (self.idle().count(), observed.count.saturating_sub(known));
        let there = u32::try_from(idle).unwrap_or(u32::MAX).saturating_add(coming);
        let requests = pods.iter().map(|pod| pod.requests).collect();
        // The result needs no more precision: more agents are not added in any case.
        let max_agents = there.saturating_add(self.max);
        let needed = observed
            .empty
            .map_or(1, |empty| packing::agents_for(requests, empty, max_agents));
        let missing = needed.saturating_sub(there);
        if missing == 0 && coming > 0 {
            return self.note(format!("{why}; agents that do not accept pods yet: {coming}"));
        }
        if missing == 0 {
            return self.note(format!(
                "{why}, although {idle} idle agents could hold the requests; something else keeps the pods away, such \
                 as a node selector, a taint or a volume"
            ));
        }
        let room = self.max.saturating_sub(observed.count);
        if room == 0 {
            return self.note(format!("{why}; the count is `max`, {}", self.max));
        }
        if self.is_cooling_down() {
            return self.note(format!("{why}; the cooldown has not passed"));
        }
        let added = missing.min(room).min(config.step);
        self.change(observed.count + added, Vec::new(), why);
    }

    fn scale_down(&mut self, waiting: &[&PendingPod]) {
        let delay = self.config.scale_down_delay.duration();
        let ends = self
            .idle()
            .filter_map(|agent| Some(time_after(agent.idle_since?, delay)));
        let next = ends.filter(|end| *end > self.now).min();
        let mut idle: Vec<&Agent> = self
            .idle()
            .filter(|agent| {
                agent
                    .idle_since
                    .is_some_and(|since| time_after(since, delay) <= self.now)
            })
            .collect();
        let room = self.observed.count.saturating_sub(self.config.min) as usize;
        if room == 0 {
            return;
        }
        self.recheck_at(next);
        if idle.is_empty() {
            return;
        }
        let why = format!("agents idle for {delay:?}: {}", idle.len());
        if !waiting.is_empty() {
            return self.note(format!("{why}; pods wait for a node: {}", names(waiting)));
        }
        if !self.observed.settled {
            return self.note(format!(
                "{why}; waiting until every task runs and every node is ready"
            ));
        }
        if self.is_cooling_down() {
            return self.note(format!("{why}; the cooldown has not passed"));
        }
        idle.sort_by(|a, b| b.since.cmp(&a.since).then_with(|| b.task.cmp(&a.task)));
        let leaving: Vec<String> = idle
            .into_iter()
            .take(room)
            .map(|agent| agent.task.clone())
            .collect();
        let removed = u32::try_from(leaving.len()).unwrap_or(u32::MAX);
        self.change(self.observed.count.saturating_sub(removed), leaving, why);
    }

    fn idle(&self) -> impl Iterator<Item = &'a Agent> + use<'a> {
        self.observed
            .usable
            .iter()
            .filter(|agent| agent.idle_since.is_some())
    }

    /// Whether a change has to wait for the cooldown.
    fn is_cooling_down(&mut self) -> bool {
        let end = time_after(self.observed.changed_at, self.config.cooldown.duration());
        let is_cooling_down = end > self.now;
        self.recheck_at(is_cooling_down.then_some(end));
        is_cooling_down
    }

    fn change(&mut self, count: u32, leaving: Vec<String>, reason: String) {
        self.verdict.change = Some(Change {
            count,
            leaving,
            reason,
        });
    }

    fn note(&mut self, note: String) {
        self.verdict.notes.push(note);
    }

    fn recheck_at(&mut self, at: Option<Timestamp>) {
        self.verdict.recheck_at = self.verdict.recheck_at.into_iter().chain(at).min();
    }
}

/// The names of pods; of more than [`MAX_NAMED_PODS`] pods, the first ones and the number of the others.
fn names(pods: &[&PendingPod]) -> String {
    let mut names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(MAX_NAMED_PODS);
    names.truncate(MAX_NAMED_PODS);
    let text = names.join(", ");
    if more > 0 {
        format!("{text} and {more} more")
    } else {
        text
    }
}

fn time_after(since: Timestamp, duration: Duration) -> Timestamp {
    since.checked_add(duration).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
