//! The plan: a pure function that compares the wanted state with the observed one and returns the
//! next steps.
//!
//! The order is fixed: servers start when the datastore is healthy, and agents start when a server
//! answers. Tasks are removed in the opposite order. Running tasks are replaced one at a time, one
//! kind after the other, and the next one only when as many nodes are ready as before. So a change that
//! breaks the first node affects no other, and nodes that were never ready hold no change up.
//!
//! The members of a kvstore form one etcd cluster, which must keep its quorum: [`kvstore`] contains
//! their rules. [`datastore`] contains the rule for any other datastore, and [`servers`] the rules for
//! the server that clients use.
//!
//! [`next_steps`] is called after every event and at each heartbeat. The core starts the steps
//! without waiting for them; steps under way are part of the observed state.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::time::Duration;

use jiff::Timestamp;
use transom_replicas::{Candidate, Condition, KillSelection, kill_order};

use crate::kind::{Kind, PerKind};

mod datastore;
mod kvstore;
mod nodes;
mod readiness;
mod servers;

pub(crate) use kvstore::{Absent, Kvstore, Start};

/// How many tasks a reason names.
const MAX_NAMED: usize = 5;

/// The wanted state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Goal {
    pub(crate) counts: PerKind<u32>,
    /// Whether the agents' nodes are to be cordoned.
    pub(crate) cordoned: bool,
    /// Whether running tasks must not be replaced, because a backup is being restored.
    pub(crate) paused: bool,
}

/// The observed state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    pub(crate) members: PerKind<Vec<Member>>,
    /// The nodes, if the orchestrator's API answers.
    pub(crate) nodes: Option<Vec<Node>>,
    /// Since when the API does not answer; `None`: it answers.
    pub(crate) silent_since: Option<Timestamp>,
    /// Until when a kind is not launched, because its tasks keep failing.
    pub(crate) backoff: PerKind<Option<Timestamp>>,
    /// The datastore's etcd cluster, if it may have several members.
    pub(crate) kvstore: Option<Kvstore>,
    /// How many tasks of a kind were ready at the same time; `None`: as many as are wanted.
    pub(crate) ready_before: PerKind<Option<u32>>,
    /// Since when the client configuration of another server is being read.
    pub(crate) hand_over_since: Option<Timestamp>,
}

/// A task of the framework.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a state of its own")]
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
    /// Whether its configuration is not the wanted one.
    pub(crate) old: bool,
    /// The progress of its node's drain.
    pub(crate) drain: Drain,
    /// Whether the autoscaler has selected it for removal.
    pub(crate) chosen: bool,
    /// Since when its node is missing or not ready, according to the last answer of the API.
    pub(crate) unready_since: Option<Timestamp>,
    /// Whether it is the server whose client configuration is served.
    pub(crate) serving: bool,
    /// Of a kvstore: whether it votes in the etcd cluster.
    pub(crate) voter: bool,
    /// Of a kvstore: its id in the etcd cluster, if the cluster lists it.
    pub(crate) etcd: Option<u64>,
}

/// The progress of a node's drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drain {
    NotStarted,
    UnderWay,
    /// It failed, and is to be tried again.
    Failed,
    /// It has ended, with or without pods left on the node.
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

/// The time limits of the plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// How long a node may be missing or unready before its task is replaced.
    pub(crate) node_timeout: Duration,
    /// How long the removal of an agent waits for an API that does not answer, which is needed to
    /// drain the agent's node.
    pub(crate) drain_timeout: Duration,
    /// How long something may be missing before it counts as broken.
    pub(crate) grace: Duration,
}

/// One step of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Starts a task with this number.
    Launch { kind: Kind, number: u32 },
    /// Starts a member of the kvstore.
    LaunchMember { number: u32, start: Start },
    /// Removes a member from the etcd cluster.
    Dismiss { etcd: u64 },
    /// Serves the client configuration of this server instead of another server's.
    HandOver { number: u32 },
    /// Moves the pods away from an agent's node.
    Drain { number: u32, node: String },
    /// Makes a drained node schedulable again, because its task stays.
    CancelDrain { number: u32, node: String },
    /// Deletes a node whose task has ended or is about to be ended.
    RemoveNode(String),
    /// Ends a task.
    Remove {
        kind: Kind,
        number: u32,
        reason: RemovalReason,
    },
    /// Cordons or uncordons a node.
    Cordon { node: String, cordoned: bool },
}

/// Why a task is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemovalReason {
    /// Fewer are wanted.
    Surplus,
    /// Its configuration has changed, or a restart was requested.
    Changed,
    /// Its node was missing or unready for too long.
    NotReady,
}

