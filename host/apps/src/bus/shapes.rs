//! The documents of all events of this service, in the form that the specification and upstream's
//! clients share.
//!
//! An event about an app has the app's id as its subject, which event queries may name.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use transom_cluster::v1::TaskStatus;
use transom_plugin_host::Change;

use super::{Draft, Gap, Listener, MAX_EVENT_BYTES};
use crate::check_result::CheckResult;
use crate::deploy::{Deployment, Step};
use crate::ids::{GroupId, InstanceId, SpecId};
use crate::model::{App, HealthCheck, IpProtocol};
use crate::settings::PlanForm;
use crate::time::Moment;
use transom_replicas::Condition;

fn of_listener(kind: &'static str, listener: &Listener) -> Draft {
    let client = &listener.client;
    Draft::new(
        kind,
        None,
        json!({"clientIp": client, "callbackUrl": listener.url, "remoteAddress": client}),
    )
}

pub(crate) fn attached(listener: &Listener) -> Draft {
    of_listener("event_stream_attached", listener)
}

pub(crate) fn detached(listener: &Listener) -> Draft {
    of_listener("event_stream_detached", listener)
}

/// A callback subscriber was added.
pub(crate) fn subscribed(client: &str, url: &str) -> Draft {
    Draft::new(
        "subscribe_event",
        None,
        json!({"clientIp": client, "callbackUrl": url}),
    )
}

/// A callback subscriber was removed.
pub(crate) fn unsubscribed(client: &str, url: &str) -> Draft {
    Draft::new(
        "unsubscribe_event",
        None,
        json!({"clientIp": client, "callbackUrl": url}),
    )
}

/// Some events of a resumed stream are missing. This event is Transom's own and only sent to such
/// streams.
pub(crate) fn gap(gap: &Gap) -> (&'static str, String) {
    let body = json!({"from": gap.from, "to": gap.to.to_string(), "reason": gap.reason});
    let draft = Draft::new("event_stream_gap", None, body);
    (draft.kind, draft.body.to_string())
}

/// Maximum length of the subject in the replacement of a large event.
const MAX_SUBJECT_BYTES: usize = 1024;

/// Replaces an event that exceeds the size limit. Transom's own, and sent only to subscribers that
/// name it.
pub(crate) fn too_large(kind: &'static str, subject: Option<String>, bytes: usize) -> Draft {
    let subject = subject.filter(|subject| subject.len() <= MAX_SUBJECT_BYTES);
    let body = json!({
        "droppedEventType": kind,
        "subject": subject,
        "bytes": bytes,
        "maxBytes": MAX_EVENT_BYTES,
        "reason": format!("the {kind} has {bytes} bytes, the limit is {MAX_EVENT_BYTES}"),
    });
    let mut draft = Draft::new("event_too_large_event", None, body);
    draft.subject = subject;
    draft
}

/// A change of a plugin of this daemon. Transom's own, and sent only to subscribers that name it.
pub(crate) fn plugin(change: &Change) -> Draft {
    let kind = match change {
        Change::Admitted { .. } => "plugin_admitted_event",
        Change::Rejected { .. } => "plugin_refused_event",
        Change::Shadowing { .. } => "plugin_shadowing_event",
        Change::Canary { .. } => "plugin_canary_event",
        Change::Promoted { .. } => "plugin_promoted_event",
        Change::Aborted { .. } => "plugin_rollout_aborted_event",
        Change::Removed { .. } => "plugin_removed_event",
        Change::RolledBack { .. } => "plugin_rolled_back_event",
        Change::Disabled { .. } => "plugin_disabled_event",
    };
    let mut body = json!(change);
    if let Some(members) = body.as_object_mut() {
        // The kind of the event already contains it.
        members.remove("change");
        if let Some(name) = members.remove("name") {
            members.insert("plugin".to_owned(), name);
        }
    }
    Draft::new(kind, None, body)
}

/// Fields that the specification lists for `appDefinition` and that shown definitions omit when
/// empty.
const LIST_FIELDS: &[&str] = &["args", "constraints", "dependencies", "fetch", "healthChecks"];

/// A request created, updated or deleted an app; `app` is the current definition, or the last one
/// of a deleted app.
pub(crate) fn api_post(client: &str, uri: &str, app: &App) -> Draft {
    let mut definition = json!(app);
    if let Some(members) = definition.as_object_mut() {
        for &list in LIST_FIELDS {
            members.entry(list).or_insert_with(|| json!([]));
        }
        members.entry("env").or_insert_with(|| json!({}));
        for nothing in ["cmd", "container", "user"] {
            members.entry(nothing).or_insert(Value::Null);
        }
        let ports: Vec<u16> = app.service_ports().collect();
        members.insert("ports".to_owned(), json!(ports));
    }
    Draft::new(
        "api_post_event",
        Some(&app.id),
        json!({"clientIp": client, "uri": uri, "appDefinition": definition}),
    )
}

