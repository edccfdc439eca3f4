//! The rules for a datastore without an etcd cluster: it has the only data, so it is not replaced while
//! its agent is unreachable, and the servers, which do not answer without it, are not replaced either.

use jiff::Timestamp;

use super::{Kind, Member, Planner};

impl Planner<'_> {
    /// Whether a task is such a datastore whose agent is unreachable.
    pub(super) fn waits_for_agent(&self, kind: Kind, member: &Member) -> bool {
        kind == Kind::Datastore && self.observed.kvstore.is_none() && member.condition.is_unreachable()
    }

    /// Since when the last task of such a datastore has been running.
    pub(super) fn datastore_since(&self) -> Option<Timestamp> {
        let members = self.members(Kind::Datastore).iter();
        members
            .filter(|_| self.observed.kvstore.is_none())
            .map(|member| member.since)
            .max()
    }

    /// Adds the reason why such a datastore is not replaced.
    pub(super) fn explain_unreachable_datastore(&mut self) {
        let kind = Kind::Datastore;
        for member in self.members(kind) {
            if self.waits_for_agent(kind, member) {
                let number = member.number;
                self.wait(
                    kind,
                    format!(
                        "the agent of datastore {number} is unreachable; the datastore waits for it, because its \
                         data are there"
                    ),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
