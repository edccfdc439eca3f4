//! Events that do not fit into the queue to the service.

use std::collections::VecDeque;

use super::MAX_OUTBOX_EVENTS;
use crate::Event;

/// The events that wait for room in the queue, in order.
#[derive(Default)]
pub(super) struct Outbox {
    events: VecDeque<Event>,
    /// How many of them report launches.
    launches: usize,
}

impl Outbox {
    pub(super) fn push(&mut self, event: Event) {
        self.launches += usize::from(is_launch(&event));
        self.events.push_back(event);
    }

    pub(super) fn extend(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.push(event);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.launches -= usize::from(is_launch(&event));
        Some(event)
    }

    /// Returns an event that [`Self::pop`] took.
    pub(super) fn put_back(&mut self, event: Event) {
        self.launches += usize::from(is_launch(&event));
        self.events.push_front(event);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether so many events wait that no further ones are read from the master. Launches do not
    /// count: the service has requested each, so they are bounded by its tasks, and a launch of
    /// thousands must not delay the acknowledgement of other updates.
    pub(super) fn is_full(&self) -> bool {
        self.events.len() - self.launches >= MAX_OUTBOX_EVENTS
    }
}

fn is_launch(event: &Event) -> bool {
    matches!(event, Event::Launched(_))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::record;

    #[test]
    fn launches_do_not_fill_the_outbox() {
        let launch = || Event::Launched(Arc::new(record("t")));
        let mut outbox = Outbox::default();
        outbox.extend((0..2 * MAX_OUTBOX_EVENTS).map(|_| launch()));
        outbox.extend((1..MAX_OUTBOX_EVENTS).map(|_| Event::Disconnected));
        assert!(!outbox.is_full());
        let first = outbox.pop().unwrap();
        outbox.put_back(first);
        outbox.push(Event::Disconnected);
        assert!(outbox.is_full());
        while outbox.pop().is_some() {}
        assert!(outbox.is_empty() && !outbox.is_full());
    }
}
