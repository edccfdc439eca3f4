//! Two servers, each with a real control plane, on one etcd outside of the framework. They are
//! moved one by one, while clients with the served configuration continue to read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transom_testkit::{eventually, free_ports};
use transom_tests::http;
use transom_tests::kubernetes::{Api, Tasks, task_ids};
use transom_tests::site::Site;

use super::kvstore::{agent_on, drain};
use super::real::{create, kubectl, programs};

const NAME: &str = "written-before";
const VALUE: &str = "kept";

/// A datastore that the operator runs. It ends when the handle is dropped.
async fn etcd(folder: &Path) -> (Child, String) {
    let port = free_ports(2);
    let address = format!("127.0.0.1:{port}");
    let url = format!("http://{address}");
    let child = Command::new("etcd")
        .arg("--data-dir")
        .arg(folder.join("etcd"))
        .args(["--unsafe-no-fsync", "--listen-client-urls", &url])
        .args(["--advertise-client-urls", &url])
        .args(["--listen-peer-urls", &format!("http://127.0.0.1:{}", port + 1)])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("etcd, of Debian's package etcd-server");
    eventually("etcd to listen", || async {
        let connected = TcpStream::connect(&address).await;
        connected.map(drop).map_err(|error| error.to_string())
    })
    .await;
    (child, url)
}

/// Stores the served client configuration in the file; returns the server address that it contains.
async fn save_client_config(http: &reqwest::Client, url: &str, file: &Path) -> Result<String, String> {
    let answer = http.get(url).send().await.map_err(|error| error.to_string())?;
    let status = answer.status();
    let text = answer.text().await.map_err(|error| error.to_string())?;
    if !status.is_success() {
        return Err(format!("{status} {text}"));
    }
    std::fs::write(file, text).expect("written");
    let path = "--output=jsonpath={.clusters[0].cluster.server}";
    kubectl(file, &["config", "view", path])
}

/// Reads the `ConfigMap` repeatedly, each time with the client configuration that is currently
/// served.
struct Reader {
    end: CancellationToken,
    task: JoinHandle<Reads>,
}

/// The results of all reads.
#[derive(Debug, Default)]
struct Reads {
    /// Number of successful reads, by address.
    succeeded: BTreeMap<String, usize>,
    /// Number of reads that failed while the served configuration changed to another server.
    failed_during_change: usize,
    /// The errors of the other reads, by address.
    failed: BTreeMap<String, Vec<String>>,
    /// Responses of the daemon that showed no running server or no configuration.
    missing_server_or_config: Vec<String>,
}

impl Reader {
    fn start(site: &Site, file: PathBuf) -> Reader {
        let end = CancellationToken::new();
        let (ended, config, http) = (end.clone(), site.kubernetes("/server/config"), http());
        let api = Api::new(site.kubernetes(""));
        let task = tokio::spawn(async move {
            let mut reads = Reads::default();
            while !ended.is_cancelled() {
                let seen = api.get("/explain").await.unwrap_or_else(Value::String);
                if running_servers(&seen).is_empty() {
                    reads.missing_server_or_config.push(seen.to_string());
                }
                let address = match save_client_config(&http, &config, &file).await {
                    Ok(address) => address,
                    Err(error) => {
                        reads.missing_server_or_config.push(error);
                        continue;
                    }
                };
                let path = "--output=jsonpath={.data.key}";
                match kubectl(&file, &["get", "configmap", NAME, path]).as_deref() {
                    Ok(VALUE) => *reads.succeeded.entry(address).or_default() += 1,
                    other => {
                        let error = format!("{other:?}");
                        // The server may have ended after its configuration was served.
                        if save_client_config(&http, &config, &file).await == Ok(address.clone()) {
                            reads.failed.entry(address).or_default().push(error);
                        } else {
                            reads.failed_during_change += 1;
                        }
                    }
                }
            }
            reads
        });
        Reader { end, task }
    }

    /// Stops reading. Only reads of the address `lost` may have failed, and reads of the address
    /// `present` must have succeeded.
    async fn stop(self, lost: Option<&str>, present: &str) {
        self.end.cancel();
        let reads = self.task.await.expect("no panic");
        println!(
            "reads that succeeded: {:?}, failed: {:?}",
            reads.succeeded, reads.failed
        );
        assert!(
            reads.missing_server_or_config.is_empty(),
            "{:?}",
            reads.missing_server_or_config
        );
        let failed = reads.failed.keys().find(|address| Some(address.as_str()) != lost);
        assert_eq!(failed, None, "{:?}", reads.failed);
        assert!(reads.succeeded.contains_key(present), "{present}: {reads:?}");
    }
}

