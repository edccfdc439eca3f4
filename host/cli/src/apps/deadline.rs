//! The deadline of a command that waits.

use tokio::time::{Instant, timeout_at};

/// The error of a request that has no response when the deadline passes.
pub(super) const NO_RESPONSE: &str = "no response from the daemon";

/// Awaits `request` until the deadline. `None`: the deadline has passed.
pub(super) async fn within<T>(deadline: Option<Instant>, request: impl Future<Output = T>) -> Option<T> {
    match deadline {
        Some(deadline) => timeout_at(deadline, request).await.ok(),
        None => Some(request.await),
    }
}
