//! Names of others: their questions are forwarded to resolvers, and the replies passed on as they are.
//!
//! Which resolvers is a matter of the longest configured zone that a name is in ([`zones`]); in which order, of the
//! configuration and of who answers ([`resolvers`], [`upstream`]). Each question goes out from a port and with an id of its
//! own, over what its client came by ([`exchange`]). Equal questions are asked once ([`flights`]), and replies given again
//! for as long as they say ([`cache`], [`reply`]).
//!
//! Promises: who asks gets one reply, at most as large as allowed, with his own id and his own way to write the name; a
//! reply to another question is nobody's. Resolvers, sockets, questions, bytes kept and every wait are bounded. A resolver
//! that is silent costs its timeout once and not every time.
//!
//! Not here: no recursion, no validation, no search for a resolver's address. Replies are not understood beyond what these
//! promises need. That is why this stands on offsets in packets ([`super::packet`]) and not on a resolver library, which would hand
//! out the records it has understood in place of the reply.
//!
//! How it fails: no resolver answers, too much is under way, or it is being stopped: SERVFAIL. No resolvers for a name: REFUSED. A query that makes
//! no sense: FORMERR.

mod cache;
mod exchange;
mod flights;
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

use super::packet::code;
use crate::Config;
use cache::{Aged, Key, Replies};
use flights::{Begin, Flight, Flights, Joined};
use metrics::Settled;
use query::Query;
use reply::Room;
use resolvers::Resolvers;
use upstream::{Common, Upstream};
use zones::Zones;

/// How a query came, is sent on, and its reply goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// In a packet.
    Udp = 0,
    /// On a connection, encrypted or not.
    Tcp = 1,
}

impl Transport {
    fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }
}

/// How the resolvers of a zone are queried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardPolicy {
    /// One after the other in the configured order, those that fail last. The first reply of any kind is used.
    #[default]
    Sequential,
    /// Four at the same time; the first reply that is neither SERVFAIL nor REFUSED is used.
    Parallel,
}

/// What a forwarder is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For names that no zone below has; with none, those are REFUSED.
    pub resolvers: Vec<SocketAddr>,
    /// Resolvers of zones, which are written as `sub.corp`.
    pub zone_resolvers: BTreeMap<String, Vec<SocketAddr>>,
    /// What each resolver gets to answer.
    pub timeout: Duration,
    /// How they are queried.
    pub policy: ForwardPolicy,
    /// Whether replies that were cut say so. Without it, no reply does.
    pub set_truncate_bit: bool,
    /// Bytes of replies that are kept; 0: none are.
    pub cache_bytes: usize,
    /// Questions of clients that may be waiting, equal ones included; further ones are answered with SERVFAIL.
    pub max_questions: usize,
    /// Sockets to resolvers that may be open.
    pub max_sockets: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            resolvers: Vec::new(),
            zone_resolvers: BTreeMap::new(),
            timeout: Duration::from_secs(5),
            policy: ForwardPolicy::Sequential,
            set_truncate_bit: true,
            cache_bytes: 16 << 20,
            max_questions: 4096,
            max_sockets: 512,
        }
    }
}

impl From<&Config> for Settings {
    /// What sites set.
    fn from(config: &Config) -> Self {
        Self {
            resolvers: config.resolvers.clone(),
            zone_resolvers: config.zone_resolvers.clone(),
            timeout: Duration::from_secs(config.timeout),
            policy: config.forward_policy,
            set_truncate_bit: config.set_truncate_bit,
            cache_bytes: config.forward_cache_bytes,
            max_questions: config.forward_max_inflight,
            max_sockets: config.forward_max_sockets,
        }
    }
}

/// An answer, or the way to it.
pub enum Begun {
    /// It was known, or there is none.
    Answered(Vec<u8>),
    /// Resolvers have to be waited for. It has deadlines of its own, and can be left to a task.
    Waiting(BoxFuture<'static, Vec<u8>>),
}

/// What there is for a question.
enum Found {
    /// A reply that was kept.
    Kept(Aged),
    /// A place among those who wait for one.
    Coming(Place),
    /// No place: too many wait.
    Full,
}

/// A question among those that wait, and its reply when that has come.
struct Place {
    flight: Flight<Option<Aged>>,
    question: OwnedSemaphorePermit,
}

impl Place {
    async fn wait(self) -> Option<Aged> {
        let reply = self.flight.await;
        drop(self.question);
        reply
    }
}

/// The resolvers of a zone, and the number that keeps its replies apart from those of others.
#[derive(Clone, Debug)]
struct Zone {
    number: u16,
    resolvers: Arc<Resolvers>,
}

/// Forwards questions.
#[derive(Debug)]
pub struct Forwarder {
    zones: Zones<Zone>,
    replies: Arc<Replies>,
    flights: Flights<Option<Aged>>,
    questions: Arc<Semaphore>,
    set_truncate_bit: bool,
    metrics: Metrics,
    common: Common,
    _stops: DropGuard,
}

impl Forwarder {
    /// Nothing is asked before the first question.
    pub fn new(settings: &Settings, metrics: Metrics) -> Self {
        let common = Common {
            sockets: Arc::new(Semaphore::new(settings.max_sockets.min(Semaphore::MAX_PERMITS))),
            tasks: TaskTracker::new(),
            token: CancellationToken::new(),
        };
        Self {
            zones: zones(settings, &common, &metrics),
            replies: Arc::new(Replies::new(settings.cache_bytes)),
            flights: Flights::new(),
            questions: Arc::new(Semaphore::new(settings.max_questions.min(Semaphore::MAX_PERMITS))),
            set_truncate_bit: settings.set_truncate_bit,
            metrics,
            _stops: common.token.clone().drop_guard(),
            common,
        }
    }

