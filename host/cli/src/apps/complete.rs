//! Completion of the names of apps, pods, tasks and deployments.

use clap::Parser;
use clap_complete::engine::ArgValueCompleter;

use super::api::Port;
use super::{instances, missing};
use crate::completion::{Names, completer, listed, parsed};

/// The options that select the daemon.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    port: Port,
}

/// Ids of apps and pods.
pub(super) fn apps() -> ArgValueCompleter {
    completer(async || app_names(&parsed()?).await)
}

/// Short ids of tasks.
pub(super) fn tasks() -> ArgValueCompleter {
    completer(async || task_names(&parsed()?).await)
}

/// Ids of apps and pods, and short ids of tasks.
pub(super) fn apps_and_tasks() -> ArgValueCompleter {
    completer(async || {
        let options = parsed()?;
        let mut names = app_names(&options).await?;
        names.extend(task_names(&options).await?);
        Ok(names)
    })
}

/// Ids of running deployments, with what they change.
pub(super) fn deployments() -> ArgValueCompleter {
    completer(async || {
        let Options { port } = parsed()?;
        let list = port.api()?.get("v2/deployments").await?;
        let names = list.as_array().into_iter().flatten().filter_map(|deployment| {
            let id = deployment["id"].as_str()?.to_owned();
            Some((id, missing::affected_by(deployment).join(", ")))
        });
        Ok(names.collect())
    })
}

async fn app_names(options: &Options) -> anyhow::Result<Names> {
    let api = options.port.api()?;
    let (apps, pods) = (api.get("v2/apps").await?, api.get("v2/pods").await?);
    let mut names = listed(&apps["apps"], "id", "cmd");
    names.extend(listed(&pods, "id", ""));
    Ok(names)
}

async fn task_names(options: &Options) -> anyhow::Result<Names> {
    let all = instances::all(&options.port.api()?).await?.into_iter();
    Ok(all.map(|one| (instances::short(&one.task), one.owner)).collect())
}
