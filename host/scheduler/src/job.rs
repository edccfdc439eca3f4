//! A job that is served on a port and run by whoever leads, as the rest of the daemon sees it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_store::Leadership;

use crate::Connection;

/// How the job's framework stands; `None` while this daemon does not lead.
type Look = dyn Fn() -> Option<Connection> + Send + Sync;

/// A handle. Cheap to clone.
#[derive(Clone)]
pub struct Job {
    addr: SocketAddr,
    look: Arc<Look>,
    standing: watch::Receiver<Leadership>,
    tracker: TaskTracker,
    token: CancellationToken,
}

impl Job {
    /// A job at `addr`. `look` gives the connection of the scheduler that this daemon leads with, if it does; `standing` tells
    /// who leads; what `tracker` follows has ended when the port is no longer served, some time after `token` was
    /// cancelled.
    pub fn new(
        addr: SocketAddr,
        look: impl Fn() -> Option<Connection> + Send + Sync + 'static,
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
        match self.connection() {
            Some(connection) => connection.connected,
            None => matches!(*self.standing.borrow(), Leadership::Follower(_)),
        }
    }

    /// How the framework's subscription stands; `None` while this daemon does not lead.
    pub fn connection(&self) -> Option<Connection> {
        (self.look)()
    }

    /// Returns when the port is no longer served; cancel the token given at the start first.
    pub async fn stopped(&self) {
        self.tracker.wait().await;
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
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
        let connection = |connected| Connection {
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
            let told = format!("{own:?} {standing:?} stopping: {stopping}");
            let token = CancellationToken::new();
            let (_standing, seen) = watch::channel(standing);
            let look = move || own.map(connection);
            let addr = SocketAddr::from(([127, 0, 0, 1], 1));
            let job = Job::new(addr, look, seen, TaskTracker::new(), token.clone());
            if stopping {
                token.cancel();
            }
            assert_eq!(job.ready(), ready, "{told}");
        }
    }
}
