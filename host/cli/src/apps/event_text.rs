//! Events as sentences.

use serde_json::Value;

use super::instances::short;
use super::progress;

/// An event in one sentence, without its time. An event of an unknown kind is its kind and some of its
/// members.
pub(super) fn sentence(kind: &str, event: &Value) -> String {
    let text = |name: &str| event[name].as_str().unwrap_or_default();
    let any = |names: &[&str]| {
        names
            .iter()
            .map(|name| text(name))
            .find(|value| !value.is_empty())
    };
    let spec = any(&["appId", "runSpecId", "podId"]).unwrap_or("-");
    let task = any(&["taskId", "instanceId"]).map(short).unwrap_or_default();
    let on_host = any(&["host"])
        .map(|host| format!(" on {host}"))
        .unwrap_or_default();
    let because = any(&["message", "reason"])
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    let client = any(&["clientIp"]).unwrap_or("a client");
    let subject = || deployment(event);
    match kind {
        "status_update_event" => {
            let Some(state) = task_state(text("taskStatus")) else {
                let state = text("taskStatus");
                return format!("{spec}: task {task} is in {state}{on_host}{because}");
            };
            format!("{spec}: task {task} {state}{on_host}{because}")
        }
        "instance_changed_event" => {
            format!(
                "{spec}: instance {task} is {}{on_host}",
                text("condition").to_lowercase()
            )
        }
        "unknown_instance_terminated_event" => format!("{spec}: the unknown instance {task} ended"),
        "instance_health_changed_event" => {
            let health = match event["healthy"].as_bool() {
                Some(true) => "healthy",
                Some(false) => "unhealthy",
                None => "not checked yet",
            };
            format!("{spec}: instance {task} is {health}")
        }
        "health_status_changed_event" => {
            let result = if event["alive"] == true { "passes" } else { "fails" };
            format!("{spec}: a health check of {task} {result}")
        }
        "failed_health_check_event" => format!("{spec}: a health check of {task} failed"),
        "check_result_changed_event" => format!("{spec}: the result of a check of {task} changed"),
        "add_health_check_event" => format!("{spec}: a health check was added"),
        "remove_health_check_event" => format!("{spec}: a health check was removed"),
        "unhealthy_task_kill_event" | "unhealthy_instance_kill_event" => {
            format!("{spec}: {task} is killed because it is unhealthy{on_host}{because}")
        }
        "app_terminated_event" => format!("{spec} was deleted"),
        "api_post_event" => {
            let app = event["appDefinition"]["id"].as_str().unwrap_or("-");
            format!("{client} changed {app}")
        }
        "pod_created_event" => format!("{client} created a pod: {}", text("uri")),
        "pod_updated_event" => format!("{client} changed a pod: {}", text("uri")),
        "pod_deleted_event" => format!("{client} deleted a pod: {}", text("uri")),
        "group_change_success" => format!("the group {} was changed", text("groupId")),
        "group_change_failed" => format!("the change of the group {} failed{because}", text("groupId")),
        "deployment_info" => format!("{}: a step begins", subject()),
        "deployment_step_success" => format!("{}: a step is done", subject()),
        "deployment_step_failure" => format!("{}: a step failed{because}", subject()),
        "deployment_canary_held_event" => format!("{} waits with a healthy canary", subject()),
        "deployment_success" => format!("{} finished", subject()),
        "deployment_failed" => format!("{} failed{because}", subject()),
        "scheduler_registered_event" | "scheduler_reregistered_event" => {
            format!("the framework is registered with {}", text("master"))
        }
        "scheduler_disconnected_event" => "the framework lost its connection to the master".to_owned(),
        "event_stream_attached" => format!("{} follows the events", text("remoteAddress")),
        "event_stream_detached" => format!("{} no longer follows the events", text("remoteAddress")),
        "event_stream_gap" => format!(
            "events between {} and {} are missing{because}",
            text("from"),
            text("to")
        ),
        _ => other(kind, event),
    }
}

fn task_state(state: &str) -> Option<&'static str> {
    Some(match state {
        "TASK_STAGING" => "is staged",
        "TASK_STARTING" => "starts",
        "TASK_RUNNING" => "runs",
        "TASK_KILLING" => "is being killed",
        "TASK_KILLED" => "was killed",
        "TASK_FINISHED" => "finished",
        "TASK_FAILED" => "failed",
        "TASK_ERROR" => "was rejected",
        "TASK_LOST" | "TASK_GONE" | "TASK_DROPPED" => "was lost",
        "TASK_UNREACHABLE" => "is unreachable",
        _ => return None,
    })
}

