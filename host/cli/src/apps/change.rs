//! Shared parts of the commands that change definitions: options, requests and dry runs.

use anyhow::bail;
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use super::api::{Api, Query};
use super::document::{self, Document};
use super::follow::{DeploymentFollower, RolloutOptions, WaitOptions, usage_error};
use super::id::Kind;
use super::progress;
use crate::output::{self, Output, print_note};

/// The options of a change that starts a deployment.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    pub(super) rollout: RolloutOptions,
    #[command(flatten)]
    pub(super) waiting: WaitOptions,
}

/// A request that changes definitions.
pub(super) struct Change {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) body: Option<Value>,
    pub(super) query: Query,
    /// The members of the output that describe the change: `kind` and `id`, or `ids`.
    pub(super) document: Value,
}

impl Change {
    /// Sends the request, and waits for its deployment.
    pub(super) async fn run(self, api: &Api, options: &Options, output: Output) -> anyhow::Result<()> {
        let mut query = options.rollout.query();
        query.extend(self.query);
        let follower = DeploymentFollower::open(api, &options.waiting, output).await?;
        let answer = follower
            .send(self.method, &self.path, &query, self.body.as_ref())
            .await?;
        follower.finish(answer, self.document).await
    }
}

/// The members of an output that name one app, pod or group.
pub(super) fn change_document(kind: Kind, id: &str) -> Value {
    json!({"kind": kind.name(), "id": id})
}

/// The members of an output that name a list of apps.
pub(super) fn changes_document(apps: &[Value]) -> Value {
    let ids: Vec<String> = apps.iter().filter_map(document::id).collect();
    json!({"kind": "apps", "ids": ids})
}

/// Prints the steps of the deployment that a change of a group would start, and changes nothing.
pub(super) async fn dry_run(api: &Api, document: &Document, output: Output) -> anyhow::Result<()> {
    let Document::One(Kind::Group, group) = document else {
        return Err(usage_error(
            "--dry-run is for groups; `transom apps diff -f FILE` compares an app or a pod",
        ));
    };
    let Some(id) = document::id(group) else {
        bail!("the group has no id");
    };
    let query = Query::from([("dryRun", "true".to_owned())]);
    let path = group_path(&id);
    let mut body = group.clone();
    body["id"] = json!(id);
    let answer = api.send(Method::PUT, &path, &query, Some(&body)).await?;
    let steps = answer.document["steps"].as_array().cloned().unwrap_or_default();
    let mut rows = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        for action in step["actions"].as_array().into_iter().flatten() {
            if let Some((verb, id)) = progress::verb(action) {
                rows.push(vec![(index + 1).to_string(), verb.to_owned(), id.to_owned()]);
            }
        }
    }
    if rows.is_empty() && output == Output::Table {
        print_note("nothing would change");
        return Ok(());
    }
    output::print(output, &answer.document, &["step", "action", "id"], rows)
}

/// The path of a group in the API.
pub(super) fn group_path(id: &str) -> String {
    format!("v2/groups{}", id.trim_end_matches('/'))
}
