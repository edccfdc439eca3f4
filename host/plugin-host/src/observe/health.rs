//! Health of a serving version, and when it is rolled back or disabled.
//!
//! Probation is a window after a version replaced another one. In it, a version may have
//! `max-faults` faults; the next one restores the previous version. Outside it, a version with more
//! than `max-faults` consecutive faults is disabled until new files are admitted. Occasional faults
//! among successful calls do not disable a plugin: a filter that fails on one subscriber's query
//! still serves the others.
//!
//! A canary with more than its own `max-faults` faults is aborted.
//!
//! Counting costs one atomic load per successful call. The directory's task handles the events.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::mpsc;

use crate::manifest::probation::Probation;

/// Identifies a started version in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(pub(crate) u64);

impl Generation {
    pub(crate) fn next() -> Generation {
        static NEXT_GENERATION: AtomicU64 = AtomicU64::new(1);
        Generation(NEXT_GENERATION.fetch_add(1, Relaxed))
    }
}

/// The reaction to a health event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HealthAction {
    /// Restore the previous version, or return the canary.
    Revert,
    /// Disable the plugin.
    Disable,
}

/// Reports that a version has to be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HealthEvent {
    pub(crate) plugin: String,
    pub(crate) generation: Generation,
    pub(crate) action: HealthAction,
    /// The reason, for an operator.
    pub(crate) reason: String,
}

/// The faults of a version since its activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HealthSample {
    /// Whether there is a previous version.
    replaced_another: bool,
    age: Duration,
    faults: u32,
    consecutive_faults: u32,
}

/// The rule as a pure function of the sample.
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

/// The faults of a version. Before its activation, in a trial instance or in a shadow, they have no
/// consequences.
#[derive(Debug)]
pub(crate) struct Health {
    rule: Probation,
    watch: OnceLock<HealthWatch>,
    faults: AtomicU32,
    consecutive_faults: AtomicU32,
    has_sent_event: AtomicBool,
}

/// Connects the faults of an activated version with the actor that reacts to them.
#[derive(Debug)]
pub(crate) struct HealthWatch {
    generation: Generation,
    began: Instant,
    role: Role,
    events: mpsc::Sender<HealthEvent>,
}

/// The rule by which a version is judged.
#[derive(Clone, Copy, Debug)]
enum Role {
    /// It is judged by the rule of its probation. `replaced_another`: there is a previous version.
    Serving { replaced_another: bool },
    /// It may have at most this number of faults.
    Canary { max_faults: u64 },
}

impl HealthWatch {
    /// Starts to watch a version that is activated now. `on_probation`: it replaces another
    /// version, which can be restored.
    pub(crate) fn new(
        generation: Generation,
        on_probation: bool,
        events: mpsc::Sender<HealthEvent>,
    ) -> HealthWatch {
        HealthWatch {
            generation,
            began: Instant::now(),
            role: Role::Serving {
                replaced_another: on_probation,
            },
            events,
        }
    }

    /// Starts to watch a canary.
    pub(crate) fn canary(
        generation: Generation,
        max_faults: u64,
        events: mpsc::Sender<HealthEvent>,
    ) -> HealthWatch {
        HealthWatch {
            generation,
            began: Instant::now(),
            role: Role::Canary { max_faults },
            events,
        }
    }

    fn replaced_another(&self) -> bool {
        matches!(
            self.role,
            Role::Serving {
                replaced_another: true
            }
        )
    }
}

impl Health {
    pub(crate) fn new(rule: Probation) -> Health {
        Health {
            rule,
            watch: OnceLock::new(),
            faults: AtomicU32::new(0),
            consecutive_faults: AtomicU32::new(0),
            has_sent_event: AtomicBool::new(false),
        }
    }

    /// Sets the watch when the version is activated.
    pub(crate) fn watch(&self, watch: HealthWatch) {
        // A version is activated only once; another start of it creates another `Health`.
        let _ = self.watch.set(watch);
    }

    /// The rest of the probation. `None`: the version is not on probation.
    pub(crate) fn probation_left(&self) -> Option<Duration> {
        let watch = self.watch.get().filter(|it| it.replaced_another())?;
        self.rule.window.checked_sub(watch.began.elapsed())
    }

    /// Faults since the activation of the version.
    pub(crate) fn faults(&self) -> u64 {
        self.faults.load(Relaxed).into()
    }

    /// Resets the consecutive faults, because a call succeeded.
    pub(crate) fn record_answer(&self) {
        if self.consecutive_faults.load(Relaxed) != 0 {
            self.consecutive_faults.store(0, Relaxed);
        }
    }

