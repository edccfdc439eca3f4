//! The probes of an instance, and the effects of their results: check results, health, kills of
//! unhealthy tasks, and readiness.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use transom_cluster::TaskId;
use transom_plugin_host::probe::{Failure, Outcome, Reason};
use transom_replicas::{Condition, Fitness, Input};
use transom_scheduler::TaskRecord;

use super::Core;
use super::command::Rejection;
use super::failures::{self, Cause};
use super::spec_state::SpecState;
use crate::bus::shapes;
use crate::health::{self, HealthState, HealthVerdict, NoResult, ProbedTask, observe};
use crate::ids::{InstanceId, SpecId};
use crate::instance::{Instance, Readiness, Response};
use crate::model::{HealthCheck, Spec};
use crate::probes::{AttemptResult, Occasion, Probe, Purpose, Report};
use crate::settings::Checks;
use crate::time::Moment;

impl SpecState {
    /// The definition whose probes apply to an instance: the current one, or the one it was
    /// launched from if it is being replaced.
    pub(super) fn definition_of(&self, instance: &Instance) -> &Spec {
        let version = instance.version();
        if self.is_outdated(instance) {
            self.definition(version).unwrap_or(&self.record.spec)
        } else {
            &self.record.spec
        }
    }

    /// The probes in the definition of an instance, and whether this daemon makes them.
    fn defined_probes(&self, instance: &Instance, checks: Checks) -> Vec<(Probe, bool)> {
        let definition = self.definition_of(instance);
        let mut purposes: Vec<(Purpose, &Arc<TaskRecord>, bool)> = Vec::new();
        for index in 0..definition.check_count() {
            if let (Some(check), Some(task)) =
                (definition.check(index), instance.checked_task(definition, index))
            {
                purposes.push((Purpose::Check(index), task, check.is_made_by_daemon(checks)));
            }
        }
        if let Some(record) = instance.record() {
            let health = definition.health_checks().iter().enumerate();
            purposes.extend(
                health.map(|(index, check)| {
                    (Purpose::Health(index), record, check.protocol.is_made_by_daemon())
                }),
            );
            if !definition.readiness_checks().is_empty() {
                purposes.push((Purpose::Readiness, record, true));
            }
        }
        let group: Arc<[Arc<TaskRecord>]> = if definition.is_pod() {
            instance
                .tasks
                .iter()
                .map(|instance_task| Arc::clone(&instance_task.record))
                .collect()
        } else {
            Arc::default()
        };
        let probes = purposes.into_iter().map(|(purpose, record, by_daemon)| {
            let probe = Probe {
                instance: instance.id.clone(),
                incarnation: instance.replica.incarnation,
                purpose,
                spec: definition.clone(),
                record: Arc::clone(record),
                group: Arc::clone(&group),
            };
            (probe, by_daemon)
        });
        probes.collect()
    }

    /// Whether the checks of an instance allow a deployment to count it.
    pub(super) fn fitness(&self, instance: &Instance) -> Fitness {
        instance.fitness(self.definition_of(instance), !self.is_outdated(instance))
    }
}

impl Core {
    /// Whether a deployment waits until new instances are ready.
    fn is_deploying(&self, id: &SpecId) -> bool {
        self.deployments.lock(id).is_some()
    }

    /// The probes of a running task, or of all tasks in its group.
    pub(super) fn probes_of(&self, task: &TaskId) -> Result<Vec<(Probe, bool)>, Rejection> {
        let found = InstanceId::of_task(task).and_then(|(instance, _)| {
            let state = self.specs.get(&instance.spec()?)?;
            let instance = state.instances().get(&instance)?;
            let is_current = instance.task() == *task || instance.instance_task(task).is_some();
            is_current.then_some((state, instance))
        });
        let Some((state, instance)) = found else {
            return Err(Rejection::NoTask(task.to_string()));
        };
        if instance.condition() != Condition::Running {
            return Err(Rejection::NotRunning(task.to_string()));
        }
        let is_group = instance.task() == *task;
        let mut probes = state.defined_probes(instance, self.launch.checks);
        probes.retain(|(probe, _)| is_group || probe.record.id == *task);
        Ok(probes)
    }

