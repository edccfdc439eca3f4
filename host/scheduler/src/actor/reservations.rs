//! The reservations of instances with volumes after they were requested: recognises them in offers,
//! drops those that do not appear, and removes those that are released or unknown.
//!
//! An operation is not answered, because agents before 1.9 reject operations with an id. Its effect
//! is visible in the offers that follow, so a lost operation is noticed in the same way as a
//! rejected one. Remnants of this framework (resources whose record is deleted, or belongs to a
//! later attempt) are removed whenever they are offered. So a record that nothing was launched with
//! may be dropped at any time, and a record may be deleted without confirmation that its resources
//! were removed.

use std::collections::{BTreeSet, HashMap};

use futures::FutureExt;
use tokio::time::Instant;
use transom_cluster::{Caller, OfferId, v1};
use transom_common::{Backoff, error_chain};

use super::calls::make_calls;
use super::{Actor, Timeouts};
use crate::Reservation;
use crate::matching::offered_reservation::{OfferedReservation, Owner};
use crate::retry::Retry;
use crate::store::reservations::ReservationLedger;

/// The reservations of this framework.
pub(super) struct ReservationTracker {
    pub(super) ledger: ReservationLedger,
    /// The times at which reservations that were not offered, and released ones, are dropped.
    deadlines: HashMap<String, Instant>,
    /// Whether offers with reserved resources have arrived.
    has_reserved_offers: bool,
    /// Owners whose reserved resources were removed. The removal is repeated with a backoff,
    /// because a master that always rejects it, for lack of a permission, offers the resources
    /// again immediately.
    removals: HashMap<Owner, Retry>,
}

/// Maximum of [`ReservationTracker::removals`]; if it is reached, all are dropped.
const MAX_REMOVALS: usize = 1000;

/// The removal of reserved resources from one offer.
#[derive(Default)]
struct Removal {
    operations: Vec<v1::Operation>,
    owners: Vec<Owner>,
    /// The keys of their records.
    keys: Vec<String>,
}

impl Removal {
    fn add(&mut self, offered: &OfferedReservation) {
        self.operations.extend(offered.removal_operations());
        self.owners.push(offered.owner.clone());
    }
}

impl ReservationTracker {
    pub(super) fn new(ledger: ReservationLedger) -> Self {
        Self {
            ledger,
            deadlines: HashMap::new(),
            has_reserved_offers: false,
            removals: HashMap::new(),
        }
    }

    /// Handles a new subscription: all time limits of reservations start again.
    pub(super) fn subscribed(&mut self, timeouts: &Timeouts, now: Instant) {
        self.deadlines.clear();
        self.removals.clear();
        for record in self.ledger.records().values() {
            if record.releasing {
                self.deadlines.insert(record.key.clone(), now + timeouts.release);
            } else if !record.created {
                self.deadlines
                    .insert(record.key.clone(), now + timeouts.reservation);
            }
        }
    }

    /// Records that resources are being reserved.
    pub(super) fn requested(&mut self, key: String, deadline: Instant) {
        self.deadlines.insert(key, deadline);
    }

    /// Records that offers with reserved resources have arrived.
    pub(super) fn reserved_resources_offered(&mut self) {
        self.has_reserved_offers = true;
    }

    /// Whether offers are needed although no task is pending.
    pub(super) fn needs_offers(&self) -> bool {
        !self.deadlines.is_empty()
    }

    /// The roles of the reservations that need offers.
    pub(super) fn roles(&self) -> BTreeSet<String> {
        let needed = self.deadlines.keys().filter_map(|key| self.ledger.get(key));
        needed.map(|record| record.role.clone()).collect()
    }

    /// Records that resources are being removed.
    fn record_removal(&mut self, owner: Owner, backoff: Backoff, now: Instant) {
        if self.removals.len() >= MAX_REMOVALS {
            self.removals.clear();
        }
        let retry = self.removals.entry(owner);
        retry.or_insert_with(|| Retry::new(backoff)).failed(now);
    }

    fn was_just_removed(&self, owner: &Owner, now: Instant) -> bool {
        let earlier = self.removals.get(owner);
        earlier.is_some_and(|retry| retry.is_backing_off(now))
    }

    /// The time at which the next reservation is dropped.
    pub(super) fn next(&self) -> Option<Instant> {
        self.deadlines.values().min().copied()
    }

    fn take_due(&mut self, now: Instant) -> Vec<String> {
        let due = self.deadlines.extract_if(|_, deadline| *deadline <= now);
        due.map(|(key, _)| key).collect()
    }
}

impl Actor {
    /// Releases a reservation. It is removed when its task has ended and its resources are offered.
    pub(super) fn release_reservation(&mut self, key: &str) {
        let Some(record) = self.reservations.ledger.get(key) else {
            tracing::debug!(key, "released reservation is unknown; ignored");
            return;
        };
        if record.releasing {
            return;
        }
        let released = Reservation {
            releasing: true,
            ..Reservation::clone(record)
        };
        self.reservations.ledger.mark_dirty(released);
        let deadline = Instant::now() + self.timeouts.release;
        self.reservations.requested(key.to_owned(), deadline);
        self.offer_demand.request_revive_now();
    }

