//! A resolver that questions are forwarded to, and whether it answers.
//!
//! One that was silent is *failing* until it answers again, over UDP and TCP apart: it is then asked after all others. A task
//! asks it from time to time meanwhile, so that no client has to wait in order to find out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
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

/// Questions that may wait for a resolver that is gone. They must not use up what others need.
const TRIALS: usize = 32;

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
    /// Over UDP and over TCP.
    ways: [Way; 2],
}

/// One way to ask it.
#[derive(Debug)]
struct Way {
    /// It was silent when it was asked last.
    failing: AtomicBool,
    /// A task asks it whether it is there.
    probed: AtomicBool,
    /// It has not answered that task either: then it is not a single question that it has no answer to.
    gone: AtomicBool,
    /// Taken by questions to it while it is gone.
    trials: Semaphore,
    meters: Meters,
}

impl Upstream {
    pub(super) fn new(addr: SocketAddr, common: Common, metrics: &Metrics) -> Self {
        let way = |over| Way {
            failing: AtomicBool::new(false),
            probed: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            trials: Semaphore::new(TRIALS),
            meters: metrics.of(addr, over),
        };
        Self {
            addr,
            common,
            ways: [way(Transport::Udp), way(Transport::Tcp)],
        }
    }

    fn way(&self, over: Transport) -> &Way {
        match over {
            Transport::Udp => &self.ways[0],
            Transport::Tcp => &self.ways[1],
        }
    }

    /// Whether it was silent when it was asked last.
    pub(super) fn is_failing(&self, over: Transport) -> bool {
        self.way(over).failing.load(SeqCst)
    }

    /// Asks it; it gets as long as `within`.
    pub(super) async fn ask(
        self: &Arc<Self>,
        query: &Query,
        over: Transport,
        within: Duration,
    ) -> Result<Reply, Failure> {
        let way = self.way(over);
        let trial = way.gone.load(SeqCst).then(|| way.trials.try_acquire());
        let (Ok(_trial), Ok(_socket)) = (trial.transpose(), self.common.sockets.try_acquire()) else {
            way.meters.ended(Failure::Busy.as_str());
            return Err(Failure::Busy);
        };
        let asked = Instant::now();
        let reply = exchange(self.addr, query, over, within).await;
        match &reply {
            Ok(_) => {
                way.meters.answered(asked.elapsed());
                way.answers();
            }
            Err(failure) => {
                way.meters.ended(failure.as_str());
                let (resolver, over) = (self.addr, over.as_str());
                tracing::debug!(%resolver, over, error = %failure, "a question was not answered");
            }
        }
        if reply.as_ref().is_err_and(Failure::is_the_resolvers) {
            self.fails(over);
        }
        reply
    }

    /// It is asked last from now on, and by a task whether it is there.
    fn fails(self: &Arc<Self>, over: Transport) {
        if self.way(over).fails() {
            let (upstream, token) = (Arc::clone(self), self.common.token.clone());
            self.common.tasks.spawn(async move {
                token.run_until_cancelled(upstream.probe(over)).await;
            });
        }
    }

    /// Asks as long as it is failing. It may begin to fail again in the moment in which this ends.
    async fn probe(&self, over: Transport) {
        let way = self.way(over);
        loop {
            self.probe_until_back(over).await;
            way.probed.store(false, SeqCst);
            if !way.failing.load(SeqCst) || way.probed.swap(true, SeqCst) {
                return;
            }
        }
    }

    /// Asks until it has answered, this question or a client's. Nothing is said of one that answers at once: it is there,
    /// and had no answer to one question.
    async fn probe_until_back(&self, over: Transport) {
        if self.is_back(over).await {
            return;
        }
        let (way, resolver) = (self.way(over), self.addr);
        way.gone.store(true, SeqCst);
        tracing::warn!(%resolver, over = over.as_str(), "a resolver does not answer; it is asked last until it does");
        let mut pause = PROBES.0;
        loop {
            tokio::time::sleep(pause).await;
            pause = PROBES.1.min(pause * 2);
            if self.is_back(over).await {
                break;
            }
        }
        // It may have answered a client just before it was called gone.
        way.gone.store(false, SeqCst);
        tracing::info!(%resolver, over = over.as_str(), "a resolver answers again");
    }

    async fn is_back(&self, over: Transport) -> bool {
        if self.is_failing(over) {
            let probed = exchange(self.addr, &Query::probe(), over, PROBE_WITHIN).await;
            if probed.is_ok() {
                self.way(over).answers();
            }
        }
        !self.is_failing(over)
    }
}

impl Way {
    fn answers(&self) {
        self.failing.store(false, SeqCst);
        self.gone.store(false, SeqCst);
        self.meters.healthy(true);
    }

    /// Whether a task has to be started that asks it.
    fn fails(&self) -> bool {
        self.failing.store(true, SeqCst);
        self.meters.healthy(false);
        !self.probed.swap(true, SeqCst)
    }
}
