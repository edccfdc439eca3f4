//! The page about several daemons: its configuration on an ensemble, and its commands.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;
use transom_testkit::eventually;
use transom_testkit::zookeeper::Ensemble;
use transom_tests::process::Transom;
use transom_tests::site::{Cluster, addresses, copy_components};

use super::{on_this_machine, shell};

const PAGE: &str = include_str!("../../../docs/operations/several-daemons.md");

fn block(language: &str, part: &str) -> &'static str {
    super::block(PAGE, language, part)
}

fn start(dir: &Path, name: &str, configuration: &str) -> (Transom, BTreeMap<String, SocketAddr>) {
    let file = format!("{name}.toml");
    fs::write(dir.join(&file), configuration).expect("written");
    let mut daemon = Transom::start(dir, ["serve", "--config", file.as_str()]);
    let addresses = addresses(&mut daemon);
    (daemon, addresses)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_daemons_share_an_ensemble_that_loses_a_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut ensemble = Ensemble::start().await;
    let cluster = Cluster::start(dir.path());
    copy_components(&dir.path().join("plugins"));
    let configuration = on_this_machine(
        block("toml", "[store]"),
        &[
            (
                "10.0.0.20:2181,10.0.0.21:2181,10.0.0.22:2181",
                &ensemble.address(),
            ),
            ("\"10.0.0.7\"", "\"127.0.0.1\""),
            ("[apps]", "[apps]\nport = 0"),
        ],
    );
    let configuration = format!(
        "{configuration}\n[log]\nformat = \"json\"\n[cluster]\nmaster = \"{}\"\n[plugins]\ndir = \"plugins\"\n[admin]\nport = 0\n",
        cluster.master
    );
    let (first, at_first) = start(dir.path(), "first", &configuration);
    let (second, at_second) = start(dir.path(), "second", &configuration);

    let doctor = on_this_machine(block("sh", "transom doctor"), &[("transom.toml", "first.toml")]);
    // It exits with an error because the daemon has its ports.
    let examined = shell(dir.path(), &format!("{{ {}; }} || true", doctor.trim()), &[]);
    assert!(examined.contains("3 ZooKeeper servers"), "{examined}");

    ensemble.kill(ensemble.leader().await).await;
    let ready = block("sh", "/ready");
    for addresses in [&at_first, &at_second] {
        let command = on_this_machine(ready, &[("127.0.0.1:9990", &addresses["admin"].to_string())]);
        eventually("both daemons know the leader", || async {
            let seen: Value =
                serde_json::from_str(&shell(dir.path(), &command, &[])).map_err(|error| error.to_string())?;
            let leader = seen["services"]["apps"]["framework"]["leader"].as_str();
            let leaders = [&at_first, &at_second].map(|addresses| addresses["apps"].to_string());
            match leader {
                Some(leader) if seen["ready"] == true && leaders.contains(&leader.to_owned()) => Ok(()),
                _ => Err(seen.to_string()),
            }
        })
        .await;
    }
    for daemon in [first, second] {
        let (status, output) = daemon.interrupt();
        assert!(status.success(), "{output}");
    }
    cluster.stop();
}
