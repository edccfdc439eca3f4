//! The Kubernetes framework with tasks that are processes: its settings, and a client of its API.
//!
//! The server task is `orchestrator`. It serves either an API that contains only nodes or a real
//! control plane; agents register their nodes there. A test can hold tasks of one kind: such a task
//! waits at its start until it is released.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Method;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;
use transom_testkit::{eventually, retry_until};

use crate::process::{orchestrator, user};

/// The timeout of a wait for ready nodes. A real control plane takes about ten seconds of processor time
/// to start, and one of two that start at once sometimes exits and is replaced.
const SETTLING_TIMEOUT: Duration = Duration::from_mins(3);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The programs and data of the tasks.
pub struct Tasks {
    folder: TempDir,
    server: &'static str,
}

impl Tasks {
    /// Tasks whose servers serve an API that contains only nodes.
    pub fn with_nodes_only() -> Tasks {
        Tasks::new("server --nodes-only", "")
    }

    /// Tasks whose servers run the control plane in the folder `programs`.
    pub fn with_control_plane(programs: &str) -> Tasks {
        Tasks::new("server", &format!("export TRANSOM_KUBERNETES='{programs}'\n"))
    }

    fn new(server: &'static str, exports: &str) -> Tasks {
        let folder = tempfile::tempdir().expect("a directory");
        let tasks = Tasks { folder, server };
        let hold_file = tasks.folder().join("hold-");
        let shared = tasks.shared();
        let shared = shared.display();
        let script = format!(
            "#!/bin/sh\n{exports}export TRANSOM_ORCHESTRATOR_SHARED='{shared}'\nwhile [ -e '{}'$K3SFRAMEWORK_TYPE ]; do sleep 0.05; done\nexec \"$@\"\n",
            hold_file.display()
        );
        fs::write(tasks.script(), script).expect("written");
        tasks
    }

    /// The folder of the tasks' files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn script(&self) -> PathBuf {
        self.folder().join("bootstrap.sh")
    }

    /// The folder that servers share. With a nodes-only API it contains the nodes.
    fn shared(&self) -> PathBuf {
        self.folder().join("shared")
    }

    /// Adds a pod to each node that no drain may evict. Only with a nodes-only API.
    pub fn add_unevictable_pods(&self) {
        fs::write(self.shared().join("keep-pods"), "").expect("written");
    }

    /// Removes the pods of [`add_unevictable_pods`](Self::add_unevictable_pods).
    pub fn remove_unevictable_pods(&self) {
        fs::remove_file(self.shared().join("keep-pods")).expect("kept");
    }

    /// The registered nodes that are not cordoned. Only with a nodes-only API.
    pub fn schedulable_nodes(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.shared().join("nodes"))
            .expect("nodes")
            .flatten();
        let is_schedulable = |path: &Path| {
            // The file may have been removed since it was listed.
            let node: Value = serde_json::from_str(&fs::read_to_string(path).ok()?).expect("a node");
            (node["spec"]["unschedulable"] != true).then_some(())
        };
        let nodes = entries.map(|entry| entry.path());
        nodes
            .filter(|path| path.extension().is_some_and(|it| it == "json") && is_schedulable(path).is_some())
            .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
            .collect()
    }

    /// The number of servers that accept connections, among those that have done so before.
    pub fn answering_servers(&self) -> usize {
        let announced = fs::read_dir(self.shared().join("servers")).expect("servers");
        let urls = announced
            .flatten()
            .filter_map(|file| fs::read_to_string(file.path()).ok());
        let answers = |url: &String| {
            let address = url.strip_prefix("https://").unwrap_or_default();
            std::net::TcpStream::connect(address).is_ok()
        };
        urls.filter(answers).count()
    }

    /// Holds all tasks of a kind that start from now on. A held datastore fails.
    pub fn hold(&self, kind: &str) {
        fs::write(self.folder().join(format!("hold-{kind}")), "").expect("written");
    }

    /// Releases the held tasks of a kind.
    pub fn release(&self, kind: &str) {
        fs::remove_file(self.folder().join(format!("hold-{kind}"))).expect("held");
    }

    /// The command of the datastore. With a nodes-only API a `sleep` takes its place, because
    /// nothing uses it.
    fn datastore(&self) -> String {
        if self.server.ends_with("--nodes-only") {
            let hold_file = self.folder().join("hold-datastore");
            return format!("test ! -e '{}' && exec sleep 1000000", hold_file.display());
        }
        "exec etcd --data-dir $DATA_DIR --unsafe-no-fsync --listen-client-urls http://127.0.0.1:$PORT0 \
         --listen-peer-urls http://127.0.0.1:0"
            .to_owned()
    }

    /// The settings of `[kubernetes]` except the number of agents.
    pub fn settings(&self) -> String {
        let (folder, server) = (self.folder().display(), self.server);
        let program = orchestrator(self.folder());
        let program = program.display();
        let datastore = self.datastore();
        format!(
            "port = 0\ncontainers = false\nframework_user = \"{}\"\nheartbeat_interval = \"1s\"\n\
             ds_etcd = true\nds_mysql = false\nds_command = \"{datastore}\"\nds_cpu = 0.01\nds_mem = 16\nds_disk = 1\n\
             volume_ds = \"{folder}/datastore\"\norch_container = false\n\
             orch_server_string = \"{program} {server}\"\nvolume_orch_server = \"{folder}/server\"\n\
             orch_server_cpu = 0.01\norch_server_mem = 32\norch_server_disk = 1\nkubeconfig = \"k3s.yaml\"\n\
             orch_agent_string = \"{program} agent\"\norch_agent_cpu = 0.01\norch_agent_mem = 8\norch_agent_disk = 1\n\
             orch_node_timeout = \"30s\"\ndrain_timeout = \"10s\"\nportrange_from = 1024\nportrange_to = 65535\n",
            user(),
        )
    }

    /// The section `[kubernetes]` with this number of agents.
    pub fn section(&self, agents: u32) -> String {
        let (settings, script) = (self.settings(), self.script());
        format!(
            "[kubernetes]\n{settings}orch_agent_count = {agents}\nbootstrap_url = \"file://{}\"\n",
            script.display()
        )
    }
}

