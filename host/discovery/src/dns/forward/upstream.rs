//! A resolver and its health.
//!
//! A resolver that times out or cannot be reached is *failing* until it answers again, separately
//! for UDP and TCP: it is then queried after all others. A background task probes it meanwhile, so
//! that no client waits for the outcome.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::exchange::{Failure, exchange};
use super::metrics::{Metrics, UpstreamMetrics};
use super::query::Query;
use super::reply::Reply;
use crate::dns::Transport;

/// The timeout of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// The first and the maximum interval between probes; it doubles after each.
const PROBE_INTERVALS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// Queries in flight to a resolver that is unavailable, so that they do not use up all sockets.
const MAX_TRIALS: usize = 32;

/// Shared by all resolvers of a forwarder.
#[derive(Clone, Debug)]
pub(super) struct UpstreamContext {
    /// Limits open sockets.
    pub(super) sockets: Arc<Semaphore>,
    pub(super) tasks: TaskTracker,
    pub(super) token: CancellationToken,
}

/// One resolver.
#[derive(Debug)]
pub(super) struct Upstream {
    addr: SocketAddr,
    context: UpstreamContext,
    /// UDP and TCP.
    paths: [Path; 2],
}

/// A transport to a resolver with its health.
#[derive(Debug)]
struct Path {
    /// The last query timed out or could not reach the resolver.
    failing: AtomicBool,
    /// A probe task is running.
    probed: AtomicBool,
    /// The first probe failed as well, so the resolver is unavailable.
    gone: AtomicBool,
    /// Limits queries in flight while the resolver is unavailable.
    trials: Semaphore,
    metrics: UpstreamMetrics,
}

impl Upstream {
    pub(super) fn new(addr: SocketAddr, context: UpstreamContext, metrics: &Metrics) -> Self {
        let path = |over| Path {
            failing: AtomicBool::new(false),
            probed: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            trials: Semaphore::new(MAX_TRIALS),
            metrics: metrics.of(addr, over),
        };
        Self {
            addr,
            context,
            paths: [path(Transport::Udp), path(Transport::Tcp)],
        }
    }

    fn path(&self, over: Transport) -> &Path {
        match over {
            Transport::Udp => &self.paths[0],
            Transport::Tcp => &self.paths[1],
        }
    }

    /// Whether it has failed and not answered since.
    pub(super) fn is_failing(&self, over: Transport) -> bool {
        self.path(over).failing.load(SeqCst)
    }

    /// Queries it and waits at most `within`.
    pub(super) async fn ask(
        self: &Arc<Self>,
        query: &Query,
        over: Transport,
        within: Duration,
    ) -> Result<Reply, Failure> {
        let path = self.path(over);
        let trial = path.gone.load(SeqCst).then(|| path.trials.try_acquire());
        let (Ok(_trial), Ok(_socket)) = (trial.transpose(), self.context.sockets.try_acquire()) else {
            path.metrics.ended(Failure::Busy.as_str());
            return Err(Failure::Busy);
        };
        let asked = Instant::now();
        let reply = exchange(self.addr, query, over, within).await;
        match &reply {
            Ok(_) => {
                path.metrics.answered(asked.elapsed());
                path.answers();
            }
            Err(failure) => {
                path.metrics.ended(failure.as_str());
                let (resolver, over) = (self.addr, over.as_str());
                tracing::debug!(%resolver, over, error = %failure, "query to a resolver failed");
            }
        }
        if reply.as_ref().is_err_and(Failure::is_the_resolvers) {
            self.fails(over);
        }
        reply
    }

    /// Marks it as failing and starts a probe.
    fn fails(self: &Arc<Self>, over: Transport) {
        if self.path(over).fails() {
            let (upstream, token) = (Arc::clone(self), self.context.token.clone());
            self.context.tasks.spawn(async move {
                token.run_until_cancelled(upstream.probe(over)).await;
            });
        }
    }

    /// Probes while it is failing. Checks once more after `probed` is reset, because a query may have
    /// failed just before and relied on this task.
    async fn probe(&self, over: Transport) {
        let path = self.path(over);
        loop {
            self.probe_until_back(over).await;
            path.probed.store(false, SeqCst);
            if !path.failing.load(SeqCst) || path.probed.swap(true, SeqCst) {
                return;
            }
        }
    }

    /// Probes until it answers a probe or a client's query. Logs nothing if the first probe
    /// succeeds: only one query failed then.
    async fn probe_until_back(&self, over: Transport) {
        if self.is_back(over).await {
            return;
        }
        let (path, resolver) = (self.path(over), self.addr);
        path.gone.store(true, SeqCst);
        tracing::warn!(%resolver, over = over.as_str(), "resolver does not answer; using it last until a probe succeeds");
        let mut pause = PROBE_INTERVALS.0;
        loop {
            tokio::time::sleep(pause).await;
            pause = PROBE_INTERVALS.1.min(pause * 2);
            if self.is_back(over).await {
                break;
            }
        }
        // It may have answered a client just before `gone` was set.
        path.gone.store(false, SeqCst);
        tracing::info!(%resolver, over = over.as_str(), "resolver answers again");
    }

    async fn is_back(&self, over: Transport) -> bool {
        if self.is_failing(over) {
            let probed = exchange(self.addr, &Query::probe(), over, PROBE_TIMEOUT).await;
            if probed.is_ok() {
                self.path(over).answers();
            }
        }
        !self.is_failing(over)
    }
}

impl Path {
    fn answers(&self) {
        self.failing.store(false, SeqCst);
        self.gone.store(false, SeqCst);
        self.metrics.healthy(true);
    }

    /// Marks it as failing. Returns whether a probe has to be started.
    fn fails(&self) -> bool {
        self.failing.store(true, SeqCst);
        self.metrics.healthy(false);
        !self.probed.swap(true, SeqCst)
    }
}
