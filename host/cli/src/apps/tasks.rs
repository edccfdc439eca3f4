//! `transom apps tasks`.

use clap::Args;
use serde_json::{Value, json};

use super::api::Port;
use super::complete;
use super::id::{self, Kind};
use super::instances;
use crate::list::{Cell, Column, ListOptions};

/// List the tasks of apps, and the containers of pods.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom apps tasks\n  \
    transom apps tasks web\n  \
    transom apps tasks /shop --output json")]
pub(crate) struct Tasks {
    /// Id of an app, pod or group. Default: all.
    #[arg(value_parser = id::parse, add = complete::apps())]
    id: Option<String>,
    #[command(flatten)]
    port: Port,
    #[command(flatten)]
    list: ListOptions,
}

const COLUMNS: &[Column] = &[
    Column::Name("task"),
    Column::Name("app"),
    Column::Fixed("state"),
    Column::Fixed("health"),
    Column::Name("host"),
    Column::Text("ports"),
    Column::Fixed("for"),
];

impl Tasks {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.port.api()?;
        let target = match self.id.as_deref().filter(|id| *id != "/") {
            Some(id) => Some(id::find(&api, id).await?),
            None => None,
        };
        let none = || json!({"tasks": []});
        let (tasks, pods) = match &target {
            None => (api.get("v2/tasks").await?, api.get("v2/pods/::status").await?),
            Some(target) => match target.kind {
                Kind::App => (api.get(&format!("{}/tasks", target.path())).await?, Value::Null),
                Kind::Pod => {
                    let status = api.get(&format!("{}::status", target.path())).await?;
                    (none(), json!([status]))
                }
                Kind::Group => (
                    api.get(&format!("v2/apps{}/*/tasks", target.id)).await?,
                    api.get("v2/pods/::status").await?,
                ),
            },
        };
        let group = target.as_ref().filter(|target| target.kind == Kind::Group);
        let is_in_group = |pod: &&Value| {
            let id = pod["id"].as_str().unwrap_or_default();
            group.is_none_or(|group| id.starts_with(&format!("{}/", group.id)))
        };
        let pods: Vec<&Value> = pods
            .as_array()
            .into_iter()
            .flatten()
            .filter(is_in_group)
            .collect();
        let tasks = tasks["tasks"].as_array().cloned().unwrap_or_default();
        let mut rows: Vec<Vec<String>> = tasks.iter().map(of_task).collect();
        rows.extend(pods.iter().flat_map(|pod| of_pod(pod)));
        rows.sort_by(|a, b| (&a[1], &a[0]).cmp(&(&b[1], &b[0])));
        let now = jiff::Timestamp::now();
        let rows = rows.into_iter().map(|row| cells(row, now)).collect();
        self.list
            .print(&json!({"tasks": tasks, "pods": pods}), COLUMNS, 0, rows)
    }
}

/// The cells of a row: short ids, states without their prefix, and ages.
fn cells(row: Vec<String>, now: jiff::Timestamp) -> Vec<Cell> {
    let cells = row.into_iter().zip(COLUMNS).map(|(text, column)| match column {
        Column::Name("task") => Cell::new(instances::short(&text), text),
        Column::Fixed("state") => {
            let short = text.trim_start_matches("TASK_").to_lowercase();
            Cell::new(short, text)
        }
        Column::Fixed("for") => Cell::age(Some(&text), now),
        _ => text.into(),
    });
    cells.collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or("-").to_owned()
}

fn of_task(task: &Value) -> Vec<String> {
    let results = task["healthCheckResults"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let health = match results {
        [] => "-",
        results if results.iter().all(|result| result["alive"] == true) => "healthy",
        _ => "unhealthy",
    };
    let ports = task["ports"].as_array().into_iter().flatten();
    let ports: Vec<String> = ports.map(ToString::to_string).collect();
    let since = task.get("startedAt").unwrap_or(&task["stagedAt"]);
    vec![
        text(&task["id"]),
        text(&task["appId"]),
        text(&task["state"]),
        health.to_owned(),
        text(&task["host"]),
        if ports.is_empty() {
            "-".to_owned()
        } else {
            ports.join(",")
        },
        text(since),
    ]
}

/// The containers of a pod; an instance that is not launched has one row.
fn of_pod(pod: &Value) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for instance in pod["instances"].as_array().into_iter().flatten() {
        let host = text(&instance["agentHostname"]);
        let containers = instance["containers"].as_array().map_or(&[][..], Vec::as_slice);
        for container in containers {
            let endpoints = container["endpoints"].as_array().into_iter().flatten();
            let ports = endpoints.filter_map(|one| one["allocatedHostPort"].as_u64());
            let ports: Vec<String> = ports.map(|port| port.to_string()).collect();
            let mut conditions = container["conditions"].as_array().into_iter().flatten();
            let health = conditions.find(|one| one["name"] == "healthy");
            let health = health.map_or("-", |one| {
                if one["value"] == "true" {
                    "healthy"
                } else {
                    "unhealthy"
                }
            });
            rows.push(vec![
                text(&container["containerId"]),
                text(&pod["id"]),
                text(&container["status"]),
                health.to_owned(),
                host.clone(),
                if ports.is_empty() {
                    "-".to_owned()
                } else {
                    ports.join(",")
                },
                text(&container["statusSince"]),
            ]);
        }
        if containers.is_empty() {
            let mut row = vec![text(&instance["id"]), text(&pod["id"]), text(&instance["status"])];
            row.extend([
                "-".to_owned(),
                host,
                "-".to_owned(),
                text(&instance["statusSince"]),
            ]);
            rows.push(row);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_tasks_and_containers_have_the_same_columns() {
        let task = json!({
            "id": "a.1", "appId": "/a", "state": "TASK_RUNNING", "host": "h", "ports": [31000, 31001], "stagedAt": "t",
            "healthCheckResults": [{"alive": true}, {"alive": false}],
        });
        assert_eq!(
            of_task(&task),
            ["a.1", "/a", "TASK_RUNNING", "unhealthy", "h", "31000,31001", "t"]
        );
        let pod = json!({"id": "/p", "instances": [
            {"id": "p.1", "status": "PENDING", "statusSince": "t", "containers": []},
            {"id": "p.2", "agentHostname": "h", "containers": [{
                "containerId": "p.2.web", "status": "TASK_RUNNING", "statusSince": "t",
                "endpoints": [{"allocatedHostPort": 31002}], "conditions": [{"name": "healthy", "value": "true"}],
            }]},
        ]});
        let rows = of_pod(&pod);
        assert_eq!(rows[0], ["p.1", "/p", "PENDING", "-", "-", "-", "t"]);
        assert_eq!(
            rows[1],
            ["p.2.web", "/p", "TASK_RUNNING", "healthy", "h", "31002", "t"]
        );
        assert_eq!(of_task(&Value::Null).len(), COLUMNS.len());
    }
}