/// The deployment of an event, with some of the apps and pods that it changes.
fn deployment(event: &Value) -> String {
    let plan = &event["plan"];
    let steps = plan["steps"].as_array().into_iter().flatten();
    let actions = steps.flat_map(|step| match step["actions"].as_array() {
        Some(actions) => actions.iter().collect::<Vec<_>>(),
        None => vec![step],
    });
    let mut ids: Vec<&str> = actions
        .filter_map(|action| progress::verb(action).map(|(_, id)| id))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let id = event["id"]
        .as_str()
        .filter(|id| !id.is_empty())
        .or_else(|| plan["id"].as_str())
        .unwrap_or("-");
    match ids.len() {
        0 => format!("deployment {id}"),
        1..=3 => format!("deployment {id} of {}", ids.join(", ")),
        more => format!("deployment {id} of {} and {} more", ids[..3].join(", "), more - 3),
    }
}

/// The kind of an event, and the values of some common members.
fn other(kind: &str, event: &Value) -> String {
    const MEMBERS: &[&str] = &[
        "plugin",
        "version",
        "appId",
        "podId",
        "groupId",
        "uri",
        "id",
        "taskId",
        "host",
        "callbackUrl",
        "clientIp",
        "reason",
        "message",
    ];
    let members = MEMBERS.iter().filter_map(|name| {
        let value = event[*name].as_str().filter(|value| !value.is_empty())?;
        Some(format!(" {name}={value}"))
    });
    format!("{kind}{}", members.collect::<String>())
}

/// Whether an event is about an app or pod, or about one in a group.
pub(super) fn is_about(event: &Value, id: &str) -> bool {
    let is_in = |spec: &str| spec == id || spec.starts_with(&format!("{}/", id.trim_end_matches('/')));
    let members = ["appId", "runSpecId", "podId", "groupId"].map(|name| &event[name]);
    let definition = &event["appDefinition"]["id"];
    let mut specs = members.into_iter().chain([definition]).filter_map(Value::as_str);
    if specs.any(is_in) {
        return true;
    }
    let steps = event["plan"]["steps"].as_array().into_iter().flatten();
    let mut actions = steps.flat_map(|step| match step["actions"].as_array() {
        Some(actions) => actions.iter().collect::<Vec<_>>(),
        None => vec![step],
    });
    actions.any(|action| progress::verb(action).is_some_and(|(_, spec)| is_in(spec)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn event_is_a_sentence_with_its_subject_and_reason() {
        let task = "web.instance-ed57045e-e791-11f1-9819-bb05fd886f4e._app.1";
        let plan = json!({"steps": [{"actions": [{"action": "ScaleApplication", "app": "/web"}]}]});
        for (kind, event, expected) in [
            (
                "status_update_event",
                json!({"appId": "/web", "taskId": task, "taskStatus": "TASK_FAILED", "host": "n1", "message": "exited with 1"}),
                "/web: task ed57045e failed on n1: exited with 1",
            ),
            (
                "health_status_changed_event",
                json!({"appId": "/web", "instanceId": "web.instance-ed57045e-e791-11f1-9819-bb05fd886f4e", "alive": false}),
                "/web: a health check of ed57045e fails",
            ),
            (
                "deployment_failed",
                json!({"id": "d1", "plan": plan, "reason": "too slow"}),
                "deployment d1 of /web failed: too slow",
            ),
            (
                "strange_event",
                json!({"plugin": "p", "x": 1}),
                "strange_event plugin=p",
            ),
            ("status_update_event", Value::Null, "-: task  is in "),
        ] {
            assert_eq!(sentence(kind, &event), expected);
        }
    }

    #[test]
    fn events_of_an_app_or_of_its_group_are_selected() {
        let plan = json!({"plan": {"steps": [{"action": "StopPod", "pod": "/shop/db"}]}});
        for (event, id, expected) in [
            (json!({"appId": "/shop/web"}), "/shop/web", true),
            (json!({"appId": "/shop/web"}), "/shop", true),
            (json!({"appId": "/shop/web2"}), "/shop/web", false),
            (json!({"appId": "/a"}), "/", true),
            (plan.clone(), "/shop/db", true),
            (plan, "/other", false),
        ] {
            assert_eq!(is_about(&event, id), expected, "{event} {id}");
        }
    }
}
