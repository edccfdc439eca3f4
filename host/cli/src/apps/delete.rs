//! `transom apps delete`.

use anyhow::bail;
use clap::Args;
use reqwest::Method;
use serde_json::Value;

use super::api::{Daemon, Query};
use super::change::{Change, change_document};
use super::complete;
use super::follow::{DeploymentFollower, WaitOptions};
use super::id::{self, Kind};

/// Delete an app, a pod, or a group with everything in it, and wait until its tasks have ended.
///
/// Deleting an app or a pod cancels other deployments of it. Its persistent volumes are destroyed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  transom apps delete web\n  transom apps delete /shop --recursive")]
pub(crate) struct Delete {
    /// Id of the app, pod or group.
    #[arg(value_parser = id::parse, add = complete::apps())]
    id: String,
    /// Delete a group although apps or pods are in it.
    #[arg(long)]
    recursive: bool,
    /// For a group: cancel other deployments that change its apps or pods.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    waiting: WaitOptions,
    #[command(flatten)]
    daemon: Daemon,
}

impl Delete {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let api = self.daemon.api()?;
        let target = id::find(&api, &self.id).await?;
        if target.kind == Kind::Group && !self.recursive {
            let (apps, pods) = count(&target.document);
            if apps + pods > 0 {
                bail!(
                    "{} is a group with {apps} apps and {pods} pods: add --recursive to delete all of them \
                     (`transom apps list {0}` shows them)",
                    target.id
                );
            }
        }
        let mut query = Query::new();
        if self.force {
            query.push(("force", "true".to_owned()));
        }
        let change = Change {
            method: Method::DELETE,
            path: target.path(),
            body: None,
            query,
            document: change_document(target.kind, &target.id),
        };
        let follower = DeploymentFollower::open(&api, &self.waiting, self.daemon.output).await?;
        let answer = follower
            .send(change.method, &change.path, &change.query, None)
            .await?;
        follower.finish(answer, change.document).await
    }
}

/// Counts the apps and pods in a group and in the groups below it.
fn count(group: &Value) -> (usize, usize) {
    let (mut apps, mut pods, mut groups) = (0, 0, vec![group]);
    while let Some(group) = groups.pop() {
        let list = |key: &str| group[key].as_array().map_or(&[][..], Vec::as_slice);
        apps += list("apps").len();
        pods += list("pods").len();
        groups.extend(list("groups"));
    }
    (apps, pods)
}