    /// The packet that answers `packet`, a query for `name` and `kind`; an empty one where there is nothing to answer,
    /// because it does not even have a header. Over UDP it has at most what the client takes.
    ///
    /// Waits for resolvers: the caller sees to it that others are answered meanwhile, or uses [`Self::begin`].
    pub async fn forward(
        &self,
        packet: &[u8],
        name: &Name,
        kind: RecordType,
        transport: Transport,
        client: IpAddr,
    ) -> Vec<u8> {
        match self.begin(packet, name, kind, transport, client) {
            Begun::Answered(answer) => answer,
            Begun::Waiting(answer) => answer.await,
        }
    }

    /// As [`Self::forward`], apart in what is answered at once and what has to be waited for. What waits holds its place among
    /// [`Settings::max_questions`] from now on.
    pub fn begin(
        &self,
        packet: &[u8],
        name: &Name,
        kind: RecordType,
        transport: Transport,
        client: IpAddr,
    ) -> Begun {
        let query = match Query::read(packet) {
            Ok(query) => query,
            Err(unreadable) => return Begun::Answered(unreadable.answer()),
        };
        // A transfer is a row of messages.
        let zone = match kind {
            RecordType::AXFR | RecordType::IXFR => None,
            _ => self.zones.find(name, kind),
        };
        let Some(zone) = zone else {
            return Begun::Answered(query.coded(code::REFUSED));
        };
        let room = Room {
            limit: query.limit(transport),
            mark: self.set_truncate_bit,
        };
        let place = match self.reply(zone, &query, transport) {
            Found::Kept(Aged { reply, age, left }) => {
                return Begun::Answered(reply.deliver(&query, age, left, room));
            }
            Found::Coming(place) => place,
            Found::Full => return Begun::Answered(query.coded(code::SERVFAIL)),
        };
        let name = name.clone();
        Begun::Waiting(Box::pin(async move {
            let Some(Aged { reply, age, left }) = place.wait().await else {
                tracing::debug!(%client, %name, %kind, "no resolver has answered a question");
                return query.coded(code::SERVFAIL);
            };
            reply.deliver(&query, age, left, room)
        }))
    }

    /// Ends all questions under way, and those that are still asked, with SERVFAIL, so that nobody who waits for them holds up
    /// the end of the daemon; then waits until no resolver is asked any more whether it is there again.
    pub async fn stop(&self) {
        self.common.token.cancel();
        self.common.tasks.close();
        self.common.tasks.wait().await;
    }

    /// Looks for a reply, and sees to it that one comes.
    fn reply(&self, zone: &Zone, query: &Query, over: Transport) -> Found {
        let known = |key: &Key| self.replies.get(key, Instant::now());
        let hit = |kept| {
            self.metrics.settled(Settled::Hit);
            Found::Kept(kept)
        };
        let key = query.is_common().then(|| query.key(zone.number, over));
        if let Some(kept) = key.as_ref().and_then(known) {
            return hit(kept);
        }
        let Ok(question) = Arc::clone(&self.questions).try_acquire_owned() else {
            self.metrics.settled(Settled::Overloaded);
            return Found::Full;
        };
        let flight = match key {
            None => {
                self.metrics.settled(Settled::Miss);
                self.asking(zone, query, over, None).boxed().shared()
            }
            Some(key) => match self.flights.join(&key, || match known(&key) {
                Some(kept) => Begin::Known(kept),
                None => Begin::Ask(self.asking(zone, query, over, Some(key.clone())).boxed()),
            }) {
                Joined::Known(kept) => return hit(kept),
                Joined::Flying { flight, others } => {
                    let settled = if others { Settled::Coalesced } else { Settled::Miss };
                    self.metrics.settled(settled);
                    flight
                }
            },
        };
        Found::Coming(Place { flight, question })
    }

    /// Asks the zone's resolvers, and keeps the reply by its key.
    fn asking(
        &self,
        zone: &Zone,
        query: &Query,
        over: Transport,
        key: Option<Key>,
    ) -> impl Future<Output = Option<Aged>> + Send + use<> {
        let (resolvers, replies) = (Arc::clone(&zone.resolvers), Arc::clone(&self.replies));
        let (query, flying) = (query.clone(), self.metrics.fly());
        let stopped = self.common.token.clone();
        async move {
            let reply = stopped.run_until_cancelled(resolvers.ask(&query, over)).await;
            drop(flying);
            let reply = Arc::new(reply?.ok()?);
            let lifetime = reply.lifetime(query.kind());
            if let Some(key) = key {
                replies.put(key, Arc::clone(&reply), lifetime, Instant::now());
            }
            Some(Aged {
                reply,
                age: Duration::ZERO,
                left: lifetime,
            })
        }
    }
}

/// A resolver is one, in however many zones it is named.
fn zones(settings: &Settings, common: &Common, metrics: &Metrics) -> Zones<Zone> {
    let mut upstreams = HashMap::new();
    let mut resolvers = |addresses: &[SocketAddr]| {
        let upstreams = addresses.iter().map(|addr| {
            let new = || Arc::new(Upstream::new(*addr, common.clone(), metrics));
            Arc::clone(upstreams.entry(*addr).or_insert_with(new))
        });
        Arc::new(Resolvers {
            upstreams: upstreams.collect(),
            policy: settings.policy,
            timeout: settings.timeout,
        })
    };
    let others = (!settings.resolvers.is_empty()).then_some(("", &settings.resolvers));
    let zones = settings.zone_resolvers.iter();
    let zones = zones.map(|(zone, addresses)| (zone.as_str(), addresses));
    let zones = others.into_iter().chain(zones).zip(0..);
    Zones::new(zones.map(|((zone, addresses), number)| {
        let resolvers = resolvers(addresses);
        (zone, Zone { number, resolvers })
    }))
}
