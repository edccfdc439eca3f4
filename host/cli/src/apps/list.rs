//! `transom apps list`.

use anyhow::bail;
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use super::api::{Port, Query};
use super::complete;
use super::id::{self, Kind};
use crate::list::{Cell, Column, ListOptions};

/// List apps and pods with their instances, health and deployments.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom apps list\n  \
    transom apps list /shop\n  \
    transom apps list --label 'team==shop,stage!=test'\n  \
    transom apps list --output json | jq -r '.apps[] | select(.tasksRunning < .instances) | .id'")]
pub(crate) struct List {
    /// Only apps and pods in this group.
    #[arg(value_parser = id::parse, add = complete::apps())]
    group: Option<String>,
    /// Only apps with these labels, in Marathon's form: `team==shop`, `stage in (test, live)`.
    #[arg(long, value_name = "SELECTOR")]
    label: Option<String>,
    #[command(flatten)]
    port: Port,
    #[command(flatten)]
    table: ListOptions,
}

const COLUMNS: &[Column] = &[
    Column::Name("id"),
    Column::Fixed("kind"),
    Column::Fixed("running"),
    Column::Fixed("health"),
    Column::Fixed("cpus"),
    Column::Fixed("mem"),
    Column::Wide("deployment"),
    Column::Fixed("age"),
    Column::Text("command"),
];

impl List {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.port.api()?;
        let group = self.group.as_deref().filter(|group| *group != "/");
        if let Some(group) = group {
            let target = id::find(&api, group).await?;
            if target.kind != Kind::Group {
                bail!(
                    "{group} is {}, not a group: see `transom apps show {group}`",
                    target.kind.with_article()
                );
            }
        }
        let is_in_group = |one: &Value| {
            let id = one["id"].as_str().unwrap_or_default();
            group.is_none_or(|group| id.starts_with(&format!("{group}/")))
        };
        let mut query = Query::new();
        query.extend(self.label.clone().map(|label| ("label", label)));
        let apps = api.send(Method::GET, "v2/apps", &query, None).await?.document;
        let apps: Vec<Value> = list(apps["apps"].clone())
            .into_iter()
            .filter(is_in_group)
            .collect();
        let pods = match self.label {
            Some(_) => Vec::new(),
            None => list(api.get("v2/pods/::status").await?),
        };
        let pods: Vec<Value> = pods.into_iter().filter(is_in_group).collect();
        let mut rows: Vec<Vec<String>> = apps.iter().map(of_app).chain(pods.iter().map(of_pod)).collect();
        rows.sort();
        let now = jiff::Timestamp::now();
        let rows = rows.into_iter().map(|row| cells(row, now)).collect();
        self.table
            .print(&json!({"apps": apps, "pods": pods}), COLUMNS, 0, rows)
    }
}

fn cells(row: Vec<String>, now: jiff::Timestamp) -> Vec<Cell> {
    let cells = row.into_iter().zip(COLUMNS).map(|(text, column)| match column {
        Column::Fixed("age") => Cell::age(Some(&text), now),
        _ => text.into(),
    });
    cells.collect()
}

fn list(document: Value) -> Vec<Value> {
    match document {
        Value::Array(list) => list,
        _ => Vec::new(),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn of_app(app: &Value) -> Vec<String> {
    let number = |key: &str| app[key].as_u64().unwrap_or(0);
    let checked = app["healthChecks"]
        .as_array()
        .is_some_and(|checks| !checks.is_empty());
    let health = match number("tasksUnhealthy") {
        _ if !checked => "-".to_owned(),
        0 => format!("{} healthy", number("tasksHealthy")),
        unhealthy => format!("{} healthy, {unhealthy} not", number("tasksHealthy")),
    };
    let args = app["args"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let args = args.collect::<Vec<_>>().join(" ");
    let command = app["cmd"].as_str().map_or(args, str::to_owned);
    let runs = app["container"]["docker"]["image"]
        .as_str()
        .map_or(command, str::to_owned);
    vec![
        text(&app["id"]),
        "app".to_owned(),
        format!("{}/{}", number("tasksRunning"), number("instances")),
        health,
        text(&app["cpus"]),
        text(&app["mem"]),
        text(&app["deployments"][0]["id"]),
        text(&app["version"]),
        runs,
    ]
}

fn of_pod(pod: &Value) -> Vec<String> {
    let instances = list(pod["instances"].clone());
    let stable = instances.iter().filter(|one| one["status"] == "STABLE").count();
    let containers = list(pod["spec"]["containers"].clone());
    let sum = |key: &str| {
        let parts = containers.iter().filter_map(|one| one["resources"][key].as_f64());
        let all = parts.sum::<f64>() + pod["spec"]["executorResources"][key].as_f64().unwrap_or(0.0);
        ((all * 1000.0).round() / 1000.0).to_string()
    };
    let names = containers.iter().filter_map(|one| one["name"].as_str());
    vec![
        text(&pod["id"]),
        "pod".to_owned(),
        format!(
            "{stable}/{}",
            pod["spec"]["scaling"]["instances"].as_u64().unwrap_or(1)
        ),
        text(&pod["status"]).to_lowercase(),
        sum("cpus"),
        sum("mem"),
        "-".to_owned(),
        text(&pod["spec"]["version"]),
        names.collect::<Vec<_>>().join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_show_instances_health_and_commands() {
        let app = json!({
            "id": "/a", "instances": 3, "tasksRunning": 2, "tasksHealthy": 1, "tasksUnhealthy": 1, "healthChecks": [{}],
            "cpus": 0.1, "mem": 32, "deployments": [{"id": "d"}], "version": "v", "cmd": "run",
        });
        let row = of_app(&app);
        assert_eq!(
            row[..8],
            ["/a", "app", "2/3", "1 healthy, 1 not", "0.1", "32", "d", "v"]
        );
        assert_eq!(row[8], "run");
        let pod = json!({
            "id": "/p", "status": "STABLE", "instances": [{"status": "STABLE"}, {"status": "STAGING"}],
            "spec": {
                "containers": [{"name": "a", "resources": {"cpus": 0.1, "mem": 32}}, {"name": "b", "resources": {"cpus": 0.2}}],
                "executorResources": {"cpus": 0.1, "mem": 32}, "scaling": {"kind": "fixed", "instances": 2},
            },
        });
        assert_eq!(of_pod(&pod)[..6], ["/p", "pod", "1/2", "stable", "0.4", "64"]);
        assert_eq!(of_pod(&pod)[8], "a, b");
    }

    #[test]
    fn unexpected_document_still_has_a_row_with_all_columns() {
        assert_eq!(of_app(&json!({"deployments": 1, "cmd": 7})).len(), COLUMNS.len());
        assert_eq!(of_pod(&Value::Null).len(), COLUMNS.len());
    }
}
