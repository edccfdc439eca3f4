//! Handles scheduler events, check results and ticks.

use std::sync::Arc;

use transom_cluster::TaskId;
use transom_cluster::v1::TaskStatus;
use transom_common::error_chain;
use transom_scheduler::{Event, TaskRecord};

use super::Core;
use super::command::{Look, Report};
use super::snapshot::TaskFailure;
use crate::bus::shapes;
use crate::condition::Condition;
use crate::ids::{AppId, InstanceId};
use crate::instance::Overdue;
use crate::time::Moment;

impl Core {
    pub(super) async fn event(&mut self, event: Event) {
        match event {
            Event::Registered { framework_id, master } => {
                self.drafts
                    .push(shapes::registered(framework_id.as_str(), master.as_deref()));
            }
            Event::Reregistered { master } => self.drafts.push(shapes::reregistered(master.as_deref())),
            Event::Disconnected => self.drafts.push(shapes::disconnected()),
            Event::Launched(record) => self.launched(&record),
            Event::Updated(record) => self.updated(&record).await,
            // Whoever withdrew it has removed its instance.
            Event::NeverLaunched(task) => tracing::debug!(%task, "task withdrawn before its launch"),
            Event::Rejected { task, reason } => {
                tracing::error!(%task, error = error_chain(&*reason), "the scheduler rejected a request");
            }
            Event::Message {
                agent,
                executor,
                data,
            } => {
                self.drafts.push(shapes::framework_message(
                    agent.as_str(),
                    executor.as_str(),
                    &data,
                ));
            }
            // Status updates of its tasks follow.
            Event::AgentLost(agent) => tracing::info!(%agent, "agent lost"),
            Event::Unknown { status } => self.unknown(&status),
        }
    }

    /// The app and instance of a task, if it is the instance's current task.
    fn place(&self, task: &TaskId) -> Option<(AppId, InstanceId)> {
        let (instance, incarnation) = InstanceId::of_task(task)?;
        let app = instance.app()?;
        let known = self.apps.get(&app)?.instances.get(&instance)?;
        (known.incarnation == incarnation).then_some((app, instance))
    }

    fn launched(&mut self, record: &Arc<TaskRecord>) {
        let Some((app, instance)) = self.place(&record.id) else {
            return self.stray(record);
        };
        self.dirty.insert(app.clone());
        let Some(known) = self
            .apps
            .get_mut(&app)
            .and_then(|state| state.instances.get_mut(&instance))
        else {
            return;
        };
        if known.condition == Condition::Scheduled {
            known.update(record);
        }
    }

    async fn updated(&mut self, record: &Arc<TaskRecord>) {
        let Some((app, instance)) = self.place(&record.id) else {
            return self.stray(record);
        };
        let Some(known) = self
            .apps
            .get_mut(&app)
            .and_then(|state| state.instances.get_mut(&instance))
        else {
            return;
        };
        let before = known.check_result();
        let changed = known.update(record);
        let (condition, found, version) = (known.condition, known.check_result(), known.version.to_string());
        let facts = known.facts(&app, &version);
        if let Some(status) = &record.status {
            self.drafts.push(shapes::status_update(facts, status));
        }
        if changed && condition.is_public() {
            self.drafts.push(shapes::instance_changed(facts, condition));
        }
        if let Some(found) = found.filter(|found| before.as_ref() != Some(found)) {
            self.drafts
                .push(shapes::check_result_changed(facts, record.id.as_str(), &found));
        }
        self.look_after(&app, &instance);
        if condition.is_terminal() {
            self.ended(&app, &instance, record);
        }
        self.reconcile(&app).await;
    }

    /// The current task of an instance is terminal: the next one follows, unless the instance is
    /// being removed.
    fn ended(&mut self, app: &AppId, instance: &InstanceId, record: &TaskRecord) {
        self.checker.end(instance);
        self.scheduler.purge(vec![record.id.clone()]);
        let Some(state) = self.apps.get_mut(app) else {
            return;
        };
        let Some(known) = state.instances.get(instance) else {
            return;
        };
        let (condition, killed, wanted) = (known.condition, known.killed, known.wanted);
        if matches!(
            condition,
            Condition::Failed | Condition::Error | Condition::Gone | Condition::Dropped
        ) && !killed
        {
            state.record.last_failure = Some(failure(app, known.version, record));
        }
        if !wanted || state.record.gone {
            state.instances.remove(instance);
            return;
        }
        if condition.is_failure() && !killed {
            state.backoff.failed(&state.record.app, Moment::now());
        }
        let version = state.record.app.version;
        if let Some(known) = state.instances.get_mut(instance) {
            known.reschedule(version);
        }
        if let Some(known) = state.instances.get(instance) {
            self.scheduler.submit(vec![state.wanted(known)]);
        }
    }

