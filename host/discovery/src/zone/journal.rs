//! The last changes of the zone, for incremental transfers (RFC 1995).

use std::sync::Arc;

use super::Record;

/// The changes from one serial to the next.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// The serial before.
    pub from: u32,
    /// The serial after.
    pub to: u32,
    /// Removed records.
    pub removed: Vec<Record>,
    /// Added records.
    pub added: Vec<Record>,
}

impl Step {
    fn records(&self) -> usize {
        // One more than its records, so that empty steps count too.
        1 + self.removed.len() + self.added.len()
    }
}

/// The last steps without a gap, oldest first. Clones are cheap.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    steps: imbl::Vector<Arc<Step>>,
    records: usize,
}

impl Journal {
    /// Adds a step and drops the oldest ones beyond `journal_records` records.
    pub(super) fn push(&mut self, step: Step, journal_records: usize) {
        self.records += step.records();
        self.steps.push_back(Arc::new(step));
        while self.records > journal_records {
            let Some(oldest) = self.steps.pop_front() else {
                return;
            };
            self.records -= oldest.records();
        }
    }

    /// The steps since a serial; none if the journal does not reach back that far.
    pub fn since(&self, serial: u32) -> Option<impl Iterator<Item = &Arc<Step>>> {
        let index = self.steps.iter().position(|step| step.from == serial)?;
        Some(self.steps.iter().skip(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(from: u32) -> Step {
        Step {
            from,
            to: from + 1,
            ..Step::default()
        }
    }

    #[test]
    fn journal_keeps_the_last_steps_within_its_size() {
        let mut journal = Journal::default();
        for from in 1..=10 {
            journal.push(step(from), 3);
        }
        let serials = |serial| {
            let steps = journal.since(serial)?;
            Some(steps.map(|step| (step.from, step.to)).collect::<Vec<_>>())
        };
        assert_eq!(serials(8), Some(vec![(8, 9), (9, 10), (10, 11)]));
        assert_eq!(serials(10), Some(vec![(10, 11)]));
        assert_eq!(serials(7), None);
        assert_eq!(serials(11), None);
    }
}