/// The next steps, and the reasons why other steps wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) waiting: Vec<(Kind, String)>,
    /// When to compute the plan again if no event occurs before.
    pub(crate) recheck_at: Option<Timestamp>,
    /// Whether everything wanted runs and is ready.
    pub(crate) settled: bool,
    /// How many tasks of each kind are ready.
    pub(crate) ready: PerKind<u32>,
    /// Why no task of another configuration is replaced now; `None`: one is being replaced, or none has
    /// to be.
    pub(crate) halted: Option<String>,
}

/// Computes the next steps.
pub(crate) fn next_steps(goal: &Goal, observed: &Observed, policy: &Policy, now: Timestamp) -> Plan {
    let mut planner = Planner {
        goal,
        observed,
        policy,
        now,
        nodes: nodes_by_task(observed),
        plan: Plan::default(),
    };
    planner.dismiss_lost();
    planner.remove_surplus();
    planner.explain_unreachable_datastore();
    planner.launch();
    planner.remove_nodes();
    planner.cordon();
    planner.plan.settled = Kind::ALL.into_iter().all(|kind| planner.is_complete(kind));
    planner.plan.ready = PerKind::from_fn(|kind| planner.count_ready(kind));
    planner.replace();
    planner.cancel_drains();
    planner.plan
}

struct Planner<'a> {
    goal: &'a Goal,
    observed: &'a Observed,
    policy: &'a Policy,
    now: Timestamp,
    /// The first node of each task.
    nodes: HashMap<&'a str, &'a Node>,
    plan: Plan,
}

fn nodes_by_task(observed: &Observed) -> HashMap<&str, &Node> {
    let nodes = observed.nodes.iter().flatten().rev();
    nodes
        .filter_map(|node| Some((node.task.as_deref()?, node)))
        .collect()
}

