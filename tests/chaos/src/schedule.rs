//! The schedule of writes, faults and quiet moments, from the seed only.
//!
//! The schedule does not depend on outcomes. It models the wanted state as if every write
//! succeeded, and keeps the number of tasks near [`WANTED_TASKS`]. So a seed gives the same sequence on
//! every machine; only the number of steps within the time differs.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::fault::{Fault, FaultMenu};
use crate::spec::{Op, Slot, Spec};

/// The planned number of tasks at every quiet moment: minimum and approximate maximum.
pub(crate) const WANTED_TASKS: (u32, u32) = (200, 250);
/// The maximum number of apps; the agents' ports suffice for them.
const MAX_SLOTS: u16 = 60;
/// Maximum of writes in one step, each to another app.
const MAX_WRITES: usize = 8;
/// Instances of one app.
const INSTANCES: (u32, u32) = (1, 9);

/// One step.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Concurrent writes and faults, followed by a pause.
    Action(Action),
    /// All faults have ended: the wanted state must be reached.
    Quiet {
        /// The daemon is killed and restarted before the check.
        crash: bool,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) writes: Vec<Write>,
    pub(crate) faults: Vec<TimedFault>,
    pub(crate) pause: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) slot: Slot,
    pub(crate) op: Op,
    /// Whether it may cancel a running deployment.
    pub(crate) force: bool,
}

/// A fault and its start relative to the step.
#[derive(Clone, Debug)]
pub(crate) struct TimedFault {
    pub(crate) after: Duration,
    pub(crate) fault: Fault,
}

/// The endless sequence of steps.
#[derive(Debug)]
pub(crate) struct Schedule {
    random: StdRng,
    fault_menu: FaultMenu,
    plan: BTreeMap<Slot, Spec>,
    revision: u32,
    /// Steps until the next quiet moment.
    steps_until_quiet: u32,
    has_reached_size: bool,
}

impl Schedule {
    pub(crate) fn new(seed: u64, fault_menu: FaultMenu) -> Self {
        Self {
            random: StdRng::seed_from_u64(seed),
            fault_menu,
            plan: BTreeMap::new(),
            revision: 0,
            steps_until_quiet: 0,
            has_reached_size: false,
        }
    }

    /// The wanted state if every write succeeded.
    pub(crate) fn plan(&self) -> &BTreeMap<Slot, Spec> {
        &self.plan
    }

    /// The number of planned tasks.
    pub(crate) fn wanted(&self) -> u32 {
        self.plan.values().map(|spec| spec.instances).sum()
    }

    /// The next step. The first steps build up the tasks; there are five to twelve steps between
    /// two quiet moments.
    pub(crate) fn next(&mut self) -> Step {
        let enough = self.wanted() >= WANTED_TASKS.0;
        if self.steps_until_quiet == 0 && enough {
            let crash = self.has_reached_size && self.random.random_bool(0.5);
            self.has_reached_size = true;
            self.steps_until_quiet = self.random.random_range(5..=12);
            return Step::Quiet { crash };
        }
        self.steps_until_quiet = self.steps_until_quiet.saturating_sub(1);
        Step::Action(self.next_action())
    }

    fn next_action(&mut self) -> Action {
        let count = if self.wanted() < WANTED_TASKS.0 {
            MAX_WRITES
        } else {
            self.random.random_range(0..=MAX_WRITES)
        };
        let mut writes: Vec<Write> = Vec::new();
        for _ in 0..count {
            let busy: Vec<Slot> = writes.iter().map(|write| write.slot).collect();
            writes.extend(self.write(&busy));
        }
        // Half of the initial steps have no faults, so that some tasks exist to disturb.
        let disturbed = self.has_reached_size || self.random.random_bool(0.5);
        let faults = if disturbed { self.faults() } else { Vec::new() };
        let pause = Duration::from_millis(self.random.random_range(0..1_500));
        Action {
            writes,
            faults,
            pause,
        }
    }

    /// Chooses up to two faults with different targets, during the writes or during the launches
    /// that follow.
    fn faults(&mut self) -> Vec<TimedFault> {
        let count = *[0, 1, 1, 1, 2].choose(&mut self.random).unwrap_or(&1);
        let mut faults: Vec<TimedFault> = Vec::new();
        for _ in 0..count {
            let fault = self.fault_menu.pick(&mut self.random);
            if faults.iter().any(|timed| timed.fault.target() == fault.target()) {
                continue;
            }
            let max_delay_ms = if self.random.random_bool(0.5) { 40 } else { 2_500 };
            let after = Duration::from_millis(self.random.random_range(0..max_delay_ms));
            faults.push(TimedFault { after, fault });
        }
        faults
    }

