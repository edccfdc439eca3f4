//! The crate's metrics. Names begin with `transom_scheduler_`; the label `framework` is the store
//! prefix.

use std::borrow::Cow;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

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

transom_common::metrics! {
    /// One framework's counters. Clones share them, so they continue when the scheduler is started
    /// again.
    pub struct Metrics {
        pub(crate) connected: Gauge
            => "connected", "1 while subscribed to the cluster";
        pub(crate) subscriptions: Counter
            => "subscriptions", "Subscriptions to the master";
        pub(crate) framework_registrations: Counter
            => "framework_registrations", "Registrations with a new framework id";
        pub(crate) offers: Counter
            => "offers", "Offers received";
        pub(crate) declined_offers: Counter
            => "declined_offers", "Offers declined";
        pub(crate) matching_rounds: Counter
            => "matching_rounds", "Matching rounds";
        pub(crate) launches: Counter
            => "launches", "Tasks whose launch the master accepted";
        pub(crate) status_updates: Counter
            => "status_updates", "Task status updates received";
        pub(crate) duplicate_status_updates: Counter
            => "duplicate_status_updates", "Task status updates received more than once";
        pub(crate) unknown_status_updates: Counter
            => "unknown_status_updates", "Status updates of tasks that are not in the store";
        pub(crate) store_failures: Counter
            => "store_failures", "Failed writes to the store";
        pub(crate) matcher_failures: Counter
            => "matcher_failures", "Failed calls of the matcher";
        pub(crate) event_backpressure: Counter
            => "event_backpressure", "Times that the service did not read an event within the timeout";
        pub(crate) pending_tasks: Gauge
            => "pending_tasks", "Requested tasks that are not launched";
        pub(crate) tasks: Gauge
            => "tasks", "Launched tasks that are in the store";
        pub(crate) held_offers: Gauge
            => "held_offers", "Offers that are neither accepted nor declined yet";
        pub(crate) known_agents: Gauge
            => "agents", "Agents that the matcher knows";
        pub(crate) round_seconds: Histogram = transom_common::durations()
            => "round_seconds", "Time that a matching round took, with its launches";
        pub(crate) start_seconds: Histogram = transom_common::durations()
            => "start_seconds", "Time from the ACCEPT of a task to its first TASK_RUNNING";
        task_states: Family<StateLabel, Counter>
            => "task_states", "Changes of tasks to a state, such as TASK_FAILED";
        offer_rejections: Family<ReasonLabel, Counter>
            => "offer_rejections", "Offers that did not fit a task, by reason";
        call_failures: Family<CallLabel, Counter>
            => "call_failures", "Calls that the master rejected or that did not reach it, by call";
    }
}

impl Metrics {
    /// Registers the counters of `framework`; once for each framework.
    pub fn register(registry: &mut Registry, framework: &str) -> Self {
        let labelled =
            registry.sub_registry_with_label((Cow::Borrowed("framework"), Cow::Owned(framework.to_owned())));
        Self::registered(labelled.sub_registry_with_prefix("transom_scheduler"))
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
            self.start_seconds.observe(seconds.max(0.0));
        }
    }

    pub(crate) fn call_failed(&self, call: &'static str) {
        self.call_failures.get_or_create(&CallLabel { call }).inc();
    }
}
