//! The rules of a kvstore whose members form one etcd cluster.
//!
//! One member at a time joins, and only while the others are healthy. A member leaves the etcd
//! cluster before its task ends, and only while the others have the quorum without it. Lost members
//! are removed from etcd as long as there is a quorum. Without one nothing is replaced, because a
//! member that has ended returns with its data and may bring the quorum back.

use jiff::Timestamp;
use transom_replicas::Condition;

use super::{Member, Planner, Step, Why, free_numbers, later};
use crate::kind::Kind;

/// The etcd cluster as it was last seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kvstore {
    /// How many members vote.
    pub(crate) voters: usize,
    /// The ids of members whose tasks have ended.
    pub(crate) stale: Vec<u64>,
    /// Voting members whose tasks have ended, wait for an offer or are unreachable.
    pub(crate) absent: Vec<Absent>,
    /// Whether a member is being removed.
    pub(crate) dismissing: bool,
    /// Since when no member's API answers; `None`: one does.
    pub(crate) silent_since: Option<Timestamp>,
}

/// A voting member that does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Absent {
    pub(crate) number: u32,
    /// The host that has its data.
    pub(crate) host: String,
    /// Whether its task has ended and no other one is requested.
    pub(crate) ended: bool,
}

/// How a member starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// As the first member of a new cluster.
    New,
    /// As the voting member that it was, with its data.
    Return,
    /// As a further member.
    Join,
}

impl Start {
    /// As the script knows it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Return => "return",
            Self::Join => "join",
        }
    }
}

fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

