//! Documents of tasks.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::bus::shapes::ip_addresses;
use crate::core::snapshot::AppView;
use crate::instance::Instance;
use crate::time::Moment;
use transom_replicas::Condition;

/// The launched tasks of an app.
pub(super) fn of_app(view: &AppView, check_failure: bool) -> Vec<Value> {
    view.instances
        .values()
        .filter_map(|instance| shown(view, instance, check_failure))
        .collect()
}

/// The results of the health checks of an instance that have one.
fn health_results(instance: &Instance) -> Vec<Value> {
    let known = instance.health.iter().filter(|state| state.is_known());
    known
        .map(|state| {
            let mut result = json!({
                "alive": state.is_alive(),
                "consecutiveFailures": state.consecutive_failures,
                "instanceId": instance.id,
            });
            let times = [
                ("firstSuccess", state.first_success),
                ("lastSuccess", state.last_success),
                ("lastFailure", state.last_failure),
            ];
            for (name, time) in times {
                if let Some(time) = time {
                    result[name] = json!(time);
                }
            }
            if let Some(cause) = &state.last_failure_cause {
                result["lastFailureCause"] = json!(cause);
            }
            result
        })
        .collect()
}

/// The results of the readiness checks of an app's tasks.
pub(super) fn readiness_results(view: &AppView) -> Vec<Value> {
    let results = view.instances.values().filter_map(|instance| {
        let readiness = instance.readiness.as_ref()?;
        let mut result =
            json!({"name": readiness.name, "taskId": instance.task().as_str(), "ready": readiness.ready});
        if let Some(response) = &readiness.response {
            result["lastResponse"] = json!(response);
        }
        Some(result)
    });
    results.collect()
}

/// One task; `None` while the instance is not launched. `check_failure` adds why its check has no
/// newer result.
pub(super) fn shown(view: &AppView, instance: &Instance, check_failure: bool) -> Option<Value> {
    if matches!(instance.condition(), Condition::Scheduled) {
        return None;
    }
    let record = instance.record.as_ref()?;
    let definition = view.definition(instance.version());
    let moment = |timestamp: Timestamp| json!(Moment::from(timestamp));
    let mut task = json!({
        "appId": view.app.id,
        "healthCheckResults": health_results(instance),
        "host": record.agent.hostname,
        "id": record.id.as_str(),
        "ipAddresses": record.status.as_ref().map(ip_addresses).unwrap_or_default(),
        "ports": record.host_ports,
        "servicePorts": definition.service_ports().filter(|port| *port != 0).collect::<Vec<_>>(),
        "slaveId": record.agent.id.as_str(),
        "state": record.state.as_str(),
        "stagedAt": moment(record.staged_at.unwrap_or(record.intended_at)),
        "version": instance.version(),
        "localVolumes": [],
        "role": definition.role,
    });
    if let Some(started) = record.started_at {
        task["startedAt"] = moment(started);
    }
    if let Some(result) = instance.check_result() {
        task["checkResult"] = result;
    }
    for (name, value) in [("region", &record.agent.region), ("zone", &record.agent.zone)] {
        if let Some(value) = value {
            task[name] = json!(value);
        }
    }
    if let Some(failure) = instance.failure.as_ref().filter(|_| check_failure) {
        task["checkFailure"] = json!({"reason": failure.reason, "message": failure.message});
    }
    Some(task)
}
