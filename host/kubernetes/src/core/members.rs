//! The tasks of the framework: for each kind, by number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use transom_cluster::TaskId;
use transom_replicas::{
    BackoffPolicy, Condition, Effect, Input, LaunchBackoff, Policy, Replica, TaskView, UnreachableStrategy,
    step,
};
use transom_scheduler::TaskRecord;

use super::failing::FailureRow;
use crate::kind::{Kind, PerKind};
use crate::plan::{self, Drain};
use crate::task::{MemberStart, Metadata};
use crate::view::Failing;

/// How long a launched task may take until it runs; images are large.
const LAUNCH_TIMEOUT: Duration = Duration::from_mins(30);

/// The delays before tasks that keep failing are launched again.
const BACKOFF: BackoffPolicy = BackoffPolicy {
    initial: Duration::from_secs(1),
    factor: 2.0,
    max: Duration::from_mins(5),
};

/// One task.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) replica: Replica<String>,
    pub(super) task: TaskId,
    /// The scheduler's record; `None`: not launched yet.
    pub(super) record: Option<Arc<TaskRecord>>,
    pub(super) drain: Drain,
    /// The deadline of its drain, once the drain has begun.
    pub(super) drain_until: Option<Instant>,
    /// Since when its node is missing or not ready, according to the last answer of the API. For a
    /// member of a clustered kvstore: since when it is not healthy.
    pub(super) unready_since: Option<Timestamp>,
    /// Its script.
    pub(super) script: ScriptState,
    /// Whether it was requested from the scheduler.
    pub(super) requested: bool,
    /// How it starts, if it is a member of a clustered kvstore that this daemon has requested.
    pub(super) start: Option<MemberStart>,
}

/// The script of a task that is not launched yet.
#[derive(Debug)]
pub(super) enum ScriptState {
    /// It is being prepared.
    Preparing,
    /// The task is requested with it.
    Prepared,
    /// Its preparation failed: the reason, and when to try again.
    Failed(String, Instant),
}

/// What the core must do after a change of a task.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MemberEffect {
    /// Kill it, or withdraw its request.
    Kill(TaskId),
    /// It has ended; its record may be deleted.
    Ended(TaskId),
}

/// All tasks.
#[derive(Debug, Default)]
pub(super) struct Members {
    by_kind: PerKind<BTreeMap<u32, Member>>,
    backoff: PerKind<LaunchBackoff>,
    failures: PerKind<Option<FailureRow>>,
    incarnations: BTreeMap<(Kind, u32), u32>,
    /// See [`Policy::unreachable`].
    node_timeout: Duration,
}

impl Members {
    pub(super) fn new(node_timeout: Duration) -> Self {
        Self {
            node_timeout,
            ..Self::default()
        }
    }

    pub(super) fn of(&self, kind: Kind) -> &BTreeMap<u32, Member> {
        self.by_kind.of(kind)
    }