    /// Stores the changed records.
    pub(super) async fn save_reservations(&mut self) {
        if !self.reservations.ledger.is_dirty() || self.store_retry.is_backing_off(Instant::now()) {
            return;
        }
        match self.reservations.ledger.flush().await {
            Ok(()) => self.store_succeeded(),
            Err(error) => self.store_failed(&error),
        }
    }

    /// Drops reservations whose time limit has passed, and handles offers with reserved resources.
    pub(super) async fn process_reservations(&mut self, caller: &Caller) {
        let now = Instant::now();
        for key in self.reservations.take_due(now) {
            self.drop_reservation(&key, now);
        }
        if !std::mem::take(&mut self.reservations.has_reserved_offers) {
            return;
        }
        let Some(framework) = caller.framework_id() else {
            return;
        };
        let mut removals: Vec<(OfferId, Removal)> = Vec::new();
        let mut confirmed = Vec::new();
        for offer in self
            .pool
            .all()
            .filter(|offer| !offer.offered_reservations().is_empty())
        {
            let mut removal = Removal::default();
            for offered in offer.offered_reservations() {
                self.classify(offered, framework.as_str(), &mut removal, &mut confirmed);
            }
            if !removal.operations.is_empty() {
                removals.push((offer.id.clone(), removal));
            }
        }
        for record in confirmed {
            self.reservations.deadlines.remove(&record.key);
            self.reservations.ledger.mark_dirty(record);
        }
        self.remove_resources(caller, removals).await;
        self.save_reservations().await;
    }

    /// Decides on the reserved resources of an offer.
    fn classify(
        &self,
        offered: &OfferedReservation,
        framework: &str,
        removal: &mut Removal,
        confirmed: &mut Vec<Reservation>,
    ) {
        if self.reservations.was_just_removed(&offered.owner, Instant::now()) {
            return;
        }
        let ledger = &self.reservations.ledger;
        let known = ledger.get(&offered.owner.key);
        let Some(record) = known.filter(|record| offered.owner.belongs_to(record, framework)) else {
            if offered.owner.was_reserved_by(framework) {
                tracing::warn!(key = offered.owner.key, "removing a reservation without a record");
                removal.add(offered);
            }
            return;
        };
        if record.releasing {
            // If the release were not stored, a crash would leave a record without resources.
            if ledger.is_stored(&record.key) && !self.is_in_use(record) {
                removal.add(offered);
                removal.keys.push(record.key.clone());
            }
        } else if !record.created && offered.has_volumes_of(record) {
            confirmed.push(Reservation {
                created: true,
                ..Reservation::clone(record)
            });
        }
    }

    /// Whether a live task uses the reservation.
    pub(super) fn is_in_use(&self, record: &Reservation) -> bool {
        let Some(request) = &record.task else { return false };
        let is_live = |task| self.ledger.get(task).is_some_and(|record| !record.is_terminal());
        match self.ledger.group(request) {
            Some(members) => members.iter().any(is_live),
            None => is_live(request),
        }
    }

    /// Accepts the offers with the operations that remove the resources, and removes the records.
    /// If an operation fails, its resources are remnants.
    async fn remove_resources(&mut self, caller: &Caller, removals: Vec<(OfferId, Removal)>) {
        if removals.is_empty() {
            return;
        }
        let mut calls = Vec::with_capacity(removals.len());
        for (offer, removal) in removals {
            self.pool.remove(&offer);
            let Removal {
                operations,
                owners,
                keys,
            } = removal;
            for owner in owners {
                let backoff = self.timeouts.reconcile_retry;
                self.reservations.record_removal(owner, backoff, Instant::now());
            }
            // The rest of the offer is needed soon, and so are these resources if an operation fails.
            let filters = v1::Filters::refuse(std::time::Duration::ZERO);
            let call = caller.accept(vec![offer], operations, filters);
            calls.push((keys, call.boxed()));
        }
        for (keys, result) in make_calls(calls).await {
            let Some(result) = result else { continue };
            if let Err(error) = result {
                self.metrics.call_failed("ACCEPT");
                tracing::warn!(
                    error = error_chain(&error),
                    "removing reservations failed; retrying with the next offers"
                );
                continue;
            }
            for key in keys {
                tracing::info!(key, "reservation removed");
                self.reservations.deadlines.remove(&key);
                self.reservations.ledger.remove(&key);
            }
        }
        self.offer_demand.request_revive();
    }

    /// Drops a reservation that was not offered in time. Its resources do not exist, or are
    /// remnants from now on.
    fn drop_reservation(&mut self, key: &str, now: Instant) {
        let Some(record) = self.reservations.ledger.get(key) else {
            return;
        };
        if self.is_in_use(record) {
            self.reservations
                .requested(key.to_owned(), now + self.timeouts.release);
            return;
        }
        if record.releasing {
            tracing::warn!(key, agent = %record.agent.hostname, "released reservation not offered in time; its resources are unreserved when they are offered");
        } else {
            tracing::warn!(key, agent = %record.agent.hostname, "reserved resources were not offered in time; reserving others");
        }
        self.reservations.ledger.remove(key);
        self.offer_demand.request_revive_now();
    }
}
