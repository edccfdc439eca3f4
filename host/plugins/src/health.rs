//! How a version that serves is doing, and when it is taken out of service.
//!
//! On probation, which lasts for a window after it replaced another, a version may fault so many times; with the next fault the version
//! before it returns. At any time, a version that answers nothing any more, so many faults in a row and one, is disabled: its
//! extension point answers without it until something new is admitted. Faults that come now and then among good answers disable nothing: a
//! plugin that trips over one subscriber's query still serves the others.
//!
//! Counting costs a load on a call that is answered and is done in atomics; what follows is done by the directory's task.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use serde::Serialize;
use tokio::sync::mpsc;

/// When a version that fails is taken out of service. A manifest's `[probation]` overrides it for its plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Probation {
    /// How long after a swap the version before it is ready to return.
    pub window: Duration,
    /// Traps and timeouts that a new version may have within the window. A version that has more than these in a row, with none to return
    /// to, is disabled.
    pub max_faults: u32,
}

impl Default for Probation {
    fn default() -> Self {
        Probation {
            window: Duration::from_mins(10),
            max_faults: 10,
        }
    }
}

/// Tells versions that run or ran in this process apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u64);

impl Generation {
    pub(crate) fn next() -> Generation {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Generation(NEXT.fetch_add(1, Relaxed))
    }
}

/// What is to become of a version that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HealthAction {
    /// The version before it serves again.
    Revert,
    /// Nothing of this plugin serves.
    Disable,
    /// It answered beside the version that serves, and may take its place.
    Promote,
}

/// A version asks to be taken out of service, or into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HealthEvent {
    pub(crate) plugin: String,
    pub(crate) generation: Generation,
    pub(crate) action: HealthAction,
    /// For an operator.
    pub(crate) reason: String,
}

/// What a version has done since it began to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HealthSample {
    /// There is a version to return to.
    replaced_another: bool,
    age: Duration,
    faults: u32,
    consecutive_faults: u32,
}

/// The rule, without a clock.
fn action(rule: Probation, sample: HealthSample) -> Option<HealthAction> {
    let on_probation = sample.replaced_another && sample.age <= rule.window;
    if on_probation && sample.faults > rule.max_faults {
        Some(HealthAction::Revert)
    } else if !on_probation && sample.consecutive_faults > rule.max_faults {
        Some(HealthAction::Disable)
    } else {
        None
    }
}

#[derive(Debug)]
pub(crate) struct Health {
    pub(crate) generation: Generation,
    rule: Probation,
    began: Instant,
    replaced_another: bool,
    faults: AtomicU32,
    consecutive_faults: AtomicU32,
    raised: AtomicBool,
    health_events: Option<mpsc::Sender<HealthEvent>>,
}

impl Health {
    /// A version that begins to serve. Without `health_events` nobody is told: a trial instance, a shadow.
    pub(crate) fn new(
        rule: Probation,
        replaced_another: bool,
        health_events: Option<mpsc::Sender<HealthEvent>>,
    ) -> Health {
        Health {
            generation: Generation::next(),
            rule,
            began: Instant::now(),
            replaced_another,
            faults: AtomicU32::new(0),
            consecutive_faults: AtomicU32::new(0),
            raised: AtomicBool::new(false),
            health_events,
        }
    }

    /// How much longer the version before it is kept for its return. None: it is not on probation.
    pub(crate) fn probation_left(&self) -> Option<Duration> {
        let left = self.rule.window.checked_sub(self.began.elapsed());
        left.filter(|_| self.replaced_another)
    }

    /// A call was answered.
    pub(crate) fn answered(&self) {
        if self.consecutive_faults.load(Relaxed) != 0 {
            self.consecutive_faults.store(0, Relaxed);
        }
    }

    /// A call ended in a fault. `last` says which.
    pub(crate) fn faulted(&self, plugin: &str, last: &str) {
        let sample = HealthSample {
            replaced_another: self.replaced_another,
            age: self.began.elapsed(),
            faults: self.faults.fetch_add(1, Relaxed).saturating_add(1),
            consecutive_faults: self.consecutive_faults.fetch_add(1, Relaxed).saturating_add(1),
        };
        let (Some(action), Some(health_events)) = (action(self.rule, sample), &self.health_events) else {
            return;
        };
        if self.raised.swap(true, Relaxed) {
            return;
        }
        let reason = match action {
            HealthAction::Revert => format!(
                "{} faults within {:?} after it began to serve, {} are allowed (probation); the last: {last}",
                sample.faults, self.rule.window, self.rule.max_faults
            ),
            HealthAction::Disable | HealthAction::Promote => format!(
                "{} calls in a row ended in a fault, {} may (probation.max-faults); the last: {last}",
                sample.consecutive_faults, self.rule.max_faults
            ),
        };
        let event = HealthEvent {
            plugin: plugin.to_owned(),
            generation: self.generation,
            action,
            reason,
        };
        if health_events.try_send(event).is_err() {
            // The directory has its hands full: the next fault says it again.
            self.raised.store(false, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_a_version_goes() {
        let rule = Probation {
            window: Duration::from_mins(1),
            max_faults: 2,
        };
        for (replaced_another, seconds, faults, consecutive_faults, expected) in [
            (true, 10, 2, 2, None),
            (true, 10, 3, 0, Some(HealthAction::Revert)),
            (true, 60, 3, 3, Some(HealthAction::Revert)),
            (true, 61, 300, 2, None),
            (true, 61, 3, 3, Some(HealthAction::Disable)),
            (false, 10, 300, 2, None),
            (false, 10, 3, 3, Some(HealthAction::Disable)),
        ] {
            let sample = HealthSample {
                replaced_another,
                age: Duration::from_secs(seconds),
                faults,
                consecutive_faults,
            };
            assert_eq!(action(rule, sample), expected, "{sample:?}");
        }
    }

    #[test]
    fn an_alarm_is_raised_once_and_an_answer_ends_a_row() {
        let rule = Probation {
            window: Duration::from_mins(1),
            max_faults: 1,
        };
        let (health_events, mut raised) = mpsc::channel(4);
        let health = Health::new(rule, false, Some(health_events));
        for _ in 0..3 {
            health.faulted("p", "x");
            health.answered();
        }
        assert!(raised.try_recv().is_err());
        for _ in 0..3 {
            health.faulted("p", "x");
        }
        let event = raised.try_recv().unwrap();
        assert_eq!(
            (event.action, event.generation),
            (HealthAction::Disable, health.generation)
        );
        assert!(
            event.reason.contains("2 calls in a row") && event.reason.ends_with('x'),
            "{}",
            event.reason
        );
        assert!(raised.try_recv().is_err());
    }

    #[test]
    fn a_full_queue_is_tried_again() {
        let rule = Probation {
            window: Duration::from_mins(1),
            max_faults: 0,
        };
        let (health_events, mut raised) = mpsc::channel(1);
        let (first, second) = (
            Health::new(rule, true, Some(health_events.clone())),
            Health::new(rule, true, Some(health_events)),
        );
        first.faulted("a", "x");
        second.faulted("b", "x");
        assert_eq!(raised.try_recv().unwrap().plugin, "a");
        second.faulted("b", "x");
        assert_eq!(raised.try_recv().unwrap().plugin, "b");
    }
}
