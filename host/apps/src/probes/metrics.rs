//! Counters of probes, kept across terms.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use transom_common::Described;

/// Labels of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Attempt {
    purpose: &'static str,
    kind: &'static str,
    outcome: &'static str,
}

/// The purpose of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Purpose {
    purpose: &'static str,
}

/// The kind of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

/// Counters of attempts.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    attempts: Family<Attempt, Counter>,
    late: Family<Purpose, Histogram, fn() -> Histogram>,
    took: Family<Kind, Histogram, fn() -> Histogram>,
    under_way: Gauge,
    scheduled: Gauge,
}

/// From a millisecond to about half a minute.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 16))
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            attempts: Family::default(),
            late: Family::new_with_constructor(durations),
            took: Family::new_with_constructor(durations),
            under_way: Gauge::default(),
            scheduled: Gauge::default(),
        };
        registry.register(
            "transom_apps_checks",
            "Probes of instances, by purpose, kind and outcome: passed, failed, or why there was no result",
            Described(metrics.attempts.clone()),
        );
        registry.register_with_unit(
            "transom_apps_probe_lateness",
            "From the time at which a probe is due to its start",
            Unit::Seconds,
            Described(metrics.late.clone()),
        );
        registry.register_with_unit(
            "transom_apps_probe",
            "Time that a probe took, by kind",
            Unit::Seconds,
            Described(metrics.took.clone()),
        );
        registry.register(
            "transom_apps_probes_running",
            "Probes that are under way",
            metrics.under_way.clone(),
        );
        registry.register(
            "transom_apps_probes_scheduled",
            "Probes of running instances",
            metrics.scheduled.clone(),
        );
        metrics
    }

    pub(super) fn started(&self, purpose: &'static str, late: Duration) {
        self.late
            .get_or_create(&Purpose { purpose })
            .observe(late.as_secs_f64());
    }

    pub(super) fn ended(
        &self,
        (purpose, kind): (&'static str, &'static str),
        outcome: &'static str,
        took: Duration,
    ) {
        self.took
            .get_or_create(&Kind { kind })
            .observe(took.as_secs_f64());
        let labels = Attempt {
            purpose,
            kind,
            outcome,
        };
        self.attempts.get_or_create(&labels).inc();
    }

    pub(super) fn sizes(&self, under_way: usize, scheduled: usize) {
        self.under_way.set(i64::try_from(under_way).unwrap_or(i64::MAX));
        self.scheduled.set(i64::try_from(scheduled).unwrap_or(i64::MAX));
    }
}
