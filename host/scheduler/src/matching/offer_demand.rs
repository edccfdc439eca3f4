//! Decides when to request offers from the master (REVIVE), and when to stop them (SUPPRESS).

use std::time::Duration;

use tokio::time::Instant;

/// A call to the master about offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfferCall {
    /// Send offers again, including those that were declined.
    Revive,
    /// Send no offers for now.
    Suppress,
}

/// Decides when to send REVIVE and SUPPRESS.
///
/// After REVIVE the master offers declined resources again, for which it evaluates every agent. For
/// tasks that did not fit any offer it is sent at most once per interval, and each such REVIVE
/// without a launch doubles the delay before the next one: up to [`MAX_CHANGE_DELAY`] intervals if
/// something has changed since, such as the end of a task, and up to [`MAX_REST_DELAY`] intervals if
/// not all tasks were matched with all offers. New tasks trigger it immediately, but each REVIVE
/// without a launch doubles the delay before the next one, up to the interval. So the number of calls
/// depends on the launches, not on the requests. SUPPRESS is sent after an interval without demand.
#[derive(Debug)]
pub(crate) struct OfferDemand {
    interval: Duration,
    is_suppressed: bool,
    /// The most urgent reason for a REVIVE.
    revive: Option<ReviveReason>,
    /// REVIVE calls for new tasks since the last launch.
    fruitless_revives: u32,
    /// REVIVE calls for other reasons since the last launch.
    fruitless_repetitions: u32,
    last_revive: Option<Instant>,
    idle_since: Option<Instant>,
}

/// Why declined offers are requested again, the most urgent reason last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ReviveReason {
    /// Not all tasks were matched with all offers.
    Rest,
    /// Something has changed, so that a task may fit that did not fit before.
    Change,
    /// There are new tasks that were not matched with any offer yet.
    NewTasks,
}

/// After this many REVIVE calls without a launch, the next one waits for the whole interval. Each
/// one fewer halves the delay.
const MAX_FRUITLESS_REVIVES: u32 = 5;

/// The longest delay after changes, in intervals.
const MAX_CHANGE_DELAY: u32 = 8;
/// The longest delay without changes, in intervals.
const MAX_REST_DELAY: u32 = 64;

