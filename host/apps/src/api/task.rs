//! Documents of tasks.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use transom_plugin_host::probe::Reason;
use transom_replicas::Condition;

use super::append;
use super::pieces::Elements;
use crate::bus::shapes::{IpAddress, ip_addresses};
use crate::check_result::CheckResult;
use crate::core::spec_view::SpecView;
use crate::health::HealthState;
use crate::ids::{InstanceId, SpecId};
use crate::instance::{Instance, Response};
use crate::time::Moment;

/// A launched task of an app.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Task<'a> {
    app_id: &'a SpecId,
    /// The results of its health checks; a check without a result is left out.
    health_check_results: Vec<HealthCheckResult<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    check_result: Option<CheckResult>,
    /// The host name of its agent.
    host: &'a str,
    id: &'a str,
    ip_addresses: Vec<IpAddress<'a>>,
    /// Its ports on the agent.
    ports: &'a [u16],
    service_ports: Vec<u16>,
    /// The id of its agent.
    slave_id: &'a str,
    /// As Mesos names it, such as `TASK_RUNNING`.
    state: &'a str,
    staged_at: Moment,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<Moment>,
    /// The version of the app that it was launched from.
    version: Moment,
    local_volumes: Vec<LocalVolume<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<&'a str>,
    role: &'a str,
    /// Why its check has no newer result. Only with `embed=checkFailure`.
    #[serde(skip_serializing_if = "Option::is_none")]
    check_failure: Option<CheckFailure<'a>>,
}

/// The result of a health check of a task.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct HealthCheckResult<'a> {
    /// Whether the last result was a success.
    alive: bool,
    consecutive_failures: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_success: Option<Moment>,
    instance_id: &'a InstanceId,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_success: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure_cause: Option<&'a str>,
}

/// A persistent volume of a task.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct LocalVolume<'a> {
    run_spec_id: &'a SpecId,
    container_path: &'a str,
    uuid: &'a str,
    persistence_id: &'a str,
}

/// Why a check has no newer result.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CheckFailure<'a> {
    /// The kind of the error as one word, such as `timed-out`.
    #[schemars(with = "String")]
    reason: Reason,
    message: &'a str,
}

/// The result of a readiness check of a task.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReadinessCheckResult<'a> {
    /// The name of the check.
    name: &'a str,
    task_id: String,
    ready: bool,
    /// The last response, if the check has `preserveLastResponse`.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_response: Option<&'a Response>,
}

/// A list of tasks.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TaskList<'a> {
    pub(super) tasks: Vec<Task<'a>>,
}

/// A task that was killed.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TaskSingle<'a> {
    /// The task as it was before; null if it was not launched yet.
    pub(super) task: Option<Task<'a>>,
}

impl<'a> HealthCheckResult<'a> {
    fn new(instance: &'a Instance, state: &'a HealthState) -> Self {
        Self {
            alive: state.is_alive(),
            consecutive_failures: state.consecutive_failures,
            first_success: state.first_success,
            instance_id: &instance.id,
            last_success: state.last_success,
            last_failure: state.last_failure,
            last_failure_cause: state.last_failure_cause.as_deref(),
        }
    }
}

/// The persistent volumes of an instance.
pub(super) fn local_volumes<'a>(run_spec_id: &'a SpecId, instance: &'a Instance) -> Vec<LocalVolume<'a>> {
    let volumes = instance.volumes.iter();
    let to_local_volume = |volume: &'a transom_scheduler::LocalVolume| LocalVolume {
        run_spec_id,
        container_path: &volume.container_path,
        uuid: &volume.uuid,
        persistence_id: &volume.persistence_id,
    };
    volumes.map(to_local_volume).collect()
}

/// The launched tasks of an app, each a [`Task`].
pub(super) fn documents(view: Arc<SpecView>, check_failure: bool) -> Elements {
    let mut instances = view.instances.clone().into_iter();
    Box::new(move |document, _| {
        instances.any(|(id, instance)| {
            let task = task_info(&view, &instance, check_failure);
            task.is_some_and(|task| append(document, &id, &task))
        })
    })
}

/// The results of the readiness checks of an app's tasks.
pub(super) fn readiness_results(view: &SpecView) -> Vec<ReadinessCheckResult<'_>> {
    let results = view.instances.values().filter_map(|instance| {
        let readiness = instance.readiness.as_ref()?;
        Some(ReadinessCheckResult {
            name: &readiness.name,
            task_id: instance.task().to_string(),
            ready: readiness.ready,
            last_response: readiness.response.as_ref(),
        })
    });
    results.collect()
}

/// One task; `None` while the instance is not launched. `check_failure` adds the reason why its
/// check has no newer result.
pub(super) fn task_info<'a>(
    view: &'a SpecView,
    instance: &'a Instance,
    check_failure: bool,
) -> Option<Task<'a>> {
    if matches!(instance.condition(), Condition::Scheduled) {
        return None;
    }
    let instance_task = instance.tasks.first()?;
    let record = &instance_task.record;
    let definition = view.definition(instance.version());
    let known = instance.health.iter().filter(|state| state.is_known());
    let failure = instance_task.check_failure.as_ref().filter(|_| check_failure);
    Some(Task {
        app_id: view.record.spec.id(),
        health_check_results: known
            .map(|state| HealthCheckResult::new(instance, state))
            .collect(),
        check_result: instance_task.check_result(),
        host: &record.agent.hostname,
        id: record.id.as_str(),
        ip_addresses: record.status.as_ref().map(ip_addresses).unwrap_or_default(),
        ports: &record.host_ports,
        service_ports: definition.service_ports().filter(|port| *port != 0).collect(),
        slave_id: record.agent.id.as_str(),
        state: record.state.as_str(),
        staged_at: Moment::from(record.staged_at.unwrap_or(record.intended_at)),
        started_at: record.started_at.map(Moment::from),
        version: instance.version(),
        local_volumes: local_volumes(view.record.spec.id(), instance),
        region: record.agent.region.as_deref(),
        zone: record.agent.zone.as_deref(),
        role: definition.role(),
        check_failure: failure.map(|failure| CheckFailure {
            reason: failure.last.reason,
            message: &failure.last.message,
        }),
    })
}
