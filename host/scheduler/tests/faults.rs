//! Injects the faults of clusters, one after the other, while a scheduler keeps six tasks running.
//! After each fault, every wanted task runs exactly once, nothing else runs, and the scheduler's
//! records agree. Which processes ran is read from the agents' journals.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use support::{Cluster, Subject, cluster_config, fault, kill_process, wait_until};
use transom_cluster::Credentials;
use transom_minicluster::Registry;
use transom_scheduler::SchedulerApi;
use transom_store::Store;

async fn store(dir: &tempfile::TempDir) -> Arc<dyn Store> {
    transom_store::open(&format!("file:{}", dir.path().display()))
        .await
        .unwrap()
}

/// A cluster with a standby master and a scheduler that runs six tasks on it.
async fn cluster_with_six_tasks(
    change: impl FnOnce(&mut transom_minicluster::Config),
) -> (Cluster, Subject, tempfile::TempDir) {
    let cluster = Cluster::start(|config| {
        config.standby = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        change(config);
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let masters = [
        cluster.minicluster.master(),
        cluster.minicluster.standby().unwrap(),
    ];
    let mut subject = Subject::start(cluster_config(&masters), store(&dir).await).await;
    for _ in 0..6 {
        subject.job.add();
    }
    subject.job.run_until_settled("at first", &cluster).await;
    (cluster, subject, dir)
}

/// The effect of a fault, after which every task again runs once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FaultEffect {
    /// The same processes keep running.
    Unchanged,
    /// Some tasks were replaced.
    Replaced,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_task_runs_once_despite_agent_stream_and_update_faults() {
    let (cluster, mut subject, _dir) = cluster_with_six_tasks(|_| ()).await;
    // The busiest agent is determined when the fault is injected, because tasks move.
    let agent = |name: &str| fault(name, json!({"agent": "the busiest"}));
    let shortly = Duration::from_millis(200);
    // Longer than the master waits for an agent that does not answer.
    let long = Duration::from_millis(1_500);
    let nothing = Value::Null;
    let cases: [(Value, Duration, Value, FaultEffect); 10] = [
        (
            fault("cut-stream", json!({"framework": "keeper"})),
            shortly,
            nothing.clone(),
            FaultEffect::Unchanged,
        ),
        (
            fault("rescind-offers", json!({})),
            shortly,
            nothing.clone(),
            FaultEffect::Unchanged,
        ),
        (
            fault("delay", json!({"ms": 150})),
            long,
            fault("delay", json!({"ms": 0})),
            FaultEffect::Unchanged,
        ),
        (
            agent("pause-agent"),
            shortly,
            agent("resume-agent"),
            FaultEffect::Unchanged,
        ),
        (
            agent("partition-agent"),
            shortly,
            agent("heal-agent"),
            FaultEffect::Unchanged,
        ),
        (
            agent("partition-agent"),
            long,
            agent("heal-agent"),
            FaultEffect::Replaced,
        ),
        (
            agent("pause-agent"),
            long,
            agent("resume-agent"),
            FaultEffect::Replaced,
        ),
        (
            fault("kill-agent", json!({"agent": "the busiest", "keep_tasks": true})),
            shortly,
            agent("start-agent"),
            FaultEffect::Unchanged,
        ),
        (
            agent("kill-agent"),
            long,
            agent("start-agent"),
            FaultEffect::Replaced,
        ),
        (
            fault("remove-framework", json!({"framework": "keeper"})),
            shortly,
            nothing.clone(),
            FaultEffect::Replaced,
        ),
    ];
    for (mut begin, time, mut end, effect) in cases {
        let busiest = cluster.busiest_agent().await;
        for fault in [&mut begin, &mut end] {
            if fault["agent"] == "the busiest" {
                fault["agent"] = json!(busiest);
            }
        }
        let before = cluster.running_processes();
        println!("{begin} for {time:?}");
        cluster.fault(&begin).await;
        subject.job.handle_events(time).await;
        if !end.is_null() {
            cluster.fault(&end).await;
        }
        subject.job.run_until_settled(&begin.to_string(), &cluster).await;
        let after = cluster.running_processes();
        match effect {
            FaultEffect::Unchanged => assert_eq!(after, before, "{begin}"),
            FaultEffect::Replaced => assert_ne!(after, before, "{begin}"),
        }
    }
    assert_eq!(
        subject.metric("transom_scheduler_framework_registrations_total") as u32,
        2
    );
    subject.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_whose_final_update_was_lost_are_replaced() {
    let (cluster, mut subject, _dir) = cluster_with_six_tasks(|_| ()).await;
    cluster.fault(&fault("lose-updates", json!({"count": 3}))).await;
    for process in cluster.running_processes().iter().take(3) {
        kill_process(process);
    }
    subject.job.run_until_settled("three ends", &cluster).await;
    assert_eq!(cluster.launches().len(), 9);
    assert_eq!(
        subject
            .job
            .expected_tasks()
            .iter()
            .filter(|task| task.ends_with(".1"))
            .count(),
        3
    );
    subject.stop().await;
    cluster.stop().await;
}

/// The agents register later than the scheduler subscribes. Until then the master knows no task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_or_replaced_masters_cost_no_task() {
    let (cluster, mut subject, _dir) =
        cluster_with_six_tasks(|config| config.reregister = Duration::from_millis(1_500)).await;
    let before = cluster.launches();
    for (name, registry, down, recovery) in [
        ("restart-master", "in_memory", 0, 0),
        ("fail-over", "in_memory", 300, 300),
        ("fail-over", "replicated_log", 300, 0),
        ("restart-master", "replicated_log", 0, 500),
    ] {
        let parameters = json!({"registry": registry, "down_ms": down, "recovery_ms": recovery});
        let subscriptions = subject.metric("transom_scheduler_subscriptions_total");
        cluster.fault(&fault(name, parameters)).await;
        wait_until("another subscription", async || {
            let now = subject.metric("transom_scheduler_subscriptions_total");
            (now > subscriptions).then_some(()).ok_or(now.to_string())
        })
        .await;
        // The reconciliations that follow are answered within this time, before and after the
        // agents have returned.
        subject.job.handle_events(Duration::from_secs(6)).await;
        subject.job.run_until_settled(name, &cluster).await;
        assert_eq!(
            cluster.launches(),
            before,
            "{name} with {registry}: tasks were launched again"
        );
    }
    assert_eq!(
        subject.metric("transom_scheduler_framework_registrations_total") as u32,
        1
    );
    subject.stop().await;
    cluster.stop().await;
}

/// If an agent is disconnected while a master without a registry restarts, the master forgets the
/// agent, and its tasks are replaced. When the agent returns, the master sends the framework no
/// event. Only reconciliation reveals the surplus tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_a_returning_agent_are_killed_when_replaced() {
    let (cluster, mut subject, _dir) =
        cluster_with_six_tasks(|config| config.registry = Registry::InMemory).await;
    let before = cluster.running_processes();
    cluster
        .fault(&fault("partition-agent", json!({"agent": "S0"})))
        .await;
    cluster.fault(&fault("restart-master", json!({}))).await;
    let mut replaced = 0;
    wait_until("replacements", async || {
        subject.job.handle_events(Duration::from_millis(100)).await;
        replaced = cluster.launches().len() - before.len();
        (replaced > 0).then_some(()).ok_or("none".to_owned())
    })
    .await;
    subject.job.handle_events(Duration::from_millis(500)).await;
    assert!(
        cluster.running_processes().len() > 6,
        "the tasks on the disconnected agent run too"
    );
    cluster.fault(&fault("heal-agent", json!({"agent": "S0"}))).await;
    subject.job.run_until_settled("the agent is back", &cluster).await;
    subject.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn framework_subscribes_only_with_valid_credentials() {
    let cluster = Cluster::start(|config| {
        config.credentials = vec![
            ("keeper".to_owned(), "right".to_owned()),
            ("other".to_owned(), "also".to_owned()),
        ];
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let with = |credentials: Option<(&str, &str)>, principal: Option<&str>| transom_cluster::Config {
        principal: principal.map(str::to_owned),
        credentials: credentials.map(|(username, password)| Credentials {
            username: username.to_owned(),
            password: password.into(),
        }),
        ..cluster_config(&[cluster.minicluster.master()])
    };
    for (credentials, principal) in [
        (None, None),
        (Some(("keeper", "wrong")), None),
        // These credentials are valid, but for another principal than the framework's.
        (Some(("other", "also")), Some("keeper")),
    ] {
        let subject = Subject::start(with(credentials, principal), store(&dir).await).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert!(
            !subject.scheduler.subscription().connected,
            "{credentials:?} {principal:?}"
        );
        subject.stop().await;
    }
    let mut subject =
        Subject::start(with(Some(("keeper", "right")), Some("keeper")), store(&dir).await).await;
    subject.job.add();
    subject.job.run_until_settled("let in", &cluster).await;
    subject.stop().await;
    cluster.stop().await;
}
