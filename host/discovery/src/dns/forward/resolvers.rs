//! The resolvers of one zone, and the order in which they are queried.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::ForwardPolicy;
use super::exchange::Failure;
use super::query::Query;
use super::reply::Reply;
use super::upstream::Upstream;
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
    pub(super) async fn ask(&self, query: &Query, over: Transport) -> Result<Reply, Failure> {
        let deadline = Instant::now() + self.timeout.max(OVERALL_TIMEOUT);
        let left = || {
            self.timeout
                .min(deadline.saturating_duration_since(Instant::now()))
        };
        let mut waiting = self.sorted(over);
        let mut last = Failure::Silent;
        if self.policy == ForwardPolicy::Parallel {
            let first: Vec<_> = waiting.drain(..MAX_PARALLEL.min(waiting.len())).collect();
            match race(&first, query, over, self.timeout).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => last = failure,
            }
        }
        for upstream in waiting {
            if left().is_zero() {
                break;
            }
            match upstream.ask(query, over, left()).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    /// Healthy resolvers before failing ones, each in the configured order.
    fn sorted(&self, over: Transport) -> Vec<&Arc<Upstream>> {
        let mut sorted: Vec<_> = self.upstreams.iter().collect();
        sorted.sort_by_cached_key(|upstream| upstream.is_failing(over));
        sorted
    }
}

/// Queries all at the same time and returns the first reply that is neither SERVFAIL nor REFUSED,
/// otherwise the first reply.
async fn race(
    upstreams: &[&Arc<Upstream>],
    query: &Query,
    over: Transport,
    within: Duration,
) -> Result<Reply, Failure> {
    let asking = upstreams.iter().map(|upstream| upstream.ask(query, over, within));
    let mut asking: FuturesUnordered<_> = asking.collect();
    let mut best = Err(Failure::Silent);
    while let Some(reply) = asking.next().await {
        match reply {
            Ok(reply) if !matches!(reply.code(), code::SERVFAIL | code::REFUSED) => return Ok(reply),
            Ok(reply) if best.is_err() => best = Ok(reply),
            Err(failure) if best.is_err() => best = Err(failure),
            _ => {}
        }
    }
    best
}
