//! State that lookups read and the cluster follower writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::listing::Listing;
use crate::problem::PresentProblem;
use crate::source::AtomicSource;
use crate::zone::Zone;

/// The zone and its age.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The zone being served; none before the first good one.
    pub(crate) zone: ArcSwapOption<Zone>,
    /// Its serial, for waiters; 0 before the first zone.
    pub(crate) serial: watch::Sender<u32>,
    /// The text of its listing.
    pub(crate) listing: Listing,
    /// When the cluster last confirmed the zone.
    pub(crate) confirmed: AtomicInstant,
    /// The present source of the zone.
    pub(crate) source: AtomicSource,
    /// Why records are missing, if any are.
    pub(crate) problem: PresentProblem,
}

impl Shared {
    /// Nothing to serve yet.
    pub(crate) fn new() -> Self {
        Self {
            zone: ArcSwapOption::empty(),
            serial: watch::Sender::new(0),
            listing: Listing::default(),
            confirmed: AtomicInstant::now(),
            source: AtomicSource::default(),
            problem: PresentProblem::default(),
        }
    }

    /// Serves a new zone, and returns the one before.
    pub(crate) fn publish(&self, zone: Arc<Zone>) -> Option<Arc<Zone>> {
        let serial = zone.serial();
        let before = self.zone.swap(Some(zone));
        self.listing.forget();
        self.serial
            .send_if_modified(|last| std::mem::replace(last, serial) != serial);
        before
    }
}

/// An instant that any thread can update.
#[derive(Debug)]
pub(crate) struct AtomicInstant {
    start: Instant,
    millis: AtomicU64,
}

impl AtomicInstant {
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
