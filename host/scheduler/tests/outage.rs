//! The store fails while the scheduler runs: a real Redis is killed or frozen. During the outage
//! nothing is launched or acknowledged, snapshots show the last known states, and afterwards all
//! work continues.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use std::time::Duration;

use serde_json::Value;
use support::{Cluster, Subject, cluster_config, kill_process, wait_until};
use transom_cluster::TaskId;
use transom_cluster::v1::TaskState;
use transom_scheduler::{Reason, SchedulerApi};
use transom_testkit::redis::{PASSWORD, RedisServer};

async fn store(server: &RedisServer) -> std::sync::Arc<dyn transom_store::Store> {
    let config = transom_store::Config {
        password: Some(PASSWORD.into()),
        call_timeout: Duration::from_secs(1),
        connect_timeout: Duration::from_secs(1),
        ..transom_store::Config::new(server.address().to_string())
    };
    let store = config.open().await.unwrap();
    wait_until("the store", async || {
        let response = store.get("any").await;
        response.map(drop).map_err(|error| error.to_string())
    })
    .await;
    store
}

/// Ids of the tasks that the master keeps because their last update is not acknowledged, and of the
/// completed tasks.
fn current_and_completed_tasks(state: &Value) -> (Vec<&str>, Vec<&str>) {
    let ids = |list: &'static str| {
        let tasks = state["frameworks"][0][list].as_array().unwrap().iter();
        tasks.map(|task| task["id"].as_str().unwrap()).collect()
    };
    (ids("tasks"), ids("completed_tasks"))
}

#[derive(Clone, Copy, Debug)]
enum Outage {
    Killed,
    Frozen,
}

async fn survives(outage: Outage) {
    let mut redis = RedisServer::durable().with_password().started();
    let cluster = Cluster::start(|_| ()).await;
    let store = store(&redis).await;
    let mut subject = Subject::start(cluster_config(&[cluster.minicluster.master()]), store).await;
    for _ in 0..2 {
        subject.job.add();
    }
    subject.job.run_until_settled("before the outage", &cluster).await;
    let before = cluster.launches();

    match outage {
        Outage::Killed => redis.stop(),
        Outage::Frozen => redis.freeze(),
    }
    // One task ends, and one more is submitted.
    kill_process(before.first().unwrap());
    subject.job.add();
    wait_until("the end of the task to be the master's", async || {
        let state = cluster.state().await;
        let task = &state["frameworks"][0]["tasks"][0];
        (task["state"] == "TASK_FAILED")
            .then_some(())
            .ok_or(task.to_string())
    })
    .await;
    wait_until("the reason why the other one waits", async || {
        let waiting = subject.scheduler.pending().to_vec();
        let is_reported = waiting
            .iter()
            .any(|waiting| waiting.reasons.last.contains_key(&Reason::StoreUnavailable));
        is_reported.then_some(()).ok_or(format!("{waiting:?}"))
    })
    .await;
    // Several more updates and offers arrive.
    subject.job.handle_events(Duration::from_secs(2)).await;
    assert_eq!(cluster.launches(), before, "launched without the store");
    let state = cluster.state().await;
    let (current, completed) = current_and_completed_tasks(&state);
    assert!(
        current.contains(&"0.0") && completed.is_empty(),
        "acknowledged without the store: {state}"
    );
    let last_known = subject.scheduler.tasks()[&TaskId::from("0.0")].state.clone();
    assert_eq!(
        last_known,
        TaskState::Running,
        "snapshots show the last known state"
    );
    assert!(subject.scheduler.subscription().connected);

    match outage {
        Outage::Killed => redis.start(),
        Outage::Frozen => redis.thaw(),
    }
    subject.job.run_until_settled("after the outage", &cluster).await;
    assert_eq!(
        subject.job.expected_tasks().into_iter().collect::<Vec<_>>(),
        ["0.1", "1.0", "2.0"]
    );
    wait_until("the acknowledgement", async || {
        let state = cluster.state().await;
        let (current, completed) = current_and_completed_tasks(&state);
        let acknowledged = completed == ["0.0"] && !current.contains(&"0.0");
        acknowledged.then_some(()).ok_or(state.to_string())
    })
    .await;
    assert_eq!(cluster.launches().len(), 4, "each task was launched once");
    subject.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn launches_and_acknowledgements_pause_while_the_store_is_down() {
    survives(Outage::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn launches_and_acknowledgements_pause_while_the_store_hangs() {
    survives(Outage::Frozen).await;
}
