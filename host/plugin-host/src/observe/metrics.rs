//! The crate's metrics. They are labelled with the plugin's name and, where they belong to a
//! version, with the version label.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::{
    status::{Recorded, RolloutKind},
    version_metrics::{VersionMetrics, Versions},
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
pub(crate) struct ResultLabel {
    plugin: String,
    result: &'static str,
}

/// The values of the label `result` of recorded calls.
const RECORDING_RESULTS: [&str; 4] = ["recorded", "dropped", "too-large", "failed"];

/// The values of the label `result` of shadows and canaries.
const CANDIDATE_RESULTS: [&str; 4] = ["same", "different", "failed", "dropped"];

type Counters = Family<Label, Counter<u64, AtomicU64>>;
type Gauges = Family<Label, Gauge>;

transom_common::metrics! {
    /// The metric families.
    struct Families {
        rejections: Counters
            => "transom_plugins_refusals", "Components rejected at admission";
        cache: Family<CacheLabel, Counter>
            => "transom_plugins_compiled_cache",
            "Lookups of compiled components on disk: hit, miss, or rejected as untrusted (also a miss)";
        admissions: Counters
            => "transom_plugins_admissions", "Versions activated";
        swaps: Counters
            => "transom_plugins_swaps", "Versions that replaced another one, rollbacks included";
        rollbacks: Counters
            => "transom_plugins_rollbacks", "Rollbacks to an earlier version, by probation or by an operator";
        promotions: Counters
            => "transom_plugins_promotions", "Shadows and canaries that took the place of the serving version";
        aborts: Counters
            => "transom_plugins_aborts",
            "Shadows and canaries that were stopped, by the host or by an operator";
        disabled: Gauges
            => "transom_plugins_disabled", "1 while the plugin is disabled after repeated faults";
        shadow: Family<ResultLabel, Counter>
            => "transom_plugins_shadow_answers",
            "Answers of a shadow version: same, different, failed, or dropped before the comparison";
        canary: Family<ResultLabel, Counter>
            => "transom_plugins_canary_answers",
            "Calls of a canary: failed, or repeated on the serving version: same, different, or dropped before the comparison";
        recording: Family<ResultLabel, Counter>
            => "transom_plugins_recorded_calls",
            "Calls chosen for the call log: recorded, dropped (the queue was full), too-large, or failed (not written)";
    }
}

/// All metrics, registered.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    versions: Versions,
    families: Families,
}

/// Counters of sampled calls for the call log.
#[derive(Clone, Debug)]
pub(crate) struct RecordingMetrics {
    pub(crate) recorded: Counter,
    /// Calls that were dropped because the queue was full.
    pub(crate) dropped: Counter,
    pub(crate) too_large: Counter,
    /// Calls that could not be written.
    pub(crate) failed: Counter,
}

/// Counters of the comparisons of a shadow or a canary.
#[derive(Clone, Debug)]
pub(crate) struct CandidateMetrics {
    pub(crate) same: Counter,
    pub(crate) different: Counter,
    pub(crate) failed: Counter,
    /// Calls that were not compared.
    pub(crate) dropped: Counter,
}

/// Lookups in the cache of compiled components.
#[derive(Clone, Debug)]
pub(crate) struct CacheStats {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) rejected: Counter,
}

