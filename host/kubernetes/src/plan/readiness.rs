//! Which tasks are ready, which ones are broken, and which kinds a change waits for.

use jiff::Timestamp;
use transom_replicas::Condition;

use super::{Member, Planner, time_after};
use crate::kind::Kind;

impl Planner<'_> {
    /// Whether as many tasks of a kind as wanted run, and every node of them is ready.
    pub(super) fn is_complete(&self, kind: Kind) -> bool {
        let members = self.members(kind);
        members.len() == self.wanted(kind) && members.iter().all(|member| self.is_ready(kind, member))
    }

    /// How many tasks of a kind are ready.
    pub(super) fn count_ready(&self, kind: Kind) -> u32 {
        let members = self.members(kind).iter();
        let ready = members.filter(|member| self.is_ready(kind, member)).count();
        u32::try_from(ready).unwrap_or(u32::MAX)
    }

    /// Whether a change of tasks of the kind `changed` waits for this kind: fewer of its tasks are ready
    /// than were before. Tasks beyond these were never ready, and the change may be what corrects them.
    /// A datastore is changed only while all its members are healthy.
    pub(super) fn is_waited_for(&self, kind: Kind, changed: Kind) -> bool {
        let wanted = *self.goal.counts.of(kind);
        let before = self.observed.ready_before.of(kind).unwrap_or(wanted);
        match before.min(wanted) {
            0 => false,
            _ if (kind, changed) == (Kind::Datastore, Kind::Datastore) => !self.is_complete(kind),
            before => self.count_ready(kind) < before,
        }
    }

    /// The numbers of the tasks of a kind that are not ready.
    pub(super) fn unready(&self, kind: Kind) -> impl Iterator<Item = u32> {
        let members = self.members(kind).iter();
        members
            .filter(move |member| !self.is_ready(kind, member))
            .map(|member| member.number)
    }

    pub(super) fn is_ready(&self, kind: Kind, member: &Member) -> bool {
        match kind {
            Kind::Datastore => member.is_healthy() && (member.voter || self.observed.kvstore.is_none()),
            Kind::Server | Kind::Agent => {
                let ready = self.node_of(&member.task).is_some_and(|node| node.ready);
                member.condition == Condition::Running && ready
            }
        }
    }

    /// Whether a task is broken: it does not run, or it has been without a ready node for longer than
    /// the grace period. A datastore without an etcd cluster is broken as soon as it is unhealthy.
    pub(super) fn is_broken(&self, kind: Kind, member: &Member) -> bool {
        if member.condition != Condition::Running {
            return true;
        }
        match kind {
            Kind::Datastore if self.observed.kvstore.is_none() => !member.is_healthy(),
            _ => self
                .away_since(kind, member)
                .is_some_and(|since| time_after(since, self.policy.grace) <= self.now),
        }
    }

    /// Since when the node of a running task is missing or not ready, or a server's API is silent.
    /// For a pending member of a kvstore: since when it waits for its host.
    pub(super) fn away_since(&self, kind: Kind, member: &Member) -> Option<Timestamp> {
        if member.condition != Condition::Running {
            return self
                .waiting_for_host_since(member)
                .filter(|_| kind == Kind::Datastore);
        }
        let since = match kind {
            // Set only for members of a clustered kvstore, while they are not healthy.
            Kind::Datastore => member.unready_since,
            // No server answers while the datastore is away.
            Kind::Server => {
                let since = member.unready_since.or(self.observed.silent_since);
                since.map(|since| {
                    self.datastore_since()
                        .map_or(since, |returned| since.max(returned))
                })
            }
            // While the API is silent, the state of the agents is unknown.
            Kind::Agent => member.unready_since.filter(|_| self.observed.nodes.is_some()),
        };
        since.map(|since| since.max(member.since))
    }
}
