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

/// Changes that are made all together or not at all, in the order they were added: a later change of the same key sees
/// (and compares against) what an earlier one left.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    changes: Vec<Change>,
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

    /// The changes in order.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}
