//! Metrics of the event bus.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Why an event is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LossReason {
    /// The event has more than [`MAX_EVENT_BYTES`](super::MAX_EVENT_BYTES) bytes.
    TooLarge,
    /// The component failed on it.
    Undecided,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct LostLabel {
    reason: &'static str,
}

impl From<LossReason> for LostLabel {
    fn from(reason: LossReason) -> Self {
        let reason = match reason {
            LossReason::TooLarge => "too-large",
            LossReason::Undecided => "undecided",
        };
        Self { reason }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

transom_common::metrics! {
    /// Counters, kept across terms. Cheap to clone.
    pub(crate) struct Metrics {
        published: Family<KindLabel, Counter>
            => "transom_apps_events", "Events published, by kind";
        pub(super) delivered: Counter
            => "transom_apps_events_delivered", "Events queued for subscribers, counted once for each";
        pub(super) closed: Counter
            => "transom_apps_event_streams_closed", "Event streams closed by the daemon";
        pub(super) lost: Family<LostLabel, Counter>
            => "transom_apps_events_dropped",
            "Events not sent, by reason: too-large, undecided (the events component failed; counted once per \
             distinct query)";
        pub(super) streams: Gauge
            => "transom_apps_event_streams", "Open event streams";
        pub(super) gaps: Counter
            => "transom_apps_event_gaps", "Streams that could not resume without missing events";
        pub(super) unannounced: Counter
            => "transom_apps_event_streams_unannounced",
            "Attach and detach events not sent, because many streams attached or detached at once";
    }
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self::registered(registry)
    }

    pub(super) fn record_published(&self, kind: &'static str) {
        self.published.get_or_create(&KindLabel { kind }).inc();
    }

    pub(super) fn record_loss(&self, reason: LossReason) {
        self.lost.get_or_create(&reason.into()).inc();
    }
}
