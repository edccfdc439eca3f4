//! The life of an app from its creation to its deletion.

use std::time::Duration;

use anyhow::{Context, ensure};
use reqwest::Method;
use serde_json::json;

use super::app;
use crate::site::{Running, Site};

const APP: &str = "/lifecycle";
const TASKS: usize = 2;

pub(super) async fn run(site: &mut Site) -> anyhow::Result<()> {
    let definition = app(
        APP,
        TASKS,
        &json!({
            "cmd": "echo \"mark $MARK\"; exec sleep 100000",
            "env": {"MARK": "one"},
            "upgradeStrategy": {"minimumHealthCapacity": 1.0, "maximumOverCapacity": 0.5},
        }),
    );
    let posted = site.post_app(&definition).await?;
    ensure!(
        posted["id"] == APP,
        "POST /v2/apps answered another app: {posted}"
    );
    let first = site.wait_until_running(APP, TASKS).await?;
    verify_mark(site, "mark one").await?;
    site.progress(&format!("{TASKS} tasks run with their environment"));

    let second = rolling_restart(site, &first).await?;
    verify_mark(site, "mark two").await?;
    site.progress("all tasks were replaced by a rolling restart");

    site.change_app(APP, &json!({"instances": 3})).await?;
    let three = site.wait_until_running(APP, 3).await?;
    ensure!(
        three.includes(&second),
        "scaling up replaced tasks: {second:?} became {three:?}"
    );
    site.change_app(APP, &json!({"instances": 1})).await?;
    let one = site.wait_until_running(APP, 1).await?;
    ensure!(
        three.includes(&one),
        "scaling down replaced tasks: {three:?} became {one:?}"
    );
    site.progress("scaled to 3 and 1");

    let victim = one.ids.first().context("no task")?;
    let url = site.apps(&format!("/v2/apps{APP}/tasks/{victim}"))?;
    site.write(Method::DELETE, &url, None).await?;
    site.wait("the killed task to be replaced", async || {
        let now = site.wait_until_running(APP, 1).await?.ids;
        ensure!(now.is_disjoint(&one.ids), "{now:?}");
        Ok(())
    })
    .await?;
    let tasks = site.launched(APP).await?;
    let killed = tasks.iter().find(|task| task.id == *victim);
    let killed = killed.context("the master forgot the killed task")?;
    ensure!(killed.state == "TASK_KILLED", "the killed task {}", killed.end());
    site.progress("a killed task was replaced");

    site.delete_app(APP).await?;
    // Two at first, two by the restart, one by scaling, and one for the killed task.
    site.verify_launched(APP, 6).await
}

/// Changes the environment, and verifies that the master never shows fewer running tasks than
/// wanted.
async fn rolling_restart(site: &Site, first: &Running) -> anyhow::Result<Running> {
    site.change_app(APP, &json!({"env": {"MARK": "two"}})).await?;
    let mut pause = tokio::time::interval(Duration::from_millis(200));
    loop {
        pause.tick().await;
        let tasks = site.active(APP).await?;
        let running = tasks.iter().filter(|task| task.state == "TASK_RUNNING").count();
        ensure!(
            running >= TASKS,
            "only {running} tasks ran during a restart with a minimum health capacity of 1.0 for {TASKS} instances"
        );
        let old = tasks.iter().filter(|task| first.ids.contains(&task.id)).count();
        if old == 0 {
            break;
        }
        ensure!(
            tokio::time::Instant::now() < site.deadline,
            "{old} tasks of the old version were not replaced in time"
        );
    }
    let second = site.wait_until_running(APP, TASKS).await?;
    ensure!(
        second.ids.is_disjoint(&first.ids),
        "tasks of the old version are left: {first:?}, {second:?}"
    );
    Ok(second)
}

/// Verifies in the agents' files that every active task printed this line once.
async fn verify_mark(site: &Site, line: &str) -> anyhow::Result<()> {
    for task in site.active(APP).await? {
        site.verify_printed_once(APP, &task, line).await?;
    }
    Ok(())
}
