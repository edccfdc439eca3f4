//! Leases: one holder at a time, and a number that tells an earlier holder from a later one.

use std::time::{Duration, Instant};

/// A lease as the store granted it.
///
/// A holder that stops (a pause, a partition) does not notice that its time is up; therefore what it writes carries
/// [`fencing`](Self::fencing) ([`Batch::fenced`](crate::Batch::fenced)) and is refused once the lease went on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// What is leased.
    pub name: String,
    /// Who holds it: text that no two processes share, and that may tell others where the holder is reached.
    pub holder: String,
    /// Greater than every number this store gave out for a lease before; never 0.
    pub fencing: u64,
    /// For how long the lease is granted, and renewed; for a lease that was only looked at, what is left.
    pub ttl: Duration,
    /// When it runs out by this process's clock, counted from before it was asked for: the store never takes it back
    /// earlier. For a lease that was only looked at, an estimate.
    pub expires: Instant,
}

impl Lease {
    /// How long it is still certain to be held; zero when it is not.
    pub fn left(&self) -> Duration {
        self.expires.saturating_duration_since(Instant::now())
    }
}