    /// Counts a fault and reports the version if it has too many. `last` describes the fault.
    pub(crate) fn record_fault(&self, plugin: &str, last: &str) {
        let Some(watch) = self.watch.get() else {
            return;
        };
        let sample = HealthSample {
            replaced_another: watch.replaced_another(),
            age: watch.began.elapsed(),
            faults: self.faults.fetch_add(1, Relaxed).saturating_add(1),
            consecutive_faults: self.consecutive_faults.fetch_add(1, Relaxed).saturating_add(1),
        };
        let action = match watch.role {
            Role::Serving { .. } => action(self.rule, sample),
            Role::Canary { max_faults } => {
                (u64::from(sample.faults) > max_faults).then_some(HealthAction::Revert)
            }
        };
        let Some(action) = action else {
            return;
        };
        if self.has_sent_event.swap(true, Relaxed) {
            return;
        }
        let reason = match (action, watch.role) {
            (_, Role::Canary { max_faults }) => format!(
                "{} faults, at most {max_faults} are allowed (canary.max-faults); last fault: {last}",
                sample.faults
            ),
            (HealthAction::Revert, _) => format!(
                "{} faults within {:?} of activation, at most {} are allowed (probation.max-faults); last fault: {last}",
                sample.faults, self.rule.window, self.rule.max_faults
            ),
            (HealthAction::Disable, _) => format!(
                "{} calls in a row failed, at most {} may (probation.max-faults); last fault: {last}",
                sample.consecutive_faults, self.rule.max_faults
            ),
        };
        let event = HealthEvent {
            plugin: plugin.to_owned(),
            generation: watch.generation,
            action,
            reason,
        };
        if watch.events.try_send(event).is_err() {
            // The queue is full, so the next fault sends the event again.
            self.has_sent_event.store(false, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_reverts_or_disables_after_max_faults() {
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

    fn watched(rule: Probation, on_probation: bool, events: mpsc::Sender<HealthEvent>) -> Health {
        let health = Health::new(rule);
        health.watch(HealthWatch::new(Generation(1), on_probation, events));
        health
    }

    #[test]
    fn health_sends_one_event_and_a_success_resets_the_row() {
        let rule = Probation {
            window: Duration::from_mins(1),
            max_faults: 1,
        };
        let (health_events, mut events) = mpsc::channel(4);
        let health = watched(rule, false, health_events);
        for _ in 0..3 {
            health.record_fault("p", "x");
            health.record_answer();
        }
        assert!(events.try_recv().is_err());
        for _ in 0..3 {
            health.record_fault("p", "x");
        }
        let event = events.try_recv().unwrap();
        assert_eq!(
            (event.action, event.generation),
            (HealthAction::Disable, Generation(1))
        );
        assert!(
            event.reason.contains("2 calls in a row") && event.reason.ends_with('x'),
            "{}",
            event.reason
        );
        assert!(events.try_recv().is_err());
    }

    #[test]
    fn canary_is_aborted_after_its_own_max_faults() {
        let lenient = Probation {
            window: Duration::from_mins(1),
            max_faults: 1000,
        };
        for max_faults in [0, 2] {
            let (health_events, mut events) = mpsc::channel(4);
            let health = Health::new(lenient);
            health.watch(HealthWatch::canary(Generation(7), max_faults, health_events));
            assert_eq!(health.probation_left(), None);
            for _ in 0..max_faults {
                health.record_fault("p", "x");
                health.record_answer();
            }
            assert!(events.try_recv().is_err(), "{max_faults}");
            health.record_fault("p", "last");
            let event = events.try_recv().unwrap();
            assert_eq!(
                (event.generation, event.action),
                (Generation(7), HealthAction::Revert)
            );
            let expected = format!(
                "{} faults, at most {max_faults} are allowed (canary.max-faults); last fault: last",
                max_faults + 1
            );
            assert_eq!((event.reason, health.faults()), (expected, max_faults + 1));
        }
    }

    #[test]
    fn health_event_is_sent_again_after_a_full_queue() {
        let rule = Probation {
            window: Duration::from_mins(1),
            max_faults: 0,
        };
        let (health_events, mut events) = mpsc::channel(1);
        let (first, second) = (
            watched(rule, true, health_events.clone()),
            watched(rule, true, health_events),
        );
        first.record_fault("a", "x");
        second.record_fault("b", "x");
        assert_eq!(events.try_recv().unwrap().plugin, "a");
        second.record_fault("b", "x");
        assert_eq!(events.try_recv().unwrap().plugin, "b");
    }
}
