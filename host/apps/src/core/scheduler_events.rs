//! Handles scheduler events, check results and ticks.

use std::sync::Arc;

use transom_cluster::v1::TaskStatus;
use transom_cluster::{AgentId, TaskId};
use transom_common::error_chain;
use transom_replicas::{Condition, Input};
use transom_scheduler::{Event, TaskRecord};

use super::Core;
use crate::bus::shapes;
use crate::check_result::CheckResult;
use crate::ids::{InstanceId, SpecId};
use crate::instance::{Instance, InstanceTask, view};
use crate::probes::Occasion;

impl Core {
    pub(super) fn handle_event(&mut self, event: Event) {
        match event {
            Event::Registered { framework_id, master } => {
                self.publisher
                    .event(shapes::registered(framework_id.as_str(), master.as_deref()));
            }
            Event::Reregistered { master } => self.publisher.event(shapes::reregistered(master.as_deref())),
            Event::Disconnected => self.publisher.event(shapes::disconnected()),
            Event::Launched(record) => self.handle_launch(&record),
            Event::Updated(record) => self.handle_update(&record),
            // The instance was removed when its request was withdrawn.
            Event::NeverLaunched(task) => tracing::debug!(%task, "task withdrawn before its launch"),
            Event::Rejected { task, reason } => {
                tracing::error!(%task, error = error_chain(&*reason), "the scheduler rejected a request");
            }
            Event::KillsSelected { choice, kills } => self.handle_selected_kills(&choice, kills),
            Event::Message {
                agent,
                executor,
                data,
            } => {
                self.publisher.event(shapes::framework_message(
                    agent.as_str(),
                    executor.as_str(),
                    &data,
                ));
            }
            Event::ReservationChanged { key, reservation } => {
                self.handle_reservation_change(&key, reservation.as_deref());
            }
            Event::MaintenanceDue(agent) => {
                self.reconcile_agent(&agent);
                Arc::make_mut(&mut self.leaving).insert(agent);
            }
            Event::MaintenanceOver(agent) => {
                Arc::make_mut(&mut self.leaving).remove(&agent);
                self.reconcile_agent(&agent);
            }
            // The status updates of the agent's tasks follow.
            Event::AgentLost(agent) => tracing::info!(%agent, "agent lost"),
            Event::Unknown { status } => self.handle_unknown_task(&status),
        }
    }

    /// Marks all apps and pods with tasks on an agent for reconciliation. Those whose tasks were launched
    /// in this turn are marked already.
    fn reconcile_agent(&mut self, agent: &AgentId) {
        let concerned = self.publisher.next.places.on_agent(agent);
        self.reconcile_queue.extend(concerned.cloned());
    }

    /// The app or pod and the instance of a task, if it is one of the instance's current tasks.
    fn locate(&self, task: &TaskId) -> Option<(SpecId, InstanceId)> {
        let (instance_id, incarnation) = InstanceId::of_task(task)?;
        let id = instance_id.spec()?;
        let instance = self.specs.get(&id)?.instances().get(&instance_id)?;
        (instance.replica.incarnation == incarnation).then_some((id, instance_id))
    }

    fn handle_launch(&mut self, record: &Arc<TaskRecord>) {
        let Some((app, instance_id)) = self.locate(&record.id) else {
            return self.handle_stray_task(record);
        };
        self.publisher.changed(&app);
        let Some(instance) = self.instance_mut(&app, &instance_id) else {
            return;
        };
        instance.set_record(record);
        if instance.condition() != Condition::Scheduled {
            return;
        }
        // The scheduler may have launched an earlier definition than the current one.
        if let Ok(version) = record.version.parse() {
            instance.replica.version = version;
        }
        self.step_task(&app, &instance_id, true);
    }

    fn handle_update(&mut self, record: &Arc<TaskRecord>) {
        let Some((app, instance_id)) = self.locate(&record.id) else {
            return self.handle_stray_task(record);
        };
        let Some(instance) = self.instance_mut(&app, &instance_id) else {
            return;
        };
        let instance_task = instance.instance_task(&record.id);
        let before = instance_task.and_then(InstanceTask::check_result);
        let healthy_before = instance_task.and_then(|instance_task| instance_task.record.healthy());
        let group_before = instance.is_healthy();
        instance.set_record(record);
        let found = instance
            .instance_task(&record.id)
            .and_then(InstanceTask::check_result);
        let found = found.filter(|found| before.as_ref() != Some(found));
        let drained = record.is_drained();
        let version = instance.version().to_string();
        let facts = instance.facts_of(Some(record), &app, &version);
        let passed = found.as_ref().map(CheckResult::is_success);
        let status = record
            .status
            .as_ref()
            .map(|status| shapes::status_update(facts, status));
        let checked = found.map(|found| shapes::check_result_changed(facts, record.id.as_str(), &found));
        if let Some(draft) = status {
            self.publisher.event(draft);
        }
        if drained && let Some(state) = self.specs.get_mut(&app) {
            // The earlier failures may have been caused by the agent.
            state.forget_failures();
            self.unstored.specs.insert(app.clone());
        }
        self.step_task(&app, &instance_id, false);
        if let Some(draft) = checked {
            self.publisher.event(draft);
        }
        if let Some(passed) = passed {
            self.metrics.record_agent_check("check", passed);
        }
        self.update_check(&app, &instance_id, Occasion::TaskRuns);
        if let Some(healthy) = record
            .healthy()
            .filter(|healthy| Some(*healthy) != healthy_before)
        {
            self.metrics.record_agent_check("health", healthy);
        }
        if record.group.is_some() {
            self.apply_container_health(&app, &instance_id, record, healthy_before, group_before);
        } else {
            self.apply_agent_health(&app, &instance_id, record, healthy_before);
        }
        self.reconcile_queue.insert(app.clone());
        self.publisher.changed(&app);
    }

