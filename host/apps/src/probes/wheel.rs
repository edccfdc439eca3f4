//! The schedule of all probes: which ones are due, wait for a place, or have a running attempt.
//! Pure.
//!
//! Each probe has at most one attempt that is due, waiting or running: the next one is computed
//! when an attempt ends. The number of concurrent attempts in each lane is limited; the others wait
//! in the order in which they were due.

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

/// Identifies a probe in the schedule. It is never used again.
pub(super) type ProbeId = u64;

/// The subject of a probe.
pub(super) trait Subject: Clone {
    /// Whether both are the same probe of the same task, so that results of one are valid for the
    /// other.
    fn is_same(&self, other: &Self) -> bool;
}

/// A probe to be scheduled.
#[derive(Clone, Debug)]
pub(super) struct ProbeToSchedule<S> {
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
    /// The result of the last attempt.
    pub(super) previous: Option<Outcome>,
    /// Milliseconds since it was due.
    pub(super) late: u64,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AttemptEnd {
    Completed(Outcome),
    Failed,
    /// The component could not be called, or failed.
    PluginFailed,
}

/// The schedule.
#[derive(Debug)]
pub(super) struct Wheel<S> {
    probes: HashMap<ProbeId, Probe<S>>,
    of_instance: HashMap<InstanceId, Vec<ProbeId>>,
    due: BTreeSet<(u64, ProbeId)>,
    checks: LaneSlots,
    health: LaneSlots,
    last_id: ProbeId,
    /// The number of running attempts whose probes were removed.
    removed_running: usize,
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

/// The limit of a lane, and the probes that wait for it.
#[derive(Debug)]
struct LaneSlots {
    limit: usize,
    used: usize,
    waiting: VecDeque<ProbeId>,
}

impl LaneSlots {
    fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            used: 0,
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
            checks: LaneSlots::new(checks),
            health: LaneSlots::new(health),
            last_id: 0,
            removed_running: 0,
        }
    }

    /// Sets the probes of an instance. Unchanged probes continue with the new description, new ones
    /// begin, and all others are removed.
    pub(super) fn set(
        &mut self,
        instance: &InstanceId,
        to_schedule: Vec<ProbeToSchedule<S>>,
        occasion: Occasion,
        now: u64,
    ) {
        let mut before = self.of_instance.remove(instance).unwrap_or_default();
        let mut after = Vec::with_capacity(to_schedule.len());
        for probe_to_schedule in to_schedule {
            let kept_index = before.iter().position(|id| {
                self.probes
                    .get(id)
                    .is_some_and(|probe| probe.subject.is_same(&probe_to_schedule.subject))
            });
            if let Some(index) = kept_index {
                let id = before.swap_remove(index);
                if let Some(probe) = self.probes.get_mut(&id) {
                    probe.subject = probe_to_schedule.subject;
                }
                after.push(id);
            } else {
                after.push(self.add(probe_to_schedule, occasion, now));
            }
        }
        for id in &before {
            self.drop_probe(*id);
        }
        if !after.is_empty() {
            self.of_instance.insert(instance.clone(), after);
        }
    }

    fn add(&mut self, to_schedule: ProbeToSchedule<S>, occasion: Occasion, now: u64) -> ProbeId {
        self.last_id += 1;
        let id = self.last_id;
        let due = to_schedule.times.begin(occasion, now);
        self.due.insert((due, id));
        self.probes.insert(
            id,
            Probe {
                subject: to_schedule.subject,
                times: to_schedule.times,
                due,
                lane: to_schedule.lane,
                under_way: false,
                plugin_failed: false,
                previous: None,
            },
        );
        id
    }

    fn drop_probe(&mut self, id: ProbeId) {
        // Its entry in the queue of its lane is skipped later, and a running attempt frees its
        // place when it ends.
        if let Some(probe) = self.probes.remove(&id) {
            self.due.remove(&(probe.due, id));
            self.removed_running += usize::from(probe.under_way);
        }
    }

    /// When the next probe is due, without those that already wait for a place.
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
            self.slots(lane).waiting.push_back(id);
        }
        for lane in [Lane::Checks, Lane::Health] {
            self.compact(lane);
        }
        let mut started = Vec::new();
        for lane in [Lane::Checks, Lane::Health] {
            while self.slots(lane).used < self.slots(lane).limit {
                let Some(id) = self.slots(lane).waiting.pop_front() else {
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
                self.slots(lane).used += 1;
            }
        }
        started
    }

    /// Removes the entries of removed probes from the queue of a lane before they are most of it.
    fn compact(&mut self, lane: Lane) {
        let max_entries = 2 * self.probes.len() + 64;
        let slots = match lane {
            Lane::Checks => &mut self.checks,
            Lane::Health => &mut self.health,
        };
        if slots.waiting.len() > max_entries {
            slots.waiting.retain(|id| self.probes.contains_key(id));
        }
    }

    /// Handles the end of an attempt, which may have been aborted. Returns the subject of the
    /// attempt, unless its probe was removed.
    pub(super) fn ended(&mut self, id: ProbeId, lane: Lane, ended: AttemptEnd, now: u64) -> Option<S> {
        let slots = self.slots(lane);
        slots.used = slots.used.saturating_sub(1);
        let Some(probe) = self.probes.get_mut(&id) else {
            self.removed_running = self.removed_running.saturating_sub(1);
            return None;
        };
        probe.under_way = false;
        probe.plugin_failed = ended == AttemptEnd::PluginFailed;
        if let AttemptEnd::Completed(outcome) = ended {
            probe.previous = Some(outcome);
        }
        probe.due = probe.times.next(now);
        let subject = probe.subject.clone();
        let due = probe.due;
        self.due.insert((due, id));
        Some(subject)
    }

    /// Makes the probes due now that `affected` selects and whose component failed at the last
    /// attempt. Returns their subjects.
    pub(super) fn retry_failed(&mut self, affected: impl Fn(ProbeId, &S) -> bool, now: u64) -> Vec<S> {
        let mut retried = Vec::new();
        for (id, probe) in &mut self.probes {
            if probe.under_way || !probe.plugin_failed || !affected(*id, &probe.subject) {
                continue;
            }
            probe.plugin_failed = false;
            // If it is not in this set, it already waits for a place.
            if self.due.remove(&(probe.due, *id)) {
                probe.due = now;
                self.due.insert((now, *id));
            }
            retried.push(probe.subject.clone());
        }
        retried
    }

    /// Whether there is such a probe.
    pub(super) fn contains(&self, id: ProbeId) -> bool {
        self.probes.contains_key(&id)
    }

    /// The number of running attempts whose probes were removed.
    pub(super) fn removed_running(&self) -> usize {
        self.removed_running
    }

    /// The number of probes.
    pub(super) fn len(&self) -> usize {
        self.probes.len()
    }

    fn slots(&mut self, lane: Lane) -> &mut LaneSlots {
        match lane {
            Lane::Checks => &mut self.checks,
            Lane::Health => &mut self.health,
        }
    }
}

#[cfg(test)]
#[path = "wheel_tests.rs"]
mod tests;
