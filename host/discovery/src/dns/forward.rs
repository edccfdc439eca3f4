//! Forwards queries for external names to resolvers and passes their replies on unchanged.
//!
//! The longest configured zone of a name selects the resolvers ([`zones`]); the policy and their
//! health select the order ([`resolvers`], [`upstream`]). Each query is sent from its own port with
//! its own id, over the client's transport ([`exchange`]), over UDP with the name in random case. Equal queries in flight are coalesced
//! ([`coalesce`]), and replies are cached for their TTL ([`cache`], [`reply`]).
//!
//! Promises: a client gets one reply within its size limit, with its own id and its own case of the
//! name; a reply to another question, or over UDP to another case of the name, is not used. Resolvers, sockets, queries, cache and every wait
//! are bounded. A resolver that times out or cannot be reached moves to the end of the list until it
//! answers a background probe or a query.
//!
//! It does no recursion and no validation. It reads only what these promises need, by offsets
//! ([`super::packet`]): a resolver library would return parsed records in place of the reply.
//!
//! Failures: SERVFAIL if no resolver answers, too many queries are in flight, or the daemon stops;
//! REFUSED if a name has no resolvers; FORMERR for a malformed query.

mod cache;
mod coalesce;
mod exchange;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzzing;
mod metrics;
mod query;
mod reply;
mod resolvers;
mod upstream;
mod zones;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use hickory_proto::rr::{Name, RecordType};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub use metrics::Metrics;

use super::Transport;
use super::packet::code;
use crate::ForwardPolicy;
use crate::config::check;
use crate::settings::addresses;
use cache::{CachedReply, Key, ReplyCache};
use coalesce::{Begin, Coalescer, InFlight, Joined};
use metrics::ForwardOutcome;
use query::Query;
use reply::SizeLimit;
use resolvers::Resolvers;
use upstream::{Upstream, UpstreamContext};
use zones::Zones;

/// The settings of a forwarder.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Resolvers of names outside `zone_resolvers`; if empty, those are REFUSED.
    pub resolvers: Vec<SocketAddr>,
    /// Resolvers by zone, such as `sub.corp`.
    pub zone_resolvers: BTreeMap<String, Vec<SocketAddr>>,
    /// The timeout of each resolver.
    pub timeout: Duration,
    /// How they are queried.
    pub policy: ForwardPolicy,
    /// Whether truncated replies have the TC flag.
    pub set_truncate_bit: bool,
    /// The size of the cache in bytes; 0: no cache.
    pub cache_bytes: usize,
    /// The maximum number of clients' queries in flight, including equal ones; further ones are
    /// answered with SERVFAIL.
    pub max_inflight: usize,
    /// The maximum number of open sockets to resolvers.
    pub max_sockets: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self::from(&crate::Settings::default())
    }
}

impl From<&crate::Settings> for Settings {
    /// The configured settings, which are valid.
    fn from(settings: &crate::Settings) -> Self {
        Self {
            resolvers: addresses(&settings.resolvers),
            zone_resolvers: settings.zone_resolvers(),
            timeout: Duration::from_secs(settings.timeout),
            policy: check::forward_policy(&settings.forward_policy).unwrap_or_default(),
            set_truncate_bit: settings.set_truncate_bit,
            cache_bytes: settings.forward_cache_bytes,
            max_inflight: settings.forward_max_inflight,
            max_sockets: settings.forward_max_sockets,
        }
    }
}

