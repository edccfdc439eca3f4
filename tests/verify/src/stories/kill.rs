//! SIGKILL of the daemon while tasks run and deployments are in progress.

use anyhow::ensure;
use serde_json::json;

use super::app;
use crate::judge::{self, Ids};
use crate::site::{Site, starts, text};

const STORY: &str = "kill";
const STEADY: &str = "/kill-steady";
const MOVING: &str = "/kill-moving";
const TASKS: usize = 3;
const MOVED: usize = 4;
const MORE: usize = 10;

pub(super) async fn run(site: &mut Site) -> anyhow::Result<()> {
    let strategy = json!({"env": {"REVISION": "1"},
        "upgradeStrategy": {"minimumHealthCapacity": 0.75, "maximumOverCapacity": 0.25}});
    site.post_app(&app(STEADY, TASKS, &json!({}))).await?;
    site.post_app(&app(MOVING, MOVED, &strategy)).await?;
    site.running(STEADY, TASKS).await?;
    site.running(MOVING, MOVED).await?;
    let steady = site.agreed(STEADY, TASKS).await?;
    let started = starts(&site.tasks(STEADY).await?);
    let old = site.agreed(MOVING, MOVED).await?;
    let framework = site.framework(&site.apps_framework()).await?;

    site.change_app(MOVING, &json!({"env": {"REVISION": "2"}}))
        .await?;
    site.wait("the rolling restart to begin", || async {
        let tasks = site.master.tasks(&framework).await.map_err(text)?;
        let new = judge::of(MOVING, &tasks)
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
    unharmed(site, &framework, &steady).await?;
    site.start_daemon().await?;
    site.wait("the rolling restart to go on", || async {
        let tasks = crate::site::ids(&site.tasks(MOVING).await.map_err(text)?);
        if tasks.is_disjoint(&old) {
            Ok(())
        } else {
            Err(format!("{tasks:?}"))
        }
    })
    .await?;
    site.running(MOVING, MOVED).await?;
    let new = site.agreed(MOVING, MOVED).await?;
    ensure!(
        new.is_disjoint(&old),
        "the deployment was forgotten: {old:?} became {new:?}"
    );
    site.progress(STORY, "the rolling restart is finished");

    // An accepted change must be executed even if the daemon is killed right after the answer.
    site.change_app(MOVING, &json!({"instances": MORE})).await?;
    site.kill_daemon()?;
    site.progress(STORY, "the daemon is killed right after it accepted a scaling");
    site.start_daemon().await?;
    site.running(MOVING, MORE).await?;
    let more = site.agreed(MOVING, MORE).await?;
    ensure!(
        more.is_superset(&new),
        "scaling replaced tasks: {new:?} became {more:?}"
    );

    ensure!(
        site.framework(&site.apps_framework()).await? == framework,
        "the daemon came back as another framework"
    );
    site.kept(STEADY, &steady).await?;
    let again = starts(&site.tasks(STEADY).await?);
    ensure!(
        again == started,
        "startedAt was {started:?} before the kills and is {again:?} now"
    );
    site.launched(&site.apps_framework(), STEADY, TASKS).await?;
    site.launched(&site.apps_framework(), MOVING, MOVED + MORE)
        .await?;
    site.delete_app(MOVING).await?;
    site.delete_app(STEADY).await
}

/// Verifies that the tasks continue to run without the daemon.
async fn unharmed(site: &Site, framework: &str, steady: &Ids) -> anyhow::Result<()> {
    let tasks = site.master.tasks(framework).await?;
    let running = judge::of(STEADY, &tasks).filter(|task| task.state == "TASK_RUNNING");
    let running: Ids = running.map(|task| task.id.clone()).collect();
    ensure!(
        running == *steady,
        "without the daemon {running:?} run of {steady:?}"
    );
    Ok(())
}
