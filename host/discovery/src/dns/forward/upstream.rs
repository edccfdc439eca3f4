//! A resolver, its health, and whether it repeats the case of names.
//!
//! A resolver that times out or cannot be reached is *failing* until it answers again, separately
//! for UDP and TCP: it is then queried after all others. A background task probes it meanwhile, so
//! that no client waits for the outcome.
//!
//! Over UDP, names are sent in random case. A resolver whose replies have another case gets the query
//! again over TCP, where nobody off the path can forge a reply, and if that fails over UDP from
//! another port with another id. Names are sent to it as clients spell them until a background probe
//! is answered with the right case. So one forged packet turns the random case off for one probe.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::exchange::{Failure, exchange};
use super::metrics::{CaseMetrics, Metrics, UpstreamMetrics};
use super::query::Query;
use super::reply::Reply;
use crate::dns::Transport;

/// The timeout of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// The first and the maximum interval between probes; it doubles after each.
const PROBE_INTERVALS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// Queries in flight to a resolver that is unavailable, so that they do not use up all sockets.
const MAX_TRIALS: usize = 32;
/// The first and the maximum interval between probes of the case; it doubles after each.
const CASE_PROBE_INTERVALS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(15));

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
    /// A reply over UDP had another case of the name, and no probe has succeeded since.
    changes_case: AtomicBool,
    case_metrics: CaseMetrics,
}

/// A transport to a resolver with its health.
#[derive(Debug)]
struct Path {
    /// The last query timed out or could not reach the resolver.
    is_failing: AtomicBool,
    /// A probe task is running.
    is_probing: AtomicBool,
    /// The first probe failed as well, so the resolver is unavailable.
    is_unavailable: AtomicBool,
    /// Limits queries in flight while the resolver is unavailable.
    trials: Semaphore,
    metrics: UpstreamMetrics,
}

impl Upstream {
    pub(super) fn new(addr: SocketAddr, context: UpstreamContext, metrics: &Metrics) -> Self {
        let path = |transport| Path {
            is_failing: AtomicBool::new(false),
            is_probing: AtomicBool::new(false),
            is_unavailable: AtomicBool::new(false),
            trials: Semaphore::new(MAX_TRIALS),
            metrics: metrics.of(addr, transport),
        };
        Self {
            addr,
            context,
            paths: [path(Transport::Udp), path(Transport::Tcp)],
            changes_case: AtomicBool::new(false),
            case_metrics: metrics.case_of(addr),
        }
    }

    fn path(&self, transport: Transport) -> &Path {
        match transport {
            Transport::Udp => &self.paths[0],
            Transport::Tcp => &self.paths[1],
        }
    }

    /// Whether it has failed and not answered since.
    pub(super) fn is_failing(&self, transport: Transport) -> bool {
        self.path(transport).is_failing.load(SeqCst)
    }

    /// Queries it and waits at most `time_limit`.
    pub(super) async fn ask(
        self: &Arc<Self>,
        query: &Query,
        transport: Transport,
        time_limit: Duration,
    ) -> Result<Reply, Failure> {
        let path = self.path(transport);
        let trial = path
            .is_unavailable
            .load(SeqCst)
            .then(|| path.trials.try_acquire());
        let (Ok(_trial), Ok(_socket)) = (trial.transpose(), self.context.sockets.try_acquire()) else {
            path.metrics.ended(Failure::Busy.as_str());
            return Err(Failure::Busy);
        };
        let sent_at = Instant::now();
        let random_case = !self.changes_case.load(SeqCst);
        let other_cases = random_case.then_some(&self.case_metrics.other_cases);
        let mut reply = exchange(self.addr, query, transport, time_limit, other_cases).await;
        if matches!(reply, Err(Failure::OtherCase)) {
            path.metrics.ended(Failure::OtherCase.as_str());
            self.mark_changing_case(query);
            let remaining = time_limit.saturating_sub(sent_at.elapsed());
            reply = self.ask_with_own_case(query, remaining).await;
        }
        match &reply {
            Ok(_) => {
                path.metrics.answered(sent_at.elapsed());
                path.mark_answering();
            }
            Err(failure) => {
                path.metrics.ended(failure.as_str());
                let resolver = self.addr;
                tracing::debug!(%resolver, over = transport.as_str(), error = %failure, "query to a resolver failed");
            }
        }
        if reply.as_ref().is_err_and(Failure::is_the_resolvers) {
            self.mark_failing_and_probe(transport);
        }
        reply
    }

