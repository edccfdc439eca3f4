//! The metrics of fetches, labelled with the plugin's name.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Label {
    plugin: String,
    result: &'static str,
}

/// The values of the label `result`.
const RESULTS: &[&str] = &["done", "failed"];

transom_common::metrics! {
    /// The counters of fetches, as registered. Cheap to clone.
    pub struct FetchMetrics {
        fetches: Family<Label, Counter>
            => "transom_plugins_fetches", "Fetches from registries: done (changed or not) or failed";
    }
}

impl FetchMetrics {
    /// Registers `transom_plugins_fetches`.
    pub fn register(registry: &mut Registry) -> FetchMetrics {
        FetchMetrics::registered(registry)
    }

    pub(super) fn fetched(&self, plugin: &str, done: bool) {
        let label = Label {
            plugin: plugin.to_owned(),
            result: RESULTS[usize::from(!done)],
        };
        self.fetches.get_or_create_owned(&label).inc();
    }

    /// Removes the series of a plugin that was removed.
    pub(super) fn forget(&self, plugin: &str) {
        for &result in RESULTS {
            let plugin = plugin.to_owned();
            self.fetches.remove(&Label { plugin, result });
        }
    }
}
