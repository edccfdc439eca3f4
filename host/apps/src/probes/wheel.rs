//! The schedule of all probes: what is due, what waits for a place, what is under way. Pure.
//!
//! A probe is due once at a time: its next turn is computed when an attempt ends, so that a slow
//! one is never doubled. Of each lane at most its limit is under way; the others wait in the order
//! in which they were due.

use std::collections::{BTreeSet, HashMap, VecDeque};

use transom_plugin_host::probe::Outcome;

use super::times::{Occasion, Times};
use crate::ids::InstanceId;

/// The probes that share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Checks,
    /// Health and readiness checks.
    Health,
}

/// Identifies a probe in the schedule; never used twice.
pub(super) type ProbeId = u64;

/// The subject of a probe.
pub(super) trait Subject: Clone {
    /// Whether both are the same probe of the same task, so that results of one hold for the other.
    fn is_same(&self, other: &Self) -> bool;
}

/// A probe to be scheduled.
#[derive(Clone, Debug)]
pub(super) struct Wanted<S> {
    pub(super) subject: S,
    pub(super) lane: Lane,
    pub(super) times: Times,
}

/// An attempt to be made now.
#[derive(Clone, Debug)]
pub(super) struct Start<S> {
    pub(super) id: ProbeId,
    pub(super) lane: Lane,
    pub(super) subject: S,
    /// What the last attempt found.
    pub(super) previous: Option<Outcome>,
    /// Milliseconds since it was due.
    pub(super) late: u64,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Found(Outcome),
    Failed,
    /// The component could not be called, or failed.
    PluginFailed,
}

/// All probes.
#[derive(Debug)]
pub(super) struct Wheel<S> {
    probes: HashMap<ProbeId, Probe<S>>,
    of_instance: HashMap<InstanceId, Vec<ProbeId>>,
    due: BTreeSet<(u64, ProbeId)>,
    checks: Places,
    health: Places,
    last_id: ProbeId,
    /// The number of attempts under way whose probes are gone.
    unwanted: usize,
}

#[derive(Debug)]
struct Probe<S> {
    subject: S,
    times: Times,
    due: u64,
    lane: Lane,
    under_way: bool,
    plugin_failed: bool,
    previous: Option<Outcome>,
}

/// The places of a lane.
#[derive(Debug)]
struct Places {
    limit: usize,
    taken: usize,
    waiting: VecDeque<ProbeId>,
}

impl Places {
    fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            taken: 0,
            waiting: VecDeque::new(),
        }
    }
}

impl<S: Subject> Wheel<S> {
    /// An empty schedule with these limits.
    pub(super) fn new(checks: usize, health: usize) -> Self {
        Self {
            probes: HashMap::new(),
            of_instance: HashMap::new(),
            due: BTreeSet::new(),
            checks: Places::new(checks),
            health: Places::new(health),
            last_id: 0,
            unwanted: 0,
        }
    }

    /// Makes these the probes of an instance. Those that it has already continue, with the new
    /// description; others begin, and those that are not wanted are gone.
    pub(super) fn set(
        &mut self,
        instance: &InstanceId,
        wanted: Vec<Wanted<S>>,
        occasion: Occasion,
        now: u64,
    ) {
        let mut before = self.of_instance.remove(instance).unwrap_or_default();
        let mut after = Vec::with_capacity(wanted.len());
        for one in wanted {
            let known = before.iter().position(|id| {
                self.probes
                    .get(id)
                    .is_some_and(|probe| probe.subject.is_same(&one.subject))
            });
            if let Some(index) = known {
                let id = before.swap_remove(index);
                if let Some(probe) = self.probes.get_mut(&id) {
                    probe.subject = one.subject;
                }
                after.push(id);
            } else {
                after.push(self.add(one, occasion, now));
            }
        }
        for id in &before {
            self.drop_probe(*id);
        }
        if !after.is_empty() {
            self.of_instance.insert(instance.clone(), after);
        }
    }

    fn add(&mut self, wanted: Wanted<S>, occasion: Occasion, now: u64) -> ProbeId {
        self.last_id += 1;
        let id = self.last_id;
        let due = wanted.times.begin(occasion, now);
        self.due.insert((due, id));
        self.probes.insert(
            id,
            Probe {
                subject: wanted.subject,
                times: wanted.times,
                due,
                lane: wanted.lane,
                under_way: false,
                plugin_failed: false,
                previous: None,
            },
        );
        id
    }