impl OfferDemand {
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            interval,
            is_suppressed: false,
            revive: None,
            fruitless_revives: 0,
            fruitless_repetitions: 0,
            last_revive: None,
            idle_since: None,
        }
    }

    /// Handles a new subscription, for which the master sends all offers without a REVIVE.
    pub(crate) fn subscribed(&mut self, now: Instant) {
        (self.is_suppressed, self.revive, self.idle_since) = (false, None, None);
        // The offers of the new subscription are on their way, as after a REVIVE.
        (self.fruitless_revives, self.fruitless_repetitions) = (1, 0);
        self.last_revive = Some(now);
    }

    /// Requests declined offers again, because a task may fit now that did not fit before.
    pub(crate) fn request_revive(&mut self) {
        self.revive = self.revive.max(Some(ReviveReason::Change));
    }

    /// Requests declined offers again, because not all tasks were matched with all of them.
    pub(crate) fn request_rest(&mut self) {
        self.revive = self.revive.max(Some(ReviveReason::Rest));
    }

    /// Requests declined offers again for new tasks.
    pub(crate) fn request_revive_now(&mut self) {
        self.revive = Some(ReviveReason::NewTasks);
    }

    /// Records that offers were used.
    pub(crate) fn launched(&mut self) {
        (self.fruitless_revives, self.fruitless_repetitions) = (0, 0);
    }

    /// The call to send now, if any. `has_demand`: a task is ready for launch.
    pub(crate) fn next_call(&mut self, has_demand: bool, now: Instant) -> Option<OfferCall> {
        if has_demand {
            self.idle_since = None;
            if self.is_suppressed {
                self.request_rest();
            }
            if self.revive.is_some() && self.earliest_revive().is_none_or(|at| at <= now) {
                if self.revive == Some(ReviveReason::NewTasks) {
                    self.fruitless_revives = self
                        .fruitless_revives
                        .saturating_add(1)
                        .min(MAX_FRUITLESS_REVIVES);
                } else if !self.is_suppressed {
                    self.fruitless_repetitions = self.fruitless_repetitions.saturating_add(1);
                }
                (self.revive, self.is_suppressed) = (None, false);
                self.last_revive = Some(now);
                return Some(OfferCall::Revive);
            }
            return None;
        }
        self.revive = None;
        let idle_start = *self.idle_since.get_or_insert(now);
        if !self.is_suppressed && now >= idle_start + self.interval {
            self.is_suppressed = true;
            return Some(OfferCall::Suppress);
        }
        None
    }

    /// Records that the master sends offers again without a REVIVE.
    pub(crate) fn unsuppressed(&mut self) {
        (self.is_suppressed, self.idle_since) = (false, None);
    }

    /// Records that the call did not reach the master, so that it is sent again.
    pub(crate) fn failed(&mut self, call: OfferCall) {
        match call {
            OfferCall::Revive => self.request_revive(),
            OfferCall::Suppress => (self.is_suppressed, self.idle_since) = (false, None),
        }
    }

    /// When [`OfferDemand::next_call`] may return a call.
    pub(crate) fn next(&self) -> Option<Instant> {
        if self.revive.is_some() {
            return self.earliest_revive();
        }
        self.idle_since
            .filter(|_| !self.is_suppressed)
            .map(|idle_start| idle_start + self.interval)
    }

    fn earliest_revive(&self) -> Option<Instant> {
        let delay = match self.revive {
            Some(ReviveReason::NewTasks) => match self.fruitless_revives {
                0 => Duration::ZERO,
                fruitless => {
                    self.interval / 2_u32.pow(MAX_FRUITLESS_REVIVES - fruitless.min(MAX_FRUITLESS_REVIVES))
                }
            },
            // One that the SUPPRESS before made necessary is not a repetition.
            _ if self.is_suppressed => self.interval,
            reason => {
                let longest = match reason {
                    Some(ReviveReason::Change) => MAX_CHANGE_DELAY,
                    _ => MAX_REST_DELAY,
                };
                let repetitions = self.fruitless_repetitions.min(31);
                self.interval * (1_u32 << repetitions).min(longest)
            }
        };
        self.last_revive.map(|last| last + delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suppress_is_sent_when_idle_and_revive_on_demand() {
        let start = Instant::now();
        let second = |n: u64| start + Duration::from_secs(n);
        let mut offer_demand = OfferDemand::new(Duration::from_secs(5));
        offer_demand.subscribed(start);
        // Columns: second, demand, new task, expected call.
        let table = [
            (0, true, false, None),
            (1, false, false, None),
            (5, false, false, None),
            (6, false, false, Some(OfferCall::Suppress)),
            (7, false, false, None),
            (8, true, true, Some(OfferCall::Revive)),
            (9, true, true, None),
            (12, true, false, None),
            (13, true, false, Some(OfferCall::Revive)),
            (30, true, false, None),
            (31, true, true, Some(OfferCall::Revive)),
            (40, false, true, None),
            (44, true, false, None),
            (45, false, false, None),
            (50, false, false, Some(OfferCall::Suppress)),
        ];
        for (at, has_demand, has_new_tasks, expected) in table {
            if has_new_tasks {
                offer_demand.request_revive();
            }
            assert_eq!(
                offer_demand.next_call(has_demand, second(at)),
                expected,
                "second {at}"
            );
        }
    }

    #[test]
    fn new_tasks_revive_immediately_while_revives_lead_to_launches() {
        let start = Instant::now();
        let after = |ms: u64| start + Duration::from_millis(ms);
        let mut offer_demand = OfferDemand::new(Duration::from_millis(160));
        offer_demand.subscribed(start);
        offer_demand.launched();
        // Each new task is launched, so none waits for the interval.
        for ms in [1, 2, 3] {
            offer_demand.request_revive_now();
            assert_eq!(
                offer_demand.next_call(true, after(ms)),
                Some(OfferCall::Revive),
                "after {ms} ms"
            );
            offer_demand.launched();
            // Resources that a task has left may wait for the interval.
            offer_demand.request_revive();
            assert_eq!(offer_demand.next_call(true, after(ms)), None);
            assert_eq!(offer_demand.next(), Some(after(ms + 160)));
            assert_eq!(offer_demand.next_call(false, after(ms)), None);
        }
        // Without launches, the delay doubles up to the interval.
        let mut revived = Vec::new();
        for ms in 10..1000 {
            offer_demand.request_revive_now();
            revived.extend(offer_demand.next_call(true, after(ms)).map(|_| ms));
        }
        assert_eq!(revived, [10, 20, 40, 80, 160, 320, 480, 640, 800, 960]);
        offer_demand.launched();
        assert_eq!(offer_demand.next_call(false, after(1000)), None);
        // Revives for pending tasks do not delay those for new tasks.
        for ms in [2000, 2320] {
            offer_demand.request_revive();
            assert_eq!(
                offer_demand.next_call(true, after(ms)),
                Some(OfferCall::Revive),
                "after {ms} ms"
            );
            assert_eq!(offer_demand.next_call(true, after(ms + 1)), None);
        }
        offer_demand.request_revive_now();
        assert_eq!(offer_demand.next_call(true, after(2321)), Some(OfferCall::Revive));
        offer_demand.launched();
        offer_demand.request_revive_now();
        assert_eq!(offer_demand.next_call(true, after(2322)), Some(OfferCall::Revive));
    }

    #[test]
    fn revives_for_tasks_that_do_not_fit_become_rare() {
        let start = Instant::now();
        let second = |n: u64| start + Duration::from_secs(n);
        let revived = |request: fn(&mut OfferDemand)| -> Vec<u64> {
            let mut offer_demand = OfferDemand::new(Duration::from_secs(1));
            let calls = (0..200).filter(|n| {
                request(&mut offer_demand);
                offer_demand.next_call(true, second(*n)).is_some()
            });
            calls.collect()
        };
        assert_eq!(
            revived(OfferDemand::request_rest),
            [0, 2, 6, 14, 30, 62, 126, 190]
        );
        let after_changes = revived(OfferDemand::request_revive);
        assert_eq!(after_changes[..6], [0, 2, 6, 14, 22, 30]);
        // A launch ends the delay.
        let mut offer_demand = OfferDemand::new(Duration::from_secs(1));
        for n in 0..100 {
            offer_demand.request_rest();
            offer_demand.next_call(true, second(n));
        }
        offer_demand.launched();
        offer_demand.request_rest();
        assert_eq!(offer_demand.next_call(true, second(100)), Some(OfferCall::Revive));
    }

    #[test]
    fn failed_revive_and_suppress_are_sent_again() {
        let start = Instant::now();
        let mut offer_demand = OfferDemand::new(Duration::ZERO);
        assert_eq!(offer_demand.next_call(false, start), Some(OfferCall::Suppress));
        offer_demand.failed(OfferCall::Suppress);
        assert_eq!(offer_demand.next_call(false, start), Some(OfferCall::Suppress));
        assert_eq!(offer_demand.next_call(true, start), Some(OfferCall::Revive));
        offer_demand.failed(OfferCall::Revive);
        assert_eq!(offer_demand.next(), Some(start));
        assert_eq!(offer_demand.next_call(true, start), Some(OfferCall::Revive));
    }
}
