//! The next actions that bring replicas to their target: another number, another configuration, or
//! none at all. They are computed from the current replicas alone, again after every change until
//! the directive is done, so a restart of the daemon loses nothing.

pub(crate) mod counts;
pub(crate) mod restart;
pub(crate) mod selection;

use jiff::Timestamp;

use crate::{Condition, Fitness, Replica};
use restart::{Progress, UpgradeStrategy};
use selection::{Candidate, KillSelection};

/// The wanted result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// No replicas.
    Stop,
    /// The number in the definition, of any configuration.
    Scale,
    /// The number in the definition, all of the current configuration.
    Restart,
    /// The first part of a restart: this many replicas of the current configuration replace earlier
    /// ones, and the others stay. The action is never done unless all replicas have the current
    /// configuration.
    Canary(u32),
}

/// The rules of the definition for the number of replicas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalingPolicy {
    /// The number of replicas.
    pub replicas: u32,
    /// Which ones are removed first.
    pub kill_selection: KillSelection,
    /// How many a restart may remove and add.
    pub upgrade: UpgradeStrategy,
    /// Whether replicas are bound to their agents by volumes.
    pub resident: bool,
}

/// The properties of a replica that scaling and restarts use.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent property of the replica"
)]
pub struct Member<I> {
    /// Its id.
    pub id: I,
    /// Its condition.
    pub condition: Condition,
    /// See [`Replica::active_since`].
    pub since: Timestamp,
    /// Whether it should run; false once it is being removed.
    pub wanted: bool,
    /// Whether its configuration is older than the current one.
    pub old: bool,
    /// Whether its agent is about to go into maintenance, so that another replica replaces it.
    pub leaving: bool,
    /// Whether its task is being ended so that the next one takes its place.
    pub restarting: bool,
    /// Whether it was selected to be removed before the others when there are too many.
    pub selected: bool,
    /// Whether it runs and no health or readiness check says otherwise; see [`Fitness`].
    pub healthy: bool,
    /// Whether it is healthy or was once. Scaling does not wait for a replica that was healthy, has
    /// ended and is launched again.
    pub has_been_healthy: bool,
}

impl<V> Replica<V> {
    /// The properties of the replica for scaling and restarts. `old`: its configuration is not the
    /// current one.
    pub fn member<I>(&self, id: I, old: bool, fitness: Fitness) -> Member<I> {
        let healthy = self.condition == Condition::Running && fitness != Fitness::Unfit;
        let before = match fitness {
            Fitness::Unchecked => self.has_run,
            Fitness::Unfit | Fitness::Fit => self.has_been_fit,
        };
        Member {
            id,
            condition: self.condition,
            since: self.active_since(),
            wanted: self.is_wanted(),
            old,
            leaving: false,
            restarting: self.restarting,
            selected: false,
            healthy,
            has_been_healthy: healthy || before,
        }
    }
}

impl<I: Clone + PartialEq> Member<I> {
    /// Whether it counts towards the number of replicas. An inactive one does not, because another
    /// replica replaces it.
    pub fn is_counted(&self) -> bool {
        self.wanted && self.condition != Condition::UnreachableInactive
    }

    /// Whether it is inactive and of an old configuration.
    fn is_lost_and_old(&self) -> bool {
        self.wanted && self.old && self.condition == Condition::UnreachableInactive
    }

    fn candidate(&self) -> Candidate<I> {
        Candidate {
            id: self.id.clone(),
            condition: self.condition,
            since: self.since,
            healthy: self.healthy,
            selected: self.selected,
            old: self.old,
        }
    }
}

/// The next actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive<I> {
    /// Replicas to remove, in this order.
    pub decommission: Vec<I>,
    /// All replicas from which `decommission` was selected, in the order of removal. Empty unless
    /// others could be removed instead, which is so if there are more replicas than wanted.
    pub kill_order: Vec<I>,
    /// Replicas whose tasks are to be replaced in place, because volumes bind them to their agents.
    pub restart: Vec<I>,
    /// Number of replicas to start.
    pub start: u32,
    /// Whether the goal of the action is reached.
    pub done: bool,
    /// Whether all replicas of a canary exist and are healthy.
    pub canaries_healthy: bool,
}

impl<I> Directive<I> {
    /// Nothing to do.
    pub fn done() -> Self {
        Self {
            done: true,
            ..Self::default()
        }
    }
}

impl<I> Default for Directive<I> {
    fn default() -> Self {
        Self {
            decommission: Vec::new(),
            kill_order: Vec::new(),
            restart: Vec::new(),
            start: 0,
            done: false,
            canaries_healthy: false,
        }
    }
}

