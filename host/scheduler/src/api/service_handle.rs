//! The handle of a service that listens on a port and is run by the leader, for the rest of the
//! daemon.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_store::Leadership;

use crate::SubscriptionStatus;

/// The subscription of the framework; `None` while this daemon is not the leader.
type Look = dyn Fn() -> Option<SubscriptionStatus> + Send + Sync;

/// Cheap to clone.
#[derive(Clone)]
pub struct ServiceHandle {
    addr: SocketAddr,
    look: Arc<Look>,
    standing: watch::Receiver<Leadership>,
    tracker: TaskTracker,
    token: CancellationToken,
}

impl ServiceHandle {
    /// A service at `addr`. `look` returns the subscription of the scheduler if this daemon is the
    /// leader; `standing` is the leadership; `tracker` has finished when the port is closed, some
    /// time after `token` was cancelled.
    pub fn new(
        addr: SocketAddr,
        look: impl Fn() -> Option<SubscriptionStatus> + Send + Sync + 'static,
        standing: watch::Receiver<Leadership>,
        tracker: TaskTracker,
        token: CancellationToken,
    ) -> Self {
        Self {
            addr,
            look: Arc::new(look),
            standing,
            tracker,
            token,
        }
    }

    /// The address of the HTTP port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Whether requests can be served: by this daemon if it is the leader and its framework is
    /// subscribed, or by another leader.
    pub fn ready(&self) -> bool {
        if self.token.is_cancelled() {
            return false;
        }
        match self.subscription() {
            Some(connection) => connection.connected,
            None => matches!(*self.standing.borrow(), Leadership::Follower(_)),
        }
    }

    /// The subscription of the framework; `None` while this daemon is not the leader.
    pub fn subscription(&self) -> Option<SubscriptionStatus> {
        (self.look)()
    }

    /// Returns when the port is closed; cancel the token given at the start first.
    pub async fn stopped(&self) {
        self.tracker.wait().await;
    }
}

impl fmt::Debug for ServiceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceHandle")
            .field("addr", &self.addr)
            .field("ready", &self.ready())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_service_is_ready_when_a_leader_can_serve_requests() {
        let connection = |connected| SubscriptionStatus {
            framework_id: None,
            connected,
            master: None,
            since: Timestamp::UNIX_EPOCH,
        };
        let elsewhere = || Leadership::Follower("other:1".to_owned());
        for (own, standing, stopping, ready) in [
            (Some(true), Leadership::Leader, false, true),
            (Some(false), Leadership::Leader, false, false),
            (None, elsewhere(), false, true),
            (None, Leadership::Leader, false, false),
            (Some(true), Leadership::Leader, true, false),
            (None, elsewhere(), true, false),
        ] {
            let case = format!("{own:?} {standing:?} stopping: {stopping}");
            let token = CancellationToken::new();
            let (_standing, seen) = watch::channel(standing);
            let look = move || own.map(connection);
            let addr = SocketAddr::from(([127, 0, 0, 1], 1));
            let service = ServiceHandle::new(addr, look, seen, TaskTracker::new(), token.clone());
            if stopping {
                token.cancel();
            }
            assert_eq!(service.ready(), ready, "{case}");
        }
    }
}
