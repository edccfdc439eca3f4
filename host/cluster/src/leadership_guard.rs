//! Guards calls for a framework, for several processes of which one is the leader.

use std::fmt::Debug;
use std::time::Duration;

/// Whether this process is still the leader of a framework, from a lease in a shared store.
///
/// It is checked right before each call is sent, so it must not block. A process that was paused
/// finds it expired by the clock before it learns of another leader.
pub trait LeadershipGuard: Debug + Send + Sync {
    /// The remaining time of leadership, by a clock that runs while the process is paused; zero:
    /// expired.
    fn remaining(&self) -> Duration;
}