/// Computes the next actions. Execute them and call this again, until nothing is left to do.
pub fn advance<I: Clone + PartialEq>(
    action: Action,
    policy: &ScalingPolicy,
    members: &[Member<I>],
) -> Directive<I> {
    match action {
        Action::Stop => stop(members),
        Action::Scale => scale(policy, members),
        Action::Restart => replace_all(policy, members),
        Action::Canary(replicas) => canary(replicas, policy, members),
    }
}

fn stop<I: Clone + PartialEq>(members: &[Member<I>]) -> Directive<I> {
    let decommission = members
        .iter()
        .filter(|member| member.wanted)
        .map(|member| member.id.clone())
        .collect();
    Directive {
        decommission,
        done: members.is_empty(),
        ..Directive::default()
    }
}

/// Adjusts the number of replicas to the definition.
fn scale<I: Clone + PartialEq>(policy: &ScalingPolicy, members: &[Member<I>]) -> Directive<I> {
    if !policy.resident && members.iter().any(|member| member.is_counted() && member.leaving) {
        return replace_leaving(policy, members);
    }
    let counted: Vec<&Member<I>> = members.iter().filter(|member| member.is_counted()).collect();
    let candidates: Vec<_> = counted.iter().map(|member| member.candidate()).collect();
    let proposal = selection::propose(&candidates, &[], policy.replicas, policy.kill_selection);
    let settled = proposal.decommission.is_empty() && proposal.start == 0;
    // Each replica must have been healthy once, but not all at the same time: otherwise a replica that
    // keeps ending would block the deployment.
    let reached = members
        .iter()
        .all(|member| member.wanted && (member.has_been_healthy || !member.is_counted()));
    let kill_order = if proposal.decommission.is_empty() || proposal.decommission.len() == candidates.len() {
        Vec::new()
    } else {
        selection::in_kill_order(&candidates, policy.kill_selection)
    };
    Directive {
        done: settled && reached,
        decommission: proposal.decommission,
        kill_order,
        start: proposal.start,
        ..Directive::default()
    }
}

/// Replaces the replicas on agents that are about to go into maintenance, as fast as the upgrade
/// strategy allows.
fn replace_leaving<I: Clone + PartialEq>(policy: &ScalingPolicy, members: &[Member<I>]) -> Directive<I> {
    let (leaving, staying): (Vec<&Member<I>>, Vec<&Member<I>>) = members
        .iter()
        .filter(|member| member.is_counted())
        .partition(|member| member.leaving);
    // Leaving replicas count as well, because the cluster may have no room for their replacements.
    let count = |member: &&&Member<I>| member.has_been_healthy;
    let reached = leaving.iter().chain(&staying).filter(count).count() >= policy.replicas as usize;
    Directive {
        done: reached
            && staying.len() <= policy.replicas as usize
            && members.iter().all(|member| member.wanted),
        ..replace_gradually(policy, members, &leaving, &staying)
    }
}

/// Replaces replicas of older configurations, and gives up those that are inactive: another replica
/// has their place already, and the service kills their tasks if their agents return.
fn replace_all<I: Clone + PartialEq>(policy: &ScalingPolicy, members: &[Member<I>]) -> Directive<I> {
    let lost = members.iter().filter(|member| member.is_lost_and_old());
    let lost: Vec<I> = lost.map(|member| member.id.clone()).collect();
    let mut next = replace(policy, members);
    next.done &= lost.is_empty();
    next.decommission.extend(lost);
    next
}

/// Replaces replicas of older configurations, as fast as the upgrade strategy allows.
fn replace<I: Clone + PartialEq>(policy: &ScalingPolicy, members: &[Member<I>]) -> Directive<I> {
    let counted = || members.iter().filter(|member| member.is_counted());
    if !counted().any(|member| member.old) {
        return scale(policy, members);
    }
    if policy.resident {
        let (old, new): (Vec<&Member<I>>, Vec<&Member<I>>) = counted().partition(|member| member.old);
        return replace_in_place(policy, members, &old, &new);
    }
    let (old, new): (Vec<&Member<I>>, Vec<&Member<I>>) =
        counted().partition(|member| member.old || member.leaving);
    replace_gradually(policy, members, &old, &new)
}

