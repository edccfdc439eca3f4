//! Changes that are applied together.

use bytes::Bytes;

use crate::Expect;

/// One change of a [`Batch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key to change.
    pub key: String,
    /// The new value; `None` deletes.
    pub value: Option<Bytes>,
    /// The condition on the current entry.
    pub expect: Expect,
}

/// A condition of a [`Batch`]: the lease `lease` is held under exactly this fencing number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The lease's name.
    pub lease: String,
    /// The fencing number that [`Store::acquire`](crate::Store::acquire) returned with the lease.
    pub fencing: u64,
}

/// Changes that are applied all together or not at all, in the order in which they were added. A
/// later change of the same key is compared with the result of an earlier one.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    changes: Vec<Change>,
    fences: Vec<Fence>,
}

impl Batch {
    /// A batch without changes; committing it has no effect.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds: put `value` under `key`.
    pub fn put(mut self, key: impl Into<String>, value: impl Into<Bytes>, expect: Expect) -> Self {
        self.changes.push(Change {
            key: key.into(),
            value: Some(value.into()),
            expect,
        });
        self
    }

    /// Adds: delete `key`.
    pub fn delete(mut self, key: impl Into<String>, expect: Expect) -> Self {
        self.changes.push(Change {
            key: key.into(),
            value: None,
            expect,
        });
        self
    }

    /// Adds a fence: the batch is rejected with [`Error::Fenced`](crate::Error::Fenced) unless the
    /// lease is still held under this number at the time of the commit. Fences are checked before
    /// the conditions of the changes.
    pub fn fenced(mut self, lease: impl Into<String>, fencing: u64) -> Self {
        let lease = lease.into();
        self.fences.push(Fence { lease, fencing });
        self
    }

    /// The fences, all of which must hold.
    pub fn fences(&self) -> &[Fence] {
        &self.fences
    }

    /// The changes in order.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    pub(crate) fn into_changes(self) -> Vec<Change> {
        self.changes
    }

    /// Whether the batch is empty: neither changes nor fences.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.fences.is_empty()
    }
}
