//! What this crate counts. All names begin with `transom_workflow_`.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::state::Shown;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

/// Counters; they go on from one time of leading to the next. Cloning shares them.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) queued: Counter,
    pub(crate) waiting: Gauge,
    pub(crate) running: Gauge,
    pub(crate) remembered: Gauge,
    /// Seconds from queueing to launch.
    pub(crate) wait: Histogram,
    ended: Family<StateLabel, Counter>,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            queued: Counter::default(),
            waiting: Gauge::default(),
            running: Gauge::default(),
            remembered: Gauge::default(),
            wait: Histogram::new(exponential_buckets(0.005, 4.0, 10)),
            ended: Family::default(),
        };
        let Self {
            queued,
            waiting,
            running,
            remembered,
            wait,
            ended,
        } = metrics.clone();
        let registry = registry.sub_registry_with_prefix("transom_workflow");
        registry.register("queued", "Jobs taken into the queue", queued);
        registry.register("waiting", "Jobs that have no place yet", waiting);
        registry.register("running", "Jobs that were launched and have not ended", running);
        registry.register("remembered", "Jobs that can be looked up", remembered);
        registry.register("wait_seconds", "From queueing a job to launching it", wait);
        registry.register("ended", "Jobs that ended, by the state they show", ended);
        metrics
    }

    pub(crate) fn ended(&self, state: Shown) {
        let label = StateLabel {
            state: state.as_str(),
        };
        self.ended.get_or_create(&label).inc();
    }

    /// Nobody waits and nothing runs here any more.
    pub(crate) fn step_down(&self) {
        self.waiting.set(0);
        self.running.set(0);
    }
}
