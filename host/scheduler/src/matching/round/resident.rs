//! Instances with persistent volumes. An instance without a reservation is matched like any other,
//! and its resources are reserved. An instance with a reservation is launched on the offer that
//! contains its resources.

use std::sync::Arc;

use rand::rngs::StdRng;
use transom_cluster::TaskId;
use transom_plugin_host::matcher::Candidate;

use super::{LaunchStep, PlannedLaunch, RefusedOffer, Round, Search};
use crate::matching::matcher_client::MatcherClient;
use crate::matching::queue::{MatchFailure, TaskBatch};
use crate::matching::{Assignment, Requirements};
use crate::{DiskKind, Reason, Reasons, Reservation, Reservations, RunSpec};

/// The instances of a batch with volumes.
pub(crate) struct Residents<'a> {
    /// Requests, with the keys of their reservations.
    pub(crate) keys: &'a [(TaskId, String)],
    pub(crate) reservations: &'a Reservations,
    /// The id of the framework.
    pub(crate) framework: &'a str,
}

impl Round {
    /// Places one batch with volumes, like [`Round::place`]. Instances whose resources are to be
    /// reserved count as placed.
    pub(crate) async fn place_residents(
        &mut self,
        batch: &TaskBatch,
        residents: &Residents<'_>,
        matcher: &mut MatcherClient,
        rng: &mut StdRng,
    ) -> Option<MatchFailure> {
        let mut unplaced = MatchFailure::default();
        let (mut unreserved, mut keys) = (Vec::new(), Vec::new());
        for (task, key) in residents.keys {
            let reservation = residents.reservations.get(key);
            if reservation.is_none() && self.reserved.insert(key.clone()) {
                unreserved.push(task.clone());
                keys.push((task, key));
                continue;
            }
            let usable = reservation.filter(|reservation| !reservation.releasing);
            let outcome = match usable {
                Some(reservation) => {
                    let framework = residents.framework;
                    self.launch_reserved(&batch.spec, task, reservation, framework, matcher, rng)
                        .await
                }
                None => Err(LaunchRejection::from(Reason::NoCorrespondingReservationFound)),
            };
            if let Err(rejection) = outcome {
                self.add_rejection(rejection, &mut unplaced);
            }
        }
        if !unplaced.reasons.is_empty() {
            let reasons: Vec<Reason> = unplaced.reasons.keys().copied().collect();
            let open = self.offers.open().iter().take(Reasons::MAX_UNUSED_OFFERS);
            let unused = open.map(|offer| RefusedOffer::new(offer, reasons.clone()));
            self.unused = unused.collect();
        }
        if unreserved.is_empty() {
            return merge(None, unplaced);
        }
        let mut search = Search {
            spec: &batch.spec,
            requirements: Requirements::for_new_reservation(&batch.spec, &self.roles),
            count: u32::try_from(unreserved.len()).unwrap_or(u32::MAX),
            ids: &unreserved,
        };
        let planned_before = self.planned.len();
        let search_result = self.search(&mut search, matcher, rng).await;
        for planned in &mut self.planned[planned_before..] {
            let planned_task = keys.iter().find(|(task, _)| **task == planned.assigned.id);
            if let Some((_, key)) = planned_task {
                planned.step = LaunchStep::Reserve((*key).clone());
            }
        }
        for (_, key) in keys.iter().filter(|(task, _)| search.ids.contains(task)) {
            self.reserved.remove(*key);
        }
        let mut failure = self
            .explain(&search, search_result, planned_before, matcher)
            .await;
        if let Some(failure) = &mut failure
            && failure.reasons.contains_key(&Reason::InsufficientDisk)
            && failure.message.is_none()
        {
            failure.message = Some(format!("volumes requested: {}", describe_volumes(&batch.spec)));
        }
        merge(failure, unplaced)
    }

