//! The maintenance windows of agents, as inverse offers announce them. The code reads no clock; the
//! time is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use transom_cluster::{AgentId, v1};

use crate::MaintenanceMode;

/// The maintenance windows of the agents that run tasks of this framework.
///
/// The master repeats an inverse offer as long as the framework uses the agent and the window is
/// scheduled. It sends no event when a window is cancelled after the answer, so a window that is
/// not confirmed for a while is dropped.
#[derive(Debug)]
pub(crate) struct MaintenanceWindows {
    mode: MaintenanceMode,
    /// How long a window is kept without another inverse offer.
    retention: Duration,
    by_agent: BTreeMap<AgentId, Window>,
}

#[derive(Debug)]
struct Window {
    /// The time from which tasks have to leave, in nanoseconds since 1970.
    moves_from: i64,
    /// The end of the maintenance in nanoseconds since 1970; the maximum value if it has none.
    end: i64,
    expires: Instant,
    /// Whether the service was notified that tasks have to leave.
    is_due: bool,
}

/// A change of an agent's maintenance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MaintenanceChange {
    /// Tasks have to leave the agent.
    Due(AgentId),
    /// Tasks no longer have to leave the agent.
    Over(AgentId),
}

impl MaintenanceWindows {
    pub(crate) fn new(mode: MaintenanceMode, retention: Duration) -> Self {
        Self {
            mode,
            retention,
            by_agent: BTreeMap::new(),
        }
    }

    /// The start and end of the time in which nothing is launched on the agent of an offer, in
    /// nanoseconds since 1970.
    pub(crate) fn closed_period(&self, offer: &v1::Offer) -> Option<(i64, i64)> {
        let ahead = match self.mode {
            MaintenanceMode::Ignored => return None,
            MaintenanceMode::Avoided => Duration::ZERO,
            MaintenanceMode::Evacuated { ahead } => ahead,
        };
        offer.unavailability.as_ref().map(|window| bounds(window, ahead))
    }

    /// Whether inverse offers are accepted.
    pub(crate) fn accepts(&self) -> bool {
        matches!(self.mode, MaintenanceMode::Evacuated { .. })
    }

    /// Records the window of an inverse offer.
    pub(crate) fn record_inverse_offer(&mut self, offer: &v1::InverseOffer, now: Instant) {
        let (MaintenanceMode::Evacuated { ahead }, Some(agent)) = (self.mode, &offer.agent_id) else {
            return;
        };
        let (moves_from, end) = bounds(&offer.unavailability, ahead);
        let due = self.is_due(agent);
        let window = Window {
            moves_from,
            end,
            expires: now + self.retention,
            is_due: due,
        };
        self.by_agent.insert(agent.clone(), window);
    }

    /// Handles an offer. If it has no window, the agent's window was cancelled or is over.
    pub(crate) fn record_offer(&mut self, offer: &v1::Offer) -> Option<MaintenanceChange> {
        match offer.unavailability {
            Some(_) => None,
            None => self.remove(&offer.agent_id),
        }
    }

    /// Drops the window of a lost agent.
    pub(crate) fn remove(&mut self, agent: &AgentId) -> Option<MaintenanceChange> {
        let window = self.by_agent.remove(agent)?;
        window.is_due.then(|| MaintenanceChange::Over(agent.clone()))
    }

    /// Handles a new subscription, after which the master sends the inverse offers again.
    pub(crate) fn subscribed(&mut self, now: Instant) {
        for window in self.by_agent.values_mut() {
            window.expires = now + self.retention;
        }
    }

    /// The changes since the last call. `time` is in nanoseconds since 1970.
    pub(crate) fn changes(&mut self, time: i64, now: Instant) -> Vec<MaintenanceChange> {
        let mut changes = Vec::new();
        self.by_agent.retain(|agent, window| {
            let is_current = time < window.end && now < window.expires;
            let due = is_current && window.moves_from <= time;
            if due != window.is_due {
                window.is_due = due;
                changes.push(if due {
                    MaintenanceChange::Due(agent.clone())
                } else {
                    MaintenanceChange::Over(agent.clone())
                });
            }
            is_current
        });
        changes
    }

    /// The time at which the next change may be due.
    pub(crate) fn next(&self, time: i64, now: Instant) -> Option<Instant> {
        let until = |at: i64| {
            let wait = u64::try_from(at.saturating_sub(time)).unwrap_or_default();
            now.checked_add(Duration::from_nanos(wait))
        };
        let windows = self.by_agent.values();
        let times = windows.flat_map(|window| {
            let change_at = if window.is_due {
                window.end
            } else {
                window.moves_from
            };
            [until(change_at), Some(window.expires)]
        });
        times.flatten().min()
    }

    /// Whether tasks have to leave this agent.
    pub(crate) fn is_due(&self, agent: &AgentId) -> bool {
        self.by_agent.get(agent).is_some_and(|window| window.is_due)
    }
}

/// Converts a time to the format of offers: nanoseconds since 1970.
pub(crate) fn nanoseconds(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX)
}

