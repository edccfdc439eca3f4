//! Metrics of discovery.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
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
    const QTYPES: [&str; 10] = [
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

/// Labels of a refused query.
#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(crate) struct RefusedLabels {
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

/// Metrics of one running discovery.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) queries: Family<QueryLabels, Counter>,
    limited: Family<LimitedLabels, Counter>,
    refused: Family<RefusedLabels, Counter>,
    requests: Family<RequestLabels, Counter>,
    pub(crate) reconnects: Counter,
    pub(crate) zone_updates: Counter,
    pub(crate) resync_differences: Counter,
    source: Family<SourceLabels, Gauge>,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry, shared: &Arc<Shared>) -> Self {
        let metrics = Self::default();
        registry.register(
            "transom_discovery_queries",
            "DNS queries answered",
            metrics.queries.clone(),
        );
        registry.register(
            "transom_discovery_rate_limited",
            "Answers that rate limiting dropped (drop) or truncated (slip) over UDP, or replaced by 429 over HTTPS (reject)",
            metrics.limited.clone(),
        );
        registry.register(
            "transom_discovery_refused",
            "DNS queries refused, by reason: recursion or transfer not allowed for the client, or outside the zone without forwarding",
            metrics.refused.clone(),
        );
        registry.register(
            "transom_discovery_http_requests",
            "HTTP requests answered",
            metrics.requests.clone(),
        );
        registry.register(
            "transom_discovery_reconnects",
            "Reconnects of the event stream from the cluster",
            metrics.reconnects.clone(),
        );
        registry.register(
            "transom_discovery_resync_differences",
            "Entries that a full comparison with the cluster had to correct",
            metrics.resync_differences.clone(),
        );
        registry.register(
            "transom_discovery_zone_updates",
            "Versions of the zone published",
            metrics.zone_updates.clone(),
        );
        registry.register(
            "transom_discovery_source",
            "1 for the present source of the records, the master's event stream or polls of its state document; both are 0 \
             while no master can be reached",
            metrics.source.clone(),
        );
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
        for one in Source::WORKING {
            let label = SourceLabels { source: one.as_str() };
            self.source.get_or_create(&label).set(i64::from(one == source));
        }
    }

    pub(crate) fn limited(&self, action: &'static str) {
        self.limited.get_or_create(&LimitedLabels { action }).inc();
    }

    pub(crate) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&RefusedLabels { reason }).inc();
    }

    pub(crate) fn request(&self, labels: &RequestLabels) {
        self.requests.get_or_create(labels).inc();
    }
}

/// Gauges of the zone being served, read at each scrape.
#[derive(Debug)]
struct ZoneMetrics(Arc<Shared>);

impl Collector for ZoneMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut gauge = |name: &str, help: &str, value: f64| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        let zone = self.0.zone.load();
        let Some(zone) = zone.as_deref() else {
            return Ok(());
        };
        gauge(
            "transom_discovery_zone_serial",
            "Serial number of the zone being served",
            f64::from(zone.serial()),
        )?;
        gauge(
            "transom_discovery_zone_records",
            "Records in the zone being served",
            zone.records() as f64,
        )?;
        gauge(
            "transom_discovery_zone_invalid_entries",
            "Invalid agents, frameworks and tasks, which have no records",
            zone.invalid_entries() as f64,
        )?;
        gauge(
            "transom_discovery_zone_age_seconds",
            "Time since the cluster last confirmed the contents of the zone",
            self.0.confirmed.age().as_secs_f64(),
        )
    }
}