    /// Plans the launch on the resources of a reservation. The error gives the reasons why that is
    /// not possible.
    async fn launch_reserved(
        &mut self,
        spec: &Arc<RunSpec>,
        task: &TaskId,
        reservation: &Reservation,
        framework: &str,
        matcher: &mut MatcherClient,
        rng: &mut StdRng,
    ) -> Result<(), LaunchRejection> {
        let not_found = || LaunchRejection::from(Reason::NoCorrespondingReservationFound);
        let offer_index = self
            .offers
            .offer_with_reservation(&reservation.key)
            .ok_or_else(not_found)?;
        let offer = self.offers.offer_mut(offer_index);
        let offered = offer
            .offered_reservations()
            .iter()
            .find(|offered| offered.owner.belongs_to(reservation, framework));
        let offered = offered.cloned().ok_or_else(not_found)?;
        let requirements = Requirements::for_existing_reservation(spec, &reservation.role);
        let mut resources = offer.only_reservation(&offered);
        let mut reasons = Vec::new();
        resources.capacity(&requirements, 1, self.now, |reason| reasons.push(reason));
        if !offered.has_volumes_of(reservation) && !reasons.contains(&Reason::InsufficientDisk) {
            reasons.push(Reason::InsufficientDisk);
        }
        if !reasons.is_empty() {
            return Err(LaunchRejection {
                reasons,
                message: None,
            });
        }
        let (agent, offer) = (offer.agent, offer.id.clone());
        let mut matcher_task = self.matcher_task(spec);
        // Its own reservation does not count as another instance.
        if let Some(own_index) = matcher_task.placed.iter().position(|placed| *placed == agent) {
            matcher_task.placed.remove(own_index);
        }
        let candidate = Candidate { agent, capacity: 1 };
        match matcher.place(&matcher_task, &[candidate], 1).await {
            Err(message) => {
                return Err(LaunchRejection {
                    message: Some(message),
                    ..LaunchRejection::from(Reason::MatcherUnavailable)
                });
            }
            Ok(chosen) if chosen.is_empty() => return Err(Reason::UnfulfilledConstraint.into()),
            Ok(_) => matcher.succeeded(&spec.id),
        }
        let mut allocation = resources.take(&requirements, rng).ok_or_else(not_found)?;
        self.offers
            .offer_mut(offer_index)
            .take_reservation(&reservation.key);
        if let Some(first) = allocation.parts.first_mut() {
            first.resources.extend(offered.volumes);
        }
        self.planned.push(PlannedLaunch {
            spec: Arc::clone(spec),
            assigned: Assignment {
                id: task.clone(),
                offer,
                agent,
                allocation,
            },
            step: LaunchStep::LaunchReserved(reservation.key.clone()),
        });
        Ok(())
    }

    /// Adds the reasons of an instance with a reservation. They count for all offers, because no
    /// other offer can be used for it.
    fn add_rejection(&self, rejection: LaunchRejection, failure: &mut MatchFailure) {
        let offers = self.offers.len() as u32;
        (failure.offers, failure.refused_offers) = (offers, offers);
        for reason in rejection.reasons {
            *failure.reasons.entry(reason).or_default() += 1;
        }
        failure.message = rejection.message.or(failure.message.take());
    }
}

/// The reasons why an instance is not launched on its reservation.
struct LaunchRejection {
    reasons: Vec<Reason>,
    message: Option<String>,
}

impl From<Reason> for LaunchRejection {
    fn from(reason: Reason) -> Self {
        Self {
            reasons: vec![reason],
            message: None,
        }
    }
}

/// Merges two failures, either of which may be empty.
fn merge(failure: Option<MatchFailure>, unplaced: MatchFailure) -> Option<MatchFailure> {
    let Some(mut failure) = failure else {
        return (!unplaced.reasons.is_empty()).then_some(unplaced);
    };
    for (reason, count) in unplaced.reasons {
        *failure.reasons.entry(reason).or_default() += count;
    }
    Some(failure)
}

fn describe_volumes(spec: &RunSpec) -> String {
    let volumes = spec.volumes.iter().map(|volume| {
        let path = &volume.container_path;
        let constraint_count = volume.constraints.len();
        let of_profile = |profile: &Option<String>| {
            profile
                .as_ref()
                .map_or_else(String::new, |profile| format!(" of profile `{profile}`"))
        };
        let disk = match &volume.disk {
            DiskKind::Root => "root disk".to_owned(),
            DiskKind::Path { profile } => format!("path disk{}", of_profile(profile)),
            DiskKind::Mount { max_size, profile } => {
                let limit = max_size.map_or_else(String::new, |limit| format!(" of at most {limit} MB"));
                format!("mount disk{limit}{}", of_profile(profile))
            }
        };
        let constraint_count = match constraint_count {
            0 => String::new(),
            _ => format!(" with {constraint_count} path constraints"),
        };
        format!("`{path}` of {} MB on a {disk}{constraint_count}", volume.size)
    });
    volumes.collect::<Vec<_>>().join(", ")
}