/// The start and end of the time in which tasks must not be on the agent, in nanoseconds since 1970.
fn bounds(window: &v1::Unavailability, ahead: Duration) -> (i64, i64) {
    let start = window.start.nanoseconds;
    let end = window
        .duration
        .as_ref()
        .map_or(i64::MAX, |length| start.saturating_add(length.nanoseconds));
    let ahead = i64::try_from(ahead.as_nanos()).unwrap_or(i64::MAX);
    (start.saturating_sub(ahead), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn windows(mode: MaintenanceMode) -> MaintenanceWindows {
        MaintenanceWindows::new(mode, Duration::from_secs(30))
    }

    fn evacuated(seconds: u64) -> MaintenanceMode {
        MaintenanceMode::Evacuated {
            ahead: Duration::from_secs(seconds),
        }
    }

    fn window(start: i64, length: Option<i64>) -> v1::Unavailability {
        v1::Unavailability {
            start: v1::TimeInfo {
                nanoseconds: start * SECOND,
            },
            duration: length.map(|seconds| v1::DurationInfo {
                nanoseconds: seconds * SECOND,
            }),
        }
    }

    fn inverse(start: i64, length: Option<i64>) -> v1::InverseOffer {
        v1::InverseOffer {
            id: "i".into(),
            framework_id: "f".into(),
            unavailability: window(start, length),
            url: None,
            agent_id: Some("a".into()),
            resources: Vec::new(),
        }
    }

    fn due() -> Vec<MaintenanceChange> {
        vec![MaintenanceChange::Due("a".into())]
    }

    fn over() -> Vec<MaintenanceChange> {
        vec![MaintenanceChange::Over("a".into())]
    }

    #[test]
    fn tasks_leave_from_the_configured_time_before_a_window_until_its_end() {
        let now = Instant::now();
        let mut windows = windows(evacuated(10));
        windows.record_inverse_offer(&inverse(100, Some(5)), now);
        assert_eq!(windows.changes(89 * SECOND, now), []);
        assert!(!windows.is_due(&"a".into()));
        assert_eq!(windows.next(89 * SECOND, now), Some(now + Duration::from_secs(1)));
        assert_eq!(windows.changes(90 * SECOND, now), due());
        assert!(windows.is_due(&"a".into()));
        // The master repeats it.
        windows.record_inverse_offer(&inverse(100, Some(5)), now);
        assert_eq!(windows.changes(104 * SECOND, now), []);
        assert_eq!(
            windows.next(104 * SECOND, now),
            Some(now + Duration::from_secs(1))
        );
        assert_eq!(windows.changes(105 * SECOND, now), over());
        assert_eq!(windows.next(105 * SECOND, now), None);
    }

    #[test]
    fn window_that_is_not_confirmed_is_dropped() {
        let now = Instant::now();
        let mut windows = windows(evacuated(0));
        windows.record_inverse_offer(&inverse(0, None), now);
        assert_eq!(windows.changes(SECOND, now), due());
        let later = now + Duration::from_secs(29);
        assert_eq!(windows.changes(SECOND, later), []);
        windows.subscribed(later);
        let end = later + Duration::from_secs(30);
        assert_eq!(windows.next(SECOND, later), Some(end));
        assert_eq!(windows.changes(SECOND, end), over());
    }

    #[test]
    fn window_that_was_moved_or_cancelled_or_whose_agent_is_lost_ends() {
        let now = Instant::now();
        let mut windows = windows(evacuated(0));
        windows.record_inverse_offer(&inverse(0, None), now);
        assert_eq!(windows.changes(SECOND, now), due());
        windows.record_inverse_offer(&inverse(100, None), now);
        assert_eq!(windows.changes(SECOND, now), over());
        windows.record_inverse_offer(&inverse(0, None), now);
        assert_eq!(windows.changes(SECOND, now), due());
        let mut offer = crate::testing::offer("o", "a", 1.0, &[]);
        offer.unavailability = Some(window(0, None));
        assert_eq!(windows.record_offer(&offer), None);
        offer.unavailability = None;
        assert_eq!(windows.record_offer(&offer), over().pop());
        assert_eq!(windows.record_offer(&offer), None);
        windows.record_inverse_offer(&inverse(0, None), now);
        assert_eq!(windows.remove(&"a".into()), None, "the service was not notified");
    }

    #[test]
    fn mode_decides_about_offers_and_inverse_offers() {
        let now = Instant::now();
        let mut offer = crate::testing::offer("o", "a", 1.0, &[]);
        offer.unavailability = Some(window(100, Some(5)));
        let closed = |from, until| Some((from * SECOND, until * SECOND));
        for (mode, expected, moves) in [
            (MaintenanceMode::Ignored, None, false),
            (MaintenanceMode::Avoided, closed(100, 105), false),
            (evacuated(10), closed(90, 105), true),
        ] {
            let mut windows = windows(mode);
            assert_eq!(windows.closed_period(&offer), expected, "{mode:?}");
            assert_eq!(windows.accepts(), moves, "{mode:?}");
            windows.record_inverse_offer(&inverse(0, None), now);
            assert_eq!(!windows.changes(SECOND, now).is_empty(), moves, "{mode:?}");
        }
        offer.unavailability = None;
        assert_eq!(windows(evacuated(10)).closed_period(&offer), None);
    }
}
