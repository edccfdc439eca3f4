//! Metrics of forwarding.

use std::net::SocketAddr;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::Transport;

/// How a client's question was settled.
#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
struct Settlement {
    result: &'static str,
}

/// A resolver and a way to ask it.
#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
struct Asked {
    upstream: String,
    transport: &'static str,
}

/// How asking it ended.
#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
struct Ended {
    upstream: String,
    transport: &'static str,
    outcome: &'static str,
}

/// Counters of one forwarder. Resolvers are those of the configuration, so there are few.
#[derive(Clone, Debug)]
pub struct Metrics {
    questions: Family<Settlement, Counter>,
    in_flight: Gauge,
    asked: Family<Ended, Counter>,
    latency: Family<Asked, Histogram, fn() -> Histogram>,
    healthy: Family<Asked, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            questions: Family::default(),
            in_flight: Gauge::default(),
            asked: Family::default(),
            latency: Family::new_with_constructor(histogram),
            healthy: Family::default(),
        }
    }
}

/// From a quarter of a millisecond to eight seconds.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_25, 2.0, 16))
}

/// How a question was settled, as the label says it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Settled {
    /// From the cache.
    Hit,
    /// By a resolver.
    Miss,
    /// By the reply to an equal query in flight.
    Coalesced,
    /// With SERVFAIL: too many queries at a time.
    Overloaded,
}

impl Metrics {
    /// Counters that are shown in a registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "transom_discovery_forward_requests",
            "DNS queries for external names, by result: cache hit, miss, coalesced with an equal query in flight, or overloaded",
            metrics.questions.clone(),
        );
        registry.register(
            "transom_discovery_forward_inflight",
            "DNS queries that wait for a resolver",
            metrics.in_flight.clone(),
        );
        registry.register(
            "transom_discovery_upstream_queries",
            "Queries sent to resolvers, by outcome",
            metrics.asked.clone(),
        );
        registry.register_with_unit(
            "transom_discovery_upstream_latency",
            "Time until resolvers answered",
            Unit::Seconds,
            metrics.latency.clone(),
        );
        registry.register(
            "transom_discovery_upstream_healthy",
            "Whether the last query to a resolver was answered",
            metrics.healthy.clone(),
        );
        metrics
    }

    pub(super) fn settled(&self, how: Settled) {
        let result = match how {
            Settled::Hit => "hit",
            Settled::Miss => "miss",
            Settled::Coalesced => "coalesced",
            Settled::Overloaded => "overloaded",
        };
        self.questions.get_or_create(&Settlement { result }).inc();
    }

    /// Counts a question under way until it is dropped.
    pub(super) fn fly(&self) -> InFlight {
        self.in_flight.inc();
        InFlight(self.in_flight.clone())
    }

    /// Counters of one resolver.
    pub(super) fn of(&self, upstream: SocketAddr, over: Transport) -> Meters {
        let asked = Asked {
            upstream: upstream.to_string(),
            transport: over.as_str(),
        };
        let meters = Meters {
            latency: self.latency.get_or_create_owned(&asked),
            healthy: self.healthy.get_or_create_owned(&asked),
            asked,
            outcomes: self.asked.clone(),
        };
        meters.healthy(true);
        meters
    }
}

/// A question under way.
#[derive(Debug)]
pub(super) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Counters of one resolver.
#[derive(Clone, Debug)]
pub(super) struct Meters {
    asked: Asked,
    outcomes: Family<Ended, Counter>,
    latency: Histogram,
    healthy: Gauge,
}

impl Meters {
    pub(super) fn answered(&self, after: Duration) {
        self.latency.observe(after.as_secs_f64());
        self.ended("answered");
    }

    pub(super) fn ended(&self, outcome: &'static str) {
        let ended = Ended {
            upstream: self.asked.upstream.clone(),
            transport: self.asked.transport,
            outcome,
        };
        self.outcomes.get_or_create(&ended).inc();
    }

    pub(super) fn healthy(&self, healthy: bool) {
        self.healthy.set(healthy.into());
    }
}
