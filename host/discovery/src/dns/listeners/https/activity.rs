//! Whether a connection has requests in flight, and since when it has none.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use transom_web::ConnectionSlot;

#[derive(Clone, Copy, Debug)]
struct State {
    in_flight: usize,
    /// When the last request was answered, or the connection accepted.
    changed: Instant,
}

/// The requests of a connection, which is busy in its slot while there are some.
#[derive(Clone, Debug)]
pub(super) struct Activity {
    states: watch::Sender<State>,
    slot: ConnectionSlot,
}

/// A request in flight, until it is dropped.
#[derive(Debug)]
pub(super) struct InFlight(Activity);

impl Activity {
    pub(super) fn new(slot: ConnectionSlot) -> Self {
        let states = watch::Sender::new(State {
            in_flight: 0,
            changed: Instant::now(),
        });
        Self { states, slot }
    }

    /// Counts a request as in flight until the guard is dropped.
    pub(super) fn begin(&self) -> InFlight {
        self.states.send_modify(|state| state.in_flight += 1);
        // A query of a connection that is being closed may be answered in vain.
        self.slot.begin();
        InFlight(self.clone())
    }

    /// Waits until no request has been in flight for `limit`.
    pub(super) fn idle(&self, limit: Duration) -> impl Future<Output = ()> + use<> {
        let mut states = self.states.subscribe();
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
        let Activity { states, slot } = &self.0;
        states.send_modify(|state| {
            state.in_flight -= 1;
            state.changed = Instant::now();
            if state.in_flight == 0 {
                slot.end();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use tokio::time::timeout;
    use transom_web::Connections;

    use super::*;

    const IDLE_LIMIT: Duration = Duration::from_millis(1);
    const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn connection_is_idle_after_its_last_request() {
        let client = ([127, 0, 0, 1], 9).into();
        let slot = Connections::new("test", 1).admit(client).await.unwrap();
        let activity = Activity::new(slot);
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
