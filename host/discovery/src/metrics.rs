//! What discovery counts.

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
pub(crate) struct Query {
    /// The type asked for; types that this zone never has are one.
    pub(crate) qtype: &'static str,
    pub(crate) rcode: &'static str,
}

/// Labels of an answer over UDP that was not sent as it was, because its network had too many.
#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(crate) struct Limited {
    /// `drop`: nothing was sent; `slip`: no records were, with the mark that they are missing.
    pub(crate) verdict: &'static str,
}

/// Labels of a question that was refused for who asked it, or because it is nobody's business here.
#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(crate) struct Refused {
    /// `recursion`: a name of others, from where none is looked up; `transfer`: the zone, from who may not have it;
    /// `outside`: a name of others, where none is looked up for anybody.
    pub(crate) what: &'static str,
}

/// Labels of an answered HTTP request.
#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    /// What was asked for; `none` for what nobody knows.
    pub(crate) route: &'static str,
    pub(crate) code: u16,
}

/// Label of what the records come from.
#[derive(Clone, Debug, EncodeLabelSet, PartialEq, Eq, Hash)]
struct RecordsFrom {
    /// `stream` or `polling`.
    source: &'static str,
}

/// Counters of one running discovery.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) queries: Family<Query, Counter>,
    limited: Family<Limited, Counter>,
    refused: Family<Refused, Counter>,
    requests: Family<Asked, Counter>,
    pub(crate) reconnects: Counter,
    pub(crate) zones: Counter,
    pub(crate) drift: Counter,
    source: Family<RecordsFrom, Gauge>,
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
            "Answers over UDP that were left out (drop) or emptied (slip), because their network had too many",
            metrics.limited.clone(),
        );
        registry.register(
            "transom_discovery_refused",
            "DNS queries refused: names of others, and transfers, for who may not have them",
            metrics.refused.clone(),
        );
        registry.register(
            "transom_discovery_http_requests",
            "HTTP requests answered",
            metrics.requests.clone(),
        );
        registry.register(
            "transom_discovery_reconnects",
            "Times that the cluster's stream of events was opened anew after it was lost",
            metrics.reconnects.clone(),
        );
        registry.register(
            "transom_discovery_drift",
            "Entries that a full comparison found to be other than the stream of events had told",
            metrics.drift.clone(),
        );
        registry.register("transom_discovery_zones", "Zones made", metrics.zones.clone());
        registry.register(
            "transom_discovery_source",
            "1 for what the records come from now, the master's stream of events or polls of its state document; 0 for \
             the other, and for both while no master can be reached",
            metrics.source.clone(),
        );
        metrics.set_source(Source::None);
        registry.register_collector(Box::new(OfZone(Arc::clone(shared))));
        metrics
    }

    pub(crate) fn set_source(&self, source: Source) {
        for one in Source::WORKING {
            let label = RecordsFrom { source: one.as_str() };
            self.source.get_or_create(&label).set(i64::from(one == source));
        }
    }

    pub(crate) fn limited(&self, verdict: &'static str) {
        self.limited.get_or_create(&Limited { verdict }).inc();
    }

    pub(crate) fn refused(&self, what: &'static str) {
        self.refused.get_or_create(&Refused { what }).inc();
    }

    pub(crate) fn asked(&self, labels: &Asked) {
        self.requests.get_or_create(labels).inc();
    }
}

/// Facts about the zone being served, read when they are asked for.
#[derive(Debug)]
struct OfZone(Arc<Shared>);

impl Collector for OfZone {
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
            "transom_discovery_zone_skipped",
            "Entries of the cluster that made no sense and have no records",
            zone.skipped() as f64,
        )?;
        gauge(
            "transom_discovery_zone_age_seconds",
            "Time since the cluster last confirmed what the zone says",
            self.0.confirmed.age().as_secs_f64(),
        )
    }
}
