//! Health that agents report in status updates: of checks that the agents make, and of a pod's
//! containers.

use transom_scheduler::TaskRecord;

use super::Core;
use crate::bus::{Draft, shapes};
use crate::health::HealthVerdict;
use crate::ids::{InstanceId, SpecId};
use crate::instance::Instance;
use crate::time::Moment;

/// The cause of a failure that the agent does not explain.
const NO_CAUSE: &str = "the agent's health check failed";

/// The reason of a status update that reports a health check of the agent.
const HEALTH_CHECK_REASON: &str = "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED";

/// The events for a task that its agent killed because the agent's health check failed.
pub(super) fn agent_kill(app: &SpecId, instance: &Instance) -> [Draft; 2] {
    let record = instance.failed_record();
    let version = instance.version().to_string();
    let task = record.map_or_else(|| instance.task(), |record| record.id.clone());
    let facts = instance.facts_of(record.map(AsRef::as_ref), app, &version);
    let cause = instance.health_answer().unwrap_or(NO_CAUSE);
    shapes::unhealthy_kill(facts, task.as_str(), cause)
}

impl Core {
    /// Applies the health in a status update of the agent.
    pub(super) fn apply_agent_health(
        &mut self,
        app: &SpecId,
        instance_id: &InstanceId,
        record: &TaskRecord,
        before: Option<bool>,
    ) {
        let Some(healthy) = record.healthy() else { return };
        let status = record.status.as_ref();
        let is_result = status.is_some_and(|status| status.reason.as_deref() == Some(HEALTH_CHECK_REASON));
        if before == Some(healthy) && !is_result || record.is_terminal() {
            return;
        }
        let message = status.and_then(|status| status.message.as_deref());
        let verdict = if healthy {
            HealthVerdict::Healthy
        } else {
            let cause = message.filter(|message| !message.is_empty());
            HealthVerdict::Unhealthy(cause.unwrap_or(NO_CAUSE).to_owned())
        };
        for index in self.agent_health_checks(app, instance_id) {
            self.observe(app, instance_id, index, &verdict, Moment::now());
        }
    }

    /// Applies the health of a pod's container in a status update of the agent. The agent kills
    /// unhealthy containers itself.
    pub(super) fn apply_container_health(
        &mut self,
        pod: &SpecId,
        instance_id: &InstanceId,
        record: &TaskRecord,
        before: Option<bool>,
        group_before: Option<bool>,
    ) {
        let Some(healthy) = record.healthy().filter(|_| !record.is_terminal()) else {
            return;
        };
        let instance = self
            .specs
            .get(pod)
            .and_then(|state| state.instances().get(instance_id));
        let Some(instance) = instance.filter(|instance| instance.instance_task(&record.id).is_some()) else {
            return;
        };
        let (version, group) = (instance.version().to_string(), instance.is_healthy());
        if group != group_before {
            let draft = shapes::instance_health_changed(instance.facts(pod, &version), group);
            self.publisher.event(draft);
        }
        if before != Some(healthy) {
            self.publisher
                .event(shapes::health_status_changed(pod, instance_id, &version, healthy));
        }
        self.update_fitness(pod, instance_id);
    }

    /// The health checks of an instance that its agent makes.
    fn agent_health_checks(&self, app: &SpecId, instance_id: &InstanceId) -> Vec<usize> {
        let state = self.specs.get(app);
        let Some((state, instance)) =
            state.and_then(|state| Some((state, state.instances().get(instance_id)?)))
        else {
            return Vec::new();
        };
        let checks = state.definition_of(instance).health_checks();
        let agents = checks
            .iter()
            .enumerate()
            .filter(|(_, check)| !check.protocol.is_made_by_daemon());
        agents
            .map(|(index, _)| index)
            .filter(|index| *index < instance.health.len())
            .collect()
    }
}