    /// Applies a launch or a status update of the tasks of an instance.
    fn step_task(&mut self, id: &SpecId, instance_id: &InstanceId, launched: bool) {
        let instance = self
            .specs
            .get(id)
            .and_then(|state| state.instances().get(instance_id));
        let Some(instance) = instance.map(Arc::clone) else {
            return;
        };
        let input = match view(&instance.tasks) {
            Some(view) if launched => Input::Launched(view),
            Some(view) => Input::Updated(view),
            None => return,
        };
        self.step(id, instance_id, input);
    }

    /// Applies the end of a task that ended while there was no leader, unless the instance has a
    /// newer task.
    pub(super) fn step_ended(&mut self, instance_id: &InstanceId) {
        let Some(id) = instance_id.spec() else { return };
        let instance = self
            .specs
            .get(&id)
            .and_then(|state| state.instances().get(instance_id));
        if instance.is_some_and(|instance| {
            instance
                .tasks
                .iter()
                .all(|instance_task| instance_task.record.is_terminal())
        }) {
            self.step_task(&id, instance_id, false);
        }
    }

    pub(super) fn instance_mut(&mut self, app: &SpecId, instance: &InstanceId) -> Option<&mut Instance> {
        self.specs.get_mut(app)?.instance_mut(instance)
    }

    /// Handles a task that is not the current one of an instance: it is an orphan, because the
    /// instance was given up or has launched another task.
    fn handle_stray_task(&mut self, record: &TaskRecord) {
        if record.is_terminal() {
            let (reason, message) = record.status.as_ref().map_or((None, None), |status| {
                (status.reason.as_deref(), status.message.as_deref())
            });
            let condition = Condition::of(&record.state, reason, message);
            let instance = InstanceId::of_task(&record.id).map(|(instance, _)| instance);
            let name = instance.as_ref().map_or(record.id.as_str(), InstanceId::as_str);
            let app = SpecId::parse(&record.run_spec).ok();
            self.publisher
                .event(shapes::unknown_terminated(name, app.as_ref(), condition));
            self.scheduler.purge(vec![record.id.clone()]);
        } else if !record.killing {
            self.scheduler.kill(vec![record.id.clone()], None);
        }
    }

    /// Handles a status update of a task that the scheduler does not know either.
    fn handle_unknown_task(&mut self, status: &TaskStatus) {
        let condition = Condition::of(&status.state, status.reason.as_deref(), status.message.as_deref());
        let instance = InstanceId::of_task(&status.task_id).map(|(instance, _)| instance);
        if condition.is_terminal() {
            let name = instance
                .as_ref()
                .map_or(status.task_id.as_str(), InstanceId::as_str);
            let app = instance.as_ref().and_then(InstanceId::spec);
            self.publisher
                .event(shapes::unknown_terminated(name, app.as_ref(), condition));
        } else {
            tracing::warn!(task = %status.task_id, "killing an orphaned task");
            self.scheduler.kill(vec![status.task_id.clone()], None);
        }
    }

    /// Handles the periodic tick.
    pub(super) async fn tick(&mut self) {
        let mut time_limited = Vec::new();
        for (id, state) in &mut self.specs {
            if state.counts().time_limited() == 0 {
                continue;
            }
            let instances = state.instances().values();
            let candidates = instances.filter(|instance| {
                instance.condition().is_unreachable() || instance.condition().is_launching()
            });
            time_limited.extend(candidates.map(|instance| (id.clone(), instance.id.clone())));
        }
        for (app, instance) in &time_limited {
            if !self.step(app, instance, Input::Tick) {
                continue;
            }
            if let Some(expired) = self.instance_mut(app, instance) {
                if expired.condition().is_launching() {
                    tracing::warn!(task = %expired.task(), "task did not start in time; killed");
                }
            } else {
                tracing::info!(%instance, "instance unreachable for longer than expungeAfterSeconds; expunged");
            }
        }
        self.expire_deployments().await;
        self.roll_back_failed_canaries().await;
        self.continue_proven_canaries().await;
        self.store_unstored().await;
    }
}
