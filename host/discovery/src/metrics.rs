//! Metrics of discovery.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::shared::Shared;
use crate::source::Source;

/// Labels of an answered query.
#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(crate) struct QueryLabels {
    /// The query type; types that the zone never has share one label.
    pub(crate) qtype: &'static str,
    pub(crate) rcode: &'static str,
}

impl QueryLabels {
    /// All values of `qtype`.
    const QTYPES: &'static [&str] = &[
        "A", "AAAA", "SRV", "SOA", "NS", "PTR", "ANY", "AXFR", "IXFR", "other",
    ];
    /// All values of `rcode`.
    const RCODES: [&str; 7] = [
        "NOERROR", "NXDOMAIN", "REFUSED", "SERVFAIL", "FORMERR", "NOTIMP", "other",
    ];
}

/// Labels of an answer that rate limiting withheld.
#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(crate) struct LimitedLabels {
    /// Over UDP, `drop`: nothing was sent; `slip`: an empty answer with the TC bit was sent. Over
    /// HTTPS, `reject`: status 429.
    pub(crate) action: &'static str,
}

/// Labels of a rejected query.
#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(crate) struct RejectedLabels {
    /// `recursion`: an external name, from a client outside `allow_recursion`; `transfer`: a zone
    /// transfer to a client outside `allow_transfer`; `outside`: an external name while forwarding
    /// is off.
    pub(crate) reason: &'static str,
}

/// Labels of an answered HTTP request.
#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(crate) struct RequestLabels {
    /// The route; `none` for an unknown path.
    pub(crate) route: &'static str,
    pub(crate) code: u16,
}

/// Label of the source of the records.
#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
struct SourceLabels {
    /// `stream` or `polling`.
    source: &'static str,
}

/// Label of the duration of HTTP requests.
#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
struct RouteLabel {
    route: &'static str,
}

transom_common::metrics! {
    /// Metrics of one running discovery.
    pub(crate) struct Metrics {
        pub(crate) queries: Family<QueryLabels, Counter>
            => "transom_discovery_queries", "DNS queries answered";
        limited: Family<LimitedLabels, Counter>
            => "transom_discovery_rate_limited",
            "Answers that rate limiting dropped (drop) or truncated (slip) over UDP, or replaced by 429 over HTTPS (reject)";
        rejected: Family<RejectedLabels, Counter>
            => "transom_discovery_refused",
            "DNS queries refused, by reason: recursion or transfer not allowed for the client, or outside the zone without forwarding";
        requests: Family<RequestLabels, Counter>
            => "transom_discovery_http_requests", "HTTP requests answered";
        request_seconds: Family<RouteLabel, Histogram, fn() -> Histogram> = Family::new_with_constructor(transom_common::durations)
            => "transom_discovery_http_seconds",
            "Time from an HTTP request to the head of its response, by route";
        // Buckets from a microsecond to about 16 ms.
        pub(crate) answer_seconds: Histogram = Histogram::new(exponential_buckets(0.000_001, 2.0, 15))
            => "transom_discovery_answer_seconds",
            "Time in which a DNS query was answered without a resolver, of one query in 16";
        pub(crate) watchers: Gauge
            => "transom_discovery_watchers", "Clients that watch the answer to a lookup over HTTP";
        pub(crate) reconnects: Counter
            => "transom_discovery_reconnects", "Reconnects of the event stream from the cluster";
        pub(crate) zone_updates: Counter
            => "transom_discovery_zone_updates", "Versions of the zone published";
        pub(crate) resync_differences: Counter
            => "transom_discovery_resync_differences",
            "Entries that a full comparison with the cluster had to correct";
        source: Family<SourceLabels, Gauge>
            => "transom_discovery_source",
            "1 for the present source of the records, the master's event stream or polls of its state document; both are 0 \
             while no master can be reached";
    }
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry, shared: &Arc<Shared>) -> Self {
        let metrics = Self::registered(registry);
        metrics.set_source(Source::None);
        registry.register_collector(Box::new(ZoneMetrics(Arc::clone(shared))));
        metrics
    }

    /// All queries answered.
    pub(crate) fn answered(&self) -> u64 {
        let labels = QueryLabels::QTYPES
            .iter()
            .flat_map(|qtype| QueryLabels::RCODES.map(|rcode| QueryLabels { qtype, rcode }));
        labels
            .filter_map(|labels| self.queries.get(&labels).map(|count| count.get()))
            .sum()
    }

    pub(crate) fn set_source(&self, source: Source) {
        for &one in Source::WORKING {
            let label = SourceLabels { source: one.as_str() };
            self.source.get_or_create(&label).set(i64::from(one == source));
        }
    }

    pub(crate) fn limited(&self, action: &'static str) {
        self.limited.get_or_create(&LimitedLabels { action }).inc();
    }

    pub(crate) fn rejected(&self, reason: &'static str) {
        self.rejected.get_or_create(&RejectedLabels { reason }).inc();
    }

    pub(crate) fn request(&self, labels: &RequestLabels, duration: Duration) {
        let RequestLabels { route, .. } = *labels;
        self.request_seconds
            .get_or_create(&RouteLabel { route })
            .observe(duration.as_secs_f64());
        self.requests.get_or_create(labels).inc();
    }
}

/// Gauges of the zone being served, read at each scrape.
#[derive(Debug)]
struct ZoneMetrics(Arc<Shared>);

impl Collector for ZoneMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let zone = self.0.zone.load();
        let zone = zone.as_deref();
        let mut gauge = |name: &str, help: &str, value: Option<f64>| {
            let descriptor = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            // There is no zone yet.
            value.map_or(Ok(()), |value| ConstGauge::new(value).encode(descriptor))
        };
        gauge(
            "transom_discovery_zone_serial",
            "Serial number of the zone being served",
            zone.map(|zone| f64::from(zone.serial())),
        )?;
        gauge(
            "transom_discovery_zone_records",
            "Records in the zone being served",
            zone.map(|zone| zone.records() as f64),
        )?;
        gauge(
            "transom_discovery_zone_invalid_entries",
            "Invalid agents, frameworks and tasks, which have no records",
            zone.map(|zone| zone.invalid_entries() as f64),
        )?;
        gauge(
            "transom_discovery_zone_age_seconds",
            "Time since the cluster last confirmed the contents of the zone",
            zone.map(|_| self.0.confirmed.age().as_secs_f64()),
        )
    }
}
