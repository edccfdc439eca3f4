//! The instances, health and deployments that apps, pods and groups still wait for.

use serde_json::Value;

use super::api::Api;
use super::{explain, progress};

/// What apps, pods and groups wait for.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// The ids that do not exist, for example because they were deleted.
    pub(super) absent: Vec<String>,
    /// A text for each app or pod that exists and does not run as wanted yet.
    pub(super) texts: Vec<String>,
}

/// Finds out what apps, pods and groups still wait for.
pub(super) async fn missing(api: &Api, ids: &[String], healthy: bool) -> anyhow::Result<Missing> {
    let mut missing = Missing::default();
    for id in ids {
        match missing_for(api, id, healthy).await? {
            Some(texts) => missing.texts.extend(texts),
            None => missing.absent.push(id.clone()),
        }
    }
    if missing.texts.is_empty() {
        return Ok(missing);
    }
    // The reasons need another request, which only the leader answers, while its scheduler runs.
    if let Ok(queue) = explain::queue(api).await {
        for item in explain::queue_items(&queue) {
            let id = item.definition()["id"].as_str().unwrap_or_default();
            let is_within = |wanted: &String| {
                id == wanted || id.starts_with(&format!("{}/", wanted.trim_end_matches('/')))
            };
            if ids.iter().any(is_within) {
                let count = item["count"].as_u64().unwrap_or(0);
                missing.texts.push(format!(
                    "{count} of {id} not launched, {}",
                    explain::main_reason(item)
                ));
            }
        }
    }
    Ok(missing)
}

/// The texts for one app, pod or group; `None` if it does not exist.
async fn missing_for(api: &Api, id: &str, healthy: bool) -> anyhow::Result<Option<Vec<String>>> {
    let single = if id == "/" {
        None
    } else {
        api.find(&format!("v2/apps{id}")).await?
    };
    if let Some(app) = single.filter(|single| single["app"].is_object()) {
        return Ok(Some(missing_of_app(&app["app"], healthy).into_iter().collect()));
    }
    if id != "/"
        && let Some(pod) = api.find(&format!("v2/pods{id}::status")).await?
    {
        let deployments = api.get("v2/deployments").await?;
        return Ok(Some(missing_of_pod(&pod, &deployments).into_iter().collect()));
    }
    let group = api
        .find(&format!("v2/groups{}", id.trim_end_matches('/')))
        .await?;
    // The response for a path such as `/x/versions` is another resource.
    let Some(group) = group.filter(|group| group["id"] == id) else {
        return Ok(None);
    };
    let deployments = api.get("v2/deployments").await?;
    let mut missing = Vec::new();
    let mut groups = vec![&group];
    while let Some(group) = groups.pop() {
        let list = |key: &str| group[key].as_array().into_iter().flatten();
        missing.extend(list("apps").filter_map(|app| missing_of_app(app, healthy)));
        missing.extend(list("pods").filter_map(|pod| missing_of_pod(pod, &deployments)));
        groups.extend(list("groups"));
    }
    Ok(Some(missing))
}

/// The missing instances, health or deployment of an app.
fn missing_of_app(app: &Value, healthy: bool) -> Option<String> {
    let number = |key: &str| app[key].as_u64().unwrap_or(0);
    let locks = app["deployments"].as_array().map_or(&[][..], Vec::as_slice);
    let wanted = number("instances");
    let checked = app["healthChecks"]
        .as_array()
        .is_some_and(|checks| !checks.is_empty());
    let unhealthy = healthy && checked && number("tasksHealthy") < wanted;
    let is_settled = number("tasksRunning") == wanted && number("tasksStaged") == 0;
    if locks.is_empty() && is_settled && !unhealthy {
        return None;
    }
    let mut text = format!(
        "{}: {}",
        app["id"].as_str().unwrap_or_default(),
        progress::instances(app)
    );
    let ids: Vec<&str> = locks.iter().filter_map(|lock| lock["id"].as_str()).collect();
    if !ids.is_empty() {
        text = format!("{text}, deployment {} is running", ids.join(", "));
    }
    Some(text)
}

/// The missing instances or deployment of a pod, from its status.
fn missing_of_pod(pod: &Value, deployments: &Value) -> Option<String> {
    let id = pod["id"].as_str().unwrap_or_default();
    let locks = deployments.as_array().into_iter().flatten();
    let locked = locks.filter(|deployment| affected_by(deployment).iter().any(|affected| affected == id));
    let ids: Vec<&str> = locked
        .filter_map(|deployment| deployment["id"].as_str())
        .collect();
    let instances = pod["instances"].as_array().map_or(&[][..], Vec::as_slice);
    let stable = instances.iter().filter(|one| one["status"] == "STABLE").count();
    if pod["status"] == "STABLE" && ids.is_empty() {
        return None;
    }
    let wanted = pod["spec"]["scaling"]["instances"].as_u64().unwrap_or(1);
    let mut text = format!("{id}: {stable}/{wanted} stable");
    if !ids.is_empty() {
        text = format!("{text}, deployment {} is running", ids.join(", "));
    }
    Some(text)
}

/// The ids of the apps and pods that a deployment deletes.
pub(super) fn deleted_by(deployment: &Value) -> Vec<String> {
    let steps = deployment["steps"].as_array().into_iter().flatten();
    let actions = steps.filter_map(|step| step["actions"].as_array()).flatten();
    let deletions = actions.filter_map(|action| match progress::verb(action) {
        Some(("stop", id)) => Some(id.to_owned()),
        _ => None,
    });
    deletions.collect()
}

/// The ids of the apps and pods that a deployment changes.
pub(super) fn affected_by(deployment: &Value) -> Vec<String> {
    let ids = ["affectedApps", "affectedPods"].map(|key| deployment[key].as_array());
    let ids = ids.into_iter().flatten().flatten();
    ids.filter_map(|id| id.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_instances_health_and_running_deployments_of_an_app_are_reported() {
        let app = |staged: u64, running: u64, healthy: u64, locks: Value| {
            json!({
                "id": "/a", "instances": 2, "tasksStaged": staged, "tasksRunning": running, "tasksHealthy": healthy,
                "healthChecks": [{}], "deployments": locks,
            })
        };
        assert_eq!(missing_of_app(&app(0, 2, 0, json!([])), false), None);
        assert_eq!(missing_of_app(&app(0, 2, 2, json!([])), true), None);
        let text = |app: Value, healthy| missing_of_app(&app, healthy).expect("something is missing");
        assert_eq!(
            text(app(0, 2, 1, json!([])), true),
            "/a: 2 of 2 running, 1 healthy"
        );
        assert_eq!(
            text(app(0, 1, 1, json!([])), false),
            "/a: 1 of 2 running, 1 healthy"
        );
        assert!(text(app(0, 2, 2, json!([{"id": "d"}])), false).ends_with("deployment d is running"));
        assert!(
            missing_of_app(&app(1, 2, 2, json!([])), false).is_some(),
            "one instance too many"
        );
    }
}
