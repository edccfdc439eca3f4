//! Jobs of the workflow API.

use anyhow::{Context, ensure};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::comparisons;
use crate::site::Site;

pub(super) async fn run(site: &mut Site) -> anyhow::Result<()> {
    run_to_the_end(site).await?;
    site.progress("jobs ran, failed, were rejected and were killed");
    survive_a_kill(site).await
}

/// A command that prints a line and runs for some seconds.
fn sleeping_command(seconds: u32) -> String {
    format!("echo \"began $MARK\"; sleep {seconds}")
}

async fn run_to_the_end(site: &mut Site) -> anyhow::Result<()> {
    let command = "printf '%s|' \"$@\" \"$MARK\"; echo; echo to-stderr >&2";
    let arguments = ["/bin/sh", "-c", command, "sh", "it's", "a \"b\" $c", ""];
    let mark = json!({"environment": {"MARK": "m $HOME"}});
    site.queue("jobs-prints", &arguments, &mark).await?;
    site.wait_for_job_state("jobs-prints", "TASK_FINISHED").await?;
    // Arguments and environment reach the program unchanged.
    verify_printed_once(site, "jobs-prints", "it's|a \"b\" $c||m $HOME|").await?;

    site.queue("jobs-fails", &["/bin/sh", "-c", "exit 3"], &json!({}))
        .await?;
    let failed = site.wait_for_job_state("jobs-fails", "TASK_FAILED").await?;
    let message = failed["message"].as_str().unwrap_or_default();
    ensure!(
        message.contains("status 3"),
        "the reason of a job that ended with status 3 is {message:?}"
    );

    let unique = json!({"unique": true});
    site.queue("jobs-killed", &["sleep", "100000"], &unique).await?;
    site.wait_for_job_state("jobs-killed", "TASK_RUNNING").await?;
    let again = json!({"workflow_task_id": "jobs-killed", "command": ["true"], "unique": true});
    let url = site.workflow("/v0/queue_command")?;
    let (status, body) = site.send(Method::POST, &url, Some(&again)).await?;
    ensure!(
        status == StatusCode::CONFLICT,
        "a unique id was queued twice: {status} {body}"
    );
    let url = site.workflow("/v0/task/jobs-killed")?;
    site.write(Method::DELETE, &url, None).await?;
    site.wait_for_job_state("jobs-killed", "TASK_KILLED").await?;
    site.wait_master("the master to show TASK_KILLED for jobs-killed", async || {
        let tasks = site.launched("jobs-killed").await?;
        ensure!(tasks.len() == 1 && tasks[0].state == "TASK_KILLED", "{tasks:?}");
        Ok(())
    })
    .await
}

/// Verifies that the daemon and the agent show this line of a job's output exactly once.
async fn verify_printed_once(site: &Site, job: &str, line: &str) -> anyhow::Result<()> {
    let log = site.job_log(job).await?;
    comparisons::printed_once(&log, line).with_context(|| format!("the daemon's log of {job}"))?;
    let tasks = site.launched(job).await?;
    let task = tasks
        .first()
        .with_context(|| format!("the master does not know {job}"))?;
    site.verify_printed_once(job, task, line).await
}

/// The daemon is killed while jobs run. Some of them end before it is restarted.
async fn survive_a_kill(site: &mut Site) -> anyhow::Result<()> {
    let short: Vec<String> = (0..3).map(|number| format!("jobs-short-{number}")).collect();
    let long: Vec<String> = (0..3).map(|number| format!("jobs-long-{number}")).collect();
    for (ids, seconds) in [(&long, 20), (&short, 6)] {
        for id in ids {
            let command = sleeping_command(seconds);
            site.queue(
                id,
                &["/bin/sh", "-c", &command],
                &json!({"environment": {"MARK": id}}),
            )
            .await?;
        }
    }
    for id in short.iter().chain(&long) {
        // The job may have ended already if agents were slow to start the others.
        let url = site.workflow(&format!("/v0/task/{id}"))?;
        site.wait(&format!("{id} to begin"), async || {
            let seen = site.get(&url).await?;
            let state = seen["status"]["state"].as_str();
            ensure!(matches!(state, Some("TASK_RUNNING" | "TASK_FINISHED")), "{seen}");
            Ok(())
        })
        .await?;
    }
    let framework = site.framework(&site.jobs_framework()).await?;
    site.kill_daemon()?;
    site.progress("the daemon is killed while 6 jobs run");
    for id in &short {
        site.wait_master(&format!("{id} to end while the daemon is away"), async || {
            let active = site.active(id).await?;
            ensure!(active.is_empty(), "{active:?}");
            Ok(())
        })
        .await?;
    }
    site.start_daemon().await?;
    ensure!(
        site.framework(&site.jobs_framework()).await? == framework,
        "the workflow came back as another framework"
    );
    for id in short.iter().chain(&long) {
        site.wait_for_job_state(id, "TASK_FINISHED").await?;
        verify_printed_once(site, id, &format!("began {id}")).await?;
        site.verify_launched(id, 1).await?;
    }
    site.progress("6 jobs finished, each launched once");
    Ok(())
}
