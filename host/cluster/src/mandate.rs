//! Who may act for a framework, when several processes could.

use std::fmt::Debug;
use std::time::Duration;

/// The right to act for a framework, for a time: what a lease in a shared store gives.
///
/// It is asked right before each call is sent, so it must not wait. A process that was stopped and goes on finds it ended
/// by the clock, before anything else has told it so.
pub trait Mandate: Debug + Send + Sync {
    /// For how long it is still certain to last, by a clock that goes on while the process is stopped; zero: not any more.
    fn left(&self) -> Duration;
}
