//! The crate's metrics. Names begin with `transom_scheduler_`; the label `framework` is the store
//! prefix.

use std::borrow::Cow;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::Reason;

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
            "offer_rejections",
            "Offers that did not fit a task, by reason",
            offer_rejections,
        );
        registry.register(
            "call_failures",
            "Calls that the master rejected or that did not reach it, by call",
            call_failures,
        );
        let counters = [
            (
                "subscriptions",
                "Subscriptions to the master",
                &metrics.subscriptions,
            ),
            (
                "framework_registrations",
                "Registrations with a new framework id",
                &metrics.framework_registrations,
            ),
            ("offers", "Offers received", &metrics.offers),
            ("declined_offers", "Offers declined", &metrics.declined_offers),
            ("matching_rounds", "Matching rounds", &metrics.matching_rounds),
            (
                "launches",
                "Tasks whose launch the master accepted",
                &metrics.launches,
            ),
            (
                "status_updates",
                "Task status updates received",
                &metrics.status_updates,
            ),
            (
                "duplicate_status_updates",
                "Task status updates received more than once",
                &metrics.duplicate_status_updates,
            ),
            (
                "unknown_status_updates",
                "Status updates of tasks that are not in the store",
                &metrics.unknown_status_updates,
            ),
            (
                "store_failures",
                "Failed writes to the store",
                &metrics.store_failures,
            ),
            (
                "matcher_failures",
                "Failed calls of the matcher",
                &metrics.matcher_failures,
            ),
            (
                "event_backpressure",
                "Timeouts that the service did not take an event in time",
                &metrics.event_backpressure,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        metrics
    }

    pub(crate) fn rejected(&self, reason: Reason, count: u32) {
        self.offer_rejections
            .get_or_create(&ReasonLabel {
                reason: reason.as_str(),
            })
            .inc_by(u64::from(count));
    }

    pub(crate) fn call_failed(&self, call: &'static str) {
        self.call_failures.get_or_create(&CallLabel { call }).inc();
    }
}
