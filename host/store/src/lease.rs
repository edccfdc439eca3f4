//! Leases: one holder at a time, and a number that distinguishes earlier holders from later ones.

use std::time::Duration;

use tokio::time::Instant;

/// A lease as the store granted it.
///
/// A paused or partitioned holder does not notice that its lease has expired. Its writes therefore
/// carry [`fencing`](Self::fencing) ([`Batch::fenced`](crate::Batch::fenced)) and are rejected
/// after the lease went to another holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The name of the lease.
    pub name: String,
    /// The holder: a text that no two processes share, and that may contain the holder's address.
    pub holder: String,
    /// Greater than every fencing number that this store granted before; never 0.
    pub fencing: u64,
    /// The time to live at each grant and renewal; for a lease that was only read, the remaining
    /// time.
    pub ttl: Duration,
    /// The expiry by this process's clock, counted from before the request was sent: the store
    /// never expires the lease earlier. For a lease that was only read, an estimate.
    pub expires: Instant,
}

impl Lease {
    /// The remaining time for which the lease is certainly held; zero after that.
    pub fn remaining(&self) -> Duration {
        self.expires.saturating_duration_since(Instant::now())
    }
}