    /// Chooses a write to an app that is not `busy`.
    fn write(&mut self, busy: &[Slot]) -> Option<Write> {
        let (present, absent): (Vec<Slot>, Vec<Slot>) = (0..MAX_SLOTS)
            .map(Slot)
            .filter(|slot| !busy.contains(slot))
            .partition(|slot| self.plan.contains_key(slot));
        let wanted = self.wanted();
        let percent = self.random.random_range(0..100);
        let kind = match percent {
            _ if present.is_empty() => Kind::Create,
            0..60 if wanted < WANTED_TASKS.0 => Kind::Create,
            60..100 if wanted < WANTED_TASKS.0 => Kind::Grow,
            0..30 if wanted > WANTED_TASKS.1 => Kind::Delete,
            30..70 if wanted > WANTED_TASKS.1 => Kind::Shrink,
            0..40 => Kind::Scale,
            40..70 => Kind::Change,
            70..85 => Kind::Create,
            _ => Kind::Delete,
        };
        let from = if kind == Kind::Create { &absent } else { &present };
        let slot = *from.choose(&mut self.random)?;
        let force = self.random.random_bool(0.7);
        let planned = self.plan.get(&slot).cloned();
        let instances = planned.as_ref().map_or(1, |spec| spec.instances);
        let op = match kind {
            Kind::Create => Op::Create(self.spec()),
            Kind::Change => Op::Change(self.spec()),
            Kind::Grow => Op::Scale(self.random.random_range(instances..=INSTANCES.1)),
            Kind::Shrink => Op::Scale(self.random.random_range(0..=instances)),
            Kind::Scale => Op::Scale(self.random.random_range(0..=INSTANCES.1)),
            Kind::Delete => Op::Delete,
        };
        let op = match (op, planned) {
            (Op::Scale(instances), Some(planned)) if slot.is_pod() => {
                Op::Change(Spec { instances, ..planned })
            }
            (op, _) => op,
        };
        self.apply_to_plan(slot, &op);
        Some(Write { slot, op, force })
    }

    fn spec(&mut self) -> Spec {
        self.revision += 1;
        Spec {
            instances: self.random.random_range(INSTANCES.0..=INSTANCES.1),
            revision: self.revision,
            ports: self.random.random_range(0..=2),
            surge: self.random.random_bool(0.5),
        }
    }

    fn apply_to_plan(&mut self, slot: Slot, op: &Op) {
        match op {
            Op::Create(spec) | Op::Change(spec) => {
                self.plan.insert(slot, spec.clone());
            }
            Op::Scale(instances) => {
                if let Some(spec) = self.plan.get_mut(&slot) {
                    spec.instances = *instances;
                }
            }
            Op::Delete => {
                self.plan.remove(&slot);
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Create,
    Change,
    Grow,
    Shrink,
    Scale,
    Delete,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quiet { crash: false } => f.write_str("quiet"),
            Self::Quiet { crash: true } => f.write_str("quiet, after one more kill -9 of the daemon"),
            Self::Action(act) => {
                write!(f, "{} writes", act.writes.len())?;
                for timed in &act.faults {
                    write!(f, "; {} after {} ms", timed.fault, timed.after.as_millis())?;
                }
                write!(f, "; rest {} ms", act.pause.as_millis())
            }
        }
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let force = if self.force { ", forced" } else { "" };
        write!(f, "{} {}{force}", self.slot, self.op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::FaultTarget;

    fn fault_menu() -> FaultMenu {
        FaultMenu::of(&[
            FaultTarget::Daemon,
            FaultTarget::Tasks,
            FaultTarget::Agent,
            FaultTarget::Master,
        ])
    }

    fn descriptions(seed: u64, steps: usize) -> Vec<String> {
        let mut schedule = Schedule::new(seed, fault_menu());
        (0..steps).map(|_| format!("{:?}", schedule.next())).collect()
    }

    #[test]
    fn schedule_depends_only_on_the_seed() {
        assert_eq!(descriptions(7, 200), descriptions(7, 200));
        assert_ne!(descriptions(7, 200), descriptions(8, 200));
    }

    #[test]
    fn schedule_keeps_the_number_of_tasks_in_bounds_when_quiet() {
        for seed in 0..20 {
            let mut schedule = Schedule::new(seed, fault_menu());
            let mut quiet = 0;
            for _ in 0..500 {
                if let Step::Quiet { .. } = schedule.next() {
                    quiet += 1;
                    let wanted = schedule.wanted();
                    assert!(
                        (WANTED_TASKS.0..WANTED_TASKS.1 + 80).contains(&wanted),
                        "seed {seed}: {wanted}"
                    );
                }
            }
            assert!(quiet > 20, "seed {seed}: {quiet} quiet moments");
        }
    }

    #[test]
    fn step_changes_each_app_and_each_subject_once() {
        let mut schedule = Schedule::new(1, fault_menu());
        for _ in 0..500 {
            let Step::Action(act) = schedule.next() else {
                continue;
            };
            let mut slots: Vec<Slot> = act.writes.iter().map(|write| write.slot).collect();
            slots.sort();
            slots.dedup();
            assert_eq!(slots.len(), act.writes.len());
            if let [one, other] = &act.faults[..] {
                assert_ne!(one.fault.target(), other.fault.target());
            }
        }
    }
}
