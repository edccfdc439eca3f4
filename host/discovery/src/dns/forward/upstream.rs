//! A resolver that questions are forwarded to, and whether it answers.
//!
//! One that was silent is *failing* until it answers again, over UDP and TCP apart: it is then asked after all others. A task
//! asks it from time to time meanwhile, so that no client has to wait in order to find out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Transport;
use super::exchange::{Failure, exchange};
use super::metrics::{Meters, Metrics};
use super::query::Query;
use super::reply::Reply;

/// How long a resolver gets to show that it is there.
const PROBE_WITHIN: Duration = Duration::from_secs(2);
/// Between two times that it is asked: the first and the longest; each is twice the one before.
const PROBES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// What all resolvers of a forwarder share.
#[derive(Clone, Debug)]
pub(super) struct Common {
    /// Sockets that may be open.
    pub(super) sockets: Arc<Semaphore>,
    pub(super) tasks: TaskTracker,
    pub(super) token: CancellationToken,
}

/// One resolver.
#[derive(Debug)]
pub(super) struct Upstream {
    addr: SocketAddr,
    common: Common,
    /// Over UDP and over TCP, as all that follows.
    failing: [AtomicBool; 2],
    /// Whether a task asks it.
    probed: [AtomicBool; 2],
    meters: [Meters; 2],
}

impl Upstream {
    pub(super) fn new(addr: SocketAddr, common: Common, metrics: &Metrics) -> Self {
        Self {
            addr,
            common,
            failing: Default::default(),
            probed: Default::default(),
            meters: [Transport::Udp, Transport::Tcp].map(|over| metrics.of(addr, over)),
        }
    }

    /// Whether it was silent when it was asked last.
    pub(super) fn is_failing(&self, over: Transport) -> bool {
        self.failing[over as usize].load(Ordering::SeqCst)
    }

    /// Asks it; it gets as long as `within`.
    pub(super) async fn ask(
        self: &Arc<Self>,
        query: &Query,
        over: Transport,
        within: Duration,
    ) -> Result<Reply, Failure> {
        let meters = &self.meters[over as usize];
        let Ok(_socket) = self.common.sockets.try_acquire() else {
            meters.ended(Failure::Busy.as_str());
            return Err(Failure::Busy);
        };
        let asked = Instant::now();
        let reply = exchange(self.addr, query, over, within).await;
        match &reply {
            Ok(_) => {
                meters.answered(asked.elapsed());
                self.answers(over);
            }
            Err(failure) => {
                meters.ended(failure.as_str());
                tracing::debug!(resolver = %self.addr, over = over.as_str(), error = %failure, "a question was not answered");
                if failure.is_the_resolvers() {
                    self.fails(over);
                }
            }
        }
        reply
    }

    fn answers(&self, over: Transport) {
        self.failing[over as usize].store(false, Ordering::SeqCst);
        self.meters[over as usize].healthy(true);
    }

    fn fails(self: &Arc<Self>, over: Transport) {
        self.failing[over as usize].store(true, Ordering::SeqCst);
        self.meters[over as usize].healthy(false);
        if self.probed[over as usize].swap(true, Ordering::SeqCst) {
            return;
        }
        let (upstream, token) = (Arc::clone(self), self.common.token.clone());
        self.common.tasks.spawn(async move {
            token.run_until_cancelled(upstream.probe(over)).await;
        });
    }

    /// Asks as long as it is failing. It may begin to fail again in the moment in which this ends.
    async fn probe(&self, over: Transport) {
        let probed = &self.probed[over as usize];
        loop {
            self.probe_until_back(over).await;
            probed.store(false, Ordering::SeqCst);
            if !self.is_failing(over) || probed.swap(true, Ordering::SeqCst) {
                return;
            }
        }
    }

    /// Asks until it has answered, this question or a client's. Nothing is said of one that answers at once: then it was
    /// the question that it had no answer to.
    async fn probe_until_back(&self, over: Transport) {
        if self.is_back(over).await {
            return;
        }
        let resolver = self.addr;
        tracing::warn!(%resolver, over = over.as_str(), "a resolver does not answer; it is asked last until it does");
        let mut pause = PROBES.0;
        loop {
            tokio::time::sleep(pause).await;
            pause = PROBES.1.min(pause * 2);
            if self.is_back(over).await {
                break;
            }
        }
        tracing::info!(%resolver, over = over.as_str(), "a resolver answers again");
    }

    async fn is_back(&self, over: Transport) -> bool {
        if self.is_failing(over)
            && exchange(self.addr, &Query::probe(), over, PROBE_WITHIN)
                .await
                .is_ok()
        {
            self.answers(over);
        }
        !self.is_failing(over)
    }
}