    /// Starts or stops the probes of an instance, depending on its condition and its definition.
    pub(super) fn update_check(&mut self, id: &SpecId, instance_id: &InstanceId, occasion: Occasion) {
        let deploying = self.is_deploying(id);
        let checks = self.launch.checks;
        let Some(state) = self.specs.get(id) else { return };
        let Some(instance) = state.instances().get(instance_id) else {
            return;
        };
        let definition = state.definition_of(instance).clone();
        let running = instance.condition() == Condition::Running;
        if !running || instance.record().is_none() {
            return self.checker.end(instance_id);
        }
        let counts = instance.replica.is_wanted() && !instance.replica.restarting;
        let has_to_be_ready = deploying && !instance.is_ready() && !state.is_outdated(instance);
        let probes = state.defined_probes(instance, checks).into_iter();
        let probes = probes.filter(|(probe, by_daemon)| {
            *by_daemon
                && match probe.purpose {
                    Purpose::Check(_) => true,
                    Purpose::Health(_) => counts,
                    Purpose::Readiness => counts && has_to_be_ready,
                }
        });
        let probes = probes.map(|(probe, _)| probe);
        self.checker.set(instance_id, probes.collect(), occasion);
        if let Some(instance) = self.instance_mut(id, instance_id) {
            instance
                .health
                .resize(definition.health_checks().len(), HealthState::default());
        }
        self.update_fitness(id, instance_id);
    }

    /// Starts the readiness checks of instances, if a deployment waits for them.
    pub(super) fn update_readiness(&mut self, id: &SpecId) {
        let Some(state) = self.specs.get(id) else { return };
        if state.record.spec.readiness_checks().is_empty() || !self.is_deploying(id) {
            return;
        }
        let waits = |instance: &&Arc<Instance>| {
            instance.condition() == Condition::Running && !instance.is_ready() && !state.is_outdated(instance)
        };
        let waiting: Vec<InstanceId> = state
            .instances()
            .values()
            .filter(waits)
            .map(|instance| instance.id.clone())
            .collect();
        for instance in &waiting {
            self.update_check(id, instance, Occasion::TaskRuns);
        }
    }

    /// Publishes events about health checks that were added and removed, drops the results of
    /// changed probes, and repeats these probes. `before` and `after` are the definitions; `None`
    /// for a new or deleted app or pod. `kept_before` are the versions whose instances had the probes
    /// of `before`; others had those of their own versions.
    pub(super) fn handle_definition_change(
        &mut self,
        id: &SpecId,
        before: Option<&Spec>,
        after: Option<&Spec>,
        kept_before: &BTreeSet<Moment>,
    ) {
        let checks = |spec: Option<&Spec>| spec.map(|spec| spec.health_checks().to_vec()).unwrap_or_default();
        let (old, new) = (checks(before), checks(after));
        for check in old.iter().filter(|check| !new.contains(check)) {
            self.publisher.event(shapes::health_check_removed(id, check));
        }
        if let Some(after) = after {
            for check in new.iter().filter(|check| !old.contains(check)) {
                self.publisher
                    .event(shapes::health_check_added(id, check, after.version()));
            }
        }
        let (Some(before), Some(after)) = (before, after) else {
            return;
        };
        let Some(state) = self.specs.get(id) else { return };
        let mut current: BTreeMap<Moment, Vec<InstanceId>> = BTreeMap::new();
        for instance in state.instances().values() {
            if !state.is_outdated(instance) {
                let of_version = current.entry(instance.version()).or_default();
                of_version.push(instance.id.clone());
            }
        }
        let own = |version: Moment| {
            let own = state
                .definition(version)
                .filter(|_| !kept_before.contains(&version));
            own.unwrap_or(before).clone()
        };
        let current: Vec<(Spec, Vec<InstanceId>)> = current
            .into_iter()
            .map(|(version, instances)| (own(version), instances))
            .collect();
        for (before, instances) in current {
            self.repeat_changed_probes(id, &before, after, &instances);
        }
    }

