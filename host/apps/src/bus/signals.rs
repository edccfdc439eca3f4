//! Signals between the task of a group, its parts and its subscribers.

use std::sync::OnceLock;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The signals of a group, shared with its parts and its subscribers.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Subscribers have joined, or have room for past events again.
    pub(super) wake: Notify,
    /// Cancelled when the last subscriber has left, or when all are closed with a reason.
    pub(super) stop: CancellationToken,
    reason: OnceLock<String>,
}

impl Signals {
    /// Closes every stream of the group with a reason.
    pub(super) fn close(&self, reason: &str) {
        // Only the first reason is kept.
        let _ = self.reason.set(reason.to_owned());
        self.stop.cancel();
    }

    /// Why the streams are closed, if there is a reason.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }
}
