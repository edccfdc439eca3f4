//! Counters of probes, kept across terms.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

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

transom_common::metrics! {
    /// Counters of attempts.
    pub(crate) struct Metrics {
        attempts: Family<Attempt, Counter>
            => "transom_apps_checks",
            "Probes of instances, by purpose, kind and outcome: passed, failed, or why there was no result";
        delay: Family<Purpose, Histogram, fn() -> Histogram> = Family::new_with_constructor(transom_common::durations)
            => "transom_apps_probe_lateness",
            "Delay from the time at which a probe is due to its start", Unit::Seconds;
        duration: Family<Kind, Histogram, fn() -> Histogram> = Family::new_with_constructor(transom_common::durations)
            => "transom_apps_probe", "Time that a probe took, by kind", Unit::Seconds;
        under_way: Gauge
            => "transom_apps_probes_running", "Probes in progress";
        scheduled: Gauge
            => "transom_apps_probes_scheduled", "Probes of running instances";
    }
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self::registered(registry)
    }

    pub(super) fn record_start(&self, purpose: &'static str, delay: Duration) {
        self.delay
            .get_or_create(&Purpose { purpose })
            .observe(delay.as_secs_f64());
    }

    pub(super) fn ended(
        &self,
        (purpose, kind): (&'static str, &'static str),
        outcome: &'static str,
        duration: Duration,
    ) {
        self.duration
            .get_or_create(&Kind { kind })
            .observe(duration.as_secs_f64());
        let labels = Attempt {
            purpose,
            kind,
            outcome,
        };
        self.attempts.get_or_create(&labels).inc();
    }

    pub(super) fn record_sizes(&self, under_way: usize, scheduled: usize) {
        self.under_way.set(i64::try_from(under_way).unwrap_or(i64::MAX));
        self.scheduled.set(i64::try_from(scheduled).unwrap_or(i64::MAX));
    }
}
