//! How long pods have been unschedulable and agents idle, by this daemon's own clock. A new leader
//! starts these timers from zero.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timers {
    /// By the pods' uids.
    unschedulable: BTreeMap<String, Timestamp>,
    /// By the agents' tasks.
    idle: BTreeMap<String, Timestamp>,
}

impl Timers {
    /// Takes note of what is so now; everything else is forgotten.
    pub(crate) fn update<'a>(
        &mut self,
        unschedulable: impl Iterator<Item = &'a str>,
        idle: impl Iterator<Item = &'a str>,
        now: Timestamp,
    ) {
        keep(&mut self.unschedulable, unschedulable, now);
        keep(&mut self.idle, idle, now);
    }

    /// Since when a pod is unschedulable.
    pub(crate) fn unschedulable_since(&self, uid: &str) -> Option<Timestamp> {
        self.unschedulable.get(uid).copied()
    }

    /// Since when an agent is idle.
    pub(crate) fn idle_since(&self, task: &str) -> Option<Timestamp> {
        self.idle.get(task).copied()
    }

    /// How many pods are unschedulable and how many agents idle.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.unschedulable.len(), self.idle.len())
    }
}

fn keep<'a>(since: &mut BTreeMap<String, Timestamp>, present: impl Iterator<Item = &'a str>, now: Timestamp) {
    let known = std::mem::take(since);
    for name in present {
        since.insert(name.to_owned(), known.get(name).copied().unwrap_or(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_begins_anew() {
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
