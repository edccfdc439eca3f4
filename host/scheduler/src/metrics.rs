//! What this crate counts. All names begin with `transom_scheduler_` and carry the label `framework`, the
//! store prefix.

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

/// One framework's counters. Cloning shares them: they go on counting when the scheduler is started again.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    pub(crate) connected: Gauge,
    pub(crate) subscriptions: Counter,
    pub(crate) fresh_registrations: Counter,
    pub(crate) offers: Counter,
    pub(crate) declined_offers: Counter,
    pub(crate) rounds: Counter,
    pub(crate) launches: Counter,
    pub(crate) updates: Counter,
    pub(crate) duplicate_updates: Counter,
    pub(crate) unknown_updates: Counter,
    pub(crate) store_failures: Counter,
    pub(crate) matcher_failures: Counter,
    pub(crate) event_stalls: Counter,
    pub(crate) waiting: Gauge,
    pub(crate) records: Gauge,
    refusals: Family<ReasonLabel, Counter>,
    failed_calls: Family<CallLabel, Counter>,
}

impl Metrics {
    /// Makes the counters of `framework` part of `registry`; once for each framework.
    pub fn register(registry: &mut Registry, framework: &str) -> Self {
        let metrics = Self::default();
        let labelled =
            registry.sub_registry_with_label((Cow::Borrowed("framework"), Cow::Owned(framework.to_owned())));
        let registry = labelled.sub_registry_with_prefix("transom_scheduler");
        let Self {
            connected,
            waiting,
            records,
            refusals,
            failed_calls,
            ..
        } = metrics.clone();
        registry.register("connected", "1 while subscribed to the cluster", connected);
        registry.register("waiting_tasks", "Wanted tasks without a place", waiting);
        registry.register("task_records", "Tasks launched and not yet forgotten", records);
        registry.register("refusals", "Reasons met in matching rounds", refusals);
        registry.register(
            "failed_calls",
            "Calls that the cluster refused or did not get",
            failed_calls,
        );
        let counters = [
            ("subscriptions", "Subscriptions made", &metrics.subscriptions),
            (
                "fresh_registrations",
                "Framework ids given by the cluster",
                &metrics.fresh_registrations,
            ),
            ("offers", "Offers received", &metrics.offers),
            ("declined_offers", "Offers declined", &metrics.declined_offers),
            ("rounds", "Matching rounds", &metrics.rounds),
            ("launches", "Tasks the cluster took for launch", &metrics.launches),
            ("updates", "Task statuses received", &metrics.updates),
            (
                "duplicate_updates",
                "Task statuses received again",
                &metrics.duplicate_updates,
            ),
            (
                "unknown_updates",
                "Statuses of tasks that no record knows",
                &metrics.unknown_updates,
            ),
            (
                "store_failures",
                "Times the store did not take what was to be stored",
                &metrics.store_failures,
            ),
            (
                "matcher_failures",
                "Questions the attribute matcher could not answer",
                &metrics.matcher_failures,
            ),
            (
                "event_stalls",
                "Times the job took no events for long",
                &metrics.event_stalls,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        metrics
    }

    pub(crate) fn refused(&self, reason: Reason, count: u32) {
        self.refusals
            .get_or_create(&ReasonLabel {
                reason: reason.as_str(),
            })
            .inc_by(u64::from(count));
    }

    pub(crate) fn call_failed(&self, call: &'static str) {
        self.failed_calls.get_or_create(&CallLabel { call }).inc();
    }
}