/// A server as `explain` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Server {
    host: String,
    /// `https://host:port`
    address: String,
}

/// The running servers by task id.
fn running_servers(seen: &Value) -> BTreeMap<String, Server> {
    let servers = seen["tasks"]["server"].as_array().into_iter().flatten();
    let running = servers.filter(|task| task["state"] == "TASK_RUNNING");
    running
        .map(|task| {
            let host = task["host"].as_str().expect("a host").to_owned();
            let address = format!("https://{host}:{}", task["ports"][0]);
            (
                task["id"].as_str().expect("an id").to_owned(),
                Server { host, address },
            )
        })
        .collect()
}

/// Waits for two servers with ready nodes, none of which is in `former`; returns them and the task
/// whose client configuration is served.
async fn wait_for_two_servers(
    site: &Site,
    file: &Path,
    former: &[String],
) -> (BTreeMap<String, Server>, String) {
    let api = Api::new(site.kubernetes(""));
    let (http, config) = (http(), site.kubernetes("/server/config"));
    eventually("two servers, and the configuration of one of them", || async {
        let seen = api.wait_until_settled(0).await;
        let servers = running_servers(&seen);
        let address = save_client_config(&http, &config, file).await?;
        let current = servers.iter().find(|(_, server)| server.address == address);
        let fresh = former.iter().all(|task| !servers.contains_key(task));
        match current {
            Some((task, _)) if servers.len() == 2 && fresh => Ok((servers.clone(), task.clone())),
            _ => Err(format!("{address} {former:?} {seen}")),
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn two_servers_move_one_by_one_and_clients_continue_to_read() {
    let Some(programs) = programs("kubernetes_servers") else {
        return;
    };
    let tasks = Tasks::with_control_plane(&programs);
    let (_etcd, url) = etcd(tasks.folder()).await;
    // The node timeout is short enough to replace a lost server before the test's wait ends, and
    // long enough for a server that starts slowly.
    let section = tasks.section(0);
    let section = section.replace("orch_node_timeout = \"30s\"", "orch_node_timeout = \"25s\"");
    let site = Site::start_on(
        &["--agents", "5", "--agent-timeout", "2"],
        &format!("{section}ds_count = 0\nds_endpoint = \"{url}\"\norch_server_count = 2\n"),
    )
    .await;
    let file = tasks.folder().join("kubeconfig");
    let (first, current) = wait_for_two_servers(&site, &file, &[]).await;
    let hosts: BTreeSet<&str> = first.values().map(|server| &*server.host).collect();
    assert_eq!(hosts.len(), 2, "on different agents: {first:?}");
    create(
        &file,
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": {"key": VALUE}}),
    );
    let reader_file = tasks.folder().join("reader");

    // An operator drains the agent of the server that clients use.
    let lost = &first[&current];
    let reader = Reader::start(&site, reader_file.clone());
    drain(&site, &lost.host).await;
    let (second, next) = wait_for_two_servers(&site, &file, std::slice::from_ref(&current)).await;
    assert!(
        second.values().all(|server| server.host != lost.host),
        "{second:?}"
    );
    let stayed = first.iter().find(|(task, _)| **task != current).expect("another");
    assert_eq!(second.get(stayed.0), Some(stayed.1), "the other server stays");
    reader.stop(Some(&lost.address), &second[&next].address).await;

    // The agent of the other server is lost.
    let lost = &second[&next];
    let reader = Reader::start(&site, reader_file.clone());
    let agent = agent_on(&site, &lost.host).await;
    site.fault(&json!({"fault": "kill-agent", "agent": agent})).await;
    let (third, present) = wait_for_two_servers(&site, &file, std::slice::from_ref(&next)).await;
    assert!(third.values().all(|server| server.host != lost.host), "{third:?}");
    reader.stop(Some(&lost.address), &third[&present].address).await;

    // Both servers are replaced: clients receive the configuration of another server before theirs
    // ends.
    let reader = Reader::start(&site, reader_file);
    Api::new(site.kubernetes("")).put("/server/restart").await;
    let former: Vec<String> = third.keys().cloned().collect();
    let (fourth, present) = wait_for_two_servers(&site, &file, &former).await;
    reader.stop(None, &fourth[&present].address).await;
    let seen = site.get(&site.kubernetes("/explain")).await.expect("an answer");
    assert_eq!(task_ids(&seen, "server").len(), 2, "{seen}");
    let launches = site.cluster.launches();
    assert!(launches.values().all(|times| *times == 1), "{launches:?}");
    // Two, two that moved, and two replacements; on a slow machine a server may need a second attempt.
    assert!(launches.len() >= 6, "{launches:?}");
    site.cluster.stop_after(site.daemon);
}
