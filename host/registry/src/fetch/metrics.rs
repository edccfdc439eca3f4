//! The metrics of fetches, labelled with the plugin's name.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use transom_common::Described;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Label {
    plugin: String,
    result: &'static str,
}

/// The values of the label `result`.
const RESULTS: [&str; 2] = ["done", "failed"];

/// The counters of fetches, as registered. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FetchMetrics(Family<Label, Counter>);

impl FetchMetrics {
    /// Registers `transom_plugins_fetches`.
    pub fn register(registry: &mut Registry) -> FetchMetrics {
        let fetches = Family::default();
        registry.sub_registry_with_prefix("transom_plugins").register(
            "fetches",
            "Fetches from registries: done (changed or not) or failed",
            Described(Family::clone(&fetches)),
        );
        FetchMetrics(fetches)
    }

    pub(super) fn fetched(&self, plugin: &str, done: bool) {
        let label = Label {
            plugin: plugin.to_owned(),
            result: RESULTS[usize::from(!done)],
        };
        self.0.get_or_create_owned(&label).inc();
    }

    /// Removes the series of a plugin that was removed.
    pub(super) fn forget(&self, plugin: &str) {
        for result in RESULTS {
            let plugin = plugin.to_owned();
            self.0.remove(&Label { plugin, result });
        }
    }
}
