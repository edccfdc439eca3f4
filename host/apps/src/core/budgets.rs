//! The budgets of definitions in bytes. What is stored above a budget is served; only growth is
//! rejected.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Core;

impl Core {
    /// Logs which budgets the stored definitions exceed. They are served all the same.
    pub(super) fn warn_above_budgets(&self) {
        let (past, tree) = (self.past_bytes.stored.bytes(), self.definitions.tree.bytes());
        for (what, bytes, setting, max) in [
            (
                "all definitions",
                tree,
                "apps.max_definitions_bytes",
                self.settings.max_definitions_bytes,
            ),
            (
                "past definitions",
                past,
                "apps.max_versions_bytes",
                self.settings.max_versions_bytes,
            ),
        ] {
            if bytes > max {
                tracing::warn!(
                    bytes,
                    max,
                    "{what} in the store need more bytes than `{setting}`; they are served, and only growth is rejected"
                );
            }
        }
    }
}

/// The sum of all shares. Clones are the same sum.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally(Arc<AtomicU64>);

impl Tally {
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// A new owner, which holds nothing yet.
    pub(super) fn share(&self) -> Share {
        Share {
            tally: self.clone(),
            bytes: 0,
        }
    }
}

/// The bytes of one owner; they leave the sum with it.
#[derive(Debug)]
pub(super) struct Share {
    tally: Tally,
    bytes: u64,
}

impl Share {
    pub(super) fn set(&mut self, bytes: u64) {
        self.tally.0.fetch_add(bytes, Ordering::Relaxed);
        self.tally.0.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// What the core keeps of past definitions.
#[derive(Clone, Debug, Default)]
pub(super) struct PastBytes {
    /// Past and deleted definitions in memory, because instances run them.
    pub(super) in_memory: Tally,
    /// Definitions in the store.
    pub(super) stored: Tally,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_follows_its_owners() {
        let tally = Tally::default();
        let (mut one, mut other) = (tally.share(), tally.share());
        one.set(5);
        other.set(7);
        one.set(3);
        assert_eq!((tally.bytes(), one.bytes), (10, 3));
        drop(other);
        assert_eq!(tally.bytes(), 3);
    }
}
