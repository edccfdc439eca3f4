//! The Kubernetes framework with two daemons on one Redis: a leader that is paused past its lease,
//! and a store that is down.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use reqwest::Method;
use serde_json::Value;
use transom_testkit::eventually;
use transom_testkit::redis::RedisServer;
use transom_tests::http;
use transom_tests::kubernetes::{Api, Tasks, all_task_ids, task_ids};
use transom_tests::process::Transom;
use transom_tests::site::{Cluster, addresses, copy_components};

/// In seconds.
const LEASE: u64 = 2;

struct Daemon {
    process: Transom,
    addresses: BTreeMap<String, SocketAddr>,
    api: Api,
}

impl Daemon {
    fn start(dir: &Path, name: &str, master: SocketAddr, store: SocketAddr, section: &str) -> Daemon {
        let file = format!("{name}.toml");
        let configuration = format!(
            "[log]\nformat = \"json\"\n[cluster]\nmaster = \"{master}\"\n\
             [store]\nserver = \"{store}\"\nlease_seconds = {LEASE}\n\
             [plugins]\ndir = \"plugins\"\n[admin]\nport = 0\n{section}"
        );
        fs::write(dir.join(&file), configuration).expect("written");
        let mut process = Transom::start(dir, ["serve", "--config", file.as_str()]);
        let addresses = addresses(&mut process);
        let api = Api::new(format!("http://{}/api/fw/v0", addresses["kubernetes"]));
        Daemon {
            process,
            addresses,
            api,
        }
    }

    /// Waits until the daemon is ready and leads, or is ready and stands by.
    async fn wait_until_leading(&self, leading: bool) {
        let ready = format!("http://{}/ready", self.addresses["admin"]);
        let http = http();
        eventually(&format!("a daemon that is ready, leading: {leading}"), || async {
            let answer = http.get(&ready).send().await.map_err(|error| error.to_string())?;
            let seen: Value = answer.json().await.map_err(|error| error.to_string())?;
            if seen["ready"] == true && seen["services"]["kubernetes"]["framework"]["leading"] == leading {
                Ok(())
            } else {
                Err(seen.to_string())
            }
        })
        .await;
    }
}

/// The id of the only framework that the master knows.
async fn framework(cluster: &Cluster) -> String {
    let state = http()
        .get(format!("http://{}/state", cluster.master))
        .send()
        .await;
    let state: Value = state.expect("an answer").json().await.expect("JSON");
    let frameworks = state["frameworks"].as_array().expect("frameworks");
    let completed = state["completed_frameworks"].as_array().expect("frameworks");
    assert_eq!((frameworks.len(), completed.len()), (1, 0), "{frameworks:?}");
    frameworks[0]["id"].as_str().expect("an id").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standby_takes_over_from_a_paused_leader_and_nothing_starts_while_the_store_is_down() {
    let (tasks, dir) = (
        Tasks::with_nodes_only(),
        tempfile::tempdir().expect("a directory"),
    );
    copy_components(&dir.path().join("plugins"));
    let cluster = Cluster::start(dir.path());
    let mut redis = RedisServer::durable().started();
    let start = |name| {
        Daemon::start(
            dir.path(),
            name,
            cluster.master,
            redis.address(),
            &tasks.section(1),
        )
    };
    let first = start("first");
    first.wait_until_leading(true).await;
    let second = start("second");
    second.wait_until_leading(false).await;

    // The standby forwards requests.
    second.api.put("/agent/scale/2").await;
    let before = first.api.wait_until_settled(2).await;
    assert_eq!(second.api.get("/explain").await.expect("an answer"), before);
    let id = framework(&cluster).await;

    first.process.pause();
    second.wait_until_leading(true).await;
    second.api.put("/agent/scale/3").await;
    first.process.resume();
    first.wait_until_leading(false).await;
    first.api.put("/agent/scale/4").await;
    let after = second.api.wait_until_settled(4).await;
    for kind in ["datastore", "server"] {
        assert_eq!(task_ids(&after, kind), task_ids(&before, kind));
    }
    let kept = task_ids(&after, "agent");
    assert!(
        task_ids(&before, "agent").iter().all(|task| kept.contains(task)),
        "{after}"
    );
    let launched = || {
        let launches = cluster.launches();
        assert!(launches.values().all(|times| *times == 1), "{launches:?}");
        launches.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(
        launched(),
        all_task_ids(&after),
        "no other task was ever launched"
    );
    assert_eq!(framework(&cluster).await, id);

    redis.stop();
    eventually("a rejection by both daemons", || async {
        for daemon in [&first, &second] {
            let answer = daemon.api.send(Method::PUT, "/agent/scale/6").await?;
            if answer.0 != 503 {
                return Err(format!("{answer:?}"));
            }
        }
        Ok(())
    })
    .await;
    assert_eq!(launched(), all_task_ids(&after));
    redis.start();
    // The rejected count was not stored.
    let leader = eventually("a leader", || async {
        for daemon in [&first, &second] {
            if daemon.api.get("/agent/scale").await? == serde_json::json!({"Scale": 4, "Running": 4}) {
                return Ok(daemon);
            }
        }
        Err("no daemon shows four agents".to_owned())
    })
    .await;
    let again = leader.api.wait_until_settled(4).await;
    assert_eq!(all_task_ids(&again), all_task_ids(&after));
    eventually("an accepted request", || async {
        match leader.api.send(Method::PUT, "/agent/scale/5").await? {
            (200, _) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let more = leader.api.wait_until_settled(5).await;
    assert_eq!(launched(), all_task_ids(&more));
    assert_eq!(framework(&cluster).await, id);
    for daemon in [first, second] {
        let (status, output) = daemon.process.interrupt();
        assert!(status.success(), "{output}");
    }
    cluster.stop();
}
