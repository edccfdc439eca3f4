//! `transom apps kill`.

use anyhow::bail;
use clap::Args;
use reqwest::Method;
use serde_json::{Value, json};

use super::api::{Api, Daemon, Query};
use super::complete;
use super::follow::{DeploymentFollower, WaitOptions, usage_error};
use super::{id, instances};
use crate::output;

/// Kill tasks of apps or instances of pods; the daemon launches replacements.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    transom apps kill web.instance-5f3c2a10-0b1c-11f1-8f00-0242ac110002._app.1\n  \
    transom apps kill --scale TASK TASK\n  \
    transom apps kill --wipe TASK\n\n\
    `transom apps tasks` lists the tasks.")]
pub(crate) struct Kill {
    /// Ids or short ids of tasks, or ids of instances of pods or their containers.
    #[arg(required = true, add = complete::tasks())]
    task: Vec<String>,
    /// Also reduce the number of instances, so that no replacements are launched; waits for the
    /// deployment.
    #[arg(long, conflicts_with = "wipe")]
    scale: bool,
    /// Also destroy their reservations and persistent volumes.
    #[arg(long)]
    wipe: bool,
    /// With --scale: cancel other deployments that change the same apps.
    #[arg(long, requires = "scale")]
    force: bool,
    #[command(flatten)]
    waiting: WaitOptions,
    #[command(flatten)]
    daemon: Daemon,
}

impl Kill {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.daemon.api()?;
        let (tasks, pod_instances) = find_targets(&api, &whole_ids(&api, &self.task).await?).await?;
        if self.scale && !pod_instances.is_empty() {
            return Err(usage_error(
                "--scale is for tasks of apps; scale a pod with `transom apps scale`",
            ));
        }
        let mut query = Query::new();
        for (name, is_set) in [("scale", self.scale), ("wipe", self.wipe), ("force", self.force)] {
            if is_set {
                query.push((name, "true".to_owned()));
            }
        }
        let body = json!({"ids": tasks});
        if self.scale {
            let follower = DeploymentFollower::open(&api, &self.waiting, self.daemon.output).await?;
            let answer = follower
                .send(Method::POST, "v2/tasks/delete", &query, Some(&body))
                .await?;
            return follower.finish(answer, json!({"killed": tasks})).await;
        }
        let mut killed: Vec<Value> = Vec::new();
        if !tasks.is_empty() {
            let answer = api
                .send(Method::POST, "v2/tasks/delete", &query, Some(&body))
                .await?;
            killed.extend(
                answer.document["tasks"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|task| task["id"].clone()),
            );
        }
        for (pod, instance) in &pod_instances {
            let path = format!("v2/pods{pod}::instances/{instance}");
            api.send(Method::DELETE, &path, &query, None).await?;
            killed.push(json!(instance));
        }
        let rows = killed
            .iter()
            .map(|id| vec![id.as_str().unwrap_or_default().to_owned()]);
        output::print(self.daemon.output, &json!({"killed": killed}), &["killed"], rows)
    }
}

/// The whole ids of tasks that are named by their short ids.
async fn whole_ids(api: &Api, names: &[String]) -> anyhow::Result<Vec<String>> {
    let all = instances::all(api).await?;
    let whole = names.iter().map(|name| {
        let found = instances::matching(&all, name)?;
        Ok(found.map_or_else(|| name.clone(), |one| one.task.clone()))
    });
    whole.collect()
}

/// Sorts the given ids into tasks of apps, and instances of pods with their pod. An unknown id is an
/// error, so that nothing is killed then.
async fn find_targets(api: &Api, ids: &[String]) -> anyhow::Result<(Vec<String>, Vec<(String, String)>)> {
    let tasks = api.get("v2/tasks").await?;
    let tasks = tasks["tasks"].as_array().into_iter().flatten();
    let tasks: Vec<&str> = tasks.filter_map(|task| task["id"].as_str()).collect();
    let (task_ids, other_ids): (Vec<String>, Vec<String>) =
        ids.iter().cloned().partition(|id| tasks.contains(&id.as_str()));
    if other_ids.is_empty() {
        return Ok((task_ids, Vec::new()));
    }
    let pods = api.get("v2/pods/::status").await?;
    let instance_names = instances(&pods);
    let mut instances: Vec<(String, String)> = Vec::new();
    for id in &other_ids {
        let target = instance_names.iter().find(|(name, ..)| name == id);
        let Some((_, pod, instance)) = target else {
            let names = tasks
                .iter()
                .copied()
                .chain(instance_names.iter().map(|(name, ..)| name.as_str()));
            let nearest = id::nearest(id, names);
            let hint = if nearest.is_empty() {
                "`transom apps tasks` lists all.".to_owned()
            } else {
                format!("did you mean {}?", nearest.join(" or "))
            };
            bail!("no task is called {id}; {hint} Nothing was killed.");
        };
        let target = (pod.clone(), instance.clone());
        if !instances.contains(&target) {
            instances.push(target);
        }
    }
    Ok((task_ids, instances))
}

/// The names of all instances of pods and of their containers, each with the pod and the instance.
fn instances(pods: &Value) -> Vec<(String, String, String)> {
    let mut instance_names = Vec::new();
    for pod in pods.as_array().into_iter().flatten() {
        for instance in pod["instances"].as_array().into_iter().flatten() {
            let (Some(pod), Some(id)) = (pod["id"].as_str(), instance["id"].as_str()) else {
                continue;
            };
            let containers = instance["containers"].as_array().into_iter().flatten();
            let names = containers
                .filter_map(|one| one["containerId"].as_str())
                .chain([id]);
            instance_names.extend(names.map(|name| (name.to_owned(), pod.to_owned(), id.to_owned())));
        }
    }
    instance_names
}
