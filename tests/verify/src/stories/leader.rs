//! Two daemons on a Redis: the standby takes over when the leader is killed.
//!
//! Both are separate from the daemon of the other stories, with their own framework.

use std::mem;
use std::net::Ipv4Addr;

use anyhow::{Context, ensure};
use serde_json::json;
use tokio::net::TcpStream;
use transom_testkit::{free_port, redis};
use transom_tests::program::Program;

use super::app;
use crate::daemon::Daemon;
use crate::site::{Site, ids};

const APP: &str = "/leader";
const TASKS: usize = 3;

pub(super) async fn run(site: &mut Site) -> anyhow::Result<()> {
    let port = free_port();
    let redis = start_redis(site, port).await?;
    let store = format!("127.0.0.1:{port}");
    let name = format!("{}-leader", site.run);
    let first = start(site, "leader-first", &name, &store, true).await?;
    let second = start(site, "leader-second", &name, &store, false).await?;
    let usual_daemon = site.daemon.replace(second);
    let usual_name = mem::replace(&mut site.apps_framework, name);
    let outcome = take_over(site, first).await;
    // Also after a failure, the daemon is stopped before its framework is torn down and before its
    // store ends.
    let stopped = site.stop_daemon().await;
    drop(redis);
    let name = mem::replace(&mut site.apps_framework, usual_name);
    site.daemon = usual_daemon;
    let removed = match site.framework(&name).await {
        Ok(id) => site.master.tear_down(&id).await.map_err(anyhow::Error::from),
        Err(error) => Err(error),
    };
    outcome?;
    stopped?;
    removed.with_context(|| format!("the framework {name} cannot be torn down"))
}

/// Kills the leader; the daemon of the site is the standby.
async fn take_over(site: &Site, leader: Daemon) -> anyhow::Result<()> {
    // The app is posted to the standby, which forwards the request.
    site.post_app(&app(APP, TASKS, &json!({}))).await?;
    let before = site.wait_until_running(APP, TASKS).await?;
    let url = leader.url("apps", &format!("/v2/apps{APP}/tasks"))?;
    let tasks = site.get(&url).await?["tasks"].take();
    ensure!(
        ids(tasks.as_array().context("no `tasks`")?) == before.ids,
        "the leader shows {tasks}, the standby {before:?}"
    );
    site.progress("the leader runs 3 tasks, the standby shows them");

    leader.kill();
    // The request is sent before the standby detects the leader's death: it waits for the next
    // leader.
    site.change_app(APP, &json!({"instances": TASKS + 1})).await?;
    let after = site.wait_until_running(APP, TASKS + 1).await?;
    ensure!(
        after.includes(&before),
        "the change of leader replaced tasks: {before:?} became {after:?}"
    );
    let info = site.get(&site.apps("/v2/info")?).await?;
    ensure!(
        info["elected"] == true && info["frameworkId"] == before.framework.as_str(),
        "{info}"
    );
    site.progress("the standby leads the same framework with the same tasks");
    site.verify_launched(APP, TASKS + 1).await
}

async fn start(
    site: &Site,
    file: &'static str,
    name: &str,
    store: &str,
    leading: bool,
) -> anyhow::Result<Daemon> {
    let setup = site.setup(file, name, None, store);
    let mut daemon = Daemon::start(&site.dir, &setup, site.deadline).await?;
    daemon
        .wait_until_ready(&site.http, leading, site.deadline)
        .await?;
    Ok(daemon)
}

/// Starts a Redis that keeps everything in memory; killed when dropped.
async fn start_redis(site: &Site, port: u16) -> anyhow::Result<Program> {
    let port_text = port.to_string();
    let arguments = "--bind 127.0.0.1 --appendonly no --port".split(' ');
    let arguments = arguments.chain([port_text.as_str(), "--save", ""]);
    let mut program = Program::start(&site.dir, "redis", redis::server(), arguments)?;
    let listening = site.wait("the redis-server to listen", async || {
        Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?)
    });
    listening
        .await
        .with_context(|| format!("see redis.log; ended: {:?}", program.exit_status()))?;
    Ok(program)
}
