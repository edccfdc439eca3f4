//! Changes that happen together.

use bytes::Bytes;

use crate::Expect;

/// One change of a [`Batch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key to change.
    pub key: String,
    /// The new value; `None` deletes.
    pub value: Option<Bytes>,
    /// What must be there before.
    pub expect: Expect,
}

/// A condition of a [`Batch`]: the lease `lease` is held, under exactly this fencing number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The lease's name.
    pub lease: String,
    /// The number that [`Store::acquire`](crate::Store::acquire) gave out with it.
    pub fencing: u64,
}

/// Changes that are made all together or not at all, in the order they were added: a later change of the same key sees
/// (and compares against) what an earlier one left.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    changes: Vec<Change>,
    fences: Vec<Fence>,
}

impl Batch {
    /// A batch without changes; committing it does nothing.
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

    /// Adds a fence: the batch is refused with [`Error::Fenced`](crate::Error::Fenced) unless at the moment of the commit
    /// the lease is still held under this number. Fences are looked at before what the changes expect.
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

    /// Whether there is nothing to do: no change, and no fence to look at either.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.fences.is_empty()
    }
}
