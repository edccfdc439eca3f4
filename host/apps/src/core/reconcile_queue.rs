//! The apps and pods that are reconciled next.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::ids::SpecId;

/// The apps and pods to reconcile in this turn, and those that wait for the next one because this
/// one has done enough.
#[derive(Debug, Default)]
pub(super) struct ReconcileQueue {
    pending: BTreeSet<SpecId>,
    postponed: BTreeSet<SpecId>,
    /// The last one of a turn that has done enough.
    last: Option<SpecId>,
}

impl ReconcileQueue {
    pub(super) fn insert(&mut self, id: SpecId) {
        self.pending.insert(id);
    }

    pub(super) fn extend(&mut self, ids: impl IntoIterator<Item = SpecId>) {
        self.pending.extend(ids);
    }

    /// Takes one out that was reconciled.
    pub(super) fn remove(&mut self, id: &SpecId) {
        self.pending.remove(id);
    }

    /// Leaves one to the next turn.
    pub(super) fn postpone(&mut self, id: SpecId) {
        self.postponed.insert(id);
    }

    /// Leaves all others to the next turn.
    pub(super) fn postpone_all(&mut self) {
        self.postponed.append(&mut self.pending);
    }

    /// Begins a turn.
    pub(super) fn begin_turn(&mut self) {
        self.pending.append(&mut self.postponed);
    }

    pub(super) fn has_postponed(&self) -> bool {
        !self.postponed.is_empty()
    }

    /// Takes the one that follows the last one, in a circle, so that none with very many instances
    /// delays those after it.
    pub(super) fn next(&mut self) -> Option<SpecId> {
        let last = self.last.as_ref();
        let later = last.and_then(|last| {
            let after = (Bound::Excluded(last), Bound::Unbounded);
            self.pending.range::<SpecId, _>(after).next()
        });
        let next = later.or_else(|| self.pending.first()).cloned();
        if let Some(id) = &next {
            self.pending.remove(id);
        }
        self.last.clone_from(&next);
        next
    }
}
