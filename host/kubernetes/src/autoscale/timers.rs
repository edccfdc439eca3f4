//! How long pods have been unschedulable and agents idle, by this daemon's own clock. A new leader
//! starts these timers from zero.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// The timers of pods and agents; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timers {
    /// The unschedulable pods, by their uids.
    unschedulable: BTreeMap<String, Timestamp>,
    /// The idle agents, by their tasks.
    idle: BTreeMap<String, Timestamp>,
}

impl Timers {
    /// Sets the pods that are unschedulable and the agents that are idle now. The timers of all others
    /// are deleted.
    pub(crate) fn update<'a>(
        &mut self,
        unschedulable: impl Iterator<Item = &'a str>,
        idle: impl Iterator<Item = &'a str>,
        now: Timestamp,
    ) {
        retain_present(&mut self.unschedulable, unschedulable, now);
        retain_present(&mut self.idle, idle, now);
    }

    /// Since when a pod is unschedulable.
    pub(crate) fn unschedulable_since(&self, uid: &str) -> Option<Timestamp> {
        self.unschedulable.get(uid).copied()
    }

    /// Since when an agent is idle.
    pub(crate) fn idle_since(&self, task: &str) -> Option<Timestamp> {
        self.idle.get(task).copied()
    }

    /// The number of unschedulable pods and the number of idle agents.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.unschedulable.len(), self.idle.len())
    }
}

fn retain_present<'a>(
    since: &mut BTreeMap<String, Timestamp>,
    present: impl Iterator<Item = &'a str>,
    now: Timestamp,
) {
    let known = std::mem::take(since);
    for name in present {
        since.insert(name.to_owned(), known.get(name).copied().unwrap_or(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timer_restarts_after_an_interruption() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut timers = Timers::default();
        let mut update = |pods: &[&str], agents: &[&str], second| {
            timers.update(pods.iter().copied(), agents.iter().copied(), at(second));
            (timers.unschedulable_since("a"), timers.idle_since("t"))
        };
        assert_eq!(update(&["a"], &["t"], 1), (Some(at(1)), Some(at(1))));
        assert_eq!(update(&["a", "b"], &["t"], 5), (Some(at(1)), Some(at(1))));
        assert_eq!(update(&["b"], &[], 6), (None, None));
        assert_eq!(update(&["a"], &["t"], 7), (Some(at(7)), Some(at(7))));
        assert_eq!(timers.counts(), (1, 1));
    }
}
