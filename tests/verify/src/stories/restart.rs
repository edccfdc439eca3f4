//! The daemon is stopped with SIGTERM and started again.

use anyhow::ensure;
use serde_json::json;

use super::app;
use crate::comparisons::Ids;
use crate::site::Site;

const APP: &str = "/restart-app";
const JOB: &str = "restart-job";
const TASKS: usize = 3;

pub(super) async fn run(site: &mut Site) -> anyhow::Result<()> {
    site.post_app(&app(APP, TASKS, &json!({}))).await?;
    site.queue(JOB, &["sleep", "100000"], &json!({})).await?;
    let before = site.wait_until_running(APP, TASKS).await?;
    site.wait_for_job_state(JOB, "TASK_RUNNING").await?;
    let jobs_framework = site.framework(&site.jobs_framework()).await?;

    site.stop_daemon().await?;
    // The tasks do not need the daemon.
    let active: Ids = site.active(APP).await?.into_iter().map(|task| task.id).collect();
    ensure!(
        active == before.ids,
        "after the daemon's stop the master shows {active:?}, before it {before:?}"
    );
    site.progress("the daemon is stopped, its tasks run on");

    site.start_daemon().await?;
    site.verify_kept(APP, &before).await?;
    let info = site.get(&site.apps("/v2/info")?).await?;
    ensure!(
        info["frameworkId"] == before.framework.as_str(),
        "/v2/info shows another framework: {info}"
    );
    let jobs_framework_now = site.framework(&site.jobs_framework()).await?;
    ensure!(
        jobs_framework_now == jobs_framework,
        "the workflow's framework was {jobs_framework} before the restart and is {jobs_framework_now} now"
    );
    site.wait_for_job_state(JOB, "TASK_RUNNING").await?;
    site.progress("the daemon has its frameworks and tasks back");

    site.change_app(APP, &json!({"instances": TASKS + 1})).await?;
    let more = site.wait_until_running(APP, TASKS + 1).await?;
    ensure!(
        more.includes(&before),
        "scaling after the restart replaced tasks: {before:?} became {more:?}"
    );
    site.verify_launched(APP, TASKS + 1).await?;
    site.verify_launched(JOB, 1).await?;
    site.delete_app(APP).await
}