impl<'a> Planner<'a> {
    fn datastores(&self) -> &'a [Member] {
        self.members(Kind::Datastore)
    }

    /// Members that are about to end count no more, although they may run for a moment.
    fn healthy_voters(&self) -> usize {
        let members = self.datastores().iter();
        members
            .filter(|member| member.voter && !member.leaving && member.is_healthy())
            .count()
    }

    pub(super) fn has_quorum(&self, kvstore: &Kvstore) -> bool {
        kvstore.voters > 0 && self.healthy_voters() >= majority(kvstore.voters)
    }

    /// Whether the others have the quorum when a member has left the cluster, and can agree to that.
    fn can_leave(&self, kvstore: &Kvstore, member_is_healthy: bool) -> bool {
        let others = self.healthy_voters() - usize::from(member_is_healthy);
        self.has_quorum(kvstore) && others >= majority(kvstore.voters - 1)
    }

    /// Removes members from the etcd cluster whose tasks have ended, or are unreachable for long: a
    /// member that does not return makes the quorum smaller.
    pub(super) fn dismiss_lost(&mut self) {
        let Some(kvstore) = &self.observed.kvstore else {
            return;
        };
        if kvstore.silent_since.is_some() || kvstore.dismissing || !self.can_leave(kvstore, false) {
            return;
        }
        let lost = self
            .datastores()
            .iter()
            .find(|member| member.leaving && member.etcd.is_some() && member.condition != Condition::Running);
        let lost = lost.and_then(|member| member.etcd);
        if let Some(etcd) = kvstore.stale.first().copied().or(lost) {
            self.plan.steps.push(Step::Dismiss { etcd });
        }
    }

    /// Scales the kvstore down by one member: one that does not vote, else one that is not healthy,
    /// else the one with the highest number, so that the first member is the last one.
    pub(super) fn remove_surplus_member(&mut self) {
        let staying = self.datastores().iter().filter(|member| !member.leaving);
        let next = staying.min_by_key(|member| {
            let number = std::cmp::Reverse(member.number);
            (member.voter, member.is_healthy(), number)
        });
        if let Some(member) = next.cloned() {
            self.remove(Kind::Datastore, &member, Why::Surplus);
        }
    }

    /// Ends a member, which leaves the etcd cluster before.
    pub(super) fn remove_member(&mut self, kvstore: &Kvstore, member: &Member, why: Why) {
        let (kind, number) = (Kind::Datastore, member.number);
        let end = Step::Remove { kind, number, why };
        // A learner counts for no quorum; the data of the only voter stay where they are. A kvstore
        // without a quorum is stopped as it is, and all members return to their data later. A request
        // that was not launched is dropped; the member is removed from etcd as one that has ended.
        let (stops, has_quorum) = (self.wanted(kind) == 0, self.has_quorum(kvstore));
        let is_requested = member.condition == Condition::Scheduled;
        let may_end = if has_quorum { is_requested } else { stops };
        if !member.voter || kvstore.voters <= 1 || may_end {
            return self.plan.steps.push(end);
        }
        let dismissing = |step: &Step| matches!(step, Step::Dismiss { .. });
        if kvstore.dismissing || self.plan.steps.iter().any(dismissing) {
            return self.wait(kind, "a member is leaving the kvstore");
        }
        let healthy = member.is_healthy();
        if !self.can_leave(kvstore, healthy) {
            // One that is of no use returns with its data and another configuration.
            if why == Why::Changed && !healthy && !has_quorum {
                return self.plan.steps.push(end);
            }
            return self.wait(
                kind,
                format!("member {number} leaves the kvstore when the others have the quorum without it"),
            );
        }
        match (kvstore.silent_since, member.etcd) {
            (None, Some(etcd)) => self.plan.steps.push(Step::Dismiss { etcd }),
            (None, None) => self.plan.steps.push(end),
            (Some(since), _) => {
                // It remains a voter without a task, which the others must outnumber.
                let others = self.healthy_voters() - usize::from(healthy);
                let until = later(since, self.policy.drain_timeout);
                if others >= majority(kvstore.voters) && until <= self.now {
                    return self.plan.steps.push(end);
                }
                if until > self.now {
                    self.look_again(until);
                }
                self.wait(
                    kind,
                    format!("member {number} ends when it has left the kvstore, whose API does not answer"),
                );
            }
        }
    }

    /// Starts the first member alone, further ones one after another, and those that have ended if
    /// the quorum is lost.
    pub(super) fn launch_members(&mut self, kvstore: &Kvstore) {
        let (kind, members) = (Kind::Datastore, self.datastores());
        let wanted = self.wanted(kind);
        if wanted == 0 {
            return;
        }
        if kvstore.voters == 0 {
            if !members.is_empty() {
                return self.wait(kind, "the first member of the kvstore does not answer yet");
            }
            if !self.is_delayed(kind) {
                let start = Start::New;
                self.plan.steps.push(Step::LaunchMember { number: 0, start });
            }
            return;
        }
        if !self.has_quorum(kvstore) {
            return self.return_members(kvstore);
        }
        let staying = members.iter().filter(|member| !member.leaving);
        let missing = wanted.saturating_sub(staying.clone().count());
        let joining = staying.clone().find(|member| !member.voter);
        if let Some(member) = joining {
            return self.wait(kind, format!("member {} is joining the kvstore", member.number));
        }
        if missing == 0 {
            return;
        }
        let dismissing = |step: &Step| matches!(step, Step::Dismiss { .. });
        if kvstore.dismissing || self.plan.steps.iter().any(dismissing) {
            return self.wait(kind, "a member joins the kvstore when a lost one has left it");
        }
        let unhealthy = staying.clone().find(|member| !member.is_healthy());
        if let Some(member) = unhealthy {
            let text = format!(
                "a member joins the kvstore when member {} is healthy",
                member.number
            );
            return self.wait(kind, text);
        }
        // The only member may have a configuration without a port for others.
        let alone = staying.clone().find(|member| member.old && kvstore.voters == 1);
        if let Some(member) = alone.cloned() {
            return self.remove_member(kvstore, &member, Why::Changed);
        }
        if !self.is_delayed(kind)
            && let Some(number) = free_numbers(members).next()
        {
            let start = Start::Join;
            self.plan.steps.push(Step::LaunchMember { number, start });
        }
    }

    /// Starts the members again that have ended.
    fn return_members(&mut self, kvstore: &Kvstore) {
        let kind = Kind::Datastore;
        self.explain_lost_quorum(kvstore);
        let ended = kvstore.absent.iter().filter(|absent| absent.ended);
        let returning: Vec<Step> = ended
            .map(|absent| Step::LaunchMember {
                number: absent.number,
                start: Start::Return,
            })
            .collect();
        if !returning.is_empty() && !self.is_delayed(kind) {
            self.plan.steps.extend(returning);
        }
    }

    /// Says which members must return, and where.
    fn explain_lost_quorum(&mut self, kvstore: &Kvstore) {
        let kind = Kind::Datastore;
        let runs = |member: &&Member| member.voter && member.condition == Condition::Running;
        let (running, healthy) = (
            self.datastores().iter().filter(runs).count(),
            self.healthy_voters(),
        );
        let voters = kvstore.voters;
        if voters > 1 {
            self.wait(
                kind,
                format!(
                    "the kvstore has no quorum (healthy: {healthy} of {voters} members, needed: {}, running: {running}); \
                     no member is moved until enough of them are back with their data",
                    majority(voters)
                ),
            );
        }
        for Absent { number, host, .. } in &kvstore.absent {
            self.wait(
                kind,
                format!(
                    "member {number} has its data on {host} and starts there; start that agent again, if it is down"
                ),
            );
        }
    }

    /// Since when a member waits for the host that has its data, although the others have the quorum
    /// without it.
    pub(super) fn homeless_since(&self, member: &Member) -> Option<Timestamp> {
        let kvstore = self.observed.kvstore.as_ref()?;
        let waits = member.voter && member.condition == Condition::Scheduled;
        (waits && self.has_quorum(kvstore)).then_some(member.since)
    }

    /// Whether further members are starting before the first server: a server learns the members'
    /// addresses when it starts. One that takes long holds up nothing.
    pub(super) fn growing(&mut self) -> bool {
        if self.observed.kvstore.is_none() || !self.members(Kind::Server).is_empty() {
            return false;
        }
        let launches = |step: &Step| matches!(step, Step::LaunchMember { .. });
        if self.plan.steps.iter().any(launches) {
            return true;
        }
        let joining = self
            .datastores()
            .iter()
            .find(|member| !member.voter && !member.leaving);
        let until = joining.map(|member| later(member.since, self.policy.grace));
        match until {
            Some(until) if until > self.now => {
                self.look_again(until);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
