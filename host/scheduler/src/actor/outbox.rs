//! Events that do not fit into the queue to the service.

use std::collections::VecDeque;

use transom_cluster::v1::TaskStatus;

use super::MAX_OUTBOX_BYTES;
use crate::Event;

/// About what an event keeps in memory besides its texts: the record of its task.
const EVENT_BYTES: usize = 1 << 10;

/// The events that wait for room in the queue, in order.
#[derive(Default)]
pub(super) struct Outbox {
    events: VecDeque<Event>,
    /// The sum of their [`bytes`].
    bytes: usize,
}

impl Outbox {
    pub(super) fn push(&mut self, event: Event) {
        self.bytes += bytes(&event);
        self.events.push_back(event);
    }

    pub(super) fn extend(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.push(event);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.bytes -= bytes(&event);
        Some(event)
    }

    /// Returns an event that [`Self::pop`] took.
    pub(super) fn put_back(&mut self, event: Event) {
        self.bytes += bytes(&event);
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

    /// Whether the events need so much memory that no further ones are read from the master.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= MAX_OUTBOX_BYTES
    }
}

/// What an event counts. Launches do not count: the service has requested each, so they are bounded
/// by its tasks, and a launch of thousands must not delay the acknowledgement of other updates.
fn bytes(event: &Event) -> usize {
    let of_status = |status: &TaskStatus| {
        let texts = [&status.message, &status.data];
        texts.into_iter().flatten().map(String::len).sum()
    };
    let texts: usize = match event {
        Event::Launched(_) => return 0,
        Event::Updated(record) => record.status.as_ref().map_or(0, of_status),
        Event::Unknown { status } => of_status(status),
        Event::Message { data, .. } => data.len(),
        _ => 0,
    };
    EVENT_BYTES + texts
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::testing::record;

    #[test]
    fn outbox_is_full_by_number_and_by_texts_but_not_by_launches() {
        let launch = || Event::Launched(Arc::new(record("t")));
        let mut outbox = Outbox::default();
        let most = MAX_OUTBOX_BYTES / EVENT_BYTES;
        outbox.extend((0..2 * most).map(|_| launch()));
        outbox.extend((1..most).map(|_| Event::Disconnected));
        assert!(!outbox.is_full());
        let first = outbox.pop().unwrap();
        outbox.put_back(first);
        outbox.push(Event::Disconnected);
        assert!(outbox.is_full());
        while outbox.pop().is_some() {}
        assert!(outbox.is_empty() && !outbox.is_full());

        let mut large = record("t");
        let message = Some("x".repeat(MAX_OUTBOX_BYTES / 2));
        large.status = Some(TaskStatus {
            message,
            ..TaskStatus::default()
        });
        let large = Arc::new(large);
        outbox.push(Event::Updated(Arc::clone(&large)));
        assert!(!outbox.is_full());
        outbox.push(Event::Updated(large));
        assert!(outbox.is_full());
    }
}
