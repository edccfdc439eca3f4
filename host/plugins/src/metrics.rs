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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CacheLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ShadowLabel {
    plugin: String,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct FetchLabel {
    plugin: String,
    result: &'static str,
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
    cache: Family<CacheLabel, Counter>,
    admissions: Counters,
    rollbacks: Counters,
    parked: Gauges,
    parked_calls: Counters,
    shadow: Family<ShadowLabel, Counter>,
    fetches: Family<FetchLabel, Counter>,
}

/// What came of asking a version beside the one that serves.
#[derive(Clone, Debug)]
pub(crate) struct ShadowStats {
    pub(crate) same: Counter,
    pub(crate) different: Counter,
    pub(crate) failed: Counter,
    pub(crate) dropped: Counter,
}

/// What became of looking for compiled components on disk.
#[derive(Clone, Debug)]
pub(crate) struct CacheStats {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) rejected: Counter,
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
    /// Calls while it is parked.
    pub(crate) parked_calls: Counter,
}

impl Stats {
    /// For a version whose calls are not to count as the plugin's: shown nowhere.
    pub(crate) fn unseen() -> Stats {
        Stats {
            calls: Counter::default(),
            duration: histogram(),
            traps: Counter::default(),
            timeouts: Counter::default(),
            denials: Counter::default(),
            log_drops: Counter::default(),
            instances: Gauge::default(),
            in_flight: Gauge::default(),
            parked_calls: Counter::default(),
        }
    }
}

fn label(plugin: &str) -> Label {
    Label {
        plugin: plugin.to_owned(),
    }
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
            cache: Family::default(),
            admissions: Family::default(),
            rollbacks: Family::default(),
            parked: Family::default(),
            parked_calls: Family::default(),
            shadow: Family::default(),
            fetches: Family::default(),
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
        registry.register(
            "admissions",
            "Versions that began to serve",
            it.admissions.clone(),
        );
        registry.register(
            "rollbacks",
            "Returns to an earlier version, by probation or by an operator",
            it.rollbacks.clone(),
        );
        registry.register(
            "parked",
            "1 while the plugin is out of service because it kept failing",
            it.parked.clone(),
        );
        registry.register(
            "parked_calls",
            "Calls that were answered without the plugin because it is parked",
            it.parked_calls.clone(),
        );
        registry.register(
            "shadow_answers",
            "Answers of a version beside the one that serves: same, different, failed, and dropped before they were compared",
            it.shadow.clone(),
        );
        registry.register(
            "fetches",
            "Times that a registry was asked for a component: done, whether it was another than before or not, and failed",
            it.fetches.clone(),
        );
        registry.register(
            "compiled_cache",
            "Looks for a compiled component on disk: hit, miss, and (a miss, too) rejected as not to be trusted",
            it.cache.clone(),
        );
        it
    }

    pub(crate) fn cache(&self) -> CacheStats {
        let of = |result| self.cache.get_or_create_owned(&CacheLabel { result });
        CacheStats {
            hits: of("hit"),
            misses: of("miss"),
            rejected: of("rejected"),
        }
    }

    pub(crate) fn of(&self, plugin: &str) -> Stats {
        let label = label(plugin);
        Stats {
            calls: self.calls.get_or_create_owned(&label),
            duration: self.duration.get_or_create_owned(&label),
            traps: self.traps.get_or_create_owned(&label),
            timeouts: self.timeouts.get_or_create_owned(&label),
            denials: self.denials.get_or_create_owned(&label),
            log_drops: self.log_drops.get_or_create_owned(&label),
            instances: self.instances.get_or_create_owned(&label),
            in_flight: self.in_flight.get_or_create_owned(&label),
            parked_calls: self.parked_calls.get_or_create_owned(&label),
        }
    }

    pub(crate) fn shadow(&self, plugin: &str) -> ShadowStats {
        let of = |result| {
            let plugin = plugin.to_owned();
            self.shadow.get_or_create_owned(&ShadowLabel { plugin, result })
        };
        ShadowStats {
            same: of("same"),
            different: of("different"),
            failed: of("failed"),
            dropped: of("dropped"),
        }
    }

    pub(crate) fn fetched(&self, plugin: &str, done: bool) {
        let label = FetchLabel {
            plugin: plugin.to_owned(),
            result: if done { "done" } else { "failed" },
        };
        self.fetches.get_or_create_owned(&label).inc();
    }

    pub(crate) fn refused(&self, plugin: &str) {
        self.refusals.get_or_create_owned(&label(plugin)).inc();
    }

    pub(crate) fn admitted(&self, plugin: &str) {
        self.admissions.get_or_create_owned(&label(plugin)).inc();
    }

    pub(crate) fn rolled_back(&self, plugin: &str) {
        self.rollbacks.get_or_create_owned(&label(plugin)).inc();
    }

    pub(crate) fn parked(&self, plugin: &str, parked: bool) {
        self.parked
            .get_or_create_owned(&label(plugin))
            .set(i64::from(parked));
    }
}
