//! The daemon as a process, with one service, on the cluster of the load tests.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::process::Transom;
use crate::site::{addresses, copy_components};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Interval between two evaluations of a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The apps service without limits of its own.
const APPS: &str = "[apps]\nport = 0\nmax_body = 268435456\nmax_running_deployments = 100000\n";
/// The embedded store, in the section `[store]`.
const EMBEDDED: &str = "server = \"file:store\"\n";
/// Timeout of every condition and request.
const WAIT_TIMEOUT: Duration = Duration::from_mins(5);

pub struct Daemon {
    process: Option<Transom>,
    addresses: BTreeMap<String, SocketAddr>,
    pub http: reqwest::Client,
    dir: TempDir,
}

impl Daemon {
    /// Starts a daemon with its own store.
    pub async fn start(master: SocketAddr) -> Daemon {
        Daemon::start_with(master, EMBEDDED).await
    }

    /// Starts a daemon with its own store, and with the service of this section instead of apps.
    pub async fn start_service(master: SocketAddr, section: &str) -> Daemon {
        Daemon::start_configured(master, EMBEDDED, section).await
    }

    /// Starts a daemon with these settings of the section `[store]`. Daemons that share a store elect
    /// a leader, and another one when its lease has ended after its death.
    pub async fn start_with(master: SocketAddr, store: &str) -> Daemon {
        Daemon::start_configured(master, store, APPS).await
    }

    /// Starts a daemon whose chains of matchers and filters have `chain` members each, all of them
    /// copies of the first-party components.
    pub async fn start_with_plugins(master: SocketAddr, chain: usize) -> Daemon {
        let dir = tempfile::tempdir().expect("a directory");
        let plugins = dir.path().join("plugins");
        copy_components(&plugins);
        let copies = |name: &str| -> Vec<String> {
            let copies: Vec<String> = (0..chain).map(|number| format!("{name}{number}")).collect();
            for (copy, file) in copies.iter().flat_map(|copy| [(copy, "wasm"), (copy, "toml")]) {
                let from = plugins.join(format!("{name}.{file}"));
                fs::copy(from, plugins.join(format!("{copy}.{file}"))).expect("copied");
            }
            copies
        };
        let (matchers, filters) = (copies("attributes"), copies("events"));
        let section = format!("[plugins.use]\nmatcher = {matchers:?}\nfilter = {filters:?}\n{APPS}");
        Daemon::start_in(dir, master, EMBEDDED, &section).await
    }

    async fn start_configured(master: SocketAddr, store: &str, section: &str) -> Daemon {
        let dir = tempfile::tempdir().expect("a directory");
        copy_components(&dir.path().join("plugins"));
        Daemon::start_in(dir, master, store, section).await
    }

    /// Starts a daemon in a directory with its plugins.
    async fn start_in(dir: TempDir, master: SocketAddr, store: &str, section: &str) -> Daemon {
        let configuration = format!(
            "[log]\nformat = \"json\"\n[cluster]\nmaster = \"{master}\"\n\
             [store]\n{store}\
             [plugins]\ndir = \"plugins\"\n{section}\
             [admin]\nport = 0\n",
        );
        fs::write(dir.path().join("transom.toml"), configuration).expect("written");
        let mut daemon = Daemon {
            process: None,
            addresses: BTreeMap::new(),
            http: crate::http(),
            dir,
        };
        daemon.launch().await;
        daemon
    }

    /// Starts the process and waits until it leads or stands by.
    async fn launch(&mut self) {
        let mut process = Transom::start(self.dir.path(), ["serve", "--config", "transom.toml"]);
        self.addresses = addresses(&mut process);
        self.process = Some(process);
        let ready = self.admin("/ready");
        self.wait_until("the daemon to be ready", async || {
            let answer = self.http.get(&ready).send().await;
            answer.is_ok_and(|answer| answer.status().is_success())
        })
        .await;
    }

    /// Kills the process and starts it again. Returns the times until it is ready and until it
    /// returns the expected answer.
    pub async fn fail_over(&mut self, path: &str, pointer: &str, expected: &Value) -> Value {
        self.kill();
        let begun = Instant::now();
        self.launch().await;
        let ready = begun.elapsed();
        self.wait_until("the right answer", async || {
            self.get(path).await.pointer(pointer) == Some(expected)
        })
        .await;
        json!({"ready_s": ready.as_secs_f64(), "right_answer_s": begun.elapsed().as_secs_f64()})
    }

    /// Kills the process.
    pub fn kill(&mut self) {
        self.process.take().expect("a daemon").kill();
    }

    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("a daemon").pid()
    }

    /// The size of the embedded store's files in KiB.
    pub fn store_kib(&self) -> u64 {
        let entries = fs::read_dir(self.dir.path().join("store")).expect("a store");
        // A file may be removed while the store is compacted.
        let sizes = entries
            .flatten()
            .filter_map(|entry| Some(entry.metadata().ok()?.len()));
        sizes.sum::<u64>() / 1024
    }

    /// The address of the apps service.
    pub fn address(&self) -> SocketAddr {
        self.addresses["apps"]
    }

    /// A URL of this service.
    pub fn url(&self, service: &str, path: &str) -> String {
        format!("http://{}{path}", self.addresses[service])
    }

    pub fn apps(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    pub fn admin(&self, path: &str) -> String {
        format!("http://{}{path}", self.addresses["admin"])
    }

    pub async fn get(&self, path: &str) -> Value {
        let answer = self.http.get(self.apps(path)).send().await;
        let Ok(answer) = answer else { return Value::Null };
        answer.json().await.unwrap_or_default()
    }

    /// Sends a change, which must be accepted.
    pub async fn change(&self, method: reqwest::Method, path: &str, body: &Value) -> Value {
        let request = self.http.request(method, self.apps(path)).json(body);
        let answer = request.timeout(WAIT_TIMEOUT).send().await.expect("an answer");
        let status = answer.status();
        let text = answer.text().await.unwrap_or_default();
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Whether this daemon is the leader.
    pub async fn is_leader(&self) -> bool {
        let answer = self.http.get(self.admin("/ready")).send().await;
        let Ok(answer) = answer else { return false };
        let ready: Value = answer.json().await.unwrap_or_default();
        ready["services"]["apps"]["framework"]["leading"] == true
    }

    /// Waits until no deployment runs.
    pub async fn wait_until_deployed(&self) {
        self.wait_until("the end of all deployments", async || {
            self.get("/v2/deployments").await == json!([])
        })
        .await;
    }

    pub async fn wait_until(&self, what: &str, mut done: impl AsyncFnMut() -> bool) {
        let begun = Instant::now();
        while !done().await {
            assert!(begun.elapsed() < WAIT_TIMEOUT, "timed out waiting for {what}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub fn stop(mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }
}