/// Replaces the `old` replicas by new ones, as fast as the upgrade strategy allows.
fn replace_gradually<I: Clone + PartialEq>(
    policy: &ScalingPolicy,
    members: &[Member<I>],
    old: &[&Member<I>],
    new: &[&Member<I>],
) -> Directive<I> {
    let healthy = old.iter().chain(new).filter(|member| member.healthy).count();
    let progress = Progress {
        wanted: policy.replicas,
        running: old.len() as u32,
        healthy: healthy as u32,
        resident: policy.resident,
    };
    let allowance = restart::allow(progress, policy.upgrade);

    // Unhealthy replicas, including unlaunched ones, are replaced before healthy ones. Within each
    // group those whose agents are about to go into maintenance are replaced first.
    let mut order = old.to_vec();
    order.sort_by(|a, b| {
        let by_health = a.healthy.cmp(&b.healthy).then(b.leaving.cmp(&a.leaving));
        by_health.then_with(|| selection::kill_order(&a.candidate(), &b.candidate(), policy.kill_selection))
    });
    let unlaunched = order
        .iter()
        .filter(|member| member.condition == Condition::Scheduled)
        .count();
    let mut kill = (allowance.kill as usize).max(unlaunched).min(order.len());

    let ending = members.iter().filter(|member| !member.wanted).count();
    let missing = (policy.replicas as usize).saturating_sub(new.len());
    let occupied = |kill: usize| old.len() - kill + new.len() + ending;
    let free_capacity = |kill: usize| (allowance.capacity as usize).saturating_sub(occupied(kill));
    if missing > 0 && free_capacity(kill) == 0 && kill == 0 && ending == 0 {
        // Old replicas that are not healthy must not block the new ones: removing one of them loses
        // no capacity.
        kill = usize::from(order.first().is_some_and(|member| !member.healthy));
    }
    let decommission: Vec<I> = order.iter().take(kill).map(|member| member.id.clone()).collect();
    // A killed replica counts towards the capacity until it has ended; an unlaunched one does not.
    let launched_kills = order
        .iter()
        .take(kill)
        .filter(|member| member.condition != Condition::Scheduled)
        .count();
    let start = missing.min(free_capacity(kill).saturating_sub(launched_kills)) as u32;
    Directive {
        decommission,
        start,
        ..Directive::default()
    }
}

/// Replaces the tasks of replicas that keep their agents, as fast as the upgrade strategy allows.
fn replace_in_place<I: Clone + PartialEq>(
    policy: &ScalingPolicy,
    members: &[Member<I>],
    old: &[&Member<I>],
    new: &[&Member<I>],
) -> Directive<I> {
    let count = old.len() + new.len();
    if count != policy.replicas as usize {
        // The number is adjusted first, so that no surplus replica is restarted.
        return Directive {
            done: false,
            ..scale(policy, members)
        };
    }
    let healthy = |member: &&&Member<I>| member.healthy && !member.restarting;
    let progress = Progress {
        wanted: policy.replicas,
        running: old.len() as u32,
        healthy: old.iter().chain(new).filter(healthy).count() as u32,
        resident: true,
    };
    let allowance = restart::allow(progress, policy.upgrade);
    let mut order: Vec<&Member<I>> = old.iter().copied().filter(|member| !member.restarting).collect();
    order.sort_by(|a, b| {
        let by_health = a.healthy.cmp(&b.healthy);
        by_health.then_with(|| selection::kill_order(&a.candidate(), &b.candidate(), policy.kill_selection))
    });
    // Replicas that do not run can be replaced immediately without a loss of capacity. Replicas that
    // run and are unhealthy are limited by the strategy, as in upstream.
    order.sort_by_key(|member| member.condition == Condition::Running);
    let idle = order
        .iter()
        .filter(|member| member.condition != Condition::Running)
        .count();
    let count = (allowance.kill as usize).max(idle);
    Directive {
        restart: order
            .into_iter()
            .take(count)
            .map(|member| member.id.clone())
            .collect(),
        ..Directive::default()
    }
}

/// A restart that replaces only this many replicas. Of the others, as many keep running as are needed
/// to reach the wanted number.
fn canary<I: Clone + PartialEq>(
    replicas: u32,
    policy: &ScalingPolicy,
    members: &[Member<I>],
) -> Directive<I> {
    let canaries = replicas.min(policy.replicas) as usize;
    let old_to_keep = policy.replicas as usize - canaries;
    let (old, new): (Vec<&Member<I>>, Vec<&Member<I>>) = members
        .iter()
        .filter(|member| member.is_counted())
        .partition(|member| member.old);
    if old.is_empty() || old_to_keep == 0 {
        return replace_all(policy, members);
    }
    let mut next = replace(policy, members);
    next.decommission.truncate(old.len().saturating_sub(old_to_keep));
    next.kill_order.clear();
    next.start = next.start.min(canaries.saturating_sub(new.len()) as u32);
    let restarting = old.iter().filter(|member| member.restarting).count();
    next.restart
        .truncate(canaries.saturating_sub(new.len() + restarting));
    let healthy = new.iter().filter(|member| member.healthy).count();
    Directive {
        canaries_healthy: next.decommission.is_empty()
            && next.restart.is_empty()
            && next.start == 0
            && new.len() >= canaries
            && healthy >= canaries,
        ..next
    }
}

#[cfg(test)]
mod tests;
