//! Whether addresses of a name are the same in two zones of which one became of the other, told without looking at them.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;

/// Names that share a counter are taken for changed together.
const COUNTERS: usize = 4096;

/// Counters of changes, which names share.
#[derive(Clone, Debug)]
pub(super) struct Versions(Arc<[u32]>);

impl Default for Versions {
    fn default() -> Self {
        Self([0; COUNTERS].into())
    }
}

/// How far a name's counter was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    counter: u16,
    at: u32,
}

impl Versions {
    /// Addresses of a name change.
    pub(super) fn bump(&mut self, name: &str) {
        let counter = &mut Arc::make_mut(&mut self.0)[place(name)];
        *counter = counter.wrapping_add(1);
    }

    /// How far a name's counter is.
    pub(super) fn of(&self, name: &str) -> Version {
        let place = place(name);
        Version {
            counter: place as u16,
            at: self.0[place],
        }
    }

    /// Whether nothing changed since.
    pub(super) fn is_still(&self, version: Version) -> bool {
        self.0[usize::from(version.counter)] == version.at
    }
}

fn place(name: &str) -> usize {
    FixedState::default().hash_one(name) as usize % COUNTERS
}
