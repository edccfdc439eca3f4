//! Figures of apps on each kind of store, servers and daemons on one machine and one disk: a Redis
//! with `appendfsync always`, such a Redis with two replicas and Sentinels, and a ZooKeeper of three
//! servers.

use std::time::Instant;

use reqwest::Method;
use serde_json::{Value, json};
use transom_testkit::redis::{RedisServer, Sentinels};
use transom_testkit::zookeeper::Ensemble;
use transom_tests::load::cluster::Cluster;
use transom_tests::load::daemon::Daemon;
use transom_tests::load::seconds;

use crate::{APPS, INSTANCES, PORTS, measure_group_deployment, measure_latency};

/// The default of `store.lease_seconds`.
const LEASE_SECONDS: u64 = 5;

/// Measures each kind in turn. The embedded store has no standby; its figures are in the other
/// sections.
pub(crate) async fn measure() -> Value {
    let mut figures = json!({"lease_s": LEASE_SECONDS});
    {
        let redis = RedisServer::durable().started();
        figures["redis"] = measure_on(&format!("server = \"{}\"\n", redis.address())).await;
    }
    {
        let group = Sentinels::start().await;
        let section = format!(
            "server = \"{}\"\npassword = \"{}\"\nsentinel_password = \"{}\"\n",
            group.address(),
            Sentinels::PASSWORD,
            Sentinels::SENTINEL_PASSWORD,
        );
        figures["redis_sentinel"] = measure_on(&section).await;
    }
    let ensemble = Ensemble::start().await;
    let section = format!(
        "server = \"zk://{}/bench\"\nuser = \"bench\"\npassword = \"bench\"\n",
        ensemble.direct_address(),
    );
    figures["zookeeper"] = measure_on(&section).await;
    figures
}

/// Measures a daemon with these settings of its store, and the failover to a standby after the leader
/// is killed.
async fn measure_on(store: &str) -> Value {
    let store = format!("{store}lease_seconds = {LEASE_SECONDS}\n");
    let cluster = Cluster::start(PORTS).await;
    let mut leader = Daemon::start_with(cluster.address, &store).await;
    eprintln!("apps on {store}");
    let latency = measure_latency(&leader).await;
    let put = measure_group_deployment(&leader, APPS, 0).await;
    let other = Daemon::start_with(cluster.address, &store).await;
    let tasks = APPS * INSTANCES;
    let scaling = measure_group_deployment(&leader, APPS, INSTANCES).await;
    cluster.wait_until_running(tasks).await;
    leader.wait_until_deployed().await;
    eprintln!("failover to a standby with {tasks} tasks");
    leader.kill();
    let begun = Instant::now();
    // The standby answers reads all the time; the time until it accepts changes is measured.
    other
        .wait_until("the standby to lead", async || other.is_leader().await)
        .await;
    let leads = begun.elapsed();
    let change = json!({"labels": {"new": "leader"}});
    other.change(Method::PUT, "/v2/apps/load/app0", &change).await;
    let changed = begun.elapsed();
    other.stop();
    json!({
        "post_to_running_ms": latency,
        "group_put": put,
        "group_scaling": scaling,
        "failover": {"tasks": tasks, "leads_s": seconds(leads), "first_change_s": seconds(changed)},
    })
}
