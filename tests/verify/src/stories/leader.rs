//! Two daemons on a Redis: the standby takes over when the leader is killed.
//!
//! Both are separate from the daemon of the other stories, with their own framework.

use std::net::Ipv4Addr;

use anyhow::{Context, ensure};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use transom_testkit::{free_port, redis};
use transom_tests::program::Program;

use super::app;
use crate::comparisons::{self, Ids};
use crate::daemon::Daemon;
use crate::site::{Site, ids, starts, text};

const STORY: &str = "leader";
const APP: &str = "/leader";
const TASKS: usize = 3;

pub(super) async fn run(site: &mut Site) -> anyhow::Result<()> {
    let port = free_port();
    let redis = start_redis(site, port).await?;
    let store = format!("127.0.0.1:{port}");
    let name = format!("{}-leader", site.run);
    let first = start(site, "leader-first", &name, &store, true).await?;
    let second = start(site, "leader-second", &name, &store, false).await?;
    let outcome = take_over(site, first, &second, &name).await;
    // Also after a failure, the daemon is stopped before its framework is torn down and before its
    // store ends.
    let stopped = second.stop().await;
    drop(redis);
    let framework = site.framework(&name).await;
    let removed = match framework {
        Ok(id) => site.master.tear_down(&id).await.map_err(anyhow::Error::from),
        Err(error) => Err(error),
    };
    outcome?;
    stopped?;
    removed.with_context(|| format!("the framework {name} cannot be torn down"))
}

async fn take_over(site: &Site, first: Daemon, second: &Daemon, name: &str) -> anyhow::Result<()> {
    // The app is posted to the standby, which forwards the request.
    let url = second.url("apps", "/v2/apps")?;
    site.write(Method::POST, &url, Some(&app(APP, TASKS, &json!({}))))
        .await?;
    let before = wait_until_running(site, &first, TASKS).await?;
    ensure!(
        ids(&wait_until_running(site, second, TASKS).await?) == ids(&before),
        "the standby shows other tasks than the leader"
    );
    let framework = site.framework(name).await?;
    wait_until_on_cluster(site, &framework, &ids(&before)).await?;
    site.progress(STORY, "the leader runs 3 tasks, the standby shows them");

    first.kill();
    site.wait("the standby to lead", || async {
        let info = site
            .get(&second.url("apps", "/v2/info").map_err(text)?)
            .await
            .map_err(text)?;
        if info["elected"] == true && info["frameworkId"] == framework.as_str() {
            Ok(())
        } else {
            Err(info.to_string())
        }
    })
    .await?;
    let after = wait_until_running(site, second, TASKS).await?;
    ensure!(
        starts(&after) == starts(&before),
        "tasks were {:?} and are {:?}",
        starts(&before),
        starts(&after)
    );
    ensure!(
        site.framework(name).await? == framework,
        "the framework became another one"
    );
    wait_until_on_cluster(site, &framework, &ids(&before)).await?;
    site.progress(STORY, "the standby leads the same framework with the same tasks");

    let url = second.url("apps", &format!("/v2/apps{APP}"))?;
    site.write(Method::PUT, &url, Some(&json!({"instances": TASKS + 1})))
        .await?;
    let more = ids(&wait_until_running(site, second, TASKS + 1).await?);
    ensure!(
        more.is_superset(&ids(&before)),
        "scaling after the change of leader replaced tasks"
    );
    wait_until_on_cluster(site, &framework, &more).await?;
    let tasks = site.master.tasks(&framework).await?;
    comparisons::verify_launched(TASKS + 1, &tasks).map_err(anyhow::Error::msg)
}

async fn start(site: &Site, file: &str, name: &str, store: &str, leading: bool) -> anyhow::Result<Daemon> {
    let setup = site.setup(file, name.to_owned(), None, store.to_owned());
    let mut daemon = Daemon::start(&site.dir, &setup, site.deadline).await?;
    daemon
        .wait_until_ready(&site.http, leading, site.deadline)
        .await?;
    Ok(daemon)
}

/// Waits until a daemon shows `count` running tasks; returns them.
async fn wait_until_running(site: &Site, daemon: &Daemon, count: usize) -> anyhow::Result<Vec<Value>> {
    let url = daemon.url("apps", &format!("/v2/apps{APP}/tasks"))?;
    site.wait(&format!("{count} running tasks of {APP}"), || async {
        let document = site.get(&url).await.map_err(text)?;
        let tasks = document["tasks"].as_array().cloned().unwrap_or_default();
        if tasks.len() == count && tasks.iter().all(|task| task["state"] == "TASK_RUNNING") {
            Ok(tasks)
        } else {
            Err(document.to_string())
        }
    })
    .await
}

/// Waits until both of the master's documents contain exactly these active tasks.
async fn wait_until_on_cluster(site: &Site, framework: &str, wanted: &Ids) -> anyhow::Result<()> {
    site.wait_master(
        &format!("the master to show {} active tasks", wanted.len()),
        || async {
            let tasks = site.master.tasks(framework).await.map_err(text)?;
            let tasks: Ids = tasks
                .into_iter()
                .filter(crate::master::Task::is_active)
                .map(|task| task.id)
                .collect();
            let state = site.master.active_tasks_by_state(framework).await.map_err(text)?;
            comparisons::compare_ids(wanted.len(), wanted, &tasks, &state)
        },
    )
    .await
}

/// Starts a Redis that keeps everything in memory; killed when dropped.
async fn start_redis(site: &Site, port: u16) -> anyhow::Result<Program> {
    let port_text = port.to_string();
    let arguments = [
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--port",
        &port_text,
    ];
    let mut program = Program::start(&site.dir, "redis", redis::server(), arguments)?;
    let listening = site.wait("the redis-server to listen", || async {
        let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
        connected.map(|_| ()).map_err(|error| error.to_string())
    });
    listening
        .await
        .with_context(|| format!("see redis.log; ended: {:?}", program.exit_status()))?;
    Ok(program)
}