    /// Drops the results of changed probes of some instances, and repeats these probes. `before` is
    /// the definition whose probes they had.
    fn repeat_changed_probes(&mut self, id: &SpecId, before: &Spec, after: &Spec, instances: &[InstanceId]) {
        let (old, new) = (before.health_checks(), after.health_checks());
        let check_changed = !before.has_same_checks(after);
        let readiness_changed = before.readiness_checks() != after.readiness_checks();
        let ports_changed = !before.has_same_ports(after);
        if !check_changed && !readiness_changed && !ports_changed && old == new {
            return;
        }
        for instance_id in instances {
            if let Some(instance) = self.instance_mut(id, instance_id) {
                if check_changed {
                    for instance_task in &mut instance.tasks {
                        (instance_task.check_outcome, instance_task.check_failure) = (None, None);
                    }
                }
                if readiness_changed {
                    instance.readiness = None;
                }
                let known = instance.health.iter().any(HealthState::is_known);
                instance.health = carry_over_results(&instance.health, old, new);
                if known {
                    self.unstored.health.insert(instance_id.clone());
                }
            }
            self.update_check(id, instance_id, Occasion::Changed);
        }
    }

    /// Handles results of probes.
    pub(super) fn handle_reports(&mut self, batch: Vec<Report>) {
        for report in batch {
            let changed = self.handle_report(report);
            self.reconcile_queue.extend(changed);
        }
    }

    /// Handles one result. Returns the app if the result may allow its next action.
    fn handle_report(&mut self, report: Report) -> Option<SpecId> {
        let Report { probe, result } = report;
        let id = probe.instance.spec()?;
        let state = self.specs.get(&id)?;
        let instance = state.instances().get(&probe.instance)?;
        // The report belongs to an earlier task or an earlier definition.
        if instance.replica.incarnation != probe.incarnation
            || !probe.is_defined_by(state.definition_of(instance), probe.purpose)
        {
            return None;
        }
        match (probe.purpose, result) {
            (Purpose::Check(_), result) => {
                self.handle_check_result(&id, &probe, result);
                None
            }
            (Purpose::Health(index), AttemptResult::Ended(result)) => {
                let check = probe.spec.health_checks().get(index)?;
                let verdict = health::evaluate(check, &result);
                if let HealthVerdict::NoResult(failure) = &verdict {
                    tracing::warn!(
                        task = %probe.record.id, reason = ?failure.reason, message = failure.message,
                        "health check could not be made; the task keeps its health"
                    );
                }
                let observed = self.observe(&id, &probe.instance, index, &verdict, Moment::now());
                observed.then_some(id)
            }
            (Purpose::Readiness, AttemptResult::Ended(result)) => {
                let changed = self.handle_readiness_result(&id, &probe, &result);
                changed.then_some(id)
            }
            (Purpose::Health(_) | Purpose::Readiness, AttemptResult::Obsolete) => None,
        }
    }

    /// Handles the result of a check.
    fn handle_check_result(&mut self, app: &SpecId, probe: &Probe, result: AttemptResult) {
        let Some(instance) = self.instance_mut(app, &probe.instance) else {
            return;
        };
        let Some(instance_task) = instance.instance_task_mut(&probe.record.id) else {
            return;
        };
        match result {
            AttemptResult::Ended(Ok(found)) => {
                let failed_before = instance_task.check_failure.take().is_some();
                if instance_task.check_outcome.as_ref() == Some(&found) {
                    if failed_before {
                        self.publisher.changed(app);
                    }
                    return;
                }
                instance_task.check_outcome = Some(found);
                let (record, result) = (Arc::clone(&instance_task.record), instance_task.check_result());
                let version = instance.version().to_string();
                let facts = instance.facts_of(Some(&record), app, &version);
                // Publishes the same event as for a check that the agent makes.
                let status = record.status.as_ref();
                let status = status.map(|status| shapes::status_update(facts, status));
                let checked =
                    result.map(|result| shapes::check_result_changed(facts, record.id.as_str(), &result));
                self.publisher.events(status);
                self.publisher.events(checked);
            }
            // The last result is kept, and the failure explains why there is no newer one.
            AttemptResult::Ended(Err(failure)) => {
                let earlier = instance_task.check_failure.take();
                if earlier.as_ref().map(|earlier| earlier.last.reason) != Some(failure.reason) {
                    tracing::warn!(
                        app = %app, task = %instance_task.record.id, reason = ?failure.reason, message = failure.message,
                        "check could not be made; the last result is kept"
                    );
                }
                instance_task.check_failure = Some(NoResult::add(earlier, &failure, Moment::now()));
            }
            AttemptResult::Obsolete => instance_task.check_failure = None,
        }
        self.publisher.changed(app);
    }

