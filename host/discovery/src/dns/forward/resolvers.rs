//! The resolvers of one zone, and whom to ask next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::exchange::Failure;
use super::query::Query;
use super::reply::Reply;
use super::upstream::Upstream;
use super::{ForwardPolicy, Transport};
use crate::dns::packet::code;

/// Resolvers that are asked at the same time, at most.
const AT_ONCE: usize = 4;
/// How long a question may take in all, unless a single resolver may take longer.
const OVERALL: Duration = Duration::from_secs(30);

/// Resolvers in the order in which they were configured.
#[derive(Debug)]
pub(super) struct Resolvers {
    pub(super) upstreams: Vec<Arc<Upstream>>,
    pub(super) policy: ForwardPolicy,
    /// What each of them gets.
    pub(super) timeout: Duration,
}

impl Resolvers {
    /// The reply of whichever has one; the last one's failure when all have failed.
    pub(super) async fn ask(&self, query: &Query, over: Transport) -> Result<Reply, Failure> {
        let deadline = Instant::now() + self.timeout.max(OVERALL);
        let left = || {
            self.timeout
                .min(deadline.saturating_duration_since(Instant::now()))
        };
        let mut waiting = self.sorted(over);
        let mut last = Failure::Silent;
        if self.policy == ForwardPolicy::Parallel {
            let first: Vec<_> = waiting.drain(..AT_ONCE.min(waiting.len())).collect();
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

    /// Those that answer first, each half in the order of the configuration.
    fn sorted(&self, over: Transport) -> Vec<&Arc<Upstream>> {
        let mut sorted: Vec<_> = self.upstreams.iter().collect();
        sorted.sort_by_cached_key(|upstream| upstream.is_failing(over));
        sorted
    }
}

/// Asks all, and takes the first reply that is no refusal or failure; if there is no other, the first one of those.
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
