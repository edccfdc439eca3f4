//! Instances with persistent volumes: their reservations in the scheduler.

use std::sync::Arc;

use transom_replicas::{Condition, Goal, Input};
use transom_scheduler::{Reservation, TaskRequest};

use super::Core;
use super::spec_state::SpecState;
use crate::ids::{InstanceId, SpecId};
use crate::instance::Instance;
use crate::time::Moment;

impl Core {
    /// Matches the instances that were restored from their tasks with the scheduler's reservations.
    /// Returns task requests for the instances without a task. Reservations without an instance are
    /// released.
    pub(super) fn restore_residents(&mut self) -> Vec<TaskRequest> {
        let mut requests = Vec::new();
        let reservations = self.scheduler.reservations();
        for reservation in reservations.values().filter(|one| !one.releasing) {
            let id = InstanceId::parse(&reservation.key);
            let spec = id.as_ref().and_then(InstanceId::spec);
            let state = spec.and_then(|spec| self.specs.get_mut(&spec));
            let (Some(id), Some(state)) = (id, state.filter(|state| keeps_volumes(state))) else {
                self.scheduler.release_reservation(&reservation.key);
                continue;
            };
            if let Some(known) = state.instance_mut(&id) {
                known.volumes = reservation.volumes.as_slice().into();
                if !known.replica.is_wanted() {
                    // A kill for a replacement was under way: otherwise the reservation would be
                    // marked for release.
                    known.replica.goal = Goal::Running;
                    known.replica.restarting = true;
                }
                continue;
            }
            let version = state.record.spec.version();
            if let Some(instance) = Instance::of_reservation(reservation, version, Moment::now()) {
                requests.push(state.wanted(&instance));
                state.instances.insert(id, Arc::new(instance));
            }
        }
        requests
    }

    /// Updates the volumes of an instance.
    pub(super) fn reservation_changed(&mut self, key: &str, reservation: Option<&Reservation>) {
        let id = InstanceId::parse(key);
        let place = id.and_then(|id| Some((id.spec()?, id)));
        let known = place.as_ref().and_then(|(spec, id)| self.instance_mut(spec, id));
        let Some(known) = known else {
            if reservation.is_some_and(|one| !one.releasing) {
                self.scheduler.release_reservation(key);
            }
            return;
        };
        let volumes = reservation.map(|one| one.volumes.as_slice()).unwrap_or_default();
        if *known.volumes != *volumes {
            known.volumes = volumes.into();
            self.dirty.extend(place.map(|(spec, _)| spec));
        }
    }

    /// Replaces the task of an instance that keeps its volumes and therefore its agent.
    pub(super) fn restart_in_place(&mut self, id: &SpecId, instance: &InstanceId) {
        let Some(state) = self.specs.get_mut(id) else {
            return;
        };
        let version = state.record.spec.version();
        let Some(known) = state.instance_mut(instance) else {
            return;
        };
        if known.condition() != Condition::Scheduled {
            self.step(id, instance, Input::Restart);
            return;
        }
        known.replica.version = version;
        if let Some(known) = state.instances.get(instance) {
            let request = state.wanted(known);
            self.scheduler.submit(vec![request]);
        }
        self.dirty.insert(id.clone());
    }
}

/// Whether the reservations of its instances are kept. A new app with the same id may have no
/// volumes.
fn keeps_volumes(state: &SpecState) -> bool {
    !state.record.gone && state.record.spec.is_resident()
}