    /// Applies one result of a health check, publishes the events about it, and kills the task if
    /// it has been unhealthy for too long. Returns whether the instance's health has changed or its
    /// task is killed.
    pub(super) fn observe(
        &mut self,
        app: &SpecId,
        instance_id: &InstanceId,
        index: usize,
        verdict: &HealthVerdict,
        now: Moment,
    ) -> bool {
        let Some(state) = self.specs.get(app) else {
            return false;
        };
        let Some(instance) = state.instances().get(instance_id) else {
            return false;
        };
        let definition = state.definition_of(instance).clone();
        let (Some(check), Some(before)) = (definition.health_checks().get(index), instance.health.get(index))
        else {
            return false;
        };
        let probed_task = probed_task(instance, check, now);
        let observation = observe(before, verdict, check, probed_task, now);
        if observation.state == *before {
            return false;
        }
        let healthy = instance.is_healthy();
        let version = instance.version().to_string();
        if observation.failed {
            self.publisher
                .event(shapes::health_check_failed(app, instance_id, check));
        }
        if let Some(alive) = observation.alive {
            let draft = shapes::health_status_changed(app, instance_id, &version, alive);
            self.publisher.event(draft);
        }
        let (was, is) = (before.to_stored(), observation.state.to_stored());
        let of_daemon = check.protocol.is_made_by_daemon();
        // Not each result, but only another one.
        if of_daemon && was.map(|it| it.alive) != is.map(|it| it.alive) {
            self.unstored.health.insert(instance_id.clone());
        }
        let was_restored = before.is_restored;
        let Some(instance) = self.instance_mut(app, instance_id) else {
            return false;
        };
        instance.health[index] = observation.state;
        let now_healthy = instance.is_healthy();
        let health_changed = now_healthy != healthy;
        let changed = health_changed || was_restored;
        if health_changed {
            let draft = shapes::instance_health_changed(instance.facts(app, &version), now_healthy);
            self.publisher.event(draft);
        }
        self.publisher.changed(app);
        self.update_fitness(app, instance_id);
        if observation.kill {
            self.kill_unhealthy(app, instance_id, index);
        }
        changed || observation.kill
    }

    /// Kills an unhealthy task; the instance launches its next one.
    fn kill_unhealthy(&mut self, app: &SpecId, instance_id: &InstanceId, index: usize) {
        let Some(instance) = self.instance_mut(app, instance_id) else {
            return;
        };
        let cause = instance
            .health
            .get(index)
            .and_then(|state| state.last_failure_cause.clone());
        let cause = cause.as_deref().unwrap_or("unknown");
        let record = instance.record().cloned();
        let (version, task) = (instance.version().to_string(), instance.task());
        tracing::warn!(%app, %task, cause, "task is unhealthy; killed");
        let facts = instance.facts(app, &version);
        let drafts = shapes::unhealthy_kill(facts, task.as_str(), cause);
        self.publisher.events(drafts);
        self.checker.end(instance_id);
        if let (Some(state), Some(record)) = (self.specs.get_mut(app), record) {
            let now = Moment::now();
            let failure = failures::Failure::new(Cause::Unhealthy, now, cause, Some(&record));
            state.add_failure(failure, &record.agent.hostname, now);
            self.unstored.specs.insert(app.clone());
        }
        let state = self.specs.get(app);
        let new = state.is_some_and(|state| {
            let instance = state.instances().get(instance_id);
            instance.is_some_and(|instance| !state.is_outdated(instance))
        });
        if new {
            self.canary_failed(app, "is unhealthy");
        }
        self.step(app, instance_id, Input::Restart);
    }

    /// Updates the fitness of an instance, as deployments see it.
    pub(super) fn update_fitness(&mut self, app: &SpecId, instance_id: &InstanceId) {
        let state = self.specs.get(app);
        let fitness = state.and_then(|state| Some(state.fitness(state.instances().get(instance_id)?)));
        if let (Some(fitness), Some(instance)) = (fitness, self.instance_mut(app, instance_id)) {
            instance.replica.record_fitness(fitness);
        }
    }

