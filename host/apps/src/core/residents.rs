//! Instances with persistent volumes: their reservations in the scheduler.

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
            if let Some(instance) = state.instance_mut(&id) {
                instance.volumes = reservation.volumes.as_slice().into();
                if !instance.replica.is_wanted() {
                    // A kill for a replacement was under way: otherwise the reservation would be
                    // marked for release.
                    instance.replica.goal = Goal::Running;
                    instance.replica.restarting = true;
                }
                continue;
            }
            let version = state.record.spec.version();
            if let Some(instance) = Instance::of_reservation(reservation, version, Moment::now()) {
                requests.push(state.task_request(&instance));
                state.insert_instance(instance);
            }
        }
        requests
    }

    /// Updates the volumes of an instance.
    pub(super) fn handle_reservation_change(&mut self, key: &str, reservation: Option<&Reservation>) {
        let id = InstanceId::parse(key);
        let owner = id.and_then(|id| Some((id.spec()?, id)));
        let instance = owner.as_ref().and_then(|(spec, id)| self.instance_mut(spec, id));
        let Some(instance) = instance else {
            if reservation.is_some_and(|reservation| !reservation.releasing) {
                self.scheduler.release_reservation(key);
            }
            return;
        };
        let volumes = reservation
            .map(|reservation| reservation.volumes.as_slice())
            .unwrap_or_default();
        if *instance.volumes != *volumes {
            instance.volumes = volumes.into();
            if let Some((spec, _)) = owner {
                self.publisher.changed(&spec);
            }
        }
    }

    /// Replaces the task of an instance that keeps its volumes and therefore its agent.
    pub(super) fn restart_in_place(&mut self, id: &SpecId, instance_id: &InstanceId) {
        let Some(state) = self.specs.get_mut(id) else {
            return;
        };
        let version = state.record.spec.version();
        let Some(instance) = state.instance_mut(instance_id) else {
            return;
        };
        if instance.condition() != Condition::Scheduled {
            self.step(id, instance_id, Input::Restart);
            return;
        }
        instance.replica.version = version;
        if let Some(instance) = state.instances().get(instance_id) {
            let request = state.task_request(instance);
            self.scheduler.submit(vec![request]);
        }
        self.publisher.changed(id);
    }
}

/// Whether the reservations of its instances are kept. A new app with the same id may have no
/// volumes.
fn keeps_volumes(state: &SpecState) -> bool {
    !state.record.deleted && state.record.spec.is_resident()
}
