//! Maintenance of agents: answers inverse offers, and notifies the service which agents its tasks
//! have to leave.

use tokio::time::Instant;
use transom_cluster::{Caller, OfferId, v1};
use transom_common::ambient;
use transom_common::error_chain;

use super::{Actor, Inbound};
use crate::Event;
use crate::matching::maintenance::{MaintenanceChange, nanoseconds};

/// Maximum inverse offers that wait for an answer.
const MAX_UNANSWERED: usize = 100_000;

impl Actor {
    pub(super) fn take_inverse_offers(&mut self, offers: &[v1::InverseOffer]) {
        let now = Instant::now();
        for offer in offers {
            self.maintenance.record_inverse_offer(offer, now);
            if self.inverse_offers.len() < MAX_UNANSWERED {
                self.inverse_offers.push(offer.id.clone());
            }
        }
    }

    pub(super) fn rescind_inverse_offer(&mut self, offer: &OfferId) {
        self.inverse_offers.retain(|known| known != offer);
    }

    /// Notifies the service which agents its tasks have to leave, or no longer have to.
    pub(super) fn notify_maintenance_changes(&mut self) {
        let changes = self
            .maintenance
            .changes(nanoseconds(ambient::now()), Instant::now());
        for change in changes {
            self.maintenance_changed(change);
        }
    }

    pub(super) fn maintenance_changed(&mut self, change: MaintenanceChange) {
        let event = match change {
            MaintenanceChange::Due(agent) => {
                tracing::info!(%agent, "maintenance of an agent is due; its tasks are moved");
                self.agents.set_hidden(&agent, true);
                Event::MaintenanceDue(agent)
            }
            MaintenanceChange::Over(agent) => {
                tracing::info!(%agent, "maintenance of an agent was cancelled or is over, or the agent is gone");
                self.agents.set_hidden(&agent, false);
                Event::MaintenanceOver(agent)
            }
        };
        // The tasks on the agent now count for constraints, or no longer do.
        self.offer_demand.request_revive();
        self.inbound.push(Inbound::Notify(event));
    }

    /// Accepts or declines the inverse offers that have arrived. The master repeats them after the
    /// filter of the answer.
    pub(super) async fn answer_inverse_offers(&mut self, caller: &Caller) {
        let now = Instant::now();
        if self.inverse_offers.is_empty() || self.inverse_offer_retry.is_backing_off(now) {
            return;
        }
        let offers = std::mem::take(&mut self.inverse_offers);
        let filters = v1::Filters::refuse(self.timeouts.inverse_offer);
        let (name, outcome) = if self.maintenance.accepts() {
            let accepted = caller.accept_inverse_offers(offers.clone(), filters).await;
            ("ACCEPT_INVERSE_OFFERS", accepted)
        } else {
            let declined = caller.decline_inverse_offers(offers.clone(), filters).await;
            ("DECLINE_INVERSE_OFFERS", declined)
        };
        if let Err(error) = outcome {
            self.metrics.call_failed(name);
            tracing::warn!(
                call = name,
                error = error_chain(&error),
                "answering inverse offers failed; retrying"
            );
            self.inverse_offers = offers;
            self.inverse_offer_retry.failed(now);
        } else {
            self.inverse_offer_retry.succeeded();
        }
    }
}
