//! Publishes the changes of a turn: one immutable snapshot, then the events, then the replies.

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::snapshot::Snapshot;
use crate::bus::{Bus, Draft};
use crate::ids::SpecId;

/// What a turn has changed for readers.
pub(super) struct Publisher {
    bus: Bus,
    /// The last published snapshot, and changes of this turn.
    pub(super) next: Snapshot,
    published: Arc<ArcSwap<Snapshot>>,
    /// Apps and pods whose view has to be rebuilt.
    changed: BTreeSet<SpecId>,
    /// Events that are published on the bus once the snapshot shows what they report.
    events: Vec<Draft>,
    /// Replies that are sent after the events.
    replies: Vec<Box<dyn FnOnce() + Send + Sync>>,
}

impl Publisher {
    pub(super) fn new(bus: Bus, published: Arc<ArcSwap<Snapshot>>) -> Self {
        Self {
            bus,
            next: Snapshot::default(),
            published,
            changed: BTreeSet::new(),
            events: Vec::new(),
            replies: Vec::new(),
        }
    }

    /// Marks an app or pod whose view has to be rebuilt.
    pub(super) fn changed(&mut self, id: &SpecId) {
        if !self.changed.contains(id) {
            self.changed.insert(id.clone());
        }
    }

    /// The marked apps and pods; then none is.
    pub(super) fn take_changed(&mut self) -> BTreeSet<SpecId> {
        std::mem::take(&mut self.changed)
    }

    pub(super) fn event(&mut self, event: Draft) {
        self.events.push(event);
    }

    pub(super) fn events(&mut self, events: impl IntoIterator<Item = Draft>) {
        self.events.extend(events);
    }

    pub(super) fn reply(&mut self, reply: impl FnOnce() + Send + Sync + 'static) {
        self.replies.push(Box::new(reply));
    }

    /// Publishes the next snapshot, the events and the replies, in this order.
    pub(super) fn publish(&mut self) {
        self.published.store(Arc::new(self.next.clone()));
        for event in self.events.drain(..) {
            self.bus.publish(event);
        }
        for reply in self.replies.drain(..) {
            reply();
        }
    }
}
