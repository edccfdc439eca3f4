//! SIGKILL of the daemon while tasks run and deployments are in progress.

use anyhow::ensure;
use serde_json::json;

use super::app;
use crate::comparisons::{self, Ids};
use crate::site::{Site, starts, text};

const STORY: &str = "kill";
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
    site.wait_until_running(STEADY_APP, TASKS).await?;
    site.wait_until_running(SCALED_APP, SCALED_TASKS).await?;
    let steady = site.wait_until_agreed(STEADY_APP, TASKS).await?;
    let started = starts(&site.tasks(STEADY_APP).await?);
    let old = site.wait_until_agreed(SCALED_APP, SCALED_TASKS).await?;
    let framework = site.framework(&site.apps_framework()).await?;

    site.change_app(SCALED_APP, &json!({"env": {"REVISION": "2"}}))
        .await?;
    site.wait("the rolling restart to begin", || async {
        let tasks = site.master.tasks(&framework).await.map_err(text)?;
        let new = comparisons::of(SCALED_APP, &tasks)
            .filter(|task| !old.contains(&task.id))
            .count();
        if new > 0 {
            Ok(())
        } else {
            Err("no new task yet".to_owned())
        }
    })
    .await?;
    site.kill_daemon()?;
    site.progress(STORY, "the daemon is killed in the middle of a rolling restart");
    verify_still_running(site, &framework, &steady).await?;
    site.start_daemon().await?;
    site.wait("the rolling restart to go on", || async {
        let tasks = crate::site::ids(&site.tasks(SCALED_APP).await.map_err(text)?);
        if tasks.is_disjoint(&old) {
            Ok(())
        } else {
            Err(format!("{tasks:?}"))
        }
    })
    .await?;
    site.wait_until_running(SCALED_APP, SCALED_TASKS).await?;
    let new = site.wait_until_agreed(SCALED_APP, SCALED_TASKS).await?;
    ensure!(
        new.is_disjoint(&old),
        "the deployment was forgotten: {old:?} became {new:?}"
    );
    site.progress(STORY, "the rolling restart is finished");

    // An accepted change must be executed even if the daemon is killed right after the answer.
    site.change_app(SCALED_APP, &json!({"instances": SCALED_UP_TASKS}))
        .await?;
    site.kill_daemon()?;
    site.progress(STORY, "the daemon is killed right after it accepted a scaling");
    site.start_daemon().await?;
    site.wait_until_running(SCALED_APP, SCALED_UP_TASKS).await?;
    let more = site.wait_until_agreed(SCALED_APP, SCALED_UP_TASKS).await?;
    ensure!(
        more.is_superset(&new),
        "scaling replaced tasks: {new:?} became {more:?}"
    );

    ensure!(
        site.framework(&site.apps_framework()).await? == framework,
        "the daemon came back as another framework"
    );
    site.verify_kept(STEADY_APP, &steady).await?;
    let again = starts(&site.tasks(STEADY_APP).await?);
    ensure!(
        again == started,
        "startedAt was {started:?} before the kills and is {again:?} now"
    );
    site.verify_launched(&site.apps_framework(), STEADY_APP, TASKS)
        .await?;
    site.verify_launched(&site.apps_framework(), SCALED_APP, SCALED_TASKS + SCALED_UP_TASKS)
        .await?;
    site.delete_app(SCALED_APP).await?;
    site.delete_app(STEADY_APP).await
}

/// Verifies that the tasks continue to run without the daemon.
async fn verify_still_running(site: &Site, framework: &str, steady: &Ids) -> anyhow::Result<()> {
    let tasks = site.master.tasks(framework).await?;
    let running = comparisons::of(STEADY_APP, &tasks).filter(|task| task.state == "TASK_RUNNING");
    let running: Ids = running.map(|task| task.id.clone()).collect();
    ensure!(
        running == *steady,
        "without the daemon {running:?} run of {steady:?}"
    );
    Ok(())
}