impl<'a> Planner<'a> {
    fn members(&self, kind: Kind) -> &'a [Member] {
        self.observed.members.of(kind)
    }

    fn wanted(&self, kind: Kind) -> usize {
        *self.goal.counts.of(kind) as usize
    }

    fn node_of(&self, task: &str) -> Option<&'a Node> {
        self.nodes.get(task).copied()
    }

    fn wait(&mut self, kind: Kind, reason: impl Into<String>) {
        self.plan.waiting.push((kind, reason.into()));
    }

    /// Adds the reason why no task of another configuration is replaced.
    fn halt(&mut self, kind: Kind, reason: String) {
        self.plan.halted = Some(reason.clone());
        self.wait(kind, reason);
    }

    fn recheck_at(&mut self, at: Timestamp) {
        let earlier = self.plan.recheck_at.is_none_or(|known| at < known);
        if earlier {
            self.plan.recheck_at = Some(at);
        }
    }

    /// Scales down: agents first, then servers, then the datastore. A kind that is to end completely
    /// waits until the tasks that use it have ended.
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
            if kind == Kind::Datastore && self.observed.kvstore.is_some() {
                self.remove_surplus_member();
                continue;
            }
            let surplus: Vec<Member> = in_removal_order(members)
                .into_iter()
                .take(staying - wanted)
                .cloned()
                .collect();
            for member in surplus {
                self.remove(kind, &member, RemovalReason::Surplus);
            }
        }
    }

    /// Whether tasks that use this kind are about to end and have not ended yet.
    fn is_needed(&self, kind: Kind) -> bool {
        match kind {
            Kind::Datastore => self.wanted(Kind::Server) == 0 && !self.members(Kind::Server).is_empty(),
            Kind::Server => self.wanted(Kind::Agent) == 0 && !self.members(Kind::Agent).is_empty(),
            Kind::Agent => false,
        }
    }

    /// Ends a task. The node of an agent is drained and deleted first.
    fn remove(&mut self, kind: Kind, member: &Member, reason: RemovalReason) {
        let step = Step::Remove {
            kind,
            number: member.number,
            reason,
        };
        if let (Kind::Datastore, Some(kvstore)) = (kind, &self.observed.kvstore) {
            return self.remove_member(kvstore, member, reason);
        }
        if (kind, reason) == (Kind::Server, RemovalReason::Changed) {
            return self.remove_changed_server(member);
        }
        let cluster_ends = self.wanted(Kind::Server) == 0;
        if kind != Kind::Agent || cluster_ends {
            return self.plan.steps.push(step);
        }
        if member.condition == Condition::Running
            && let Some(until) = self.silent_until(self.policy.drain_timeout)
        {
            self.recheck_at(until);
            return self.wait(
                kind,
                format!(
                    "agent {} is removed when its node is drained; the server's API does not answer",
                    member.number
                ),
            );
        }
        match self.node_of(&member.task).cloned() {
            Some(node) => match member.drain {
                Drain::NotStarted | Drain::Failed if node.ready => self.plan.steps.push(Step::Drain {
                    number: member.number,
                    node: node.name,
                }),
                Drain::UnderWay => self.wait(kind, format!("node {} is being drained", node.name)),
                Drain::NotStarted | Drain::Failed | Drain::Done => {
                    self.plan.steps.push(Step::RemoveNode(node.name));
                    self.plan.steps.push(step);
                }
            },
            None => self.plan.steps.push(step),
        }
    }

    /// When the API will have been silent for `limit`; `None`: it has been already, or it answers.
    fn silent_until(&self, limit: Duration) -> Option<Timestamp> {
        let end = time_after(self.observed.silent_since?, limit);
        (end > self.now).then_some(end)
    }

    /// Scales up. Each kind starts when the kinds that it depends on are ready.
    fn launch(&mut self) {
        for kind in Kind::ALL {
            if let (Kind::Datastore, Some(kvstore)) = (kind, &self.observed.kvstore) {
                self.launch_members(kvstore);
                continue;
            }
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
            // Its successor has the same volume, and another number would mean another, empty one.
            if kind == Kind::Datastore && members.iter().any(|member| member.leaving) {
                self.wait(kind, "the datastore starts again when its former task has ended");
                continue;
            }
            if self.is_delayed(kind) {
                continue;
            }
            // The first server starts alone, because it creates the certificates and the others join it.
            let allowed = match kind {
                Kind::Server if !self.has_answering_server() => 1usize.saturating_sub(staying),
                _ => missing,
            };
            if allowed < missing {
                self.wait(kind, "the first server does not answer yet");
            }
            let numbers = free_numbers(members).take(allowed.min(missing));
            let launches: Vec<Step> = numbers.map(|number| Step::Launch { kind, number }).collect();
            self.plan.steps.extend(launches);
        }
    }

    /// Whether tasks of this kind are not launched now, because they keep failing.
    fn is_delayed(&mut self, kind: Kind) -> bool {
        let Some(until) = self.observed.backoff.of(kind).filter(|until| *until > self.now) else {
            return false;
        };
        self.wait(
            kind,
            format!("its tasks keep failing; the next launch is delayed until {until}"),
        );
        self.recheck_at(until);
        true
    }

    /// Why tasks of this kind cannot start yet.
    fn obstacle(&mut self, kind: Kind) -> Option<&'static str> {
        match kind {
            Kind::Datastore => None,
            Kind::Server if !self.has_datastore() => Some("the datastore is not healthy yet"),
            Kind::Server => self
                .is_growing()
                .then_some("further members of the kvstore are starting"),
            Kind::Agent if self.wanted(Kind::Server) == 0 => Some("no server is wanted"),
            Kind::Agent => (!self.has_answering_server()).then_some("no server answers yet"),
        }
    }

    /// Whether enough members of the datastore are healthy for it to work. With a count of 0 the
    /// datastore is outside of the framework and counts as working.
    fn has_datastore(&self) -> bool {
        if let Some(kvstore) = &self.observed.kvstore {
            return self.has_quorum(kvstore);
        }
        let healthy = self.members(Kind::Datastore).iter().filter(|it| it.is_healthy());
        healthy.count() >= self.wanted(Kind::Datastore)
    }

    fn has_answering_server(&self) -> bool {
        let runs = |member: &Member| member.condition == Condition::Running;
        self.observed.nodes.is_some() && self.members(Kind::Server).iter().any(runs)
    }

    /// Replaces one task: one whose node stays away, or one whose configuration is not the wanted one.
    fn replace(&mut self) {
        if self.goal.paused {
            self.plan.halted = Some("a backup is being restored".to_owned());
            return;
        }
        if self.plan.steps.iter().any(|step| {
            matches!(
                step,
                Step::Remove { .. } | Step::Launch { .. } | Step::LaunchMember { .. } | Step::Dismiss { .. }
            )
        }) {
            return;
        }
        let old = |kind: &Kind| self.members(*kind).iter().any(|member| member.old);
        let changed = Kind::ALL.into_iter().find(old);
        let leaving = |kind: &Kind| self.members(*kind).iter().any(|member| member.leaving);
        if let Some(leaving) = Kind::ALL.into_iter().find(leaving) {
            if let Some(kind) = changed {
                let reason = format!("a changed configuration waits until a leaving {leaving} has ended");
                self.wait(kind, reason);
            }
            return;
        }
        if let Some((kind, member)) = self.find_task_away_too_long() {
            return self.remove(kind, &member, RemovalReason::NotReady);
        }
        let Some(kind) = changed else { return };
        let members = self.members(kind);
        let draining = members
            .iter()
            .find(|it| it.drain != Drain::NotStarted && it.old)
            .cloned();
        if let Some(member) = draining {
            return self.remove(kind, &member, RemovalReason::Changed);
        }
        // A broken task of an old configuration is replaced whatever the state of the others is.
        let clustered = kind == Kind::Datastore && self.observed.kvstore.is_some();
        let broken = members
            .iter()
            .filter(|it| !self.waits_for_agent(kind, it))
            .find(|it| it.old && (self.is_broken(kind, it) || (clustered && !it.voter)))
            .cloned();
        if let Some(member) = broken {
            return self.remove(kind, &member, RemovalReason::Changed);
        }
        if let Some(awaited) = Kind::ALL.into_iter().find(|it| self.is_waited_for(*it, kind)) {
            let mut reason =
                "a changed configuration waits until every task and node that was ready before is ready again".to_owned();
            for number in self.unready(awaited).take(MAX_NAMED) {
                let _ = write!(reason, "; {awaited} {number} is not ready");
            }
            return self.halt(kind, reason);
        }
        let oldest = members
            .iter()
            .filter(|it| it.old)
            // The serving one comes last, so that clients change to another server only once.
            .min_by_key(|it| (it.serving, it.since))
            .cloned();
        if let Some(member) = oldest {
            self.remove(kind, &member, RemovalReason::Changed);
        }
    }

    /// A task whose node has been away for too long, or a server whose API has been silent for too
    /// long. The next one of a kind waits until the replacement of the former one is ready or has had
    /// the same time, so that a fault that affects every task does not replace all of them at once.
    fn find_task_away_too_long(&mut self) -> Option<(Kind, Member)> {
        let mut found = None;
        let clustered = self.observed.kvstore.is_some().then_some(Kind::Datastore);
        for kind in clustered.into_iter().chain([Kind::Server, Kind::Agent]) {
            if kind == Kind::Server && !self.has_datastore() {
                // A replacement could not start.
                continue;
            }
            let (mut overdue, mut starting) = (None, false);
            for member in self.members(kind) {
                if self.is_ready(kind, member) {
                    continue;
                }
                let away_since = self.away_since(kind, member);
                let due = time_after(away_since.unwrap_or(member.since), self.policy.node_timeout);
                if due > self.now {
                    starting = true;
                    self.recheck_at(due);
                } else if away_since.is_some() {
                    overdue = overdue.or(Some(member));
                }
            }
            match overdue {
                Some(member) if starting => self.wait(
                    kind,
                    format!(
                        "{kind} {} is not ready for too long; it is replaced when the others are ready",
                        member.number
                    ),
                ),
                Some(member) => found = found.or(Some((kind, member.clone()))),
                None => {}
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

fn time_after(since: Timestamp, duration: Duration) -> Timestamp {
    since.checked_add(duration).unwrap_or(Timestamp::MAX)
}

/// The staying members in the order of removal: pending ones before running ones, and the youngest
/// first. The server that clients use is the last.
fn in_removal_order(members: &[Member]) -> Vec<&Member> {
    let mut order: Vec<&Member> = members.iter().filter(|member| !member.leaving).collect();
    let candidate = |member: &Member| Candidate {
        id: member.number,
        condition: member.condition,
        since: member.since,
        healthy: member.healthy != Some(false),
        // A member whose drain has begun, or that the autoscaler has chosen, comes before the others.
        selected: member.drain != Drain::NotStarted || member.chosen,
        old: false,
    };
    order.sort_by(|a, b| {
        let by_use = a.serving.cmp(&b.serving);
        by_use
            .then_with(|| kill_order(&candidate(a), &candidate(b), KillSelection::YoungestFirst))
            .then(b.number.cmp(&a.number))
    });
    order
}

/// The numbers that no task uses, the lowest first.
fn free_numbers(members: &[Member]) -> impl Iterator<Item = u32> + use<> {
    let used: HashSet<u32> = members.iter().map(|member| member.number).collect();
    (0..).filter(move |number| !used.contains(number))
}

#[cfg(test)]
mod tests;
