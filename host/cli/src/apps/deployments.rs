//! `transom apps deployments`.

use anyhow::bail;
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use super::api::{Api, Port, Query, is_not_found};
use super::complete;
use super::follow::{DeploymentFollower, WaitOptions};
use super::missing::affected_by;
use super::{id, progress};
use crate::list::{Cell, Column, ListOptions};
use crate::output;

/// List running deployments; or revert, cancel or continue one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom apps deployments\n  \
    transom apps deployments --rollback 5f3c2a10-0b1c-4d6e-8f00-0123456789ab\n  \
    transom apps deployments --continue 5f3c2a10-0b1c-4d6e-8f00-0123456789ab")]
pub(crate) struct Deployments {
    /// Revert this deployment: start another deployment that restores the previous definitions, and
    /// wait for its end.
    #[arg(long, value_name = "ID", group = "what", add = complete::deployments())]
    rollback: Option<String>,
    /// Stop this deployment in its current step; instances are left as they are.
    #[arg(long, value_name = "ID", group = "what", add = complete::deployments())]
    cancel: Option<String>,
    /// Continue this deployment, which is paused after its canary instances, and wait for its end.
    #[arg(long = "continue", value_name = "ID", group = "what", add = complete::deployments())]
    go_on: Option<String>,
    #[command(flatten)]
    waiting: WaitOptions,
    #[command(flatten)]
    port: Port,
    #[command(flatten)]
    list: ListOptions,
}

const COLUMNS: &[Column] = &[
    // `--rollback` needs the whole id.
    Column::Fixed("id"),
    Column::Fixed("step"),
    Column::Text("current"),
    Column::Fixed("age"),
    Column::Wide("changes"),
];

impl Deployments {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.port.api()?;
        let output = self.list.output();
        let no_query = Query::new();
        if let Some(id) = &self.rollback {
            let follower = DeploymentFollower::open(&api, &self.waiting, output).await?;
            let result = follower
                .send(Method::DELETE, &deployment_path(id), &no_query, None)
                .await;
            let response = explain_if_not_running(&api, id, result).await?;
            return follower.finish(response, json!({"reverts": id})).await;
        }
        if let Some(id) = &self.cancel {
            let query = Query::from([("force", "true".to_owned())]);
            let result = api.send(Method::DELETE, &deployment_path(id), &query, None).await;
            explain_if_not_running(&api, id, result).await?;
            let document = json!({"deploymentId": id, "state": "cancelled"});
            return output::print_text(output, &document, &format!("deployment {id} cancelled"));
        }
        if let Some(id) = &self.go_on {
            let follower = DeploymentFollower::open(&api, &self.waiting, output).await?;
            let result = follower
                .send(
                    Method::POST,
                    &format!("{}/continue", deployment_path(id)),
                    &no_query,
                    None,
                )
                .await;
            let mut response = explain_if_not_running(&api, id, result).await?;
            response.deployment = Some(id.clone());
            return follower.finish(response, json!({})).await;
        }
        let list = api.get("v2/deployments?embed=deadline&embed=canary").await?;
        let now = jiff::Timestamp::now();
        let rows = list.as_array().into_iter().flatten().map(|one| row(one, now));
        self.list.print(&list, COLUMNS, 0, rows.collect())
    }
}

/// The path of a deployment; its id is one segment.
fn deployment_path(id: &str) -> String {
    format!("v2/deployments/{}", id.replace('/', ""))
}

/// Passes on the result of a request about a deployment. If the deployment does not run, the error
/// names the running ones.
async fn explain_if_not_running<T>(api: &Api, id: &str, result: anyhow::Result<T>) -> anyhow::Result<T> {
    let error = match result {
        Err(error) if is_not_found(&error) => error,
        result => return result,
    };
    let list = api.get("v2/deployments").await?;
    let running: Vec<&str> = list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["id"].as_str())
        .collect();
    let nearest = id::nearest(id, running.iter().copied());
    if let Some(nearest) = nearest.first() {
        bail!("deployment {id} is not running; did you mean {nearest}?");
    }
    let running = if running.is_empty() {
        "none".to_owned()
    } else {
        running.join(", ")
    };
    Err(error.context(format!(
        "deployment {id} is not running (running: {running}); it may have ended"
    )))
}

fn row(deployment: &Value, now: jiff::Timestamp) -> Vec<Cell> {
    let number = |key: &str| deployment[key].as_u64().unwrap_or(0);
    let actions = deployment["currentActions"].as_array().into_iter().flatten();
    let actions: Vec<String> = actions
        .filter_map(progress::verb)
        .take(3)
        .map(|(verb, id)| format!("{verb} {id}"))
        .collect();
    let affected = affected_by(deployment);
    let mut changes = affected.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    if affected.len() > 3 {
        changes = format!("{changes} and {} more", affected.len() - 3);
    }
    let mut current = actions.join(", ");
    if let Some(state) = deployment["canary"]["state"].as_str() {
        current = format!("{current} (canary {state})");
    }
    vec![
        deployment["id"].as_str().unwrap_or("-").into(),
        format!("{}/{}", number("currentStep"), number("totalSteps")).into(),
        current.into(),
        Cell::age(deployment["version"].as_str(), now),
        changes.into(),
    ]
}
