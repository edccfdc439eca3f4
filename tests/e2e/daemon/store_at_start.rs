//! A daemon that starts before its store: it logs that, keeps trying, and starts its services when
//! the store is available.

use std::fs;
use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use transom_testkit::eventually;
use transom_testkit::redis::RedisServer;
use transom_tests::http;
use transom_tests::process::Transom;
use transom_tests::site::{Cluster, addresses, copy_components};

/// Forwards connections from one address to another. The task ends with the test's runtime.
async fn forward(from: SocketAddr, to: SocketAddr) {
    let listener = TcpListener::bind(from).await.expect("the address is free");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut server = TcpStream::connect(to).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_waits_for_its_store_and_then_starts() {
    let dir = tempfile::tempdir().unwrap();
    copy_components(&dir.path().join("plugins"));
    let cluster = Cluster::start(dir.path());
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let store = free.local_addr().unwrap();
    drop(free);
    let configuration = format!(
        "[log]\nformat = \"json\"\n[cluster]\nmaster = \"{}\"\n[store]\nserver = \"{store}\"\n\
         [plugins]\ndir = \"plugins\"\n[apps]\nport = 0\n[admin]\nport = 0\n",
        cluster.master
    );
    fs::write(dir.path().join("transom.toml"), configuration).unwrap();
    let mut daemon = Transom::start(dir.path(), ["serve", "--config", "transom.toml"]);
    // The daemon logs the store's address and retries. The interval between log lines grows; the
    // fourth attempt is logged again.
    let named = format!("cannot connect to the Redis at {store}");
    for text in ["waiting for the store", &named, "\"failures\":4"] {
        daemon.wait_for_line(text, |line| line.contains(text).then_some(()));
    }

    let redis = RedisServer::in_memory().started();
    forward(store, redis.address()).await;
    let addresses = addresses(&mut daemon);
    let http = http();
    let app = json!({"id": "/late", "cmd": "sleep 1000", "cpus": 0.1, "mem": 16});
    let apps = format!("http://{}/v2/apps", addresses["apps"]);
    eventually("the app to be taken", || async {
        let answer = http.post(&apps).json(&app).send().await;
        let status = answer.map_err(|error| error.to_string())?.status().as_u16();
        if status == 201 || status == 409 {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })
    .await;
    eventually("its task", || async {
        let answer = http.get(format!("{apps}/late/tasks")).send().await;
        let seen: Value = answer
            .map_err(|error| error.to_string())?
            .json()
            .await
            .map_err(|error| error.to_string())?;
        let running = seen["tasks"][0]["state"] == "TASK_RUNNING";
        running.then_some(()).ok_or(seen.to_string())
    })
    .await;
    assert_eq!(cluster.launches().len(), 1);
    cluster.stop_after(Some(daemon));
}