/// An answer, or a future of it.
pub enum Started {
    /// The answer; empty if there is none.
    Answered(Vec<u8>),
    /// The answer needs resolvers. The future has its own deadlines.
    Waiting(BoxFuture<'static, Vec<u8>>),
}

/// Where the reply to a query comes from.
enum ReplySource {
    /// The cache.
    Cached(CachedReply),
    /// A query in flight.
    Pending(PendingReply),
    /// None: too many queries are in flight.
    Overloaded,
}

/// A client's query in flight.
struct PendingReply {
    query_in_flight: InFlight<Option<CachedReply>>,
    question: OwnedSemaphorePermit,
}

impl PendingReply {
    async fn wait(self) -> Option<CachedReply> {
        let reply = self.query_in_flight.await;
        drop(self.question);
        reply
    }
}

/// The resolvers of a zone, and a number that separates its cached replies from other zones'.
#[derive(Clone, Debug)]
struct ForwardZone {
    number: u16,
    resolvers: Arc<Resolvers>,
}

/// Forwards queries.
#[derive(Debug)]
pub struct Forwarder {
    zones: Zones<ForwardZone>,
    replies: Arc<ReplyCache>,
    coalescer: Coalescer<Option<CachedReply>>,
    questions: Arc<Semaphore>,
    set_truncate_bit: bool,
    metrics: Metrics,
    upstream_context: UpstreamContext,
    _cancel_on_drop: DropGuard,
}

impl Forwarder {
    /// A forwarder, which sends nothing before the first query.
    pub fn new(settings: &Settings, metrics: Metrics) -> Self {
        let upstream_context = UpstreamContext {
            sockets: Arc::new(Semaphore::new(settings.max_sockets.min(Semaphore::MAX_PERMITS))),
            tasks: TaskTracker::new(),
            token: CancellationToken::new(),
        };
        Self {
            zones: zones(settings, &upstream_context, &metrics),
            replies: Arc::new(ReplyCache::new(settings.cache_bytes)),
            coalescer: Coalescer::new(),
            questions: Arc::new(Semaphore::new(settings.max_inflight.min(Semaphore::MAX_PERMITS))),
            set_truncate_bit: settings.set_truncate_bit,
            metrics,
            _cancel_on_drop: upstream_context.token.clone().drop_guard(),
            upstream_context,
        }
    }

    /// Answers `packet`, a query for `name` and `kind`; empty if the packet has no header. Over UDP
    /// the answer is within the client's size limit.
    ///
    /// Waits for resolvers; see [`Self::begin`].
    pub async fn forward(
        &self,
        packet: &[u8],
        name: &Name,
        kind: RecordType,
        transport: Transport,
        client: IpAddr,
    ) -> Vec<u8> {
        match self.begin(packet, name, kind, transport, client) {
            Started::Answered(answer) => answer,
            Started::Waiting(answer) => answer.await,
        }
    }

    /// As [`Self::forward`], but returns without waiting for resolvers. A waiting query counts for
    /// [`Settings::max_inflight`] from now on.
    pub fn begin(
        &self,
        packet: &[u8],
        name: &Name,
        kind: RecordType,
        transport: Transport,
        client: IpAddr,
    ) -> Started {
        let query = match Query::read(packet) {
            Ok(query) => query,
            Err(unreadable) => return Started::Answered(unreadable.answer()),
        };
        // A transfer is a series of messages.
        let zone = match kind {
            RecordType::AXFR | RecordType::IXFR => None,
            _ => self.zones.find(name, kind),
        };
        let Some(zone) = zone else {
            return Started::Answered(query.error_answer(code::REFUSED));
        };
        let size_limit = SizeLimit {
            bytes: query.max_reply_bytes(transport),
            set_truncate_bit: self.set_truncate_bit,
        };
        let pending = match self.reply(zone, &query, transport) {
            ReplySource::Cached(CachedReply {
                reply,
                age,
                remaining,
            }) => {
                return Started::Answered(reply.encode_for(&query, age, remaining, size_limit));
            }
            ReplySource::Pending(pending) => pending,
            ReplySource::Overloaded => return Started::Answered(query.error_answer(code::SERVFAIL)),
        };
        let name = name.clone();
        Started::Waiting(Box::pin(async move {
            let Some(CachedReply {
                reply,
                age,
                remaining,
            }) = pending.wait().await
            else {
                tracing::debug!(%client, %name, %kind, "no resolver answered a query");
                return query.error_answer(code::SERVFAIL);
            };
            reply.encode_for(&query, age, remaining, size_limit)
        }))
    }

