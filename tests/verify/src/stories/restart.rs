//! The daemon is stopped with SIGTERM and started again.

use anyhow::ensure;
use serde_json::json;

use super::app;
use crate::comparisons::{self, Ids};
use crate::site::{Site, starts, text};

const STORY: &str = "restart";
const APP: &str = "/restart-app";
const JOB: &str = "restart-job";
const TASKS: usize = 3;

pub(super) async fn run(site: &mut Site) -> anyhow::Result<()> {
    site.post_app(&app(APP, TASKS, &json!({}))).await?;
    site.queue(JOB, &["sleep", "100000"], &json!({})).await?;
    site.wait_until_running(APP, TASKS).await?;
    site.wait_for_job_state(JOB, "TASK_RUNNING").await?;
    let before = site.wait_until_agreed(APP, TASKS).await?;
    let started = starts(&site.tasks(APP).await?);
    ensure!(
        started.len() == TASKS,
        "/v2/tasks has no startedAt for running tasks: {started:?}"
    );
    let frameworks = framework_ids(site).await?;

    site.stop_daemon().await?;
    // The tasks do not need the daemon.
    let active = active_tasks(site, &frameworks.0).await?;
    ensure!(
        active == before,
        "after the daemon's stop the master shows {active:?}, before it {before:?}"
    );
    site.progress(STORY, "the daemon is stopped, its tasks run on");

    site.start_daemon().await?;
    let after = framework_ids(site).await?;
    ensure!(
        after == frameworks,
        "frameworks were {frameworks:?} before the restart and are {after:?} now"
    );
    let info = site.get(&site.apps("/v2/info")?).await?;
    ensure!(
        info["frameworkId"] == frameworks.0.as_str(),
        "/v2/info shows another framework: {info}"
    );
    site.wait_until_running(APP, TASKS).await?;
    site.verify_kept(APP, &before).await?;
    let again = starts(&site.tasks(APP).await?);
    ensure!(
        again == started,
        "startedAt was {started:?} before the restart and is {again:?} now"
    );
    site.wait_for_job_state(JOB, "TASK_RUNNING").await?;
    site.progress(STORY, "the daemon has its frameworks and tasks back");

    site.change_app(APP, &json!({"instances": TASKS + 1})).await?;
    site.wait_until_running(APP, TASKS + 1).await?;
    ensure!(
        site.wait_until_agreed(APP, TASKS + 1).await?.is_superset(&before),
        "scaling after the restart replaced tasks"
    );
    site.verify_launched(&site.apps_framework(), APP, TASKS + 1)
        .await?;
    site.verify_launched(&site.jobs_framework(), JOB, 1).await?;
    site.delete_app(APP).await
}

/// The framework ids of apps and workflow.
async fn framework_ids(site: &Site) -> anyhow::Result<(String, String)> {
    let apps = site.framework(&site.apps_framework()).await?;
    Ok((apps, site.framework(&site.jobs_framework()).await?))
}

async fn active_tasks(site: &Site, framework: &str) -> anyhow::Result<Ids> {
    let tasks = site.wait_master("the master's list of tasks", || async {
        site.master.tasks(framework).await.map_err(text)
    });
    let tasks = tasks.await?;
    let active = comparisons::of(APP, &tasks).filter(|task| task.is_active());
    Ok(active.map(|task| task.id.clone()).collect())
}