/// A request created, updated or deleted a pod.
pub(crate) fn pod_changed(kind: &'static str, client: &str, uri: &str, pod: &SpecId) -> Draft {
    Draft::new(kind, Some(pod), json!({"clientIp": client, "uri": uri}))
}

/// The task fields of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskFacts<'a> {
    pub(crate) app: &'a SpecId,
    pub(crate) instance: &'a InstanceId,
    pub(crate) version: &'a str,
    pub(crate) agent: Option<&'a str>,
    pub(crate) host: Option<&'a str>,
    pub(crate) ports: &'a [u16],
}

/// The status of a task changed.
pub(crate) fn status_update(facts: TaskFacts<'_>, status: &TaskStatus) -> Draft {
    let body = json!({
        "slaveId": facts.agent.unwrap_or_default(),
        "taskId": status.task_id.as_str(),
        "taskStatus": status.state.as_str(),
        "message": status.message.as_deref().unwrap_or_default(),
        "appId": facts.app,
        "host": facts.host.unwrap_or_default(),
        "ipAddresses": ip_addresses(status),
        "ports": facts.ports,
        "version": facts.version,
    });
    Draft::new("status_update_event", Some(facts.app), body)
}

/// An address of a task, as tasks and events show it.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IpAddress<'a> {
    ip_address: &'a str,
    protocol: IpProtocol,
}

/// The addresses in a status.
pub(crate) fn ip_addresses(status: &TaskStatus) -> Vec<IpAddress<'_>> {
    let networks = status
        .container_status
        .iter()
        .flat_map(|container| &container.network_infos);
    let addresses = networks.flat_map(|network| &network.ip_addresses);
    addresses
        .filter_map(|address| {
            let ip_address = address.ip_address.as_deref()?;
            let protocol = match ip_address.parse() {
                Ok(IpAddr::V6(_)) => IpProtocol::IPv6,
                _ => IpProtocol::IPv4,
            };
            Some(IpAddress { ip_address, protocol })
        })
        .collect()
}

/// The condition of an instance changed.
pub(crate) fn instance_changed(facts: TaskFacts<'_>, condition: Condition) -> Draft {
    let body = json!({
        "instanceId": facts.instance,
        "condition": condition.as_str(),
        "runSpecId": facts.app,
        "agentId": facts.agent,
        "host": facts.host,
        "runSpecVersion": facts.version,
    });
    Draft::new("instance_changed_event", Some(facts.app), body)
}

/// A task without a known instance has ended.
pub(crate) fn unknown_terminated(instance: &str, app: Option<&SpecId>, condition: Condition) -> Draft {
    let run_spec = app.map(ToString::to_string).unwrap_or_default();
    let body = json!({"instanceId": instance, "runSpecId": run_spec, "condition": condition.as_str()});
    Draft::new("unknown_instance_terminated_event", app, body)
}

/// A deployment stopped an app.
pub(crate) fn app_terminated(app: &SpecId) -> Draft {
    Draft::new("app_terminated_event", Some(app), json!({"appId": app}))
}

/// The result of a check has changed. Opt-in: upstream has no such event.
pub(crate) fn check_result_changed(facts: TaskFacts<'_>, task: &str, result: &CheckResult) -> Draft {
    let body = json!({
        "appId": facts.app,
        "instanceId": facts.instance,
        "taskId": task,
        "version": facts.version,
        "checkResult": result,
    });
    Draft::new("check_result_changed_event", Some(facts.app), body)
}

/// A health check was added to the definition of an app.
pub(crate) fn health_check_added(app: &SpecId, check: &HealthCheck, version: Moment) -> Draft {
    let body = json!({"appId": app, "healthCheck": check, "version": version});
    Draft::new("add_health_check_event", Some(app), body)
}

/// A health check was removed from the definition of an app.
pub(crate) fn health_check_removed(app: &SpecId, check: &HealthCheck) -> Draft {
    let body = json!({"appId": app, "healthCheck": check});
    Draft::new("remove_health_check_event", Some(app), body)
}

/// A health check of an instance failed; as upstream, `taskId` is the id of the instance.
pub(crate) fn health_check_failed(app: &SpecId, instance: &InstanceId, check: &HealthCheck) -> Draft {
    let body = json!({"appId": app, "taskId": instance, "healthCheck": check});
    Draft::new("failed_health_check_event", Some(app), body)
}

