//! A complete site: a cluster manager and a daemon as two processes, in one directory, on free
//! ports.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use transom_testkit::{eventually, free_ports};

use crate::gate::Gate;
use crate::process::{Transom, binary, components};
use crate::{dns, http};

/// The host ports of all agents together; enough for 200 members of a Kubernetes cluster.
const TASK_PORTS: u16 = 500;

/// A cluster manager with three agents, as `transom cluster`.
pub struct Cluster {
    process: Transom,
    pub master: SocketAddr,
    dir: PathBuf,
}

impl Cluster {
    /// Starts a cluster with its state and its tasks' sandboxes in `dir`.
    pub fn start(dir: &Path) -> Cluster {
        Cluster::start_with(dir, &[])
    }

    /// Starts a cluster with additional flags.
    pub fn start_with(dir: &Path, flags: &[&str]) -> Cluster {
        let work = dir.join("cluster");
        let first = free_ports(TASK_PORTS);
        let ports = format!("{first}-{}", first + TASK_PORTS - 1);
        let work_dir = work.to_string_lossy();
        let usual = [
            "cluster",
            "--listen",
            "127.0.0.1:0",
            "--ports",
            &ports,
            "--work-dir",
            &work_dir,
        ];
        let mut process = Transom::start(dir, usual.iter().chain(flags));
        let master = process.wait_for_line("the master's address", |line| {
            line.strip_prefix("cluster master on ")?.trim().parse().ok()
        });
        Cluster {
            process,
            master,
            dir: work,
        }
    }

    /// The agents' journals of tasks that start and end.
    pub fn journals(&self) -> Vec<PathBuf> {
        let agents = fs::read_dir(self.dir.join("agents")).expect("agents").flatten();
        agents.map(|agent| agent.path().join("journal.jsonl")).collect()
    }

    /// The number of launches of each task id in the agents' journals.
    pub fn launches(&self) -> BTreeMap<String, usize> {
        let mut launches = BTreeMap::new();
        for journal in self.journals() {
            let Ok(journal) = fs::read_to_string(journal) else {
                continue;
            };
            for line in journal.lines() {
                let entry: Value = serde_json::from_str(line).expect("a journal line");
                if entry["event"] == "launch" {
                    *launches
                        .entry(entry["task"].as_str().expect("a task").to_owned())
                        .or_default() += 1;
                }
            }
        }
        launches
    }

    /// Kills the process of a task with SIGKILL, as the kernel's out-of-memory killer would; its
    /// agent reports how it ended.
    pub fn kill_process(&self, task: &str) {
        let journals = self.journals().into_iter();
        let pid = journals.flat_map(fs::read_to_string).find_map(|journal| {
            let mut entries = journal
                .lines()
                .map(serde_json::from_str::<Value>)
                .map_while(Result::ok);
            let launch = entries.find(|entry| entry["event"] == "launch" && entry["task"] == task)?;
            i32::try_from(launch["pid"].as_i64()?).ok()
        });
        let pid = pid.unwrap_or_else(|| panic!("no process of {task}"));
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("alive");
    }

    /// Injects a fault into the cluster.
    pub async fn fault(&self, fault: &Value) {
        let page = format!("http://{}/minicluster/faults", self.master);
        let answer = http().post(page).json(fault).send().await.expect("an answer");
        let (status, text) = (answer.status(), answer.text().await.unwrap_or_default());
        assert!(status.is_success(), "{fault}: {text}");
    }

    /// The directory of the sandboxes and journals.
    pub fn work_dir(&self) -> &Path {
        &self.dir
    }

    /// Process id of the cluster manager.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Stops the daemon first and then the cluster, as an orderly site does.
    pub fn stop_after(self, daemon: Option<Transom>) {
        if let Some(daemon) = daemon {
            let (status, output) = daemon.interrupt();
            assert!(status.success(), "the daemon ended with {status}:\n{output}");
        }
        self.stop();
    }

