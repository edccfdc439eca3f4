//! Status updates that arrive while the actor has much to do: while it carries out many requests, in
//! a long call of the matcher, between its calls, and while it launches many tasks. They do not wait
//! for the end of the turn; all other events do, because offers, agents and subscription must not
//! change within a round.

use std::pin::pin;
use std::time::Duration;

use transom_cluster::scheduler::Event as ClusterEvent;

use super::{Actor, EVENT_QUEUE_CAPACITY};
use crate::subscription::SubscriptionEvent;

/// How long status updates wait at least during a round, so that one write stores many of them.
const MIN_INTERVAL: Duration = Duration::from_millis(25);

/// Maximum batches of status updates between two parts of a launch, so that it ends although further
/// ones arrive.
const MAX_BATCHES: usize = 16;

impl Actor {
    /// Waits for the matcher, and handles status updates meanwhile.
    pub(super) async fn meanwhile<T>(&mut self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        tokio::select! {
            biased;
            answer = &mut call => {
                // A short call never waits, so that updates would wait for all calls of a round.
                self.take_due_status_updates().await;
                return answer;
            }
            () = tokio::time::sleep_until(self.statuses_saved_at + MIN_INTERVAL) => {}
        }
        loop {
            let has_room = self.has_room_for_events();
            tokio::select! {
                biased;
                answer = &mut call => return answer,
                Some(event) = self.subscription_events.recv(), if has_room => {
                    self.sort_event(event);
                    self.take_status_updates().await;
                }
            }
        }
    }

    /// Handles the status updates that have arrived, if that is due. A loop over many tasks calls it
    /// for each of them.
    pub(super) async fn take_due_status_updates(&mut self) {
        if self.statuses_saved_at.elapsed() >= MIN_INTERVAL {
            self.take_status_updates().await;
        }
    }

    /// Handles the status updates that have arrived.
    pub(super) async fn take_status_updates(&mut self) {
        for _ in 0..MAX_BATCHES {
            while self.has_room_for_events()
                && let Ok(event) = self.subscription_events.try_recv()
            {
                self.sort_event(event);
            }
            let is_last = self.has_room_for_events();
            self.save_statuses().await;
            self.publish_state();
            self.deliver();
            if is_last {
                return;
            }
        }
    }

    /// Whether the subscription has ended since this turn began.
    pub(super) fn has_subscription_ended(&self) -> bool {
        let is_end = |event: &SubscriptionEvent| !matches!(event, SubscriptionEvent::Event(_));
        self.delayed_events.last().is_some_and(is_end)
    }

    fn has_room_for_events(&self) -> bool {
        !self.outbox.is_full()
            && self.inbound.len() + self.delayed_events.len() < EVENT_QUEUE_CAPACITY
            && !self.has_subscription_ended()
    }

    /// Adds an event to those of this turn or to those of the next one.
    fn sort_event(&mut self, event: SubscriptionEvent) {
        let is_status_update = matches!(
            &event,
            SubscriptionEvent::Event(event) if matches!(**event, ClusterEvent::Update(_))
        );
        if is_status_update {
            self.subscription_event(event);
        } else {
            self.delayed_events.push(event);
        }
    }
}
