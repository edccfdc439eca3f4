//! The crate's metrics. Names begin with `transom_scheduler_`; the label `framework` is the store
//! prefix.

use std::borrow::Cow;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use transom_common::Described;

use crate::{Reason, TaskRecord};

/// Label of counters by reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ReasonLabel {
    reason: &'static str,
}

/// Label of counters by event or call type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CallLabel {
    call: &'static str,
}

/// Label of status updates.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StateLabel {
    state: String,
}

/// A histogram of durations from a millisecond to about half a minute.
#[derive(Clone, Debug)]
pub(crate) struct Durations(pub(crate) Histogram);

impl Default for Durations {
    fn default() -> Self {
        Self(Histogram::new(exponential_buckets(0.001, 2.0, 16)))
    }
}

/// One framework's counters. Clones share them, so they continue when the scheduler is started
/// again.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    pub(crate) connected: Gauge,
    pub(crate) subscriptions: Counter,
    pub(crate) framework_registrations: Counter,
    pub(crate) offers: Counter,
    pub(crate) declined_offers: Counter,
    pub(crate) matching_rounds: Counter,
    pub(crate) launches: Counter,
    pub(crate) status_updates: Counter,
    pub(crate) duplicate_status_updates: Counter,
    pub(crate) unknown_status_updates: Counter,
    pub(crate) store_failures: Counter,
    pub(crate) matcher_failures: Counter,
    pub(crate) event_backpressure: Counter,
    pub(crate) pending_tasks: Gauge,
    pub(crate) tasks: Gauge,
    pub(crate) held_offers: Gauge,
    pub(crate) known_agents: Gauge,
    pub(crate) round_seconds: Durations,
    pub(crate) start_seconds: Durations,
    task_states: Family<StateLabel, Counter>,
    offer_rejections: Family<ReasonLabel, Counter>,
    call_failures: Family<CallLabel, Counter>,
}

impl Metrics {
    /// Registers the counters of `framework`; once for each framework.
    pub fn register(registry: &mut Registry, framework: &str) -> Self {
        let metrics = Self::default();
        let labelled =
            registry.sub_registry_with_label((Cow::Borrowed("framework"), Cow::Owned(framework.to_owned())));
        let registry = labelled.sub_registry_with_prefix("transom_scheduler");
        let Self {
            connected,
            pending_tasks,
            tasks,
            held_offers,
            known_agents,
            round_seconds,
            start_seconds,
            task_states,
            offer_rejections,
            call_failures,
            ..
        } = metrics.clone();
        registry.register("connected", "1 while subscribed to the cluster", connected);
        registry.register(
            "pending_tasks",
            "Requested tasks that are not launched",
            pending_tasks,
        );
        registry.register("tasks", "Launched tasks that are in the store", tasks);
        registry.register(
            "held_offers",
            "Offers that are neither accepted nor declined yet",
            held_offers,
        );
        registry.register("agents", "Agents that the matcher knows", known_agents);
        registry.register(
            "round_seconds",
            "Time that a matching round took, with its launches",
            round_seconds.0,
        );
        registry.register(
            "start_seconds",
            "Time from the ACCEPT of a task to its first TASK_RUNNING",
            start_seconds.0,
        );
        registry.register(
            "task_states",
            "Changes of tasks to a state, such as TASK_FAILED",
            Described(task_states),
        );
        registry.register(
            "offer_rejections",
            "Offers that did not fit a task, by reason",
            Described(offer_rejections),
        );
        registry.register(
            "call_failures",
            "Calls that the master rejected or that did not reach it, by call",
            Described(call_failures),
        );
        metrics.register_counters(registry);
        metrics
    }

    fn register_counters(&self, registry: &mut Registry) {
        let counters = [
            (
                "subscriptions",
                "Subscriptions to the master",
                &self.subscriptions,
            ),
            (
                "framework_registrations",
                "Registrations with a new framework id",
                &self.framework_registrations,
            ),
            ("offers", "Offers received", &self.offers),
            ("declined_offers", "Offers declined", &self.declined_offers),
            ("matching_rounds", "Matching rounds", &self.matching_rounds),
            (
                "launches",
                "Tasks whose launch the master accepted",
                &self.launches,
            ),
            (
                "status_updates",
                "Task status updates received",
                &self.status_updates,
            ),
            (
                "duplicate_status_updates",
                "Task status updates received more than once",
                &self.duplicate_status_updates,
            ),
            (
                "unknown_status_updates",
                "Status updates of tasks that are not in the store",
                &self.unknown_status_updates,
            ),
            (
                "store_failures",
                "Failed writes to the store",
                &self.store_failures,
            ),
            (
                "matcher_failures",
                "Failed calls of the matcher",
                &self.matcher_failures,
            ),
            (
                "event_backpressure",
                "Times that the service did not read an event within the timeout",
                &self.event_backpressure,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
    }

    pub(crate) fn rejected(&self, reason: Reason, count: u32) {
        self.offer_rejections
            .get_or_create(&ReasonLabel {
                reason: reason.as_str(),
            })
            .inc_by(u64::from(count));
    }

    /// Counts a stored status that has changed the state of a task.
    pub(crate) fn changed(&self, record: &TaskRecord) {
        let state = record.state.as_str().to_owned();
        self.task_states.get_or_create(&StateLabel { state }).inc();
    }

    /// Observes how long a task took to start that runs for the first time.
    pub(crate) fn started(&self, record: &TaskRecord) {
        if let (Some(staged), Some(started)) = (record.staged_at, record.started_at) {
            let seconds = started.duration_since(staged).as_secs_f64();
            self.start_seconds.0.observe(seconds.max(0.0));
        }
    }

    pub(crate) fn call_failed(&self, call: &'static str) {
        self.call_failures.get_or_create(&CallLabel { call }).inc();
    }
}
