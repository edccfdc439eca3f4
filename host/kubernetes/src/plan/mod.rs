//! What to do next: the wanted state against the observed one, a pure function.
//!
//! The order is fixed: the datastore is healthy, then a server answers, then agents start. What is
//! removed goes in the other direction. Of running tasks one at a time is replaced, a kind after the
//! other, and the next one only when every node is ready again; so a change that breaks the first
//! node reaches no other.
//!
//! [`next_steps`] is called after every event and at each heartbeat. Its steps are started, not
//! waited for: what is under way is part of what is observed.

use std::time::Duration;

use jiff::Timestamp;
use transom_replicas::{Candidate, Condition, KillSelection, kill_order};

use crate::kind::{Kind, PerKind};

/// What the service wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Goal {
    pub(crate) counts: PerKind<u32>,
    /// Whether the agents' nodes are to be cordoned.
    pub(crate) cordoned: bool,
}

/// What the service sees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    pub(crate) members: PerKind<Vec<Member>>,
    /// The nodes, if the orchestrator's API answers.
    pub(crate) nodes: Option<Vec<Node>>,
    /// Since when the API does not answer although a server runs.
    pub(crate) silent_since: Option<Timestamp>,
    /// Until when a kind is not launched, because its tasks keep failing.
    pub(crate) backoff: PerKind<Option<Timestamp>>,
}

/// A task of the framework.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) number: u32,
    /// The task's id.
    pub(crate) task: String,
    pub(crate) condition: Condition,
    /// When it reached the condition.
    pub(crate) since: Timestamp,
    /// The result of its health check; `None`: no check has reported.
    pub(crate) healthy: Option<bool>,
    /// Whether it is being removed.
    pub(crate) leaving: bool,
    /// Whether another configuration is wanted.
    pub(crate) old: bool,
    /// How far its node is drained.
    pub(crate) drain: Drain,
    /// Since when its node is missing or not ready, while the API answers.
    pub(crate) unready_since: Option<Timestamp>,
}

/// How far a node is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drain {
    NotStarted,
    UnderWay,
    /// Over, whether all pods are gone or not.
    Done,
}

/// A node of the orchestrator.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// The id of its task, if it has one.
    pub(crate) task: Option<String>,
    pub(crate) ready: bool,
    pub(crate) cordoned: bool,
    /// Whether it is being removed.
    pub(crate) leaving: bool,
}

/// The rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// How long a node may be missing or unready before its task is replaced.
    pub(crate) node_timeout: Duration,
    /// Whether the datastore is a kvstore, whose members form a quorum.
    pub(crate) kvstore: bool,
    /// How long something may be missing before it counts as broken.
    pub(crate) grace: Duration,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Starts a task with this number.
    Launch { kind: Kind, number: u32 },
    /// Moves the pods away from an agent's node.
    Drain { number: u32, node: String },
    /// Makes a drained node schedulable again, because its task stays.
    CancelDrain { number: u32, node: String },
    /// Deletes a node whose task is gone or about to be.
    RemoveNode(String),
    /// Ends a task.
    Remove { kind: Kind, number: u32, why: Why },
    /// Cordons a node, or lifts that.
    Cordon { node: String, cordoned: bool },
}

/// Why a task is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Fewer are wanted.
    Surplus,
    /// Its configuration has changed, or a restart was requested.
    Changed,
    /// Its node was missing or unready for too long.
    NotReady,
}

/// The steps, and why others are not made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) waiting: Vec<(Kind, String)>,
    /// When to look again, if nothing happens before.
    pub(crate) look_again: Option<Timestamp>,
    /// Whether everything wanted runs and is ready.
    pub(crate) settled: bool,
}

/// The next steps.
pub(crate) fn next_steps(goal: &Goal, observed: &Observed, policy: &Policy, now: Timestamp) -> Plan {
    let mut planner = Planner {
        goal,
        observed,
        policy,
        now,
        plan: Plan::default(),
    };
    planner.remove_surplus();
    planner.launch();
    planner.remove_nodes();
    planner.cordon();
    planner.plan.settled = planner.is_settled();
    planner.replace();
    planner.cancel_drains();
    planner.plan
}