fn label(plugin: &str) -> Label {
    Label {
        plugin: plugin.to_owned(),
    }
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Metrics {
        let versions = Versions::default();
        registry
            .sub_registry_with_prefix("transom_plugins")
            .register_collector(Box::new(versions.clone()));
        let families = Families::registered(registry);
        Metrics { versions, families }
    }

    pub(crate) fn cache(&self) -> CacheStats {
        let of = |result| self.families.cache.get_or_create_owned(&CacheLabel { result });
        CacheStats {
            hits: of("hit"),
            misses: of("miss"),
            rejected: of("rejected"),
        }
    }

    /// Sums the calls in progress and the instances over all versions of a plugin.
    pub(crate) fn in_flight_and_instances(&self, plugin: &str) -> (u64, u64) {
        self.versions.in_flight_and_instances(plugin)
    }

    /// Creates the measurements of a component in admission, and of the version that it becomes.
    pub(crate) fn create_version(&self, plugin: &str) -> VersionMetrics {
        self.versions.create_version(plugin)
    }

    pub(crate) fn candidate(&self, plugin: &str, kind: RolloutKind) -> CandidateMetrics {
        let family = match kind {
            RolloutKind::Shadow => &self.families.shadow,
            RolloutKind::Canary => &self.families.canary,
        };
        let of = |result| {
            let plugin = plugin.to_owned();
            family.get_or_create_owned(&ResultLabel { plugin, result })
        };
        CandidateMetrics {
            same: of(CANDIDATE_RESULTS[0]),
            different: of(CANDIDATE_RESULTS[1]),
            failed: of(CANDIDATE_RESULTS[2]),
            dropped: of(CANDIDATE_RESULTS[3]),
        }
    }

    pub(crate) fn recording(&self, plugin: &str) -> RecordingMetrics {
        let of = |result| {
            let plugin = plugin.to_owned();
            self.families
                .recording
                .get_or_create_owned(&ResultLabel { plugin, result })
        };
        RecordingMetrics {
            recorded: of(RECORDING_RESULTS[0]),
            dropped: of(RECORDING_RESULTS[1]),
            too_large: of(RECORDING_RESULTS[2]),
            failed: of(RECORDING_RESULTS[3]),
        }
    }

    /// Returns the counts of the sampled calls for the call log.
    pub(crate) fn recorded(&self, plugin: &str) -> Recorded {
        let counters = self.recording(plugin);
        Recorded {
            recorded: counters.recorded.get(),
            dropped: counters.dropped.get(),
            too_large: counters.too_large.get(),
            failed: counters.failed.get(),
        }
    }

    pub(crate) fn count_rejection(&self, plugin: &str) {
        self.families.rejections.get_or_create_owned(&label(plugin)).inc();
    }

    /// Counts a version that began to serve. `swapped`: it replaced another version.
    pub(crate) fn count_admission(&self, plugin: &str, swapped: bool) {
        self.families.admissions.get_or_create_owned(&label(plugin)).inc();
        let swaps = self.families.swaps.get_or_create_owned(&label(plugin));
        if swapped {
            swaps.inc();
        }
    }

    pub(crate) fn count_rollback(&self, plugin: &str) {
        self.families.rollbacks.get_or_create_owned(&label(plugin)).inc();
    }

    pub(crate) fn count_promotion(&self, plugin: &str) {
        self.families.promotions.get_or_create_owned(&label(plugin)).inc();
    }

    pub(crate) fn count_abort(&self, plugin: &str) {
        self.families.aborts.get_or_create_owned(&label(plugin)).inc();
    }

    /// Removes the series of a removed plugin, except for those of versions that still answer a
    /// call.
    pub(crate) fn forget(&self, plugin: &str) {
        let label = label(plugin);
        for counters in [
            &self.families.rejections,
            &self.families.admissions,
            &self.families.swaps,
            &self.families.rollbacks,
            &self.families.promotions,
            &self.families.aborts,
        ] {
            counters.remove(&label);
        }
        self.families.disabled.remove(&label);
        for (family, results) in [
            (&self.families.shadow, CANDIDATE_RESULTS),
            (&self.families.canary, CANDIDATE_RESULTS),
            (&self.families.recording, RECORDING_RESULTS),
        ] {
            for result in results {
                let plugin = plugin.to_owned();
                family.remove(&ResultLabel { plugin, result });
            }
        }
    }

    pub(crate) fn set_disabled(&self, plugin: &str, disabled: bool) {
        self.families
            .disabled
            .get_or_create_owned(&label(plugin))
            .set(i64::from(disabled));
    }
}