    /// Handles the result of a readiness check. Returns whether the task is ready.
    fn handle_readiness_result(
        &mut self,
        app: &SpecId,
        probe: &Probe,
        result: &Result<Outcome, Failure>,
    ) -> bool {
        let deploying = self.is_deploying(app);
        let Some(instance) = self.instance_mut(app, &probe.instance) else {
            return false;
        };
        let Some(readiness) = probe.spec.readiness_checks().first() else {
            return false;
        };
        let response = Response::of(result);
        let ready = readiness.http_status_codes_for_ready.contains(&response.status);
        let before = instance
            .readiness
            .as_ref()
            .and_then(|before| before.failures.clone());
        let failures = (!ready).then(|| {
            let failure = result.as_ref().err().cloned();
            let failure = failure.unwrap_or_else(|| Failure {
                reason: Reason::Invalid,
                message: health::status_text(response.status),
            });
            NoResult::add(before, &failure, Moment::now())
        });
        instance.readiness = Some(Arc::new(Readiness {
            name: readiness.name.clone(),
            ready,
            failures,
            response: Some(response).filter(|_| readiness.preserve_last_response),
        }));
        self.publisher.changed(app);
        if ready || !deploying {
            // A ready task is not probed again.
            self.update_check(app, &probe.instance, Occasion::TaskRuns);
        }
        ready
    }
}

/// The task of an instance for a health check.
fn probed_task(instance: &Instance, check: &HealthCheck, now: Moment) -> ProbedTask {
    let replica = &instance.replica;
    ProbedTask {
        started: replica.started_at.map_or(now, Moment::from),
        may_be_killed: check.protocol.is_made_by_daemon()
            && replica.condition == Condition::Running
            && replica.is_wanted()
            && !replica.restarting,
    }
}

/// The results of the new health checks: a check that is unchanged keeps its result.
fn carry_over_results(states: &[HealthState], old: &[HealthCheck], new: &[HealthCheck]) -> Vec<HealthState> {
    let before = |check: &HealthCheck| {
        let index = old.iter().position(|one| one == check)?;
        states.get(index).cloned()
    };
    new.iter()
        .map(|check| before(check).unwrap_or_default())
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::testing::app;
    use serde_json::json;

    #[test]
    fn results_of_unchanged_health_checks_are_kept() {
        let checks = |documents| {
            let body = json!({"id": "/a", "cmd": "sleep 1", "healthChecks": documents});
            app(&body).health_checks
        };
        let old = checks(json!([{"path": "/a"}, {"path": "/b"}]));
        let new = checks(json!([{"path": "/b"}, {"path": "/c"}]));
        let state = |failures| HealthState {
            consecutive_failures: failures,
            ..HealthState::default()
        };
        let found = carry_over_results(&[state(1), state(2)], &old, &new);
        assert_eq!(found, [state(2), HealthState::default()]);
        assert_eq!(
            carry_over_results(&[], &old, &new),
            [HealthState::default(), HealthState::default()]
        );
    }

    #[test]
    fn response_is_that_of_the_task_or_504() {
        let whole = r#"{"status":503,"contentType":"application/json","body":"{}"}"#;
        let failure = Failure {
            reason: Reason::Unreachable,
            message: "GET /: connection refused".to_owned(),
        };
        for (result, status, content_type, body) in [
            (
                Ok(Outcome::Custom(whole.to_owned())),
                503,
                "application/json",
                "{}",
            ),
            (Ok(Outcome::Http(200)), 200, "", ""),
            (
                Err(failure),
                504,
                "text/plain",
                "Marathon could not query URL: GET /: connection refused",
            ),
            (
                Ok(Outcome::Custom("{}".to_owned())),
                504,
                "text/plain",
                "Marathon could not query URL: the component did not report a response",
            ),
        ] {
            let expected = Response {
                status,
                content_type: content_type.to_owned(),
                body: body.to_owned(),
            };
            assert_eq!(Response::of(&result), expected, "{result:?}");
        }
    }
}
