//! The life of an app from its creation to its deletion.

use std::time::Duration;

use anyhow::{Context, ensure};
use reqwest::Method;
use serde_json::{Value, json};

use super::app;
use crate::comparisons::{self, Ids};
use crate::master::Task;
use crate::site::{Site, ids, text};

const STORY: &str = "lifecycle";
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
    let first = ids(&site.wait_until_running(APP, TASKS).await?);
    site.verify_kept(APP, &first).await?;
    verify_mark(site, "mark one").await?;
    site.progress(STORY, &format!("{TASKS} tasks run with their environment"));

    let second = rolling_restart(site, &first).await?;
    verify_mark(site, "mark two").await?;
    site.progress(STORY, "all tasks were replaced by a rolling restart");

    site.change_app(APP, &json!({"instances": 3})).await?;
    let three = ids(&site.wait_until_running(APP, 3).await?);
    ensure!(
        three.is_superset(&second),
        "scaling up replaced tasks: {second:?} became {three:?}"
    );
    site.wait_until_agreed(APP, 3).await?;
    site.change_app(APP, &json!({"instances": 1})).await?;
    let one = ids(&site.wait_until_running(APP, 1).await?);
    ensure!(
        one.is_subset(&three),
        "scaling down replaced tasks: {three:?} became {one:?}"
    );
    site.wait_until_agreed(APP, 1).await?;
    site.progress(STORY, "scaled to 3 and 1");

    let victim = one.first().context("no task")?;
    let url = site.apps(&format!("/v2/apps{APP}/tasks/{victim}"))?;
    site.write(Method::DELETE, &url, None).await?;
    let replaced = |tasks: &[Value]| tasks.len() == 1 && !ids(tasks).contains(victim);
    site.wait("the killed task to be replaced", || async {
        let tasks = site.tasks(APP).await.map_err(text)?;
        if replaced(&tasks) {
            Ok(())
        } else {
            Err(json!(tasks).to_string())
        }
    })
    .await?;
    site.wait_until_running(APP, 1).await?;
    site.wait_until_agreed(APP, 1).await?;
    let framework = site.framework(&site.apps_framework()).await?;
    let tasks = site.master.tasks(&framework).await?;
    let killed = tasks
        .iter()
        .find(|task| task.id == *victim)
        .context("the master forgot the killed task")?;
    ensure!(
        killed.state == "TASK_KILLED",
        "the killed task ended in {}: {}",
        killed.state,
        killed.message
    );
    site.progress(STORY, "a killed task was replaced");

    site.delete_app(APP).await?;
    // Two at first, two by the restart, one by scaling, and one for the killed task.
    site.verify_launched(&site.apps_framework(), APP, 6).await
}

/// Changes the environment, and verifies that the master never shows fewer running tasks than
/// wanted.
async fn rolling_restart(site: &Site, first: &Ids) -> anyhow::Result<Ids> {
    let framework = site.framework(&site.apps_framework()).await?;
    site.change_app(APP, &json!({"env": {"MARK": "two"}})).await?;
    let mut pause = tokio::time::interval(Duration::from_millis(200));
    loop {
        pause.tick().await;
        let tasks = site.master.tasks(&framework).await?;
        let running = comparisons::of(APP, &tasks)
            .filter(|task| task.state == "TASK_RUNNING")
            .count();
        ensure!(
            running >= TASKS,
            "only {running} tasks ran during a restart with a minimum health capacity of 1.0 for {TASKS} instances"
        );
        let old = comparisons::of(APP, &tasks)
            .filter(|task| task.is_active() && first.contains(&task.id))
            .count();
        if old == 0 {
            break;
        }
        ensure!(
            tokio::time::Instant::now() < site.deadline,
            "{old} tasks of the old version were not replaced in time"
        );
    }
    let second = ids(&site.wait_until_running(APP, TASKS).await?);
    ensure!(
        second.is_disjoint(first),
        "tasks of the old version are left: {first:?}, {second:?}"
    );
    site.wait_until_agreed(APP, TASKS).await?;
    Ok(second)
}

/// Verifies in the agents' files that every active task printed this line once.
async fn verify_mark(site: &Site, line: &str) -> anyhow::Result<()> {
    let framework = site.framework(&site.apps_framework()).await?;
    let tasks = site.master.tasks(&framework).await?;
    let tasks: Vec<&Task> = comparisons::of(APP, &tasks)
        .filter(|task| task.is_active())
        .collect();
    for task in tasks {
        let output = site.output(&framework, task).await?;
        let count = comparisons::lines(&output, line);
        ensure!(count == 1, "{} printed `{line}` {count} times: {output}", task.id);
    }
    Ok(())
}
