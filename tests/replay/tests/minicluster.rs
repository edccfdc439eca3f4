//! The minicluster's answers match the recordings.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

use std::{net::SocketAddr, path::Path};
use tokio_util::sync::CancellationToken;
use transom_minicluster::Config;

/// Replays the recordings against a minicluster with this number of agents; returns the failures.
async fn replay_against(agents: usize) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::three_agents(dir.path());
    config.agents.truncate(agents);
    // A real master has it on.
    config.jsonp = true;
    let token = CancellationToken::new();
    let cluster = config.start(token.clone()).await.unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cluster");
    let outcomes = transom_replay::replay(cluster.master(), &fixtures).await.unwrap();
    token.cancel();
    cluster.stopped().await;
    let failures: Vec<String> = outcomes
        .iter()
        .filter(|outcome| !outcome.differences.is_empty())
        .map(|outcome| {
            let differences = outcome.differences.join("\n    ");
            format!("{} ({}):\n    {differences}", outcome.recording, outcome.step)
        })
        .collect();
    assert!(
        outcomes.len() > 200,
        "only {} comparisons were made",
        outcomes.len()
    );
    failures
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn minicluster_answers_as_recorded() {
    // The recordings have one agent.
    let failures = replay_against(1).await;
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn minicluster_with_three_agents_answers_as_recorded() {
    let failures = replay_against(3).await;
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test]
async fn unreachable_master_is_an_error() {
    // Nothing listens on a port that was closed a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr: SocketAddr = listener.local_addr().unwrap();
    drop(listener);
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/cluster");
    assert!(transom_replay::replay(addr, &fixtures).await.is_err());
}