    fn drop_probe(&mut self, id: ProbeId) {
        // Its place in the queue of its lane is passed over, and one under way gives up its place
        // when it ends.
        if let Some(probe) = self.probes.remove(&id) {
            self.due.remove(&(probe.due, id));
            self.unwanted += usize::from(probe.under_way);
        }
    }

    /// When the next probe is due; those that wait for a place are not meant.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(due, _)| *due)
    }

    /// The attempts to make now.
    pub(super) fn start(&mut self, now: u64) -> Vec<Start<S>> {
        while let Some((due, id)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, id));
            let Some(lane) = self.probes.get(&id).map(|probe| probe.lane) else {
                continue;
            };
            self.places(lane).waiting.push_back(id);
        }
        for lane in [Lane::Checks, Lane::Health] {
            self.compact(lane);
        }
        let mut started = Vec::new();
        for lane in [Lane::Checks, Lane::Health] {
            while self.places(lane).taken < self.places(lane).limit {
                let Some(id) = self.places(lane).waiting.pop_front() else {
                    break;
                };
                let Some(probe) = self.probes.get_mut(&id) else {
                    continue;
                };
                probe.under_way = true;
                started.push(Start {
                    id,
                    lane,
                    subject: probe.subject.clone(),
                    previous: probe.previous.clone(),
                    late: now.saturating_sub(probe.due),
                });
                self.places(lane).taken += 1;
            }
        }
        started
    }

    /// Drops those that are gone from the queue of a lane, before they are most of it.
    fn compact(&mut self, lane: Lane) {
        let most = 2 * self.probes.len() + 64;
        let places = match lane {
            Lane::Checks => &mut self.checks,
            Lane::Health => &mut self.health,
        };
        if places.waiting.len() > most {
            places.waiting.retain(|id| self.probes.contains_key(id));
        }
    }

    /// An attempt has ended, or was given up. Returns what it was made for, unless its probe is no
    /// longer wanted.
    pub(super) fn ended(&mut self, id: ProbeId, lane: Lane, ended: Ended, now: u64) -> Option<S> {
        let places = self.places(lane);
        places.taken = places.taken.saturating_sub(1);
        let Some(probe) = self.probes.get_mut(&id) else {
            self.unwanted = self.unwanted.saturating_sub(1);
            return None;
        };
        probe.under_way = false;
        probe.plugin_failed = ended == Ended::PluginFailed;
        if let Ended::Found(outcome) = ended {
            probe.previous = Some(outcome);
        }
        probe.due = probe.times.next(now);
        let subject = probe.subject.clone();
        let due = probe.due;
        self.due.insert((due, id));
        Some(subject)
    }

    /// Makes those probes due now whose component failed at the last attempt and that `affected`
    /// selects. Returns what they are made for.
    pub(super) fn retry_failed(&mut self, affected: impl Fn(ProbeId, &S) -> bool, now: u64) -> Vec<S> {
        let mut retried = Vec::new();
        for (id, probe) in &mut self.probes {
            if probe.under_way || !probe.plugin_failed || !affected(*id, &probe.subject) {
                continue;
            }
            probe.plugin_failed = false;
            // Otherwise it waits for a place already.
            if self.due.remove(&(probe.due, *id)) {
                probe.due = now;
                self.due.insert((now, *id));
            }
            retried.push(probe.subject.clone());
        }
        retried
    }

    /// Whether there is such a probe.
    pub(super) fn has(&self, id: ProbeId) -> bool {
        self.probes.contains_key(&id)
    }

    /// The number of attempts under way whose probes are gone.
    pub(super) fn unwanted(&self) -> usize {
        self.unwanted
    }

    /// The number of probes.
    pub(super) fn len(&self) -> usize {
        self.probes.len()
    }

    fn places(&mut self, lane: Lane) -> &mut Places {
        match lane {
            Lane::Checks => &mut self.checks,
            Lane::Health => &mut self.health,
        }
    }
}

#[cfg(test)]
#[path = "wheel_tests.rs"]
mod tests;