    /// Repeats a query over TCP for at most half of the time, then over UDP in the client's case.
    async fn ask_with_own_case(&self, query: &Query, time_limit: Duration) -> Result<Reply, Failure> {
        let began = Instant::now();
        if let Ok(reply) = exchange(self.addr, query, Transport::Tcp, time_limit / 2, None).await {
            return Ok(reply);
        }
        let remaining = time_limit.saturating_sub(began.elapsed());
        exchange(self.addr, query, Transport::Udp, remaining, None).await
    }

    /// Turns the random case off until a probe with this question succeeds.
    fn mark_changing_case(self: &Arc<Self>, query: &Query) {
        if self.changes_case.swap(true, SeqCst) {
            return;
        }
        let (upstream, token) = (Arc::clone(self), self.context.token.clone());
        let query = query.without_edns();
        self.context.tasks.spawn(async move {
            token.run_until_cancelled(upstream.probe_case(&query)).await;
        });
    }

    /// Probes until a reply has the right case. Logs nothing if the first one has: a reply was forged
    /// then, or lost.
    async fn probe_case(&self, query: &Query) {
        let (resolver, metrics) = (self.addr, &self.case_metrics);
        let (mut interval, mut is_logged) = (CASE_PROBE_INTERVALS.0, false);
        loop {
            let other_cases = Some(&metrics.other_cases);
            match exchange(resolver, query, Transport::Udp, PROBE_TIMEOUT, other_cases).await {
                Ok(_) => break,
                Err(Failure::OtherCase) if !is_logged => {
                    is_logged = true;
                    metrics.random_case.set(0);
                    tracing::warn!(%resolver, "resolver changes the case of names; its replies are not protected by random case (0x20) until a probe succeeds");
                }
                Err(_) => {}
            }
            tokio::time::sleep(interval).await;
            interval = CASE_PROBE_INTERVALS.1.min(interval * 2);
        }
        metrics.random_case.set(1);
        self.changes_case.store(false, SeqCst);
        if is_logged {
            tracing::info!(%resolver, "resolver repeats the case of names again");
        }
    }

    /// Marks it as failing and starts a probe.
    fn mark_failing_and_probe(self: &Arc<Self>, transport: Transport) {
        if self.path(transport).mark_failing() {
            let (upstream, token) = (Arc::clone(self), self.context.token.clone());
            self.context.tasks.spawn(async move {
                token.run_until_cancelled(upstream.probe(transport)).await;
            });
        }
    }

    /// Probes while it is failing. Checks once more after `is_probing` is reset, because a query may have
    /// failed just before and relied on this task.
    async fn probe(&self, transport: Transport) {
        let path = self.path(transport);
        loop {
            self.probe_until_recovered(transport).await;
            path.is_probing.store(false, SeqCst);
            if !path.is_failing.load(SeqCst) || path.is_probing.swap(true, SeqCst) {
                return;
            }
        }
    }

    /// Probes until it answers a probe or a client's query. Logs nothing if the first probe
    /// succeeds: only one query failed then.
    async fn probe_until_recovered(&self, transport: Transport) {
        if self.try_recover(transport).await {
            return;
        }
        let (path, resolver) = (self.path(transport), self.addr);
        path.is_unavailable.store(true, SeqCst);
        tracing::warn!(%resolver, over = transport.as_str(), "resolver does not answer; using it last until a probe succeeds");
        let mut interval = PROBE_INTERVALS.0;
        loop {
            tokio::time::sleep(interval).await;
            interval = PROBE_INTERVALS.1.min(interval * 2);
            if self.try_recover(transport).await {
                break;
            }
        }
        // It may have answered a client just before `is_unavailable` was set.
        path.is_unavailable.store(false, SeqCst);
        tracing::info!(%resolver, over = transport.as_str(), "resolver recovered");
    }

    async fn try_recover(&self, transport: Transport) -> bool {
        if self.is_failing(transport) {
            let probe_result = exchange(self.addr, &Query::probe(), transport, PROBE_TIMEOUT, None).await;
            if probe_result.is_ok() {
                self.path(transport).mark_answering();
            }
        }
        !self.is_failing(transport)
    }
}

impl Path {
    fn mark_answering(&self) {
        self.is_failing.store(false, SeqCst);
        self.is_unavailable.store(false, SeqCst);
        self.metrics.healthy(true);
    }

    /// Marks it as failing. Returns whether a probe has to be started.
    fn mark_failing(&self) -> bool {
        self.is_failing.store(true, SeqCst);
        self.metrics.healthy(false);
        !self.is_probing.swap(true, SeqCst)
    }
}
