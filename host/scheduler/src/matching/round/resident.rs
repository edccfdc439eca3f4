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
        let mut waiting = MatchFailure::default();
        let (mut fresh, mut keys) = (Vec::new(), Vec::new());
        for (task, key) in residents.keys {
            let reservation = residents.reservations.get(key);
            if reservation.is_none() && self.reserved.insert(key.clone()) {
                fresh.push(task.clone());
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
                None => Err(Refusal::from(Reason::NoCorrespondingReservationFound)),
            };
            if let Err(refusal) = outcome {
                self.refused(refusal, &mut waiting);
            }
        }
        if !waiting.reasons.is_empty() {
            let reasons: Vec<Reason> = waiting.reasons.keys().copied().collect();
            let open = self.offers.open().iter().take(Reasons::MAX_UNUSED_OFFERS);
            let unused = open.map(|offer| RefusedOffer::new(offer, reasons.clone()));
            self.unused = unused.collect();
        }
        if fresh.is_empty() {
            return merge(None, waiting);
        }
        let mut search = Search {
            spec: &batch.spec,
            need: Requirements::reserving(&batch.spec, &self.roles),
            count: u32::try_from(fresh.len()).unwrap_or(u32::MAX),
            ids: &fresh,
        };
        let before = self.planned.len();
        let found = self.search(&mut search, matcher, rng).await;
        for planned in &mut self.planned[before..] {
            let of_task = keys.iter().find(|(task, _)| **task == planned.assigned.id);
            if let Some((_, key)) = of_task {
                planned.step = LaunchStep::Reserve((*key).clone());
            }
        }
        for (_, key) in keys.iter().filter(|(task, _)| search.ids.contains(task)) {
            self.reserved.remove(*key);
        }
        let mut failure = self.explain(&search, found, before, matcher).await;
        if let Some(failure) = &mut failure
            && failure.reasons.contains_key(&Reason::InsufficientDisk)
            && failure.message.is_none()
        {
            failure.message = Some(format!("volumes requested: {}", described(&batch.spec)));
        }
        merge(failure, waiting)
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
    ) -> Result<(), Refusal> {
        let missing = || Refusal::from(Reason::NoCorrespondingReservationFound);
        let at = self.offers.holding(&reservation.key).ok_or_else(missing)?;
        let offer = self.offers.at(at);
        let held = offer
            .held()
            .iter()
            .find(|held| held.owner.is_of(reservation, framework));
        let held = held.cloned().ok_or_else(missing)?;
        let need = Requirements::holding(spec, &reservation.role);
        let mut resources = offer.of_held(&held);
        let mut reasons = Vec::new();
        resources.room(&need, 1, self.now, |reason| reasons.push(reason));
        if !held.has_volumes_of(reservation) && !reasons.contains(&Reason::InsufficientDisk) {
            reasons.push(Reason::InsufficientDisk);
        }
        if !reasons.is_empty() {
            return Err(Refusal {
                reasons,
                message: None,
            });
        }
        let (agent, offer) = (offer.agent, offer.id.clone());
        let mut question = self.question(spec);
        // Its own reservation does not count as another instance.
        if let Some(own) = question.placed.iter().position(|placed| *placed == agent) {
            question.placed.remove(own);
        }
        let candidate = Candidate { agent, capacity: 1 };
        match matcher.place(&question, &[candidate], 1).await {
            Err(message) => {
                return Err(Refusal {
                    message: Some(message),
                    ..Refusal::from(Reason::MatcherUnavailable)
                });
            }
            Ok(chosen) if chosen.is_empty() => return Err(Reason::UnfulfilledConstraint.into()),
            Ok(_) => matcher.succeeded(),
        }
        let mut taken = resources.take(&need, rng).ok_or_else(missing)?;
        self.offers.at(at).take_held(&reservation.key);
        if let Some(first) = taken.parts.first_mut() {
            first.resources.extend(held.volumes);
        }
        self.planned.push(PlannedLaunch {
            spec: Arc::clone(spec),
            assigned: Assignment {
                id: task.clone(),
                offer,
                agent,
                taken,
            },
            step: LaunchStep::LaunchReserved(reservation.key.clone()),
        });
        Ok(())
    }

    /// Adds the reasons of an instance with a reservation. They count for all offers, because no
    /// other offer can be used for it.
    fn refused(&self, refusal: Refusal, failure: &mut MatchFailure) {
        let offers = self.offers.len() as u32;
        (failure.offers, failure.refused_offers) = (offers, offers);
        for reason in refusal.reasons {
            *failure.reasons.entry(reason).or_default() += 1;
        }
        failure.message = refusal.message.or(failure.message.take());
    }
}

/// The reasons why an instance is not launched on its reservation.
struct Refusal {
    reasons: Vec<Reason>,
    message: Option<String>,
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self {
            reasons: vec![reason],
            message: None,
        }
    }
}

/// Merges two failures, either of which may be empty.
fn merge(found: Option<MatchFailure>, waiting: MatchFailure) -> Option<MatchFailure> {
    let Some(mut found) = found else {
        return (!waiting.reasons.is_empty()).then_some(waiting);
    };
    for (reason, count) in waiting.reasons {
        *found.reasons.entry(reason).or_default() += count;
    }
    Some(found)
}

fn described(spec: &RunSpec) -> String {
    let volumes = spec.volumes.iter().map(|volume| {
        let path = &volume.container_path;
        let conditions = volume.constraints.len();
        let of_profile = |profile: &Option<String>| {
            profile
                .as_ref()
                .map_or_else(String::new, |profile| format!(" of profile `{profile}`"))
        };
        let disk = match &volume.disk {
            DiskKind::Root => "root disk".to_owned(),
            DiskKind::Path { profile } => format!("path disk{}", of_profile(profile)),
            DiskKind::Mount { max_size, profile } => {
                let most = max_size.map_or_else(String::new, |most| format!(" of at most {most} MB"));
                format!("mount disk{most}{}", of_profile(profile))
            }
        };
        let conditions = match conditions {
            0 => String::new(),
            _ => format!(" with {conditions} path constraints"),
        };
        format!("`{path}` of {} MB on a {disk}{conditions}", volume.size)
    });
    volumes.collect::<Vec<_>>().join(", ")
}
