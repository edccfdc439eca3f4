//! Tasks of apps and containers of pods, and the short ids by which tables show them.

use anyhow::bail;
use serde_json::Value;

use super::api::Api;
use super::id::{self, Kind, Target};

/// Characters of the shortest id.
const SHORT: usize = 8;

/// A task of an app, or a container of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) task: String,
    /// The id of the app or pod.
    pub(super) owner: String,
    /// The id of the agent; empty if the task is on none.
    pub(super) agent: String,
    /// The id of the executor, for containers of pods.
    pub(super) executor: Option<String>,
    pub(super) state: String,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Instance {
    fn of_task(task: &Value) -> Self {
        Self {
            task: text(&task["id"]),
            owner: text(&task["appId"]),
            agent: text(&task["slaveId"]),
            executor: None,
            state: text(&task["state"]),
        }
    }

    /// The task of a `status_update_event`.
    pub(super) fn of_event(event: &Value) -> Self {
        Self {
            state: text(&event["taskStatus"]),
            task: text(&event["taskId"]),
            ..Self::of_task(event)
        }
    }

    /// The task of an app's last failure.
    pub(super) fn of_failure(failure: &Value) -> Self {
        Self {
            task: text(&failure["taskId"]),
            owner: text(&failure["appId"]),
            agent: text(&failure["slaveId"]),
            executor: None,
            state: text(&failure["state"]),
        }
    }
}

/// The tasks in a list of the API.
pub(super) fn of_tasks(tasks: &Value) -> Vec<Instance> {
    let tasks = tasks.as_array().into_iter().flatten();
    tasks.map(Instance::of_task).collect()
}

/// The containers in the status of a pod.
pub(super) fn of_pod(status: &Value) -> Vec<Instance> {
    let mut containers = Vec::new();
    for instance in status["instances"].as_array().into_iter().flatten() {
        for container in instance["containers"].as_array().into_iter().flatten() {
            containers.push(Instance {
                task: text(&container["containerId"]),
                owner: text(&status["id"]),
                agent: text(&instance["agentId"]),
                executor: instance["executorId"].as_str().map(str::to_owned),
                state: text(&container["status"]),
            });
        }
    }
    containers
}

/// The present tasks of an app, or the containers of a pod.
pub(super) async fn of_target(api: &Api, target: &Target) -> anyhow::Result<Vec<Instance>> {
    Ok(match target.kind {
        Kind::Pod => of_pod(&api.get(&format!("{}::status", target.path())).await?),
        _ => of_tasks(&api.get(&format!("{}/tasks", target.path())).await?["tasks"]),
    })
}

/// All present tasks and containers.
pub(super) async fn all(api: &Api) -> anyhow::Result<Vec<Instance>> {
    let mut instances = of_tasks(&api.get("v2/tasks").await?["tasks"]);
    let pods = api.get("v2/pods/::status").await?;
    instances.extend(pods.as_array().into_iter().flatten().flat_map(of_pod));
    Ok(instances)
}

/// The short id of a task: the beginning of what distinguishes it from other tasks of its app, and the
/// name of its container. A task whose id has another form has no shorter one.
pub(super) fn short(task: &str) -> String {
    let (_, unique) = task
        .split_once(".instance-")
        .or_else(|| task.split_once('.'))
        .unwrap_or(("", task));
    let is_uuid = unique.len() >= 36
        && unique.is_char_boundary(36)
        && unique[..36].chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    if !is_uuid {
        return task.to_owned();
    }
    let mut parts = unique[36..].trim_start_matches('.').split('.');
    match parts.next() {
        // `_app` is the container of an app.
        Some(container) if !container.is_empty() && container != "_app" => {
            format!("{}.{container}", &unique[..SHORT])
        }
        _ => unique[..SHORT].to_owned(),
    }
}

/// The task with this id, or with this short id or a longer beginning of what follows `instance-`.
pub(super) fn matching<'a>(instances: &'a [Instance], name: &str) -> anyhow::Result<Option<&'a Instance>> {
    if let Some(exact) = instances.iter().find(|one| one.task == name) {
        return Ok(Some(exact));
    }
    let is_meant = |one: &&Instance| {
        let unique = one.task.split_once(".instance-").map_or("", |(_, unique)| unique);
        short(&one.task) == name || (name.len() >= SHORT && unique.starts_with(name))
    };
    let mut candidates = instances.iter().filter(is_meant);
    match (candidates.next(), candidates.next()) {
        (Some(first), Some(second)) => bail!(
            "{name} is the short id of several tasks: {}, {}; name the whole id",
            first.task,
            second.task
        ),
        (found, _) => Ok(found),
    }
}

/// The error for an unknown task, with similar ids.
pub(super) fn unknown(instances: &[Instance], name: &str) -> String {
    let nearest = id::nearest(name, instances.iter().map(|one| one.task.as_str()));
    if nearest.is_empty() {
        format!("no app, pod or task is called {name}; `transom apps tasks` lists the tasks")
    } else {
        format!(
            "no app, pod or task is called {name}; did you mean {}?",
            nearest.join(" or ")
        )
    }
}

/// The app of a task, from the task's id.
pub(super) fn app_of(task: &str) -> Option<String> {
    let (app, _) = task.split_once(".instance-").or_else(|| task.rsplit_once('.'))?;
    id::parse(&app.replace('_', "/")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: &str = "shop_web.instance-ed57045e-e791-11f1-9819-bb05fd886f4e._app.1";

    #[test]
    fn short_id_is_the_beginning_of_the_instance_and_the_container() {
        for (task, expected) in [
            (TASK, "ed57045e"),
            (
                "p.instance-ed57045e-e791-11f1-9819-bb05fd886f4e.side",
                "ed57045e.side",
            ),
            ("web.ed57045e-e791-11f1-9819-bb05fd886f4e", "ed57045e"),
            ("web.instance-é", "web.instance-é"),
            ("a", "a"),
            ("", ""),
        ] {
            assert_eq!(short(task), expected, "{task}");
        }
        assert_eq!(app_of(TASK).as_deref(), Some("/shop/web"));
        assert_eq!(app_of("x"), None);
    }

    #[test]
    fn task_is_found_by_its_short_id_unless_several_have_it() {
        let instance = |task: &str| Instance {
            task: task.to_owned(),
            ..Instance::default()
        };
        let other = TASK.replace("e791", "aaaa");
        let instances = [
            instance(TASK),
            instance("b.instance-11111111-e791-11f1-9819-bb05fd886f4e._app.1"),
        ];
        let found = |name| matching(&instances, name).map(|one| one.map(|one| one.task.clone()));
        assert_eq!(found("ed57045e").expect("one").as_deref(), Some(TASK));
        assert_eq!(found(TASK).expect("one").as_deref(), Some(TASK));
        assert_eq!(found("ed57").expect("none"), None);
        let both = [instance(TASK), instance(&other)];
        let error = matching(&both, "ed57045e").expect_err("ambiguous").to_string();
        assert!(error.contains(TASK) && error.contains(&other), "{error}");
        assert!(matching(&both, "ed57045e-aaaa").expect("one").is_some());
    }
}
