//! The names of apps, pods, tasks and deployments, for completion.

use clap::Parser;

use super::api::Port;
use super::{instances, missing};
use crate::completion;

/// The options that select the daemon.
#[derive(Debug, Parser)]
pub(crate) struct Names {
    #[command(flatten)]
    port: Port,
}

/// The short ids of tasks, or the ids of apps and pods.
pub(crate) async fn names(options: &Names, of_tasks: bool) -> anyhow::Result<completion::Names> {
    let api = options.port.api()?;
    if of_tasks {
        let all = instances::all(&api).await?.into_iter();
        return Ok(all.map(|one| (instances::short(&one.task), one.owner)).collect());
    }
    let (apps, pods) = (api.get("v2/apps").await?, api.get("v2/pods").await?);
    let mut names = completion::listed(&apps["apps"], "id", "cmd");
    names.extend(completion::listed(&pods, "id", ""));
    Ok(names)
}

/// The ids of running deployments, with what they change.
pub(crate) async fn deployment_names(options: &Names) -> anyhow::Result<completion::Names> {
    let list = options.port.api()?.get("v2/deployments").await?;
    let names = list.as_array().into_iter().flatten().filter_map(|deployment| {
        let id = deployment["id"].as_str()?.to_owned();
        Some((id, missing::affected_by(deployment).join(", ")))
    });
    Ok(names.collect())
}