    /// An orphan of this framework: a task of an instance that was given up, or that was launched
    /// meanwhile.
    fn stray(&mut self, record: &TaskRecord) {
        if record.is_terminal() {
            let (reason, message) = record.status.as_ref().map_or((None, None), |status| {
                (status.reason.as_deref(), status.message.as_deref())
            });
            let condition = Condition::of(&record.state, reason, message);
            let instance = InstanceId::of_task(&record.id).map(|(instance, _)| instance);
            let name = instance.as_ref().map_or(record.id.as_str(), InstanceId::as_str);
            let app = AppId::parse(&record.run_spec).ok();
            self.drafts
                .push(shapes::unknown_terminated(name, app.as_ref(), condition));
            self.scheduler.purge(vec![record.id.clone()]);
        } else if !record.killing {
            self.scheduler.kill(vec![record.id.clone()], None);
        }
    }

    /// A status update of a task that the scheduler does not know either.
    fn unknown(&mut self, status: &TaskStatus) {
        let condition = Condition::of(&status.state, status.reason.as_deref(), status.message.as_deref());
        let instance = InstanceId::of_task(&status.task_id).map(|(instance, _)| instance);
        if condition.is_terminal() {
            let name = instance
                .as_ref()
                .map_or(status.task_id.as_str(), InstanceId::as_str);
            let app = instance.as_ref().and_then(InstanceId::app);
            self.drafts
                .push(shapes::unknown_terminated(name, app.as_ref(), condition));
        } else {
            tracing::warn!(task = %status.task_id, "killing an orphaned task");
            self.scheduler.kill(vec![status.task_id.clone()], None);
        }
    }

    /// Handles the result of a check.
    pub(super) fn report(&mut self, report: Report) {
        let Some(app) = report.instance.app() else { return };
        let Some(known) = self
            .apps
            .get_mut(&app)
            .and_then(|state| state.instances.get_mut(&report.instance))
        else {
            return;
        };
        // A report about an earlier task of the instance.
        if known.incarnation != report.incarnation {
            return;
        }
        match report.look {
            Look::Found(found) => {
                known.failure = None;
                if known.found.as_ref() == Some(&found) {
                    self.dirty.insert(app);
                    return;
                }
                known.found = Some(found);
                let version = known.version.to_string();
                if let Some(result) = known.check_result() {
                    let draft = shapes::check_result_changed(
                        known.facts(&app, &version),
                        known.task().as_str(),
                        &result,
                    );
                    self.drafts.push(draft);
                }
            }
            // The last result stays, and the failure explains why there is no newer one.
            Look::Failed(failure) => {
                if known.failure.as_ref().map(|known| known.reason) != Some(failure.reason) {
                    tracing::warn!(app = %app, task = %known.task(), reason = ?failure.reason, message = failure.message, "check failed without a result");
                }
                known.failure = Some(failure);
            }
            Look::Obsolete => known.failure = None,
        }
        self.dirty.insert(app);
    }

    /// Handles the periodic tick.
    pub(super) async fn tick(&mut self) {
        let now = Moment::now();
        let mut overdue = Vec::new();
        for (id, state) in &self.apps {
            let strategy = state.record.app.unreachable_strategy;
            for instance in state.instances.values() {
                let due = instance.overdue(strategy, now);
                if due != Overdue::No {
                    overdue.push((id.clone(), instance.id.clone(), due));
                }
            }
        }
        for (app, instance, due) in &overdue {
            self.give_up(app, instance, *due);
            self.reconcile(app).await;
        }
        self.repair_unconfirmed().await;
        // Deployments whose end could not be stored yet.
        let waiting: Vec<AppId> = self.deployments.keys().cloned().collect();
        for id in waiting {
            self.reconcile(&id).await;
        }
    }

    fn give_up(&mut self, app: &AppId, instance: &InstanceId, due: Overdue) {
        if due == Overdue::Forget {
            tracing::info!(%instance, "instance unreachable for longer than expungeAfterSeconds; expunged");
            self.decommission(app, instance);
            if let Some(state) = self.apps.get_mut(app) {
                state.instances.remove(instance);
            }
            return;
        }
        let Some(known) = self
            .apps
            .get_mut(app)
            .and_then(|state| state.instances.get_mut(instance))
        else {
            return;
        };
        known.condition = Condition::UnreachableInactive;
        let version = known.version.to_string();
        self.drafts.push(shapes::instance_changed(
            known.facts(app, &version),
            Condition::UnreachableInactive,
        ));
    }
}

fn failure(app: &AppId, version: Moment, record: &TaskRecord) -> TaskFailure {
    let message = record.status.as_ref().and_then(|status| status.message.clone());
    TaskFailure {
        app_id: app.clone(),
        host: record.agent.hostname.clone(),
        message: message.unwrap_or_default(),
        state: record.state.as_str().to_owned(),
        task_id: record.id.to_string(),
        slave_id: Some(record.agent.id.to_string()),
        timestamp: Moment::from(record.updated_at),
        version,
    }
}
