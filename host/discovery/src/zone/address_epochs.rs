//! Change counters per name: whether a name's addresses differ between two generations of a zone,
//! without comparing them.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;

/// Names that share a counter count as changed together.
const COUNTERS: usize = 4096;

/// Change counters, which names share by hash.
#[derive(Clone, Debug)]
pub(super) struct AddressEpochs(Arc<[u32]>);

impl Default for AddressEpochs {
    fn default() -> Self {
        Self([0; COUNTERS].into())
    }
}

/// The value of a name's counter at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch {
    counter: u16,
    at: u32,
}

impl AddressEpochs {
    /// Counts a change of a name's addresses.
    pub(super) fn bump(&mut self, name: &str) {
        let counter = &mut Arc::make_mut(&mut self.0)[counter_index(name)];
        *counter = counter.wrapping_add(1);
    }

    /// The present value of a name's counter.
    pub(super) fn of(&self, name: &str) -> Epoch {
        let index = counter_index(name);
        Epoch {
            counter: index as u16,
            at: self.0[index],
        }
    }

    /// Whether the addresses have not changed since.
    pub(super) fn is_current(&self, version: Epoch) -> bool {
        self.0[usize::from(version.counter)] == version.at
    }
}

fn counter_index(name: &str) -> usize {
    FixedState::default().hash_one(name) as usize % COUNTERS
}
