//! SIGKILL of the daemon while tasks run and deployments are in progress.

use anyhow::ensure;
use serde_json::json;

use super::app;
use crate::comparisons::Ids;
use crate::site::{Site, ids};

const STEADY_APP: &str = "/kill-steady";
const SCALED_APP: &str = "/kill-moving";
const TASKS: usize = 3;
const SCALED_TASKS: usize = 4;
const SCALED_UP_TASKS: usize = 10;

pub(super) async fn run(site: &mut Site) -> anyhow::Result<()> {
    let strategy = json!({"env": {"REVISION": "1"},
        "upgradeStrategy": {"minimumHealthCapacity": 0.75, "maximumOverCapacity": 0.25}});
    site.post_app(&app(STEADY_APP, TASKS, &json!({}))).await?;
    site.post_app(&app(SCALED_APP, SCALED_TASKS, &strategy)).await?;
    let steady = site.wait_until_running(STEADY_APP, TASKS).await?;
    let old = site.wait_until_running(SCALED_APP, SCALED_TASKS).await?.ids;

    site.change_app(SCALED_APP, &json!({"env": {"REVISION": "2"}}))
        .await?;
    site.wait("the rolling restart to begin", async || {
        let tasks = site.launched(SCALED_APP).await?;
        ensure!(
            tasks.iter().any(|task| !old.contains(&task.id)),
            "no new task yet"
        );
        Ok(())
    })
    .await?;
    site.kill_daemon()?;
    site.progress("the daemon is killed in the middle of a rolling restart");
    // The tasks continue to run without the daemon.
    let tasks = site.active(STEADY_APP).await?.into_iter();
    let running = tasks.filter(|task| task.state == "TASK_RUNNING");
    let running: Ids = running.map(|task| task.id).collect();
    ensure!(
        running == steady.ids,
        "without the daemon {running:?} run of {steady:?}"
    );
    site.start_daemon().await?;
    site.wait("the rolling restart to go on", async || {
        let tasks = ids(&site.tasks(SCALED_APP).await?);
        ensure!(tasks.is_disjoint(&old), "{tasks:?}");
        Ok(())
    })
    .await?;
    let new = site.wait_until_running(SCALED_APP, SCALED_TASKS).await?;
    ensure!(
        new.ids.is_disjoint(&old),
        "the deployment was forgotten: {old:?} became {new:?}"
    );
    site.progress("the rolling restart is finished");

    // An accepted change must be executed even if the daemon is killed right after the answer.
    site.change_app(SCALED_APP, &json!({"instances": SCALED_UP_TASKS}))
        .await?;
    site.kill_daemon()?;
    site.progress("the daemon is killed right after it accepted a scaling");
    site.start_daemon().await?;
    let more = site.wait_until_running(SCALED_APP, SCALED_UP_TASKS).await?;
    ensure!(
        more.includes(&new),
        "scaling replaced tasks: {new:?} became {more:?}"
    );

    site.verify_kept(STEADY_APP, &steady).await?;
    site.verify_launched(STEADY_APP, TASKS).await?;
    site.verify_launched(SCALED_APP, SCALED_TASKS + SCALED_UP_TASKS)
        .await?;
    site.delete_app(SCALED_APP).await?;
    site.delete_app(STEADY_APP).await
}
