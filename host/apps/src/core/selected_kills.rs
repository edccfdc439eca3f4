//! The kills that the matcher selects for an app or pod.

use std::collections::BTreeSet;

use transom_cluster::TaskId;

/// A call of the matcher: the candidates, and the kills that it selected.
#[derive(Debug)]
pub(super) struct SelectedKills {
    candidates: BTreeSet<TaskId>,
    count: usize,
    /// `None` until the matcher has answered.
    kills: Option<BTreeSet<TaskId>>,
}

impl SelectedKills {
    /// A call that has no answer yet.
    pub(super) fn requested(candidates: &[TaskId], count: usize) -> Self {
        Self {
            candidates: candidates.iter().cloned().collect(),
            count,
            kills: None,
        }
    }

    pub(super) fn answered(&mut self, kills: Vec<TaskId>) {
        self.kills = Some(kills.into_iter().collect());
    }

    pub(super) fn is_answered(&self) -> bool {
        self.kills.is_some()
    }

    pub(super) fn is_selected(&self, task: &TaskId) -> bool {
        self.kills.as_ref().is_some_and(|kills| kills.contains(task))
    }

    /// Takes out a task that is removed now. The rest of the selection holds for the others.
    pub(super) fn take(&mut self, task: &TaskId) {
        if let Some(kills) = &mut self.kills
            && self.candidates.remove(task)
        {
            kills.remove(task);
            self.count = self.count.saturating_sub(1);
        }
    }

    pub(super) fn is_for(&self, candidates: &[TaskId], count: usize) -> bool {
        self.count == count
            && self.candidates.len() == candidates.len()
            && candidates.iter().all(|task| self.candidates.contains(task))
    }
}
