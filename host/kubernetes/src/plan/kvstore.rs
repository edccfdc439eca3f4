//! The rules of a kvstore whose members form one etcd cluster.
//!
//! One member at a time joins, and only while the others are healthy. A member leaves the etcd
//! cluster before its task ends, and only while the others have the quorum without it. Lost members
//! are removed from etcd as long as there is a quorum. Without a quorum no member is replaced,
//! because a member that has ended returns with its data and may restore the quorum.

use jiff::Timestamp;
use transom_replicas::Condition;

use super::{Member, Planner, RemovalReason, Step, free_numbers, time_after};
use crate::kind::Kind;

/// The etcd cluster as it was last seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kvstore {
    /// The number of voting members.
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
    /// As the same voting member as before, with its data.
    Return,
    /// As a further member of the cluster.
    Join,
}

impl Start {
    /// The value of `KVSTORE_START` for the script.
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

    /// The number of healthy voters. Members that are about to end do not count, although they may
    /// still run.
    fn healthy_voters(&self) -> usize {
        let members = self.datastores().iter();
        members
            .filter(|member| member.voter && !member.leaving && member.is_healthy())
            .count()
    }

    pub(super) fn has_quorum(&self, kvstore: &Kvstore) -> bool {
        kvstore.voters > 0 && self.healthy_voters() >= majority(kvstore.voters)
    }

    /// Whether a member can leave the cluster: there is a quorum that can agree to the removal, and
    /// the other members have the quorum afterwards.
    fn can_leave(&self, kvstore: &Kvstore, member_is_healthy: bool) -> bool {
        let others = self.healthy_voters() - usize::from(member_is_healthy);
        self.has_quorum(kvstore) && others >= majority(kvstore.voters - 1)
    }

    /// Removes a lost member from the etcd cluster: one whose task has ended, or has been unreachable
    /// for the node timeout. A lost member that remains counts for the quorum without contributing to
    /// it.
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

    /// Scales the kvstore down by one member: preferably one that does not vote, then one that is not
    /// healthy, then the one with the highest number. So the first member is removed last.
    pub(super) fn remove_surplus_member(&mut self) {
        let staying = self.datastores().iter().filter(|member| !member.leaving);
        let next = staying.min_by_key(|member| {
            let number = std::cmp::Reverse(member.number);
            (member.voter, member.is_healthy(), number)
        });
        if let Some(member) = next.cloned() {
            self.remove(Kind::Datastore, &member, RemovalReason::Surplus);
        }
    }

    /// Ends a member. It leaves the etcd cluster first.
    pub(super) fn remove_member(&mut self, kvstore: &Kvstore, member: &Member, why: RemovalReason) {
        let (kind, number) = (Kind::Datastore, member.number);
        let end = Step::Remove {
            kind,
            number,
            reason: why,
        };
        // A member ends without leaving first in these cases: a learner, which does not count for the
        // quorum; the only voter, whose data stay; any member of a kvstore that is stopped without a
        // quorum, because all members return to their data later; and a request that was not launched,
        // whose member is removed from etcd later like one that has ended.
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
            // Without a quorum an unhealthy member ends without leaving the cluster: it returns with
            // its data and the changed configuration.
            if why == RemovalReason::Changed && !healthy && !has_quorum {
                return self.plan.steps.push(end);
            }
            let reason =
                format!("member {number} leaves the kvstore when the others have the quorum without it");
            return match why {
                RemovalReason::Changed => self.halt(kind, reason),
                _ => self.wait(kind, reason),
            };
        }
        match (kvstore.silent_since, member.etcd) {
            (None, Some(etcd)) => self.plan.steps.push(Step::Dismiss { etcd }),
            (None, None) => self.plan.steps.push(end),
            (Some(since), _) => {
                // The member remains a voter without a task, so the others must be a majority with it.
                let others = self.healthy_voters() - usize::from(healthy);
                let until = time_after(since, self.policy.drain_timeout);
                if others >= majority(kvstore.voters) && until <= self.now {
                    return self.plan.steps.push(end);
                }
                if until > self.now {
                    self.recheck_at(until);
                }
                self.wait(
                    kind,
                    format!("member {number} ends when it has left the kvstore, whose API does not answer"),
                );
            }
        }
    }

    /// Starts members: the first one alone, further ones one after another. If the quorum is lost, it
    /// starts the members again whose tasks have ended.
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
        // The only member may have a configuration without a port for other members.
        let alone = staying.clone().find(|member| member.old && kvstore.voters == 1);
        if let Some(member) = alone.cloned() {
            return self.remove_member(kvstore, &member, RemovalReason::Changed);
        }
        if !self.is_delayed(kind)
            && let Some(number) = free_numbers(members).next()
        {
            let start = Start::Join;
            self.plan.steps.push(Step::LaunchMember { number, start });
        }
    }

    /// Starts the members whose tasks have ended again, with their data.
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

    /// Adds the reasons that name the members that must return, and their hosts.
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
    pub(super) fn waiting_for_host_since(&self, member: &Member) -> Option<Timestamp> {
        let kvstore = self.observed.kvstore.as_ref()?;
        let waits = member.voter && member.condition == Condition::Scheduled;
        (waits && self.has_quorum(kvstore)).then_some(member.since)
    }

    /// Whether the first server waits for further members that are starting, because a server gets
    /// the members' addresses when it starts. It waits at most for the grace period.
    pub(super) fn is_growing(&mut self) -> bool {
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
        let until = joining.map(|member| time_after(member.since, self.policy.grace));
        match until {
            Some(until) if until > self.now => {
                self.recheck_at(until);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