    /// Stops the cluster as Ctrl-C does.
    pub fn stop(self) {
        let (status, output) = self.process.interrupt();
        assert!(status.success(), "the cluster ended with {status}:\n{output}");
    }
}

/// Creates a plugin directory of the first-party components, as a daemon leaves it that has compiled
/// them: their compilation takes longer than most tests. Tests of the compilation use components of
/// their own.
pub fn copy_components(plugins: &Path) {
    static CACHE: LazyLock<PathBuf> = LazyLock::new(compile_components);
    fs::create_dir(plugins).expect("made");
    copy_files(&components(), plugins);
    let compiled = plugins.join(".transom/compiled");
    let mut private = DirBuilder::new();
    private.mode(0o700).recursive(true);
    private.create(&compiled).expect("made");
    copy_files(&CACHE, &compiled);
}

fn copy_files(from: &Path, to: &Path) {
    let entries = fs::read_dir(from).expect("a directory").flatten();
    for entry in entries.filter(|entry| entry.path().is_file()) {
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

/// Fills a cache of authors, in a directory beside this program, with the first-party components as
/// far as it does not have them. Returns the directory of compiled components.
fn compile_components() -> PathBuf {
    let program = std::env::current_exe().expect("the test's own path");
    let cache = program.with_file_name("component-cache");
    let entries = fs::read_dir(components()).expect("components").flatten();
    let files = entries.map(|entry| entry.path());
    for component in files.filter(|file| file.extension().is_some_and(|end| end == "wasm")) {
        let output = Command::new(binary())
            .args(["plugin", "check"])
            .arg(&component)
            .env_remove("TRANSOM_CACHE_DIR")
            .env("XDG_CACHE_HOME", &cache)
            .output()
            .expect("transom runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", component.display());
    }
    cache.join("transom/plugins/compiled")
}

/// Waits until a daemon with a JSON log has logged its addresses, by the names of `--port`.
pub fn addresses(daemon: &mut Transom) -> BTreeMap<String, SocketAddr> {
    daemon.wait_for_line("the daemon's addresses", addresses_in)
}

/// The addresses in a line of a daemon's JSON log, if the line has them.
pub fn addresses_in(line: &str) -> Option<BTreeMap<String, SocketAddr>> {
    let entry: Value = serde_json::from_str(line).ok()?;
    let addresses = entry["addresses"].as_str()?.to_owned();
    addresses
        .split(' ')
        .map(|pair| {
            let (name, address) = pair.split_once('=')?;
            Some((name.to_owned(), address.parse().ok()?))
        })
        .collect()
}

/// Cluster, daemon and clients.
pub struct Site {
    pub cluster: Cluster,
    pub daemon: Option<Transom>,
    pub addresses: BTreeMap<String, SocketAddr>,
    pub http: reqwest::Client,
    dir: TempDir,
}

impl Site {
    /// Starts a cluster and a daemon with every service and the first-party components.
    pub async fn start() -> Site {
        Site::start_with("").await
    }

    /// Starts a site with additional configuration.
    pub async fn start_with(more: &str) -> Site {
        Site::start_on(&[], more).await
    }

    /// Starts a site whose cluster has additional flags and whose daemon has additional
    /// configuration.
    pub async fn start_on(arguments: &[&str], more: &str) -> Site {
        let mut site = Site::of(arguments);
        let master = site.cluster.master;
        site.configure(master, more).await;
        site
    }

    /// Starts a site whose store is a Redis server, with leases as short as a busy machine permits.
    pub async fn start_on_redis(redis: SocketAddr, more: &str) -> Site {
        let mut site = Site::of(&[]);
        let file = format!("file:{}", site.dir.path().join("store").display());
        let store = format!("\"{redis}\"\nlease_seconds = 2");
        let configuration = site.configuration(site.cluster.master);
        let configuration = configuration.replace(&format!("\"{file}\""), &store);
        fs::write(site.config(), configuration + more).expect("written");
        site.start_daemon().await;
        site
    }

    /// Starts a site whose apps service has this role.
    pub async fn start_in_role(role: &str) -> Site {
        Site::start_with_apps(&format!("role = \"{role}\"\n")).await
    }

    /// Starts a site with additional settings of `[apps]`.
    pub async fn start_with_apps(settings: &str) -> Site {
        let mut site = Site::of(&[]);
        let section = format!("[apps]\n{settings}");
        let configuration = site
            .configuration(site.cluster.master)
            .replace("[apps]\n", &section);
        fs::write(site.config(), configuration).expect("written");
        site.start_daemon().await;
        site
    }

    /// Starts a site with additional settings of `[plugins]`, and additional configuration.
    pub async fn start_with_plugins(settings: &str, more: &str) -> Site {
        let mut site = Site::of(&[]);
        let section = format!("[plugins]\n{settings}");
        let configuration = site
            .configuration(site.cluster.master)
            .replace("[plugins]\n", &section);
        fs::write(site.config(), configuration + more).expect("written");
        site.start_daemon().await;
        site
    }

    /// Starts a site with a gate between the daemon and the master.
    pub async fn start_gated(more: &str) -> (Site, Gate) {
        let mut site = Site::of(&[]);
        let gate = Gate::before(site.cluster.master).await;
        site.configure(gate.address, more).await;
        (site, gate)
    }

    /// Starts a site with a gate that delays calls of this type from the start.
    pub async fn start_delaying(kind: &'static str, more: &str) -> (Site, Gate) {
        let mut site = Site::of(&[]);
        let gate = Gate::before(site.cluster.master).await;
        gate.delay(kind);
        site.configure(gate.address, more).await;
        (site, gate)
    }

    /// A cluster without a daemon.
    fn of(arguments: &[&str]) -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        copy_components(&dir.path().join("plugins"));
        Site {
            cluster: Cluster::start_with(dir.path(), arguments),
            daemon: None,
            addresses: BTreeMap::new(),
            http: http(),
            dir,
        }
    }

    async fn configure(&mut self, master: SocketAddr, more: &str) {
        fs::write(self.config(), self.configuration(master) + more).expect("written");
        self.start_daemon().await;
    }

    /// Injects a fault into the cluster.
    pub async fn fault(&self, fault: &Value) {
        let url = format!("http://{}/minicluster/faults", self.cluster.master);
        let answer = self.http.post(url).json(fault).send().await.expect("an answer");
        let (status, text) = (answer.status(), answer.text().await.unwrap_or_default());
        assert!(status.is_success(), "{fault}: {status} {text}");
    }

    /// The daemon's directory of plugins.
    pub fn plugins(&self) -> PathBuf {
        self.dir.path().join("plugins")
    }

    /// The daemon's configuration file.
    pub fn config(&self) -> PathBuf {
        self.dir.path().join("transom.toml")
    }

    fn configuration(&self, master: SocketAddr) -> String {
        format!(
            "[log]\nformat = \"json\"\nlevel = \"info\"\n\
             [cluster]\nmaster = \"{master}\"\n\
             [store]\nserver = \"file:{}\"\n\
             [plugins]\ndir = \"plugins\"\n\
             [apps]\nport = 0\n\
             [discovery]\nlistener = \"127.0.0.1\"\nport = 0\nhttp_listener = \"127.0.0.1\"\nhttp_port = 0\n\
             [admin]\nport = 0\n",
            self.dir.path().join("store").display(),
        )
    }

    /// Starts the daemon (again) and waits until it is ready.
    pub async fn start_daemon(&mut self) {
        let mut daemon = Transom::start(self.dir.path(), ["serve", "--config", "transom.toml"]);
        self.addresses = addresses(&mut daemon);
        self.daemon = Some(daemon);
        let ready = format!("http://{}/ready", self.addresses["admin"]);
        eventually("the daemon to be ready", || async {
            let answer = self
                .http
                .get(&ready)
                .send()
                .await
                .map_err(|error| error.to_string())?;
            if answer.status().is_success() {
                Ok(())
            } else {
                Err(answer.text().await.unwrap_or_default())
            }
        })
        .await;
    }

    /// Kills the daemon with SIGKILL.
    pub fn kill_daemon(&mut self) {
        self.daemon.take().expect("a daemon").kill();
    }

    /// Makes the daemon scan its plugins now, and waits until it has.
    pub async fn rescan(&self) {
        let answer = self
            .http
            .post(self.admin("/v1/plugins/rescan"))
            .send()
            .await
            .expect("an answer");
        assert!(
            answer.status().is_success(),
            "{}",
            answer.text().await.unwrap_or_default()
        );
    }

    /// A URL of the apps API.
    pub fn apps(&self, path: &str) -> String {
        format!("http://{}{path}", self.addresses["apps"])
    }

    /// A URL of the kubernetes API.
    pub fn kubernetes(&self, path: &str) -> String {
        format!("http://{}/api/fw/v0{path}", self.addresses["kubernetes"])
    }

    /// A URL of the admin port.
    pub fn admin(&self, path: &str) -> String {
        format!("http://{}{path}", self.addresses["admin"])
    }

    /// Sends a GET request and parses the response as JSON.
    pub async fn get(&self, url: &str) -> Result<Value, String> {
        let answer = self
            .http
            .get(url)
            .send()
            .await
            .map_err(|error| error.to_string())?;
        let status = answer.status();
        let text = answer.text().await.map_err(|error| error.to_string())?;
        if !status.is_success() {
            return Err(format!("{status} {text}"));
        }
        serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))
    }

    /// Posts one of `examples/apps`.
    pub async fn post_example(&self, name: &str) -> Value {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../examples/apps")
            .join(name);
        let definition =
            fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.post_app(&serde_json::from_str(&definition).expect("JSON"))
            .await
    }

    /// Posts an app that must be accepted.
    pub async fn post_app(&self, definition: &Value) -> Value {
        let answer = self
            .http
            .post(self.apps("/v2/apps"))
            .json(definition)
            .send()
            .await
            .expect("an answer");
        let status = answer.status();
        let body: Value = answer.json().await.expect("JSON");
        assert_eq!(status.as_u16(), 201, "{body}");
        body
    }

    /// Changes the number of instances.
    pub async fn scale(&self, app: &str, instances: u32) {
        let body = json!({"instances": instances});
        let answer = self
            .http
            .put(self.apps(&format!("/v2/apps{app}")))
            .json(&body)
            .send()
            .await
            .expect("an answer");
        assert_eq!(
            answer.status().as_u16(),
            200,
            "{}",
            answer.text().await.unwrap_or_default()
        );
    }

    /// The tasks of `app`, once there are `count` and all of them run.
    pub async fn wait_until_running(&self, app: &str, count: usize) -> Vec<Value> {
        self.tasks_when(app, &format!("{count} running tasks of {app}"), |tasks| {
            tasks.len() == count && tasks.iter().all(|task| task["state"] == "TASK_RUNNING")
        })
        .await
    }

    /// The tasks of `app`, once `accept` accepts them.
    pub async fn tasks_when(&self, app: &str, what: &str, accept: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let url = self.apps(&format!("/v2/apps{app}/tasks"));
        eventually(what, || async {
            let document = self.get(&url).await?;
            let tasks = document["tasks"].as_array().cloned().unwrap_or_default();
            if accept(&tasks) {
                Ok(tasks)
            } else {
                Err(format!("{tasks:#?}"))
            }
        })
        .await
    }

    /// The answers to a DNS query over UDP, once `accept` accepts them.
    pub async fn wait_until_resolves(
        &self,
        name: &str,
        kind: hickory_proto::rr::RecordType,
        accept: impl Fn(&dns::Answer) -> bool,
    ) -> dns::Answer {
        eventually(&format!("{kind} {name}"), || async {
            let answer = dns::ask(self.addresses["dns"], name, kind).await?;
            if accept(&answer) {
                Ok(answer)
            } else {
                Err(format!("{answer:?}"))
            }
        })
        .await
    }
}
