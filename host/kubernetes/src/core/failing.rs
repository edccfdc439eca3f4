//! Members of a kind that fail one after the other, as one sentence for operators. Pure.

use jiff::{SignedDuration, Timestamp};
use transom_plugin_host::printable;
use transom_scheduler::TaskRecord;

use crate::kind::Kind;
use crate::view::Failing;

/// A row of failures is a problem from this length on; the delays of the launches before it are 1 and
/// 2 seconds.
const MIN_FAILURES: u32 = 3;
/// A row ends when no failure follows for so long after the delay of the next launch.
const QUIET: SignedDuration = SignedDuration::from_mins(5);
/// The number of hosts that are kept.
const MAX_HOSTS: usize = 3;
/// The maximum length of a failed task's message, in characters.
const MAX_MESSAGE: usize = 300;

/// Failures of a kind in a row.
#[derive(Clone, Debug)]
pub(super) struct FailureRow {
    count: u32,
    since: Timestamp,
    /// The end of the delay of the next launch.
    delayed_until: Timestamp,
    /// The agents, newest first.
    hosts: Vec<String>,
    /// State and message of the last one.
    pub(super) last: String,
}

impl FailureRow {
    /// The row after the task with this record has failed.
    pub(super) fn after(
        former: Option<&Self>,
        record: &TaskRecord,
        delayed_until: Timestamp,
        now: Timestamp,
    ) -> Self {
        let message = record
            .status
            .as_ref()
            .and_then(|status| status.message.as_deref());
        let message = printable(message.unwrap_or("no message"));
        let message: String = message.chars().take(MAX_MESSAGE).collect();
        let last = format!("{}, {message}", record.state);
        Self::with(former, &record.agent.hostname, last, delayed_until, now)
    }

    fn with(
        former: Option<&Self>,
        host: &str,
        last: String,
        delayed_until: Timestamp,
        now: Timestamp,
    ) -> Self {
        let former = former.filter(|row| row.continues(now));
        let earlier = former.iter().flat_map(|row| &row.hosts);
        let earlier = earlier.filter(|it| *it != host).cloned();
        Self {
            count: former.map_or(0, |row| row.count).saturating_add(1),
            since: former.map_or(now, |row| row.since),
            delayed_until,
            hosts: std::iter::once(host.to_owned())
                .chain(earlier)
                .take(MAX_HOSTS)
                .collect(),
            last,
        }
    }

    fn continues(&self, now: Timestamp) -> bool {
        now.duration_since(self.delayed_until) <= QUIET
    }

    /// The problem, if it is one now.
    pub(super) fn failing(&self, kind: Kind, now: Timestamp) -> Option<Failing> {
        if self.count < MIN_FAILURES || !self.continues(now) {
            return None;
        }
        Some(Failing {
            name: kind.as_str(),
            count: self.count,
            since: self.since,
            message: format!(
                "{kind}: its tasks fail: failed {} times since {} on {}; last: {}",
                self.count,
                self.since.strftime("%Y-%m-%dT%H:%M:%SZ"),
                self.hosts.join(", "),
                self.last
            ),
            hosts: self.hosts.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_is_a_problem_from_the_third_failure_until_it_is_quiet() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let after = |former, host, second: i64| {
            let last = "TASK_FAILED, exited with status 1".to_owned();
            FailureRow::with(former, host, last, at(second + 2), at(second))
        };
        let first = after(None, "n1", 0);
        let second = after(Some(&first), "n2", 10);
        assert!(second.failing(Kind::Agent, at(11)).is_none());
        let third = after(Some(&second), "n1", 20);
        assert_eq!(
            third.failing(Kind::Agent, at(22)).unwrap().message,
            "agent: its tasks fail: failed 3 times since 1970-01-01T00:00:00Z on n1, n2; last: TASK_FAILED, exited \
             with status 1"
        );
        assert!(third.failing(Kind::Agent, at(22 + 300)).is_some());
        assert!(third.failing(Kind::Agent, at(22 + 301)).is_none());
        let later = after(Some(&third), "n1", 400);
        assert_eq!((later.count, later.since), (1, at(400)));
    }
}
