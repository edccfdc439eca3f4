//! The time of day and chance of the simulated machines.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use transom_common::ambient::{self, Ambient};

/// The time of day when a simulation begins.
const BEGIN_SECONDS: i64 = 1_800_000_000;

#[derive(Debug)]
pub(crate) struct Clock {
    now: Cell<Duration>,
    /// How far the clock of the machine whose turn it is differs.
    offset: Cell<SignedDuration>,
    rng: RefCell<StdRng>,
}

/// Ends the replacement of time and chance.
#[derive(Debug)]
pub(crate) struct Installed(());

impl Drop for Installed {
    fn drop(&mut self) {
        ambient::simulate(None);
    }
}

impl Clock {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            now: Cell::default(),
            offset: Cell::default(),
            // Others numbers than those of the world.
            rng: RefCell::new(StdRng::seed_from_u64(!seed)),
        }
    }

    /// Replaces time and chance on this thread as long as the result exists.
    pub(crate) fn install(self: &Rc<Self>) -> Installed {
        ambient::simulate(Some(Rc::clone(self) as Rc<dyn Ambient>));
        Installed(())
    }

    /// Sets the time since the simulation began.
    pub(crate) fn set(&self, now: Duration) {
        self.now.set(now);
    }

    /// The turn of a machine whose clock differs by `offset` begins.
    pub(crate) fn differ(&self, offset: SignedDuration) {
        self.offset.set(offset);
    }
}

impl Ambient for Clock {
    fn now(&self) -> Timestamp {
        let begin = Timestamp::from_second(BEGIN_SECONDS).unwrap_or_default();
        let now = begin.checked_add(self.now.get()).unwrap_or(begin);
        now.checked_add(self.offset.get()).unwrap_or(now)
    }

    fn random(&self) -> u64 {
        self.rng.borrow_mut().random()
    }
}
