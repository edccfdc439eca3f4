//! A site whose store contains records of every kind: one daemon writes them, and the next one, of another
//! version or on a copy of the store, reads them.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use transom_testkit::eventually;

use crate::http;
use crate::plugin::Plugin;
use crate::process::{Transom, user};
use crate::site::{Cluster, addresses, copy_components};

/// The folder of the data that a minor version stored.
pub fn fixtures(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/upgrade")
        .join(version)
}

/// A daemon with every service on an existing store, and a new cluster, which knows no tasks of an
/// earlier one.
pub struct StoredSite {
    pub dir: TempDir,
    cluster: Option<Cluster>,
    daemon: Option<Transom>,
    addresses: BTreeMap<String, SocketAddr>,
}

impl StoredSite {
    /// Starts a cluster, with a directory that contains the components; no daemon yet.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        copy_components(&dir.path().join("plugins"));
        fs::write(dir.path().join("bootstrap.sh"), "#!/bin/sh\nexec sleep 1000000\n").expect("written");
        Self {
            cluster: Some(Cluster::start(dir.path())),
            daemon: None,
            addresses: BTreeMap::new(),
            dir,
        }
    }

    /// The directory of the embedded store.
    pub fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn configuration(&self, store: &str) -> String {
        let master = self.cluster.as_ref().expect("a cluster").master;
        let user = user();
        let script = self.dir.path().join("bootstrap.sh");
        format!(
            "[log]\nformat = \"json\"\n[cluster]\nmaster = \"{master}\"\n\
             [store]\nserver = \"{store}\"\nlease_seconds = 2\n[plugins]\ndir = \"plugins\"\n\
             [admin]\nport = 0\n[apps]\nport = 0\n\
             [workflow]\nport = 0\ncontainers = false\n\
             [kubernetes]\nport = 0\ncontainers = false\nframework_user = \"{user}\"\nheartbeat_interval = \"1s\"\n\
             ds_command = \"exec sleep 1000000\"\nds_cpu = 0.1\nds_mem = 16\nds_disk = 1\norch_server_cpu = 0.1\n\
             orch_server_mem = 16\norch_server_disk = 1\nportrange_from = 1024\nportrange_to = 65535\n\
             orch_agent_count = 0\nbootstrap_url = \"file://{}\"\n",
            script.display()
        )
    }

    /// Starts the daemon and waits until it has logged its addresses.
    pub fn start(&mut self, store: &str) {
        let mut daemon = self.spawn_daemon(store);
        self.addresses = addresses(&mut daemon);
        self.daemon = Some(daemon);
    }

    fn spawn_daemon(&self, store: &str) -> Transom {
        fs::write(self.dir.path().join("transom.toml"), self.configuration(store)).expect("written");
        Transom::start(self.dir.path(), ["serve", "--config", "transom.toml"])
    }

    /// Starts the daemon, waits for a log line with this text, and stops the daemon unless it has
    /// ended. Returns the line.
    pub async fn start_until_line(&self, store: &str, text: &str) -> String {
        let daemon = self.spawn_daemon(store);
        let line = eventually(text, || async {
            let output = daemon.output();
            let line = output.lines().find(|line| line.contains(text));
            line.map(str::to_owned).ok_or(output)
        })
        .await;
        daemon.terminate();
        line
    }

    /// Stops the daemon; the cluster and its tasks keep running.
    pub fn stop_daemon(&mut self) {
        let (status, output) = self.daemon.take().expect("a daemon").interrupt();
        assert!(status.success(), "the daemon ended with {status}:\n{output}");
    }

    /// The number of launches of each task id.
    pub fn launches(&self) -> BTreeMap<String, usize> {
        self.cluster.as_ref().expect("a cluster").launches()
    }

    /// Stops the daemon, then the cluster.
    pub fn stop(mut self) -> TempDir {
        let cluster = self.cluster.take().expect("a cluster");
        cluster.stop_after(self.daemon.take());
        self.dir
    }

    fn url(&self, port: &str, path: &str) -> String {
        format!("http://{}{path}", self.addresses[port])
    }

    /// Sends a GET request and parses the response as JSON.
    pub async fn get(&self, port: &str, path: &str) -> Result<Value, String> {
        let answer = http().get(self.url(port, path)).send().await;
        let answer = answer.map_err(|error| error.to_string())?;
        let status = answer.status();
        let text = answer.text().await.map_err(|error| error.to_string())?;
        if !status.is_success() {
            return Err(format!("{status} {text}"));
        }
        serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))
    }

    async fn post(&self, port: &str, path: &str, body: &Value) {
        eventually(&format!("POST {path} to be accepted"), || async {
            let answer = http().post(self.url(port, path)).json(body).send().await;
            let answer = answer.map_err(|error| error.to_string())?;
            if answer.status().is_success() {
                return Ok(());
            }
            Err(answer.text().await.unwrap_or_default())
        })
        .await;
    }

    /// Creates records of every kind.
    pub async fn create_records(&self) {
        let sleep = "exec sleep 1000000";
        let app = json!({"id": "/site/web", "cmd": sleep, "cpus": 0.1, "mem": 32, "instances": 2, "env": {"KEPT": "yes"}});
        self.post("apps", "/v2/apps", &app).await;
        let pod = json!({
            "id": "/site/pair",
            "containers": [
                {"name": "a", "exec": {"command": {"shell": sleep}}, "resources": {"cpus": 0.1, "mem": 32}},
                {"name": "b", "exec": {"command": {"shell": sleep}}, "resources": {"cpus": 0.1, "mem": 32}},
            ],
            "scaling": {"kind": "fixed", "instances": 1},
        });
        self.post("apps", "/v2/pods", &pod).await;
        // The deployment never finishes: no agent has so many CPUs.
        let large = json!({"id": "/large", "cmd": sleep, "cpus": 1000, "mem": 32});
        self.post("apps", "/v2/apps", &large).await;
        let job = json!({"airflow_task_id": "kept", "command": ["/bin/sh", "-c", sleep], "image": "x"});
        self.post("workflow", "/v0/queue_command", &job).await;
        Plugin::first_party("events")
            .stamped(1)
            .install(&self.dir.path().join("plugins"), "events");
        self.post("admin", "/v1/plugins/rescan", &Value::Null).await;
        self.wait_until_served().await;
    }

    /// Waits until everything that [`create_records`](Self::create_records) created is running.
    pub async fn wait_until_served(&self) {
        eventually("two instances of the app", || async {
            let app = self.get("apps", "/v2/apps/site/web").await?;
            let app = &app["app"];
            let is_kept = app["env"]["KEPT"] == "yes" && app["tasksRunning"] == 2;
            if is_kept { Ok(()) } else { Err(app.to_string()) }
        })
        .await;
        eventually("the pod to be stable", || async {
            let status = self.get("apps", "/v2/pods/site/pair::status").await?;
            if status["status"] == "STABLE" {
                Ok(())
            } else {
                Err(status.to_string())
            }
        })
        .await;
        let job = self.get("workflow", "/v0/task/kept").await.expect("the job");
        assert_eq!(job["status"]["task_id"]["value"], "kept", "{job}");
        let deployments = self.get("apps", "/v2/deployments").await.expect("deployments");
        assert_eq!(deployments[0]["affectedApps"], json!(["/large"]), "{deployments}");
        eventually("the members of the Kubernetes instance", || async {
            for kind in ["kvstore", "server"] {
                let scale = self
                    .get("kubernetes", &format!("/api/fw/v0/{kind}/scale"))
                    .await?;
                if scale["Running"] != 1 {
                    let explain = self.get("kubernetes", "/api/fw/v0/explain").await?;
                    return Err(format!("{scale} {explain}"));
                }
            }
            Ok(())
        })
        .await;
    }

    /// The outcomes in the history of a plugin, newest first.
    pub async fn history(&self, plugin: &str) -> Vec<String> {
        let path = format!("/v1/plugins/{plugin}/history");
        let document = self.get("admin", &path).await.expect("a history");
        let records = document["records"].as_array().expect("records");
        let outcomes = records
            .iter()
            .map(|record| record["outcome"].as_str().expect("an outcome"));
        outcomes.map(str::to_owned).collect()
    }
}

impl Default for StoredSite {
    fn default() -> Self {
        Self::new()
    }
}
