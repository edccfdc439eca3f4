//! Metrics of forwarding.

use std::net::SocketAddr;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::dns::Transport;

/// Label of the result of a client's query.
#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
struct ForwardLabels {
    result: &'static str,
}

/// Label of a resolver.
#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
struct ResolverLabel {
    upstream: String,
}

/// Labels of a resolver and transport.
#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
struct UpstreamLabels {
    upstream: String,
    transport: &'static str,
}

/// Labels of the outcome of a query to a resolver.
#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
struct UpstreamOutcomeLabels {
    upstream: String,
    transport: &'static str,
    outcome: &'static str,
}

transom_common::metrics! {
    /// Metrics of one forwarder. Resolvers come from the configuration, so there are few label values.
    pub struct Metrics {
        questions: Family<ForwardLabels, Counter>
            => "transom_discovery_forward_requests",
            "DNS queries for external names, by result: cache hit, miss, coalesced with an equal query in flight, or overloaded";
        in_flight: Gauge
            => "transom_discovery_forward_inflight", "DNS queries that wait for a resolver";
        outcomes: Family<UpstreamOutcomeLabels, Counter>
            => "transom_discovery_upstream_queries", "Queries sent to resolvers, by outcome";
        latency: Family<UpstreamLabels, Histogram, fn() -> Histogram> = Family::new_with_constructor(histogram)
            => "transom_discovery_upstream_latency", "Time until resolvers answered", Unit::Seconds;
        healthy: Family<UpstreamLabels, Gauge>
            => "transom_discovery_upstream_healthy", "Whether the last query to a resolver was answered";
        other_cases: Family<ResolverLabel, Counter>
            => "transom_discovery_upstream_case_mismatches",
            "Replies over UDP that were not used because they do not repeat the random case of the name: forged, or from a resolver that changes it";
        random_case: Family<ResolverLabel, Gauge>
            => "transom_discovery_upstream_random_case",
            "Whether names are sent to a resolver in random case; 0 while it changes the case";
    }
}

/// Buckets from a quarter of a millisecond to eight seconds.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.000_25, 2.0, 16))
}

/// How a client's query was answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum ForwardOutcome {
    /// From the cache.
    Hit,
    /// By a resolver, in reply to this query.
    Miss,
    /// By the reply to an equal query in flight.
    Coalesced,
    /// With SERVFAIL, because too many queries are in flight.
    Overloaded,
}

impl Metrics {
    /// Metrics in a registry.
    pub fn register(registry: &mut Registry) -> Self {
        Self::registered(registry)
    }

    pub(super) fn record(&self, outcome: ForwardOutcome) {
        let result = match outcome {
            ForwardOutcome::Hit => "hit",
            ForwardOutcome::Miss => "miss",
            ForwardOutcome::Coalesced => "coalesced",
            ForwardOutcome::Overloaded => "overloaded",
        };
        self.questions.get_or_create(&ForwardLabels { result }).inc();
    }

    /// Counts a query in flight until the guard is dropped.
    pub(super) fn start_inflight(&self) -> GaugeGuard {
        self.in_flight.inc();
        GaugeGuard(self.in_flight.clone())
    }

    /// Metrics of the random case of names at one resolver.
    pub(super) fn case_of(&self, upstream: SocketAddr) -> CaseMetrics {
        let label = ResolverLabel {
            upstream: upstream.to_string(),
        };
        let metrics = CaseMetrics {
            other_cases: self.other_cases.get_or_create_owned(&label),
            random_case: self.random_case.get_or_create_owned(&label),
        };
        metrics.random_case.set(1);
        metrics
    }

    /// Metrics of one resolver.
    pub(super) fn of(&self, upstream: SocketAddr, transport: Transport) -> UpstreamMetrics {
        let labels = UpstreamLabels {
            upstream: upstream.to_string(),
            transport: transport.as_str(),
        };
        let upstream_metrics = UpstreamMetrics {
            latency: self.latency.get_or_create_owned(&labels),
            healthy: self.healthy.get_or_create_owned(&labels),
            labels,
            outcomes: self.outcomes.clone(),
        };
        upstream_metrics.healthy(true);
        upstream_metrics
    }
}

/// Metrics of the random case of names at one resolver.
#[derive(Clone, Debug)]
pub(super) struct CaseMetrics {
    /// Replies with another case.
    pub(super) other_cases: Counter,
    /// Whether names are sent in random case.
    pub(super) random_case: Gauge,
}

/// Decrements the gauge when dropped.
#[derive(Debug)]
pub(super) struct GaugeGuard(Gauge);

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Metrics of one resolver.
#[derive(Clone, Debug)]
pub(super) struct UpstreamMetrics {
    labels: UpstreamLabels,
    outcomes: Family<UpstreamOutcomeLabels, Counter>,
    latency: Histogram,
    healthy: Gauge,
}

impl UpstreamMetrics {
    pub(super) fn answered(&self, after: Duration) {
        self.latency.observe(after.as_secs_f64());
        self.ended("answered");
    }

    pub(super) fn ended(&self, outcome: &'static str) {
        let ended = UpstreamOutcomeLabels {
            upstream: self.labels.upstream.clone(),
            transport: self.labels.transport,
            outcome,
        };
        self.outcomes.get_or_create(&ended).inc();
    }

    pub(super) fn healthy(&self, healthy: bool) {
        self.healthy.set(healthy.into());
    }
}
