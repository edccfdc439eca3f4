//! The crate's metrics, all labelled with the plugin's name.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Label {
    plugin: String,
}

type Counters = Family<Label, Counter<u64, AtomicU64>>;
type Gauges = Family<Label, Gauge>;
type Histograms = Family<Label, Histogram, fn() -> Histogram>;

/// The families, as registered.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    calls: Counters,
    duration: Histograms,
    traps: Counters,
    timeouts: Counters,
    refusals: Counters,
    denials: Counters,
    log_drops: Counters,
    instances: Gauges,
    in_flight: Gauges,
}

/// One plugin's own.
#[derive(Clone, Debug)]
pub(crate) struct Stats {
    pub(crate) calls: Counter,
    pub(crate) duration: Histogram,
    pub(crate) traps: Counter,
    pub(crate) timeouts: Counter,
    pub(crate) denials: Counter,
    pub(crate) log_drops: Counter,
    pub(crate) instances: Gauge,
    pub(crate) in_flight: Gauge,
}

fn histogram() -> Histogram {
    // 10 us to 10 s.
    Histogram::new(exponential_buckets(0.000_01, 4.0, 11))
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Metrics {
        let it = Metrics {
            calls: Family::default(),
            duration: Family::new_with_constructor(histogram),
            traps: Family::default(),
            timeouts: Family::default(),
            refusals: Family::default(),
            denials: Family::default(),
            log_drops: Family::default(),
            instances: Family::default(),
            in_flight: Family::default(),
        };
        let registry = registry.sub_registry_with_prefix("transom_plugins");
        registry.register("calls", "Calls into components", it.calls.clone());
        registry.register_with_unit(
            "call_duration",
            "Time of a call in its instance, waiting for its turn left out",
            Unit::Seconds,
            it.duration.clone(),
        );
        registry.register(
            "traps",
            "Calls that ended in a trap or an unusable answer",
            it.traps.clone(),
        );
        registry.register(
            "timeouts",
            "Calls stopped for their use of wall-clock or processor time",
            it.timeouts.clone(),
        );
        registry.register(
            "refusals",
            "Components that were not admitted",
            it.refusals.clone(),
        );
        registry.register(
            "denials",
            "Steps to destinations, or commands, that were not granted",
            it.denials.clone(),
        );
        registry.register("log_drops", "Log lines over the limit", it.log_drops.clone());
        registry.register("instances", "Live instances", it.instances.clone());
        registry.register(
            "in_flight",
            "Calls and attempts in progress",
            it.in_flight.clone(),
        );
        it
    }

    pub(crate) fn of(&self, plugin: &str) -> Stats {
        let label = Label {
            plugin: plugin.to_owned(),
        };
        Stats {
            calls: self.calls.get_or_create_owned(&label),
            duration: self.duration.get_or_create_owned(&label),
            traps: self.traps.get_or_create_owned(&label),
            timeouts: self.timeouts.get_or_create_owned(&label),
            denials: self.denials.get_or_create_owned(&label),
            log_drops: self.log_drops.get_or_create_owned(&label),
            instances: self.instances.get_or_create_owned(&label),
            in_flight: self.in_flight.get_or_create_owned(&label),
        }
    }

    pub(crate) fn refused(&self, plugin: &str) {
        self.refusals
            .get_or_create_owned(&Label {
                plugin: plugin.to_owned(),
            })
            .inc();
    }
}
