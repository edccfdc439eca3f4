//! Large batches: other callers do not wait for them.
//!
//! A large batch is written to the journal in several transactions. The last one checks and commits it,
//! as a whole. Further transactions move its changes to the entries. Each of them also applies the
//! requests that arrived meanwhile. A request that changes a key of a large batch waits for that batch,
//! so the changes of a key keep the order in which they were submitted.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use tokio::sync::oneshot;

use super::batch_check::check;
use super::table::OpenTables;
use crate::leases::Leases;
use crate::{Batch, Change, Result};

/// The maximum number of changes in one transaction, and the bytes of their values above which it gets
/// no further change. A batch with more of either is large.
const STEP_CHANGES: usize = 1000;
const STEP_BYTES: usize = 1 << 20;
/// The maximum number of waiting batches; then all requests wait.
pub(super) const MAX_WAITING_BATCHES: usize = 16;

/// A batch, and the channel for its reply.
pub(super) struct Commit {
    pub(super) batch: Batch,
    pub(super) reply: oneshot::Sender<Result<Vec<u64>>>,
}

/// The batches that wait for the journal, and the state of the journal.
#[derive(Default)]
pub(super) struct LargeBatches {
    /// The first is in the journal in part. There are also small ones that follow a large one.
    waiting: VecDeque<Commit>,
    /// Hashes of the keys of all that wait.
    keys: HashSet<u64>,
    hasher: RandomState,
    /// The number of changes of the first that are in the journal.
    written: usize,
    /// Whether the journal has changes of a batch that is committed, rejected or interrupted.
    has_leftovers: bool,
}

/// What a transaction does for large batches.
pub(super) enum Step {
    Nothing,
    /// Writes the changes of the first before this one to the journal.
    Write(usize),
    /// Writes the rest, and commits or rejects the batch.
    Decide(Result<Vec<u64>>),
    /// Moves or drops changes in the journal. The field says whether those were the last.
    Move(bool),
}

impl LargeBatches {
    pub(super) fn new(has_leftovers: bool) -> Self {
        Self {
            has_leftovers,
            ..Self::default()
        }
    }

    /// Whether no batch waits and the journal is empty.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && !self.has_leftovers
    }

    /// Whether another batch may wait.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < MAX_WAITING_BATCHES
    }

    /// Adds a batch that is large, or that has to wait for one that is; returns any other.
    pub(super) fn admit(&mut self, commit: Commit) -> Option<Commit> {
        let changes = commit.batch.changes();
        let hash = |change: &Change| self.hasher.hash_one(&change.key);
        let follows = || changes.iter().any(|change| self.keys.contains(&hash(change)));
        if step_end(changes, 0) == changes.len() && (self.keys.is_empty() || !follows()) {
            return Some(commit);
        }
        let keys: Vec<_> = changes.iter().map(hash).collect();
        self.keys.extend(keys);
        self.waiting.push_back(commit);
        None
    }

    /// Does the next part of the work within a transaction. `last` is the last assigned version.
    pub(super) fn step(
        &self,
        tables: &mut OpenTables<'_>,
        leases: &Leases,
        last: &mut u64,
    ) -> std::result::Result<Step, redb::Error> {
        if self.has_leftovers {
            return Ok(Step::Move(tables.move_journal(STEP_CHANGES, STEP_BYTES)?));
        }
        let Some(Commit { batch, .. }) = self.waiting.front() else {
            return Ok(Step::Nothing);
        };
        let changes = batch.changes();
        let (before, rest) = changes.split_at(self.written);
        let is_put = |change: &&Change| change.value.is_some();
        let mut puts = before.iter().filter(is_put).count() as u64;
        let end = step_end(changes, self.written);
        for change in &rest[..end - self.written] {
            puts += u64::from(is_put(&change));
            tables.add_to_journal(change, puts)?;
        }
        if end < changes.len() {
            return Ok(Step::Write(end));
        }
        let outcome = check(tables, leases, batch, *last)?;
        if outcome.is_ok() {
            tables.commit_journal(*last)?;
            *last += puts;
        }
        Ok(Step::Decide(outcome))
    }

    /// Follows a step whose transaction is committed. Returns a batch with its result.
    pub(super) fn follow(&mut self, step: Step) -> Option<(Commit, Result<Vec<u64>>)> {
        match step {
            Step::Nothing => None,
            Step::Write(end) => {
                self.written = end;
                None
            }
            Step::Move(was_last) => {
                self.has_leftovers = !was_last;
                None
            }
            Step::Decide(outcome) => {
                (self.written, self.has_leftovers) = (0, true);
                let decided = self.waiting.pop_front();
                if self.waiting.is_empty() {
                    self.keys.clear();
                }
                decided.map(|commit| (commit, outcome))
            }
        }
    }

    /// Follows a transaction that failed: returns all that wait.
    pub(super) fn fail(&mut self) -> impl Iterator<Item = Commit> {
        self.has_leftovers |= self.written > 0;
        self.written = 0;
        self.keys.clear();
        self.waiting.drain(..)
    }
}

/// The end of the changes that one transaction may have, beginning with `begin`.
fn step_end(changes: &[Change], begin: usize) -> usize {
    let mut bytes = 0;
    let fits = |change: &&Change| {
        let has_room = bytes < STEP_BYTES;
        bytes += change.value.as_ref().map_or(0, bytes::Bytes::len);
        has_room
    };
    begin
        + changes[begin..]
            .iter()
            .take(STEP_CHANGES)
            .take_while(fits)
            .count()
}