    /// Ends all queries in flight and later ones with SERVFAIL, so that they do not delay the
    /// shutdown; then waits for the probes of resolvers to end.
    pub async fn stop(&self) {
        self.upstream_context.token.cancel();
        self.upstream_context.tasks.close();
        self.upstream_context.tasks.wait().await;
    }

    /// Finds a cached reply or starts a query.
    fn reply(&self, zone: &ForwardZone, query: &Query, transport: Transport) -> ReplySource {
        let cached_reply = |key: &Key| self.replies.get(key, Instant::now());
        let hit = |cached| {
            self.metrics.record(ForwardOutcome::Hit);
            ReplySource::Cached(cached)
        };
        let key = query.is_shareable().then(|| query.key(zone.number, transport));
        if let Some(cached) = key.as_ref().and_then(cached_reply) {
            return hit(cached);
        }
        let Ok(question) = Arc::clone(&self.questions).try_acquire_owned() else {
            self.metrics.record(ForwardOutcome::Overloaded);
            return ReplySource::Overloaded;
        };
        let query_in_flight = match key {
            None => {
                self.metrics.record(ForwardOutcome::Miss);
                self.query_resolvers(zone, query, transport, None)
                    .boxed()
                    .shared()
            }
            Some(key) => match self.coalescer.join(&key, || match cached_reply(&key) {
                Some(cached) => Begin::Cached(cached),
                None => Begin::Query(
                    self.query_resolvers(zone, query, transport, Some(key.clone()))
                        .boxed(),
                ),
            }) {
                Joined::Cached(cached) => return hit(cached),
                Joined::InFlight {
                    query: query_in_flight,
                    is_coalesced,
                } => {
                    let outcome = if is_coalesced {
                        ForwardOutcome::Coalesced
                    } else {
                        ForwardOutcome::Miss
                    };
                    self.metrics.record(outcome);
                    query_in_flight
                }
            },
        };
        ReplySource::Pending(PendingReply {
            query_in_flight,
            question,
        })
    }

    /// Queries the zone's resolvers and caches the reply.
    fn query_resolvers(
        &self,
        zone: &ForwardZone,
        query: &Query,
        transport: Transport,
        key: Option<Key>,
    ) -> impl Future<Output = Option<CachedReply>> + Send + use<> {
        let (resolvers, replies) = (Arc::clone(&zone.resolvers), Arc::clone(&self.replies));
        let (query, inflight) = (query.clone(), self.metrics.start_inflight());
        let stopped = self.upstream_context.token.clone();
        async move {
            let reply = stopped
                .run_until_cancelled(resolvers.ask(&query, transport))
                .await;
            drop(inflight);
            let reply = Arc::new(reply?.ok()?);
            let lifetime = reply.lifetime(query.kind());
            if let Some(key) = key {
                replies.insert(key, Arc::clone(&reply), lifetime, Instant::now());
            }
            Some(CachedReply {
                reply,
                age: Duration::ZERO,
                remaining: lifetime,
            })
        }
    }
}

/// The zones with their resolvers; zones share a resolver with the same address.
fn zones(settings: &Settings, upstream_context: &UpstreamContext, metrics: &Metrics) -> Zones<ForwardZone> {
    let mut upstreams = HashMap::new();
    let mut resolvers = |addresses: &[SocketAddr]| {
        let upstreams = addresses.iter().map(|addr| {
            let new = || Arc::new(Upstream::new(*addr, upstream_context.clone(), metrics));
            Arc::clone(upstreams.entry(*addr).or_insert_with(new))
        });
        Arc::new(Resolvers {
            upstreams: upstreams.collect(),
            policy: settings.policy,
            timeout: settings.timeout,
        })
    };
    let default_zone = (!settings.resolvers.is_empty()).then_some(("", &settings.resolvers));
    let zones = settings.zone_resolvers.iter();
    let zones = zones.map(|(zone, addresses)| (zone.as_str(), addresses));
    let zones = default_zone.into_iter().chain(zones).zip(0..);
    Zones::new(zones.map(|((zone, addresses), number)| {
        let resolvers = resolvers(addresses);
        (zone, ForwardZone { number, resolvers })
    }))
}
