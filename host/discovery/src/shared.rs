//! What lookups read and the watcher writes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use tokio::sync::watch;

use crate::source::Current;
use crate::zone::Zone;

/// The zone, and how old what it says is.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The zone being served; none before the first good one.
    pub(crate) zone: ArcSwapOption<Zone>,
    /// Its serial, for those who wait for another one; 0 before the first.
    pub(crate) serial: watch::Sender<u32>,
    /// When the cluster last said something.
    pub(crate) confirmed: Moment,
    /// What the zone is made from now.
    pub(crate) source: Current,
}

impl Shared {
    /// Nothing to serve yet.
    pub(crate) fn new() -> Self {
        Self {
            zone: ArcSwapOption::empty(),
            serial: watch::Sender::new(0),
            confirmed: Moment::now(),
            source: Current::default(),
        }
    }
}

/// A moment that can be moved on from anywhere.
#[derive(Debug)]
pub(crate) struct Moment {
    start: Instant,
    millis: AtomicU64,
}

impl Moment {
    fn now() -> Self {
        Self {
            start: Instant::now(),
            millis: AtomicU64::new(0),
        }
    }

    pub(crate) fn touch(&self) {
        self.millis
            .store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    pub(crate) fn age(&self) -> Duration {
        let at = Duration::from_millis(self.millis.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(at)
    }
}