struct Planner<'a> {
    goal: &'a Goal,
    observed: &'a Observed,
    policy: &'a Policy,
    now: Timestamp,
    plan: Plan,
}

impl<'a> Planner<'a> {
    fn members(&self, kind: Kind) -> &'a [Member] {
        self.observed.members.of(kind)
    }

    fn wanted(&self, kind: Kind) -> usize {
        *self.goal.counts.of(kind) as usize
    }

    fn node_of(&self, task: &str) -> Option<&'a Node> {
        let nodes = self.observed.nodes.as_ref()?;
        nodes.iter().find(|node| node.task.as_deref() == Some(task))
    }

    fn wait(&mut self, kind: Kind, reason: impl Into<String>) {
        self.plan.waiting.push((kind, reason.into()));
    }

    fn look_again(&mut self, at: Timestamp) {
        let earlier = self.plan.look_again.is_none_or(|known| at < known);
        if earlier {
            self.plan.look_again = Some(at);
        }
    }

    /// Scales down: agents first, then servers, then the datastore, each kind when those that need
    /// it are gone.
    fn remove_surplus(&mut self) {
        for kind in [Kind::Agent, Kind::Server, Kind::Datastore] {
            let (wanted, members) = (self.wanted(kind), self.members(kind));
            let staying = members.iter().filter(|member| !member.leaving).count();
            if staying <= wanted {
                continue;
            }
            if wanted == 0 && self.is_needed(kind) {
                self.wait(kind, "it ends when the tasks that use it have ended");
                continue;
            }
            let surplus: Vec<Member> = in_order_of_removal(members)
                .into_iter()
                .take(staying - wanted)
                .cloned()
                .collect();
            for member in surplus {
                self.remove(kind, &member, Why::Surplus);
            }
        }
    }

    /// Whether tasks of the next kind still run, and will not go on without this one.
    fn is_needed(&self, kind: Kind) -> bool {
        match kind {
            Kind::Datastore => self.wanted(Kind::Server) == 0 && !self.members(Kind::Server).is_empty(),
            Kind::Server => self.wanted(Kind::Agent) == 0 && !self.members(Kind::Agent).is_empty(),
            Kind::Agent => false,
        }
    }

    /// Ends a task. The node of an agent is drained before, and deleted.
    fn remove(&mut self, kind: Kind, member: &Member, why: Why) {
        let step = Step::Remove {
            kind,
            number: member.number,
            why,
        };
        let cluster_ends = self.wanted(Kind::Server) == 0;
        let node = self.node_of(&member.task).cloned();
        match node {
            Some(node) if kind == Kind::Agent && !cluster_ends => match member.drain {
                Drain::NotStarted if node.ready => self.plan.steps.push(Step::Drain {
                    number: member.number,
                    node: node.name,
                }),
                Drain::UnderWay => self.wait(kind, format!("node {} is being drained", node.name)),
                Drain::NotStarted | Drain::Done => {
                    self.plan.steps.push(Step::RemoveNode(node.name));
                    self.plan.steps.push(step);
                }
            },
            _ => self.plan.steps.push(step),
        }
    }

    /// Scales up, each kind when those that it needs are ready.
    fn launch(&mut self) {
        for kind in Kind::ALL {
            let members = self.members(kind);
            let staying = members.iter().filter(|member| !member.leaving).count();
            let missing = self.wanted(kind).saturating_sub(staying);
            if missing == 0 {
                continue;
            }
            if let Some(reason) = self.obstacle(kind) {
                self.wait(kind, reason);
                continue;
            }
            if let Some(until) = self.observed.backoff.of(kind).filter(|until| *until > self.now) {
                self.wait(
                    kind,
                    format!("its tasks keep failing; the next launch is delayed until {until}"),
                );
                self.look_again(until);
                continue;
            }
            // Servers join the first one, which makes the certificates.
            let at_once = match kind {
                Kind::Server if !self.has_answering_server() => 1usize.saturating_sub(staying),
                _ => missing,
            };
            if at_once < missing {
                self.wait(kind, "the first server does not answer yet");
            }
            let numbers = free_numbers(members).take(at_once.min(missing));
            let launches: Vec<Step> = numbers.map(|number| Step::Launch { kind, number }).collect();
            self.plan.steps.extend(launches);
        }
    }

    /// Why tasks of this kind cannot start yet.
    fn obstacle(&self, kind: Kind) -> Option<&'static str> {
        match kind {
            Kind::Datastore => None,
            Kind::Server => (!self.has_datastore()).then_some("the datastore is not healthy yet"),
            Kind::Agent if self.wanted(Kind::Server) == 0 => Some("no server is wanted"),
            Kind::Agent => (!self.has_answering_server()).then_some("no server answers yet"),
        }
    }

    /// Whether as many members of the datastore are healthy as it needs to work. With a count of 0
    /// it is outside of the framework.
    fn has_datastore(&self) -> bool {
        let wanted = self.wanted(Kind::Datastore);
        let healthy = self.members(Kind::Datastore).iter().filter(|it| it.is_healthy());
        healthy.count() >= quorum(wanted, self.policy)
    }

    fn has_answering_server(&self) -> bool {
        let runs = |member: &Member| member.condition == Condition::Running;
        self.observed.nodes.is_some() && self.members(Kind::Server).iter().any(runs)
    }

    /// Deletes nodes whose tasks have ended.
    fn remove_nodes(&mut self) {
        let Some(nodes) = &self.observed.nodes else { return };
        let is_known = |task: &str| {
            let members = Kind::ALL.into_iter().flat_map(|kind| self.members(kind));
            members.into_iter().any(|member| member.task == task)
        };
        let orphans = nodes
            .iter()
            .filter(|node| !node.leaving && node.task.as_deref().is_some_and(|task| !is_known(task)));
        let steps: Vec<Step> = orphans.map(|node| Step::RemoveNode(node.name.clone())).collect();
        self.plan.steps.extend(steps);
    }

    /// Cordons the agents' nodes.
    fn cordon(&mut self) {
        if !self.goal.cordoned {
            return;
        }
        let agents = self.members(Kind::Agent);
        let nodes = agents.iter().filter_map(|member| self.node_of(&member.task));
        let open = nodes.filter(|node| !node.cordoned && !node.leaving);
        let steps: Vec<Step> = open
            .map(|node| Step::Cordon {
                node: node.name.clone(),
                cordoned: true,
            })
            .collect();
        self.plan.steps.extend(steps);
    }

    /// Whether as many tasks as wanted run, and every node is ready.
    fn is_settled(&self) -> bool {
        let complete = |kind: Kind| {
            let members = self.members(kind);
            members.len() == self.wanted(kind) && members.iter().all(|member| self.is_ready(kind, member))
        };
        Kind::ALL.into_iter().all(complete)
    }

    fn is_ready(&self, kind: Kind, member: &Member) -> bool {
        match kind {
            Kind::Datastore => member.is_healthy(),
            Kind::Server | Kind::Agent => {
                let ready = self.node_of(&member.task).is_some_and(|node| node.ready);
                member.condition == Condition::Running && ready
            }
        }
    }

    /// Whether a task is of no use, and not only for a moment.
    fn is_broken(&self, kind: Kind, member: &Member) -> bool {
        if member.condition != Condition::Running {
            return true;
        }
        let silent = self.observed.silent_since.filter(|_| kind == Kind::Server);
        let since = member
            .unready_since
            .or(silent)
            .map(|since| since.max(member.since));
        let is_over = |since: Timestamp| {
            let end = since.checked_add(self.policy.grace).unwrap_or(Timestamp::MAX);
            end <= self.now
        };
        match kind {
            Kind::Datastore => !member.is_healthy(),
            Kind::Server | Kind::Agent => since.is_some_and(is_over),
        }
    }

    /// Replaces one task: a node that stays away, or one of another configuration.
    fn replace(&mut self) {
        if self
            .plan
            .steps
            .iter()
            .any(|step| matches!(step, Step::Remove { .. } | Step::Launch { .. }))
        {
            return;
        }
        if Kind::ALL
            .into_iter()
            .any(|kind| self.members(kind).iter().any(|it| it.leaving))
        {
            return;
        }
        if let Some((kind, member)) = self.away_too_long() {
            return self.remove(kind, &member, Why::NotReady);
        }
        let old = |kind: &Kind| self.members(*kind).iter().any(|member| member.old);
        let Some(kind) = Kind::ALL.into_iter().find(old) else {
            return;
        };
        let members = self.members(kind);
        let draining = members
            .iter()
            .find(|it| it.drain != Drain::NotStarted && it.old)
            .cloned();
        if let Some(member) = draining {
            return self.remove(kind, &member, Why::Changed);
        }
        // An old task that is of no use is replaced whatever the others do.
        let broken = members
            .iter()
            .find(|it| it.old && self.is_broken(kind, it))
            .cloned();
        if let Some(member) = broken {
            return self.remove(kind, &member, Why::Changed);
        }
        if !self.plan.settled {
            return self.wait(
                kind,
                "a changed configuration waits until every task runs and every node is ready",
            );
        }
        let oldest = members
            .iter()
            .filter(|it| it.old)
            .min_by_key(|it| it.since)
            .cloned();
        if let Some(member) = oldest {
            self.remove(kind, &member, Why::Changed);
        }
    }

    /// Lifts the drains of tasks that are not to be removed any more.
    fn cancel_drains(&mut self) {
        let steps = &self.plan.steps;
        let removed = |number| {
            steps.iter().any(|step| {
                matches!(step, Step::Remove { kind: Kind::Agent, number: known, .. } if *known == number)
            })
        };
        let agents = self.members(Kind::Agent);
        let staying = agents.iter().filter(|member| !member.leaving).count();
        let surplus = staying.saturating_sub(self.wanted(Kind::Agent));
        let doomed: Vec<u32> = in_order_of_removal(agents)
            .into_iter()
            .take(surplus)
            .map(|member| member.number)
            .collect();
        let drained = agents.iter().filter(|member| {
            let kept = !member.old && !member.leaving && !doomed.contains(&member.number);
            kept && member.drain == Drain::Done && !removed(member.number)
        });
        let cancelled: Vec<Step> = drained
            .filter_map(|member| {
                Some(Step::CancelDrain {
                    number: member.number,
                    node: self.node_of(&member.task)?.name.clone(),
                })
            })
            .collect();
        self.plan.steps.extend(cancelled);
    }

    /// A task whose node is away for too long, while all others of its kind are there; a server
    /// whose API is silent for too long.
    fn away_too_long(&mut self) -> Option<(Kind, Member)> {
        let limit = self.policy.node_timeout;
        let mut found = None;
        for kind in [Kind::Server, Kind::Agent] {
            for member in self.members(kind).to_vec() {
                if member.condition != Condition::Running {
                    continue;
                }
                let silent = self.observed.silent_since.filter(|_| kind == Kind::Server);
                let Some(since) = member.unready_since.or(silent) else {
                    continue;
                };
                let due = since
                    .max(member.since)
                    .checked_add(limit)
                    .unwrap_or(Timestamp::MAX);
                if due > self.now {
                    self.look_again(due);
                } else if found.is_none() {
                    found = Some((kind, member));
                }
            }
        }
        found
    }
}

impl Member {
    fn is_healthy(&self) -> bool {
        self.condition == Condition::Running && self.healthy != Some(false)
    }
}

/// The members that a datastore of so many needs.
fn quorum(wanted: usize, policy: &Policy) -> usize {
    if policy.kvstore && wanted > 0 {
        wanted / 2 + 1
    } else {
        wanted
    }
}

/// Those that are pending before those that run, and the youngest first.
fn in_order_of_removal(members: &[Member]) -> Vec<&Member> {
    let mut order: Vec<&Member> = members.iter().filter(|member| !member.leaving).collect();
    let candidate = |member: &Member| Candidate {
        id: member.number,
        condition: member.condition,
        since: member.since,
        healthy: member.healthy != Some(false),
        // One that is drained already goes before the others.
        selected: member.drain != Drain::NotStarted,
    };
    order.sort_by(|a, b| {
        kill_order(&candidate(a), &candidate(b), KillSelection::YoungestFirst).then(b.number.cmp(&a.number))
    });
    order
}

/// Numbers that no task has, the lowest first.
fn free_numbers(members: &[Member]) -> impl Iterator<Item = u32> + '_ {
    (0..).filter(|number| members.iter().all(|member| member.number != *number))
}

#[cfg(test)]
mod tests;
