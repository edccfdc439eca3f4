//! Whether a connection has requests in flight, and since when it has none.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

#[derive(Clone, Copy, Debug)]
struct State {
    in_flight: usize,
    /// When the last request was answered, or the connection accepted.
    changed: Instant,
}

/// The requests of a connection.
#[derive(Clone, Debug)]
pub(super) struct Activity(watch::Sender<State>);

/// A request in flight, until it is dropped.
#[derive(Debug)]
pub(super) struct InFlight(watch::Sender<State>);

impl Activity {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(State {
            in_flight: 0,
            changed: Instant::now(),
        }))
    }

    /// Counts a request as in flight until the guard is dropped.
    pub(super) fn begin(&self) -> InFlight {
        self.0.send_modify(|state| state.in_flight += 1);
        InFlight(self.0.clone())
    }

    /// Waits until no request has been in flight for `limit`.
    pub(super) fn idle(&self, limit: Duration) -> impl Future<Output = ()> + use<> {
        let mut states = self.0.subscribe();
        async move {
            loop {
                let State { in_flight, changed } = *states.borrow_and_update();
                if in_flight > 0 {
                    if states.changed().await.is_err() {
                        return;
                    }
                } else if timeout_at(changed + limit, states.changed()).await.is_err() {
                    return;
                }
            }
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.send_modify(|state| {
            state.in_flight -= 1;
            state.changed = Instant::now();
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const IDLE_LIMIT: Duration = Duration::from_millis(1);
    const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn connection_is_idle_after_its_last_request() {
        let activity = Activity::new();
        let mut idle = std::pin::pin!(activity.idle(IDLE_LIMIT));
        let (first, second) = (activity.begin(), activity.begin());
        drop(first);
        assert!(
            timeout(IDLE_LIMIT * 20, &mut idle).await.is_err(),
            "idle while a request is in flight"
        );
        drop(second);
        assert!(timeout(WAIT_TIMEOUT, idle).await.is_ok());
    }
}
