//! The resolvers of one zone, and the order in which they are queried.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::exchange::Failure;
use super::query::Query;
use super::reply::Reply;
use super::upstream::Upstream;
use crate::config::ForwardPolicy;
use crate::dns::Transport;
use crate::dns::packet::code;

/// The maximum number of resolvers that are queried at the same time.
const MAX_PARALLEL: usize = 4;
/// The timeout of all resolvers together, unless that of a single one is longer.
const OVERALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Resolvers in the configured order.
#[derive(Debug)]
pub(super) struct Resolvers {
    pub(super) upstreams: Vec<Arc<Upstream>>,
    pub(super) policy: ForwardPolicy,
    /// The timeout of each resolver.
    pub(super) timeout: Duration,
}

impl Resolvers {
    /// Queries the resolvers as the policy says. Returns the first usable reply, or the last failure if
    /// all fail.
    pub(super) async fn ask(&self, query: &Query, transport: Transport) -> Result<Reply, Failure> {
        let deadline = Instant::now() + self.timeout.max(OVERALL_TIMEOUT);
        let remaining = || {
            self.timeout
                .min(deadline.saturating_duration_since(Instant::now()))
        };
        let mut waiting = self.sorted(transport);
        let mut last = Failure::Silent;
        if self.policy == ForwardPolicy::Parallel {
            let first: Vec<_> = waiting.drain(..MAX_PARALLEL.min(waiting.len())).collect();
            match race(&first, query, transport, self.timeout).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => last = failure,
            }
        }
        for upstream in waiting {
            if remaining().is_zero() {
                break;
            }
            match upstream.ask(query, transport, remaining()).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    /// Healthy resolvers before failing ones, each in the configured order.
    fn sorted(&self, transport: Transport) -> Vec<&Arc<Upstream>> {
        let mut sorted: Vec<_> = self.upstreams.iter().collect();
        sorted.sort_by_cached_key(|upstream| upstream.is_failing(transport));
        sorted
    }
}

/// Queries all at the same time and returns the first reply that is neither SERVFAIL nor REFUSED,
/// otherwise the first reply.
async fn race(
    upstreams: &[&Arc<Upstream>],
    query: &Query,
    transport: Transport,
    time_limit: Duration,
) -> Result<Reply, Failure> {
    let pending = upstreams
        .iter()
        .map(|upstream| upstream.ask(query, transport, time_limit));
    let mut pending: FuturesUnordered<_> = pending.collect();
    let mut best_reply = Err(Failure::Silent);
    while let Some(reply) = pending.next().await {
        match reply {
            Ok(reply) if !matches!(reply.code(), code::SERVFAIL | code::REFUSED) => return Ok(reply),
            Ok(reply) if best_reply.is_err() => best_reply = Ok(reply),
            Err(failure) if best_reply.is_err() => best_reply = Err(failure),
            _ => {}
        }
    }
    best_reply
}
