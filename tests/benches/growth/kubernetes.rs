//! Row of the Kubernetes framework: the tasks are processes on the embedded cluster, and the server
//! serves an API that contains only nodes.

use std::time::Duration;

use transom_tests::kubernetes::{Api, Tasks, task_ids};
use transom_tests::site::Site;

use crate::meter::{Cost, Meter};

/// Number of agents that are added one after the other.
const ADDED: usize = 10;
/// The measured time in which nothing changes.
const IDLE: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// A cluster with this number of agents.
pub(crate) async fn members(agents: usize) -> Vec<Cost> {
    let tasks = Tasks::with_nodes_only();
    let framework = format!("{}max_scale = {}\n", tasks.section(agents as u32), agents + ADDED);
    let site = Site::start_with(&framework).await;
    let api = Api::new(site.kubernetes(""));
    wait_until_ready(&api, agents).await;
    let pid = site.daemon.as_ref().expect("a daemon").pid();
    let meter = Meter::start(pid);
    for number in 1..=ADDED {
        api.put(&format!("/agent/scale/{}", agents + number)).await;
        wait_until_ready(&api, agents + number).await;
    }
    let added = meter.stop(ADDED as u32);
    let meter = Meter::start(pid);
    // The time is what is measured: there is nothing to wait for.
    tokio::time::sleep(IDLE).await;
    let idle = meter.stop(1);
    site.cluster.stop_after(site.daemon);
    vec![added, idle]
}

/// Waits until every server and agent is a ready node, at most as long as a row may take. The pauses keep
/// the requests a small part of the cost.
async fn wait_until_ready(api: &Api, agents: usize) {
    loop {
        let ready = api.send(reqwest::Method::GET, "/status/orch").await;
        if ready.is_ok_and(|ready| ready.1 == "ok") {
            let seen = api.get("/explain").await.expect("an answer");
            if task_ids(&seen, "agent").len() == agents {
                return;
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
