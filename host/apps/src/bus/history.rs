//! Past events of the ring, for an explanation of what a query passes.

use jiff::Timestamp;
use transom_plugin_host::events::Event;

use super::Bus;
use super::ring::Evicted;

/// The events of the ring that were published between a time and the request. They are read in
/// batches, so only events that are read are copied, and publishing is not blocked.
#[derive(Debug)]
pub(crate) struct History {
    pub(super) bus: Bus,
    pub(super) light: bool,
    /// The number of the next event.
    pub(super) next: u64,
    /// The number of the first event after the request.
    pub(super) until: u64,
    pub(super) oldest: Option<Timestamp>,
}

impl History {
    /// When the oldest kept event was published; `None` if none is kept.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        self.oldest
    }

    /// The next batch, in order; empty at the end. Events that the ring drops meanwhile are left out.
    pub(crate) fn next_batch(&mut self) -> Vec<Event> {
        while self.next < self.until {
            match self.bus.past_batch(self.next, self.until) {
                Ok(batch) => {
                    let Some(last) = batch.last() else { break };
                    self.next = last.sequence + 1;
                    return batch.iter().map(|event| event.event(self.light)).collect();
                }
                Err(Evicted { oldest }) => self.next = oldest,
            }
        }
        Vec::new()
    }
}
