//! Documents of pods with the status of their instances and containers.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use transom_replicas::Condition;
use transom_scheduler::TaskRecord;

use super::append;
use super::pieces::{Elements, require_lists};
use super::task::{LocalVolume, local_volumes};
use crate::check_result::CheckResult;
use crate::core::ends::{ContainerTermination, Termination};
use crate::core::failing::Failing;
use crate::core::spec_view::SpecView;
use crate::ids::{InstanceId, SpecId};
use crate::instance::{Instance, InstanceTask};
use crate::model::Pod;
use crate::model::pod::{PodContainer, PodResources};
use crate::task::pod::endpoints_of;
use crate::task::ports::InstancePort;
use crate::time::Moment;

// Its instances are written apart from the other members, one by one.
/// A pod with all its instances.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = require_lists)]
pub(super) struct PodStatus<'a> {
    id: &'a SpecId,
    spec: Pod,
    status: PodState,
    status_since: Moment,
    #[schemars(required)]
    #[serde(skip_serializing_if = "Option::is_none")]
    instances: Option<Vec<InstanceStatus<'a>>>,
    /// The last instances that ended, newest first.
    termination_history: Vec<&'a Termination>,
    last_updated: Moment,
    last_changed: Moment,
    /// What its agents lack for its volumes (only in the status of one pod), or the message of the
    /// last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Cow<'a, str>>,
    /// What fails of it, and why; absent if nothing does. Only with `embed=failing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    failing: Option<Failing>,
}

/// The state of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum PodState {
    /// As many instances as wanted are stable.
    Stable,
    Degraded,
}

/// An instance of a pod.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "PodInstanceStatus")]
pub(super) struct InstanceStatus<'a> {
    id: &'a InstanceId,
    status: PodInstanceState,
    status_since: Moment,
    containers: Vec<ContainerStatus<'a>>,
    /// Always empty; containers have conditions.
    conditions: [StatusCondition; 0],
    networks: Vec<NetworkStatus<'a>>,
    /// The sum of all containers and the executor.
    resources: PodResources,
    /// The path of its definition.
    spec_reference: String,
    local_volumes: Vec<LocalVolume<'a>>,
    last_updated: Moment,
    last_changed: Moment,
    role: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_hostname: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_region: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_zone: Option<&'a str>,
    /// The id of the Mesos executor that runs the containers; their output is in its sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    executor_id: Option<&'a str>,
}

/// The state of an instance of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum PodInstanceState {
    /// It is not launched yet.
    Pending,
    /// Its containers are launched and do not all run yet.
    Staging,
    /// Its containers run, and none is unhealthy.
    Stable,
    /// A container is unhealthy, or the agent is unreachable.
    Degraded,
    /// Its tasks are ending or have ended.
    Terminal,
}

/// A container of an instance.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContainerStatus<'a> {
    name: &'a str,
    /// The state of its task as Mesos names it, such as `TASK_RUNNING`.
    status: &'a str,
    status_since: Moment,
    conditions: Vec<StatusCondition>,
    /// The id of its task.
    container_id: &'a str,
    endpoints: Vec<EndpointStatus<'a>>,
    resources: PodResources,
    last_updated: Moment,
    last_changed: Moment,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    termination: Option<ContainerTermination>,
    #[serde(skip_serializing_if = "Option::is_none")]
    check_result: Option<CheckResult>,
}

/// A condition of a container with a health check.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatusCondition {
    name: &'static str,
    /// `true` or `false`, as text.
    value: String,
    reason: &'static str,
    last_changed: Moment,
    last_updated: Moment,
}

/// An endpoint of a container.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct EndpointStatus<'a> {
    name: &'a str,
    /// The port of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    allocated_host_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    healthy: Option<bool>,
}

/// A network of an instance.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct NetworkStatus<'a> {
    addresses: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

/// The documents of the pods among these apps and pods, each a [`PodStatus`]. `lacks`: what the agents
/// of the first one lack for its volumes; `failing`: what fails of each.
pub(super) fn documents(
    views: impl Iterator<Item = Arc<SpecView>> + Send + 'static,
    mut lacks: Option<String>,
    failing: impl Fn(&SpecView) -> Option<Failing> + Send + 'static,
) -> Elements {
    let mut pods = views.filter_map(|view| Some((Arc::clone(view.record.spec.pod()?), view)));
    Box::new(move |document, pieces| {
        let Some((pod, view)) = pods.next() else {
            return false;
        };
        let instances = instance_documents(Arc::clone(&view), Arc::clone(&pod));
        let status = PodStatus {
            failing: failing(&view),
            ..pod_status(&view, &pod, lacks.take())
        };
        pieces.object(document, &pod.id, &status, [(",\"instances\":[", instances)]);
        true
    })
}

fn instance_documents(view: Arc<SpecView>, pod: Arc<Pod>) -> Elements {
    let mut instances = view.instances.clone().into_iter();
    Box::new(move |document, _| {
        instances.any(|(id, instance)| append(document, &id, &of_instance(&view, &pod, &instance)))
    })
}

/// A pod without its instances. It is stable as soon as the wanted number of them is.
fn pod_status<'a>(view: &'a SpecView, pod: &'a Pod, lacks: Option<String>) -> PodStatus<'a> {
    let stable = view.instances.values().filter(|instance| {
        let pod = definition(view, pod, instance);
        state(pod, instance) == PodInstanceState::Stable
    });
    let status = if stable.count() >= pod.instances() as usize {
        PodState::Stable
    } else {
        PodState::Degraded
    };
    let since = view.instances.values().map(|instance| instance.replica.since);
    let since = since
        .map(Moment::from)
        .max()
        .unwrap_or(pod.version)
        .max(pod.version);
    let failure = view.record.last_failure.as_ref();
    PodStatus {
        id: &pod.id,
        spec: pod.without_version_info(),
        status,
        status_since: since,
        instances: None,
        termination_history: view.record.terminations.iter().rev().collect(),
        last_updated: since,
        last_changed: since,
        message: lacks
            .map(Cow::Owned)
            .or(failure.map(|failure| failure.message.as_str().into())),
        failing: None,
    }
}

