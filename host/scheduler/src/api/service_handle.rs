//! A job that is served on a port and run by whoever leads, as the rest of the daemon sees it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_store::Standing;

use crate::SubscriptionStatus;

/// How the job's framework stands; `None` while this daemon does not lead.
type Look = dyn Fn() -> Option<SubscriptionStatus> + Send + Sync;

/// A handle. Cheap to clone.
#[derive(Clone)]
pub struct ServiceHandle {
    addr: SocketAddr,
    look: Arc<Look>,
    standing: watch::Receiver<Standing>,
    tracker: TaskTracker,
    token: CancellationToken,
}

impl ServiceHandle {
    /// A job at `addr`. `look` gives the connection of the scheduler that this daemon leads with, if it does; `standing` tells
    /// who leads; what `tracker` follows has ended when the port is no longer served, some time after `token` was
    /// cancelled.
    pub fn new(
        addr: SocketAddr,
        look: impl Fn() -> Option<SubscriptionStatus> + Send + Sync + 'static,
        standing: watch::Receiver<Standing>,
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

    /// Where the HTTP port really listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Whether requests can be answered and carried out: by this daemon, when it leads and its framework is subscribed,
    /// or by another one that is known to lead.
    pub fn ready(&self) -> bool {
        if self.token.is_cancelled() {
            return false;
        }
        match self.subscription() {
            Some(connection) => connection.connected,
            None => matches!(*self.standing.borrow(), Standing::Elsewhere(_)),
        }
    }

    /// How the framework's subscription stands; `None` while this daemon does not lead.
    pub fn subscription(&self) -> Option<SubscriptionStatus> {
        (self.look)()
    }

    /// Returns when the port is no longer served; cancel the token given at the start first.
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
    fn a_job_is_ready_when_requests_can_be_carried_out_somewhere() {
        let connection = |connected| SubscriptionStatus {
            framework_id: None,
            connected,
            master: None,
            since: Timestamp::UNIX_EPOCH,
        };
        let elsewhere = || Standing::Elsewhere("other:1".to_owned());
        for (own, standing, stopping, ready) in [
            (Some(true), Standing::Here, false, true),
            (Some(false), Standing::Here, false, false),
            (None, elsewhere(), false, true),
            (None, Standing::Here, false, false),
            (Some(true), Standing::Here, true, false),
            (None, elsewhere(), true, false),
        ] {
            let told = format!("{own:?} {standing:?} stopping: {stopping}");
            let token = CancellationToken::new();
            let (_standing, seen) = watch::channel(standing);
            let look = move || own.map(connection);
            let addr = SocketAddr::from(([127, 0, 0, 1], 1));
            let job = ServiceHandle::new(addr, look, seen, TaskTracker::new(), token.clone());
            if stopping {
                token.cancel();
            }
            assert_eq!(job.ready(), ready, "{told}");
        }
    }
}