    pub(super) fn get_mut(&mut self, kind: Kind, number: u32) -> Option<&mut Member> {
        self.by_kind.of_mut(kind).get_mut(&number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Kind, u32, &Member)> {
        Kind::ALL.into_iter().flat_map(|kind| {
            let members = self.by_kind.of(kind).iter();
            members.map(move |(number, member)| (kind, *number, member))
        })
    }

    /// Kind and number of a task.
    pub(super) fn find(&self, task: &TaskId) -> Option<(Kind, u32)> {
        self.iter()
            .find(|(.., member)| member.task == *task)
            .map(|(kind, number, _)| (kind, number))
    }

    /// Adds a new task with this number. Returns its metadata.
    pub(super) fn add(
        &mut self,
        kind: Kind,
        number: u32,
        task: TaskId,
        version: String,
        now: Timestamp,
    ) -> Metadata {
        let incarnation = self.incarnations.entry((kind, number)).or_default();
        *incarnation += 1;
        let metadata = Metadata {
            kind,
            number,
            incarnation: *incarnation,
        };
        let mut replica = Replica::new(version, now);
        replica.incarnation = metadata.incarnation;
        let member = Member {
            replica,
            task,
            record: None,
            drain: Drain::NotStarted,
            drain_until: None,
            unready_since: None,
            script: ScriptState::Preparing,
            requested: false,
            start: None,
        };
        self.by_kind.of_mut(kind).insert(number, member);
        metadata
    }

    /// Takes over a task of the scheduler after a restart of the daemon. Returns `false` if its number
    /// is not free, or if the former leader no longer waited for its end.
    pub(super) fn adopt(&mut self, metadata: Metadata, record: &Arc<TaskRecord>) -> bool {
        let Metadata {
            kind,
            number,
            incarnation,
        } = metadata;
        let known = self.incarnations.entry((kind, number)).or_default();
        *known = (*known).max(incarnation);
        let task = view(record);
        // The end of a task that is killed on an unreachable agent may never be reported.
        let is_abandoned = task.killing && !task.restarting && task.condition().is_unreachable();
        let members = self.by_kind.of_mut(kind);
        if is_abandoned || members.contains_key(&number) {
            return false;
        }
        let member = Member {
            replica: Replica::of_task(record.version.clone(), incarnation, &task),
            task: record.id.clone(),
            record: Some(Arc::clone(record)),
            drain: Drain::NotStarted,
            drain_until: None,
            unready_since: None,
            script: ScriptState::Prepared,
            requested: true,
            start: None,
        };
        members.insert(number, member);
        true
    }

    /// Handles a changed record of the scheduler.
    pub(super) fn observe(
        &mut self,
        record: &Arc<TaskRecord>,
        launched: bool,
        now: Timestamp,
    ) -> Vec<MemberEffect> {
        let Some((kind, number)) = self.find(&record.id) else {
            return Vec::new();
        };
        if let Some(member) = self.get_mut(kind, number) {
            member.record = Some(Arc::clone(record));
        }
        let task = view(record);
        let input = if launched {
            Input::Launched(task)
        } else {
            Input::Updated(task)
        };
        self.step(kind, number, input, UnreachableStrategy::Disabled, now)
    }

    /// Removes a task whose request the scheduler has dropped.
    pub(super) fn remove_unlaunched(&mut self, task: &TaskId) {
        if let Some((kind, number)) = self.find(task) {
            self.by_kind.of_mut(kind).remove(&number);
        }
    }

    /// Ends a task.
    pub(super) fn remove(&mut self, kind: Kind, number: u32, now: Timestamp) -> Vec<MemberEffect> {
        self.step(
            kind,
            number,
            Input::Decommission,
            UnreachableStrategy::Disabled,
            now,
        )
    }

    /// Handles the passing of time. `clustered`: whether the datastore is a kvstore that may have
    /// several members.
    pub(super) fn tick(&mut self, clustered: bool, now: Timestamp) -> Vec<MemberEffect> {
        let replaced = UnreachableStrategy::Enabled {
            inactive_after: self.node_timeout,
            expunge_after: self.node_timeout,
        };
        let all: Vec<(Kind, u32)> = self.iter().map(|(kind, number, _)| (kind, number)).collect();
        let mut effects = Vec::new();
        for (kind, number) in all {
            // A datastore has the only data, unless it is one of several members: another one would
            // start without them.
            let strategy = if kind == Kind::Datastore && !clustered {
                UnreachableStrategy::Disabled
            } else {
                replaced
            };
            effects.extend(self.step(kind, number, Input::Tick, strategy, now));
            // Another server or agent replaces it, and a change that waits for nodes must not
            // wait for this one. A member of a kvstore stays: it has its data and may return.
            let member = self.of(kind).get(&number);
            let inactive = |member: &Member| member.replica.condition == Condition::UnreachableInactive;
            if kind != Kind::Datastore && member.is_some_and(inactive) {
                effects.extend(self.remove(kind, number, now));
            }
        }
        effects
    }

    /// Until when tasks of a kind must not be launched.
    pub(super) fn backoff(&self, kind: Kind, now: Timestamp) -> Option<Timestamp> {
        self.backoff.of(kind).until(now)
    }

    /// How the last failed task of a kind ended, while tasks of the kind must not be launched.
    pub(super) fn failure(&self, kind: Kind, now: Timestamp) -> Option<&str> {
        self.backoff(kind, now)?;
        self.failures.of(kind).as_ref().map(|row| row.last.as_str())
    }

    /// The kinds whose tasks keep failing.
    pub(super) fn failing(&self, now: Timestamp) -> Vec<Failing> {
        let rows = Kind::ALL.into_iter().filter_map(|kind| {
            let row = self.failures.of(kind).as_ref()?;
            row.failing(kind, now)
        });
        rows.collect()
    }

    /// Applies an input to a task. Only the passing of time depends on the strategy for an unreachable
    /// agent.
    fn step(
        &mut self,
        kind: Kind,
        number: u32,
        input: Input<'_>,
        unreachable: UnreachableStrategy,
        now: Timestamp,
    ) -> Vec<MemberEffect> {
        let members = self.by_kind.of_mut(kind);
        let Some(member) = members.get_mut(&number) else {
            return Vec::new();
        };
        let task = member.task.clone();
        let policy = Policy {
            version: member.replica.version.clone(),
            unreachable,
            launch_timeout: LAUNCH_TIMEOUT,
            // The plan decides when a task is replaced.
            replace: false,
            resident: false,
        };
        let (next, effects) = step(&member.replica, input, &policy, now);
        let member_effects = effects
            .into_iter()
            .filter_map(|effect| match effect {
                Effect::Kill { .. } => member.requested.then(|| MemberEffect::Kill(task.clone())),
                Effect::Ended {
                    condition,
                    restarting,
                    ..
                } => {
                    if condition.is_failure() && !restarting && member.replica.is_wanted() {
                        let backoff = self.backoff.of_mut(kind);
                        backoff.record_failure(&BACKOFF, now);
                        let delayed_until = backoff.until(now).unwrap_or(now);
                        if let Some(record) = &member.record {
                            let row = self.failures.of_mut(kind);
                            *row = Some(FailureRow::after(row.as_ref(), record, delayed_until, now));
                        }
                    }
                    Some(MemberEffect::Ended(task.clone()))
                }
                Effect::Changed(_) | Effect::Launch { .. } => None,
            })
            .collect();
        match next {
            Some(replica) => member.replica = replica,
            None => {
                members.remove(&number);
            }
        }
        member_effects
    }

    /// The members of a kind as input of the plan; `version`: the version of the wanted configuration.
    pub(super) fn planned(&self, kind: Kind, version: &str) -> Vec<plan::Member> {
        let members = self.by_kind.of(kind).iter();
        members
            .map(|(number, member)| plan::Member {
                number: *number,
                task: member.task.to_string(),
                condition: member.replica.condition,
                since: member.replica.active_since(),
                healthy: member.record.as_ref().and_then(|record| record.healthy()),
                leaving: !member.replica.is_wanted()
                    || member.replica.condition == Condition::UnreachableInactive,
                old: member.replica.version != version,
                drain: member.drain,
                chosen: false,
                unready_since: member.unready_since,
                serving: false,
                voter: false,
                etcd: None,
            })
            .collect()
    }
}

fn view(record: &TaskRecord) -> TaskView<'_> {
    TaskView {
        state: &record.state,
        status: record.status.as_ref(),
        terminal: record.is_terminal(),
        started_at: record.started_at,
        updated_at: record.updated_at,
        killing: record.killing,
        restarting: record.restarting,
    }
}