/// The definition that an instance was launched from.
fn definition<'a>(view: &'a SpecView, present: &'a Pod, instance: &Instance) -> &'a Pod {
    view.definition(instance.version())
        .pod()
        .map_or(present, |pod| pod)
}

fn of_instance<'a>(view: &'a SpecView, present: &'a Pod, instance: &'a Instance) -> InstanceStatus<'a> {
    let pod = definition(view, present, instance);
    let records: Vec<_> = instance
        .tasks
        .iter()
        .map(|instance_task| Arc::clone(&instance_task.record))
        .collect();
    let endpoints = endpoints_of(pod, &records);
    let containers = pod.containers.iter().zip(&endpoints);
    let containers: Vec<ContainerStatus<'_>> = containers
        .filter_map(|(container, ports)| {
            let instance_task = instance.container(&container.name)?;
            Some(of_container(container, instance_task, ports))
        })
        .collect();
    let changed = Moment::from(instance.replica.since);
    let updated = instance
        .tasks
        .iter()
        .map(|instance_task| instance_task.record.updated_at);
    let updated = updated.max().map_or(changed, Moment::from);
    let record = instance.record();
    let agent = record.map(|record| &record.agent);
    InstanceStatus {
        id: &instance.id,
        status: state(pod, instance),
        status_since: changed,
        containers,
        conditions: [],
        networks: record.map(|record| networks(record)).unwrap_or_default(),
        resources: pod.resources(),
        spec_reference: format!("/v2/pods{}::versions/{}", pod.id, instance.version()),
        local_volumes: local_volumes(&pod.id, instance),
        last_updated: updated,
        last_changed: changed,
        role: &pod.role,
        agent_hostname: agent.map(|agent| agent.hostname.as_str()),
        agent_id: agent.map(|agent| agent.id.as_str()),
        agent_region: agent.and_then(|agent| agent.region.as_deref()),
        agent_zone: agent.and_then(|agent| agent.zone.as_deref()),
        executor_id: record.and_then(|record| Some(record.group.as_ref()?.executor.as_str())),
    }
}

/// The state of an instance of this definition.
fn state(pod: &Pod, instance: &Instance) -> PodInstanceState {
    let is_unhealthy = |container: &PodContainer| {
        let launched = instance.container(&container.name);
        container.health_check.is_some() && launched.is_some_and(|it| it.record.healthy() != Some(true))
    };
    match instance.condition() {
        Condition::Scheduled | Condition::Provisioned => PodInstanceState::Pending,
        Condition::Staging | Condition::Starting => PodInstanceState::Staging,
        Condition::Running if pod.containers.iter().any(is_unhealthy) => PodInstanceState::Degraded,
        Condition::Running => PodInstanceState::Stable,
        Condition::Unreachable | Condition::UnreachableInactive => PodInstanceState::Degraded,
        _ => PodInstanceState::Terminal,
    }
}

fn of_container<'a>(
    container: &'a PodContainer,
    instance_task: &'a InstanceTask,
    ports: &[InstancePort<'a>],
) -> ContainerStatus<'a> {
    let record = &*instance_task.record;
    let status = record.status.as_ref();
    let changed = status.and_then(|status| status.timestamp);
    let changed = changed.and_then(|seconds| Timestamp::from_millisecond((seconds * 1000.0) as i64).ok());
    let changed = Moment::from(changed.unwrap_or(record.updated_at));
    let updated = Moment::from(record.updated_at);
    let healthy = record.healthy();
    let endpoints = ports.iter().filter_map(|port| {
        Some(EndpointStatus {
            // Endpoints always have a name.
            name: port.name?,
            allocated_host_port: port.host,
            healthy,
        })
    });
    let condition = container.health_check.as_ref().map(|_| StatusCondition {
        name: "healthy",
        value: (healthy == Some(true)).to_string(),
        reason: match healthy {
            Some(_) => "health-reported-by-mesos",
            None => "health-unreported-by-mesos",
        },
        last_changed: changed,
        last_updated: updated,
    });
    let message = status.and_then(|status| status.message.as_deref());
    ContainerStatus {
        name: &container.name,
        status: record.state.as_str(),
        status_since: changed,
        conditions: condition.into_iter().collect(),
        container_id: record.id.as_str(),
        endpoints: endpoints.collect(),
        resources: container.resources,
        last_updated: updated,
        last_changed: changed,
        message: message.filter(|message| !message.is_empty()),
        termination: record.is_terminal().then(|| ContainerTermination::of(record)),
        check_result: instance_task.check_result(),
    }
}

/// The networks of an instance with its addresses in them, which are the same for all containers.
fn networks(record: &TaskRecord) -> Vec<NetworkStatus<'_>> {
    let status = record.status.as_ref();
    let container = status.and_then(|status| status.container_status.as_ref());
    let infos = container
        .into_iter()
        .flat_map(|container| &container.network_infos);
    infos
        .map(|info| {
            let addresses = info.ip_addresses.iter();
            NetworkStatus {
                addresses: addresses.filter_map(|it| it.ip_address.as_deref()).collect(),
                name: info.name.as_deref(),
            }
        })
        .collect()
}