/// The result of one health check of an instance has changed.
pub(crate) fn health_status_changed(
    app: &SpecId,
    instance: &InstanceId,
    version: &str,
    alive: bool,
) -> Draft {
    let body = json!({"appId": app, "instanceId": instance, "version": version, "alive": alive});
    Draft::new("health_status_changed_event", Some(app), body)
}

/// The health of an instance, which is that of all its health checks together, has changed.
pub(crate) fn instance_health_changed(facts: TaskFacts<'_>, healthy: Option<bool>) -> Draft {
    let body = json!({
        "instanceId": facts.instance,
        "runSpecId": facts.app,
        "healthy": healthy,
        "runSpecVersion": facts.version,
    });
    Draft::new("instance_health_changed_event", Some(facts.app), body)
}

/// A task is killed because it is unhealthy: upstream's event, and the one of the specification.
pub(crate) fn unhealthy_kill(facts: TaskFacts<'_>, task: &str, reason: &str) -> [Draft; 2] {
    let mut body = json!({
        "appId": facts.app,
        "taskId": task,
        "version": facts.version,
        "reason": reason,
        "host": facts.host.unwrap_or_default(),
    });
    if let Some(agent) = facts.agent {
        body["slaveId"] = json!(agent);
    }
    let of_task = Draft::new("unhealthy_task_kill_event", Some(facts.app), body.clone());
    body["instanceId"] = json!(facts.instance);
    let of_instance = Draft::new("unhealthy_instance_kill_event", Some(facts.app), body);
    [of_instance, of_task]
}

/// An executor sent a message; `message` is base64.
pub(crate) fn framework_message(agent: &str, executor: &str, message: &str) -> Draft {
    Draft::new(
        "framework_message_event",
        None,
        json!({"slaveId": agent, "executorId": executor, "message": message}),
    )
}

pub(crate) fn registered(framework: &str, master: Option<&str>) -> Draft {
    let body = json!({"frameworkId": framework, "master": master.unwrap_or_default()});
    Draft::new("scheduler_registered_event", None, body)
}

pub(crate) fn reregistered(master: Option<&str>) -> Draft {
    Draft::new(
        "scheduler_reregistered_event",
        None,
        json!({"master": master.unwrap_or_default()}),
    )
}

pub(crate) fn disconnected() -> Draft {
    Draft::new("scheduler_disconnected_event", None, json!({}))
}

/// A change of a group, or of an app in it, succeeded or failed.
pub(crate) fn group_changed(group: &GroupId, version: Moment, failure: Option<&str>) -> Draft {
    let mut body = json!({"groupId": group, "version": version});
    let kind = if let Some(reason) = failure {
        body["reason"] = json!(reason);
        "group_change_failed"
    } else {
        "group_change_success"
    };
    let mut draft = Draft::new(kind, None, body);
    draft.subject = Some(group.to_string());
    draft
}

/// `deployment_info`, `deployment_step_success` and `deployment_step_failure`.
pub(crate) fn deployment_step(kind: &'static str, deployment: &Deployment, form: PlanForm) -> Draft {
    let current = deployment
        .step()
        .map_or_else(|| json!({"actions": []}), current_step);
    of_deployment(kind, deployment, form, json!({"currentStep": current}))
}

/// The restarts of a deployment wait with healthy new instances. Opt-in: upstream has no such
/// event.
pub(crate) fn canary_held(deployment: &Deployment, form: PlanForm) -> Draft {
    deployment_step("deployment_canary_held_event", deployment, form)
}

/// `deployment_success`, or `deployment_failed` with a reason.
pub(crate) fn deployment_ended(deployment: &Deployment, form: PlanForm, failure: Option<&str>) -> Draft {
    let mut body = json!({"id": deployment.id});
    let kind = if let Some(reason) = failure {
        body["reason"] = json!(reason);
        "deployment_failed"
    } else {
        "deployment_success"
    };
    of_deployment(kind, deployment, form, body)
}

fn of_deployment(kind: &'static str, deployment: &Deployment, form: PlanForm, body: Value) -> Draft {
    let mut draft = Draft::new(kind, None, body);
    draft.subject = Some(deployment.subject());
    draft.plan = Some(deployment.plan_texts(form));
    draft
}

/// Shows each action with both names of its kind, `action` and `type`, because clients read either.
fn current_step(step: &Step) -> Value {
    let actions: Vec<Value> = step
        .actions
        .iter()
        .map(|action| {
            let mut shown = json!(action);
            shown["type"] = shown["action"].clone();
            shown
        })
        .collect();
    json!({"actions": actions})
}

#[cfg(test)]
#[path = "shapes_tests.rs"]
mod tests;
