//! The outstanding offers.

use std::collections::BTreeSet;

use tokio::time::Instant;
use transom_cluster::{OfferId, v1};

use crate::matching::OpenOffer;

/// The outstanding offers in the order of arrival. Offers that arrive during a pass are kept for
/// the next pass.
#[derive(Debug, Default)]
pub(crate) struct OfferPool {
    offers: Vec<OpenOffer>,
    next_pass: Vec<OpenOffer>,
    /// Offers that are declined without being matched.
    to_decline: Vec<OfferId>,
    /// Start of the current pass, if it takes several rounds.
    pass_started_at: Option<Instant>,
}

impl OfferPool {
    /// Adds an offer. `agent` is the handle of its agent. Nothing is launched there during
    /// `closed`; see
    /// [`MaintenanceWindows::closed_period`](super::maintenance::MaintenanceWindows::closed_period). Returns
    /// whether the offer contains resources of reservations.
    pub(crate) fn add(&mut self, offer: &v1::Offer, agent: u32, closed: Option<(i64, i64)>) -> bool {
        let offers = if self.pass_started_at.is_some() {
            &mut self.next_pass
        } else {
            &mut self.offers
        };
        let offer = OpenOffer::new(offer, agent).closed_during(closed);
        let has_reservations = !offer.offered_reservations().is_empty();
        offers.push(offer);
        has_reservations
    }

    /// Removes an offer that was rescinded or used.
    pub(crate) fn remove(&mut self, offer: &OfferId) {
        for offers in [&mut self.offers, &mut self.next_pass] {
            offers.retain(|open| open.id != *offer);
        }
        self.to_decline.retain(|to_decline| to_decline != offer);
    }

    /// Moves the offers of a lost agent to those that are declined.
    pub(crate) fn remove_agent(&mut self, agent: u32) {
        for offers in [&mut self.offers, &mut self.next_pass] {
            let of_agent = offers.extract_if(.., |offer| offer.agent == agent);
            self.to_decline.extend(of_agent.map(|offer| offer.id));
        }
    }

    /// Adds offers that were removed to those that are to be declined.
    pub(crate) fn decline(&mut self, offers: impl IntoIterator<Item = OfferId>) {
        self.to_decline.extend(offers);
    }

    pub(crate) fn remove_all(&mut self, offers: &BTreeSet<OfferId>) {
        self.offers.retain(|open| !offers.contains(&open.id));
    }

    /// Keeps the offers, because the pass continues in another round.
    pub(crate) fn continue_pass(&mut self, now: Instant) {
        self.pass_started_at.get_or_insert(now);
    }

    /// When the pass started; `None` before its first and after its last round.
    pub(crate) fn pass_started_at(&self) -> Option<Instant> {
        self.pass_started_at
    }

    /// Ends the pass. Returns whether it took several rounds.
    pub(crate) fn end_pass(&mut self) -> bool {
        self.pass_started_at.take().is_some()
    }

    /// Moves the unused offers of the pass to those that are declined. The next pass has the offers
    /// that arrived meanwhile.
    pub(crate) fn decline_unused(&mut self) {
        let unused = std::mem::replace(&mut self.offers, std::mem::take(&mut self.next_pass));
        self.to_decline.extend(unused.into_iter().map(|offer| offer.id));
    }

    /// Removes the offers that are to be declined. Until the master has answered a DECLINE, it offers
    /// their resources to nobody.
    pub(crate) fn take_declined(&mut self) -> Vec<OfferId> {
        std::mem::take(&mut self.to_decline)
    }

    /// Removes all offers, which end with the subscription.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The offers of this pass and of the next one.
    pub(crate) fn all(&self) -> impl Iterator<Item = &OpenOffer> {
        self.offers.iter().chain(&self.next_pass)
    }

    pub(crate) fn offers(&self) -> &[OpenOffer] {
        &self.offers
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.offers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_of_a_lost_agent_are_declined_and_not_matched() {
        let mut pool = OfferPool::default();
        let offer = |id: &str, agent: &str| crate::testing::offer(id, agent, 1.0, &[]);
        pool.add(&offer("o1", "a1"), 1, None);
        pool.add(&offer("o2", "a2"), 2, None);
        pool.continue_pass(Instant::now());
        pool.add(&offer("o3", "a1"), 1, None);
        pool.add(&offer("o4", "a1"), 1, None);
        pool.remove_agent(1);
        let unused: Vec<&str> = pool.offers().iter().map(|offer| offer.id.as_str()).collect();
        assert_eq!(unused, ["o2"]);
        // The master rescinded one.
        pool.remove(&"o3".into());
        assert!(pool.end_pass());
        pool.decline_unused();
        let declined: Vec<String> = pool.take_declined().iter().map(ToString::to_string).collect();
        assert_eq!(declined, ["o1", "o4", "o2"]);
        assert!(pool.take_declined().is_empty() && pool.is_empty());
    }
}
