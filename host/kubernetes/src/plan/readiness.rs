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

    /// Whether a change waits for this kind. If none of its tasks was ever ready, the change may be what
    /// corrects it.
    pub(super) fn is_waited_for(&self, kind: Kind) -> bool {
        !self.observed.never_ready.of(kind) && !self.is_complete(kind)
    }

    /// The first task that is not ready.
    pub(super) fn unready(&self) -> Option<(Kind, u32)> {
        let mut kinds = Kind::ALL.into_iter().filter(|kind| self.is_waited_for(*kind));
        kinds.find_map(|kind| {
            let mut members = self.members(kind).iter();
            let unready = members.find(|member| !self.is_ready(kind, member))?;
            Some((kind, unready.number))
        })
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