/// The API of a framework.
#[derive(Clone, Debug)]
pub struct Api {
    /// `http://host:port/api/fw/v0`
    base: String,
    http: reqwest::Client,
}

impl Api {
    /// `base`: `http://host:port/api/fw/v0`
    pub fn new(base: String) -> Api {
        let http = crate::http();
        Api { base, http }
    }

    /// Sends a request; returns the status and the body.
    pub async fn send(&self, method: Method, path: &str) -> Result<(u16, String), String> {
        let answer = self
            .http
            .request(method, format!("{}{path}", self.base))
            .send()
            .await;
        let answer = answer.map_err(|error| error.to_string())?;
        let status = answer.status().as_u16();
        let text = answer.text().await.map_err(|error| error.to_string())?;
        Ok((status, text))
    }

    /// GET of a JSON document.
    pub async fn get(&self, path: &str) -> Result<Value, String> {
        match self.send(Method::GET, path).await? {
            (200, text) => serde_json::from_str(&text).map_err(|error| format!("{error}: {text}")),
            (status, text) => Err(format!("{status} {text}")),
        }
    }

    /// PUT that must be accepted.
    pub async fn put(&self, path: &str) {
        let answer = self.send(Method::PUT, path).await;
        assert!(matches!(answer, Ok((200, _))), "{path}: {answer:?}");
    }

    /// Waits until `accept` accepts the document of `explain`, and returns it.
    pub async fn wait_for_explain(&self, what: &str, accept: impl Fn(&Value) -> bool) -> Value {
        eventually(what, || async {
            let seen = self.get("/explain").await?;
            if accept(&seen) {
                Ok(seen)
            } else {
                Err(seen.to_string())
            }
        })
        .await
    }

    /// Waits until `explain` shows this text as a reason for waiting.
    pub async fn wait_for_reason(&self, text: &str) -> Value {
        self.wait_for_explain(&format!("the reason {text:?}"), |seen| {
            seen["waiting"].to_string().contains(text)
        })
        .await
    }

    /// Waits until this number of agents exists and every server and agent is a ready node; returns
    /// the document of `explain`.
    pub async fn wait_until_settled(&self, agents: usize) -> Value {
        let deadline = Instant::now() + SETTLING_TIMEOUT;
        retry_until(deadline, POLL_INTERVAL, "every node to be ready", || async {
            let ready = self.send(Method::GET, "/status/orch").await?;
            let seen = self.get("/explain").await?;
            if ready.1 == "ok" && task_ids(&seen, "agent").len() == agents {
                Ok(seen)
            } else {
                Err(format!("{ready:?} {seen}"))
            }
        })
        .await
        .unwrap_or_else(|error| panic!("{error}"))
    }
}

/// The ids of the tasks of a kind in the document of `explain`.
pub fn task_ids(explained: &Value, kind: &str) -> Vec<String> {
    let tasks = explained["tasks"][kind].as_array().into_iter().flatten();
    tasks
        .map(|task| task["id"].as_str().expect("an id").to_owned())
        .collect()
}

/// The ids of all tasks in the document of `explain`, in order.
pub fn all_task_ids(explained: &Value) -> Vec<String> {
    let kinds = ["datastore", "server", "agent"];
    let mut all: Vec<String> = kinds.iter().flat_map(|kind| task_ids(explained, kind)).collect();
    all.sort();
    all
}
