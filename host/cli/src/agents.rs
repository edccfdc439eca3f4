//! `transom agents`: the agents of the cluster, as the daemon's admin port lists them.

use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use serde_json::{Value, json};

use crate::admin_port::Connection;
use crate::completion::{self, Admin};
use crate::exit::Unavailable;
use crate::list::{Cell, Column, ListOptions};
use crate::output::{self, Output};

/// Timeout of a request, for which the daemon may ask the master.
const TIMEOUT: Duration = Duration::from_secs(30);

/// List the agents of the cluster, or show one with its tasks.
#[derive(Debug, Subcommand)]
pub enum AgentsCommand {
    #[allow(missing_docs, reason = "the help is that of the options")]
    List(List),
    #[allow(missing_docs, reason = "the help is that of the options")]
    Show(Show),
}

impl AgentsCommand {
    /// Runs the command.
    pub async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::List(command) => command.run().await,
            Self::Show(command) => command.run().await,
        }
    }
}

/// List the agents with their states and resources.
///
/// The state is `active`, `disconnected`, `deactivated`, `draining` or `drained`. A drain is started
/// with the cluster manager's own tools.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom agents list\n  \
    transom agents list -o wide\n  \
    transom agents list -o json | jq -r '.agents[] | select(.state != \"active\") | .host'")]
pub struct List {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    list: ListOptions,
}

const COLUMNS: &[Column] = &[
    Column::Name("host"),
    Column::Fixed("state"),
    Column::Fixed("cpus"),
    Column::Fixed("mem"),
    Column::Wide("disk"),
    Column::Wide("gpus"),
    Column::Text("attributes"),
    Column::Wide("version"),
    Column::Wide("id"),
];

impl List {
    async fn run(self) -> anyhow::Result<()> {
        let agents = agents(&self.connection).await?;
        let rows = agents.iter().map(row).collect();
        self.list.print(&json!({"agents": agents}), COLUMNS, 0, rows)
    }
}

/// The agents, those with problems first, then by host.
async fn agents(connection: &Connection) -> anyhow::Result<Vec<Value>> {
    let text = connection.get_text(&["v1", "cluster", "agents"], TIMEOUT).await?;
    let mut document: Value = serde_json::from_str(&text)
        .context("the response is not a list of agents; is --admin the admin port of a daemon?")
        .context(Unavailable)?;
    let Value::Array(mut agents) = document["agents"].take() else {
        bail!("the response has no `agents`");
    };
    agents.sort_by_cached_key(|agent| {
        let host = agent["host"].as_str().unwrap_or_default().to_owned();
        (agent["state"] == "active", host)
    });
    Ok(agents)
}

/// Completes the host names of agents.
fn complete_agents() -> ArgValueCompleter {
    completion::completer(async || {
        let Admin { connection } = completion::parsed()?;
        Ok(completion::listed(
            &json!(agents(&connection).await?),
            "host",
            "state",
        ))
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

/// A used and a total amount: `1.5 of 4`.
fn used(agent: &Value, resource: &str) -> String {
    let amount = |kind: &str| (agent[kind][resource].as_f64().unwrap_or_default() * 100.0).round() / 100.0;
    format!("{} of {}", amount("used"), amount("total"))
}

fn attributes(agent: &Value) -> String {
    let attributes = agent["attributes"].as_object().into_iter().flatten();
    let attributes = attributes.map(|(name, value)| format!("{name}:{}", text(value)));
    attributes.collect::<Vec<_>>().join(", ")
}

fn row(agent: &Value) -> Vec<Cell> {
    vec![
        text(&agent["host"]).into(),
        text(&agent["state"]).into(),
        used(agent, "cpus").into(),
        used(agent, "mem").into(),
        used(agent, "disk").into(),
        used(agent, "gpus").into(),
        attributes(agent).into(),
        text(&agent["version"]).into(),
        text(&agent["id"]).into(),
    ]
}

/// Show an agent: state, resources, attributes, and the tasks of apps on it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  transom agents show node1\n  transom agents show node1 -o json")]
pub struct Show {
    /// Host name or id of the agent, or the end of the id, such as `S3`.
    #[arg(add = complete_agents())]
    agent: String,
    #[command(flatten)]
    connection: Connection,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Show {
    async fn run(self) -> anyhow::Result<()> {
        let agents = agents(&self.connection).await?;
        let mut agent = choose(&agents, &self.agent)?.clone();
        // A daemon without the apps service has no such path.
        let path = ["v1", "services", "apps", "v2", "tasks"];
        let tasks = match self.connection.get_any_status(&path, TIMEOUT).await? {
            (status, text) if status.is_success() => serde_json::from_str(&text).unwrap_or_default(),
            _ => Value::Null,
        };
        let tasks = tasks["tasks"].as_array().into_iter().flatten();
        let tasks: Vec<&Value> = tasks.filter(|task| task["slaveId"] == agent["id"]).collect();
        agent["tasks"] = json!(tasks);
        let mut rows = Vec::new();
        for key in ["id", "host", "state", "version"] {
            rows.push(vec![key.to_owned(), text(&agent[key]).to_owned()]);
        }
        for resource in agent["total"].as_object().into_iter().flatten() {
            rows.push(vec![resource.0.clone(), used(&agent, resource.0)]);
        }
        for (name, value) in agent["attributes"].as_object().into_iter().flatten() {
            rows.push(vec![format!("attribute {name}"), text(value).to_owned()]);
        }
        for task in &tasks {
            let state = text(&task["state"]).trim_start_matches("TASK_").to_lowercase();
            rows.push(vec![
                format!("task of {}", text(&task["appId"])),
                format!("{} ({state})", text(&task["id"])),
            ]);
        }
        output::print(self.output, &agent, &["key", "value"], rows)
    }
}

/// The agent with this name.
fn choose<'a>(agents: &'a [Value], name: &str) -> anyhow::Result<&'a Value> {
    let is_meant = |agent: &&Value| {
        let id = text(&agent["id"]);
        agent["host"] == name || id == name || (!name.is_empty() && id.ends_with(&format!("-{name}")))
    };
    let mut found = agents.iter().filter(is_meant);
    match (found.next(), found.next()) {
        (Some(agent), None) => Ok(agent),
        (Some(first), Some(second)) => bail!(
            "several agents are called {name}: {} and {}; name one by its id",
            text(&first["id"]),
            text(&second["id"])
        ),
        (None, _) => bail!("no agent is called {name}; `transom agents list` lists all"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_is_found_by_host_id_or_the_end_of_its_id() {
        let agents = [
            json!({"id": "f-S1", "host": "n1", "total": {"cpus": 4.0}, "used": {"cpus": 1.25}, "attributes": {"rack": "a"}}),
            json!({"id": "f-S11", "host": "n2"}),
            json!({"id": "f-S2", "host": "n2"}),
        ];
        assert_eq!(choose(&agents, "n1").expect("one")["id"], "f-S1");
        assert_eq!(choose(&agents, "S1").expect("one")["id"], "f-S1");
        assert_eq!(choose(&agents, "f-S11").expect("one")["id"], "f-S11");
        assert!(
            choose(&agents, "n2")
                .expect_err("two")
                .to_string()
                .contains("f-S2")
        );
        assert!(choose(&agents, "1").is_err() && choose(&agents, "").is_err());
        let cells: Vec<String> = row(&agents[0]).into_iter().map(|cell| cell.short).collect();
        assert_eq!(cells[..4], ["n1", "-", "1.25 of 4", "0 of 0"]);
        assert_eq!(cells[6], "rack:a");
    }
}
