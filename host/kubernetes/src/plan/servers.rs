//! The rules for servers. Clients use one of them: the one whose client configuration is served.

use super::{Kind, Member, Planner, RemovalReason, Step, time_after};

impl Planner<'_> {
    /// Ends a server whose configuration is not the wanted one. If clients use it, the client
    /// configuration of another server is served first, unless that takes longer than the drain
    /// timeout.
    pub(super) fn remove_changed_server(&mut self, member: &Member) {
        if let Some(number) = self.successor(member) {
            let since = self.observed.hand_over_since;
            let until = time_after(since.unwrap_or(self.now), self.policy.drain_timeout);
            if until > self.now {
                self.recheck_at(until);
                self.plan.steps.push(Step::HandOver { number });
                return self.wait(
                    Kind::Server,
                    format!(
                        "server {} ends when the client configuration of server {number} is served",
                        member.number
                    ),
                );
            }
        }
        self.plan.steps.push(Step::Remove {
            kind: Kind::Server,
            number: member.number,
            reason: RemovalReason::Changed,
        });
    }

    /// The server that clients are to use after this one; `None`: clients do not use this one, or
    /// this one or every other one is not ready.
    fn successor(&self, member: &Member) -> Option<u32> {
        if !member.serving || !self.is_ready(Kind::Server, member) {
            return None;
        }
        let others = self.members(Kind::Server).iter();
        let ready = others
            .filter(|other| !other.serving && !other.leaving && self.is_ready(Kind::Server, other))
            .min_by_key(|other| (other.old, other.number));
        ready.map(|other| other.number)
    }
}

#[cfg(test)]
mod tests;
