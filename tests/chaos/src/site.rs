//! The programs of a run: a cluster manager with three agents, and one daemon, or two daemons that
//! share a store.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::Mutex;
use transom_testkit::redis::Sentinels;
use transom_testkit::zookeeper::Ensemble;
use transom_testkit::{free_ports, redis};
use transom_tests::process::binary;
use transom_tests::program::Program;
use transom_tests::site::copy_components;

use crate::fault::{Fault, FaultTarget, Kind};
use crate::{framework, task_processes};

/// The kind of store.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Store {
    /// The embedded store of one daemon; it fails only together with it.
    File,
    /// A `redis-server` for the run, which fails independently, and two daemons, one of which
    /// leads.
    #[default]
    Redis,
    /// A primary, which fails, with two replicas and three Sentinels, and two daemons.
    Sentinel,
    /// Three servers of ZooKeeper, of which the leading one fails, and two daemons.
    ZooKeeper,
}

/// Servers that replace the one that fails.
#[derive(Debug)]
enum Group {
    Sentinels(Sentinels),
    Ensemble(Ensemble),
}

impl Group {
    async fn start(store: Store) -> Option<Self> {
        match store {
            Store::File | Store::Redis => None,
            Store::Sentinel => Some(Self::Sentinels(Sentinels::start().await)),
            Store::ZooKeeper => Some(Self::Ensemble(Ensemble::start().await)),
        }
    }

    /// The settings of `[store]`.
    fn settings(&self) -> String {
        match self {
            Self::Sentinels(group) => format!(
                "server = \"{}\"\npassword = \"{}\"\nsentinel_password = \"{}\"",
                group.address(),
                Sentinels::PASSWORD,
                Sentinels::SENTINEL_PASSWORD
            ),
            Self::Ensemble(ensemble) => {
                format!("server = \"zk://chaos:chaos@{}/transom\"", ensemble.address())
            }
        }
    }

    /// Lets the leading server fail for a time.
    async fn fail(&mut self, kind: Kind, time: Duration) {
        let is_killed = kind == Kind::KillStore;
        match self {
            Self::Sentinels(group) => {
                let primary = group.primary().await;
                let server = group.server(primary);
                if is_killed {
                    server.stop();
                } else {
                    server.freeze();
                }
                tokio::time::sleep(time).await;
                if is_killed {
                    server.start();
                } else {
                    server.thaw();
                }
            }
            Self::Ensemble(ensemble) => {
                let leader = ensemble.leader().await;
                if is_killed {
                    ensemble.kill(leader).await;
                } else {
                    ensemble.pause(leader);
                }
                tokio::time::sleep(time).await;
                if is_killed {
                    ensemble.start_again(leader);
                } else {
                    ensemble.resume(leader);
                }
            }
        }
    }
}

/// Number of host ports for tasks; the programs' ports follow.
const TASK_PORTS: u16 = 1_500;
const PORTS: u16 = TASK_PORTS + 8;
/// In seconds. Shorter than the time for which a daemon may be frozen, so that a leader resumes
/// after its lease has expired.
const LEASE_SECONDS: u32 = 2;
/// The default framework name of the daemon.
const FRAMEWORK: &str = "marathon";
/// In seconds. Short, so that the cluster removes failed agents before they return.
const AGENT_TIMEOUT_SECONDS: u32 = 4;
/// The timeout of a program's start.
const START_TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// All programs. They are stopped together with their tasks when this is dropped.
#[derive(Debug)]
pub(crate) struct Site {
    // The fields are dropped in this order: daemons before the cluster.
    daemons: Vec<Daemon>,
    redis: Mutex<Option<Program>>,
    group: Mutex<Option<Group>>,
    cluster: Option<Program>,
    _leftover_killer: LeftoverKiller,
    dir: TempDir,
    redis_port: u16,
    master: SocketAddr,
    standby: SocketAddr,
    store: Store,
    pub(crate) http: reqwest::Client,
}

/// A daemon, which may be stopped.
#[derive(Debug)]
struct Daemon {
    name: String,
    program: Mutex<Option<Program>>,
    apps: SocketAddr,
    admin: u16,
    kubernetes: u16,
}

impl Site {
    /// Starts all programs; when this returns, every daemon answers.
    pub(crate) async fn start(run: &str, store: Store) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("transom-chaos-").tempdir()?;
        let first = free_ports(PORTS);
        let last = first + TASK_PORTS - 1;
        let plugins = dir.path().join("plugins");
        copy_components(&plugins);
        let standby = SocketAddr::from(([127, 0, 0, 1], last + 4));
        let arguments = [
            "cluster".to_owned(),
            "--listen=127.0.0.1:0".to_owned(),
            format!("--standby={standby}"),
            format!("--agent-timeout={AGENT_TIMEOUT_SECONDS}"),
            format!("--ports={first}-{last}"),
            "--work-dir=cluster".to_owned(),
            "--cpus=100".to_owned(),
            "--mem=100000".to_owned(),
        ];
        let mut cluster =
            Program::start(dir.path(), "cluster", Command::new(binary()), arguments)?.with_graceful_stop();
        let leftover_killer = LeftoverKiller(run.to_owned());
        let master = master_address(&dir.path().join("cluster.log"), &mut cluster).await?;
        let count = match store {
            Store::File => 1,
            Store::Redis | Store::Sentinel | Store::ZooKeeper => 2,
        };
        let group = Group::start(store).await;
        let settings = group.as_ref().map(Group::settings);
        let daemons = (0..count).map(|number| Daemon {
            name: format!("daemon-{number}"),
            program: Mutex::new(None),
            apps: SocketAddr::from(([127, 0, 0, 1], last + 1 + 4 * number)),
            admin: last + 2 + 4 * number,
            kubernetes: last + 7 + number,
        });
        let site = Self {
            daemons: daemons.collect(),
            redis: Mutex::new(None),
            group: Mutex::new(group),
            cluster: Some(cluster),
            _leftover_killer: leftover_killer,
            redis_port: last + 3,
            master,
            standby,
            store,
            http: transom_tests::http(),
            dir,
        };
        let data = site.dir().join("framework");
        fs::create_dir(&data)?;
        fs::write(data.join("bootstrap.sh"), framework::SCRIPT)?;
        for daemon in &site.daemons {
            let file = site.dir().join(format!("{}.toml", daemon.name));
            let section = framework::section(run, &data.display().to_string(), daemon.kubernetes);
            fs::write(file, site.configuration(daemon, settings.as_deref()) + &section)?;
        }
        if store == Store::Redis {
            site.start_redis().await?;
        }
        for daemon in &site.daemons {
            site.start_daemon(daemon).await?;
        }
        site.wait_until_answering().await?;
        Ok(site)
    }

    /// `settings`: those of a store with several servers.
    fn configuration(&self, daemon: &Daemon, settings: Option<&str>) -> String {
        let settings = match (self.store, settings) {
            (_, Some(settings)) => settings.to_owned(),
            (Store::File, None) => "server = \"file:store\"".to_owned(),
            (_, None) => format!("server = \"127.0.0.1:{}\"", self.redis_port),
        };
        format!(
            "[log]\nlevel = \"info\"\n[cluster]\nmaster = \"{},{}\"\n[store]\n{settings}\n\
             lease_seconds = {LEASE_SECONDS}\n[plugins]\ndir = \"plugins\"\n[apps]\nport = {}\n[admin]\nport = {}\n",
            self.master,
            self.standby,
            daemon.apps.port(),
            daemon.admin,
        )
    }

    /// The directory of logs, journals and sandboxes.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The cluster's work directory.
    pub(crate) fn cluster_dir(&self) -> PathBuf {
        self.dir.path().join("cluster")
    }

    /// The number of daemons.
    pub(crate) fn daemons(&self) -> usize {
        self.daemons.len()
    }

    /// A URL of a daemon's apps API; the index wraps around.
    pub(crate) fn apps(&self, daemon: usize, path: &str) -> String {
        format!("http://{}{path}", self.daemon(daemon).apps)
    }

    /// A URL of a daemon's kubernetes API; the index wraps around.
    pub(crate) fn framework(&self, daemon: usize, path: &str) -> String {
        let port = self.daemon(daemon).kubernetes;
        format!("http://127.0.0.1:{port}/api/fw/v0{path}")
    }

    fn daemon(&self, number: usize) -> &Daemon {
        &self.daemons[number % self.daemons.len()]
    }

    /// Waits for a daemon that reports itself as the leader.
    pub(crate) async fn leader(&self) -> anyhow::Result<usize> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            for number in 0..self.daemons() {
                let answer = self.http.get(self.apps(number, "/v2/info"));
                if let Ok(answer) = answer.timeout(Duration::from_secs(2)).send().await
                    && let Ok(info) = answer.json::<Value>().await
                    && info["elected"] == true
                {
                    return Ok(number);
                }
            }
            if Instant::now() > deadline {
                bail!("no daemon leads within {} s", START_TIMEOUT.as_secs());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// A URL of the master.
    pub(crate) fn master(&self, path: &str) -> String {
        format!("http://{}{path}", self.master)
    }

    /// The possible targets of faults.
    pub(crate) fn targets(store: Store) -> Vec<FaultTarget> {
        let mut targets = vec![
            FaultTarget::Daemon,
            FaultTarget::Tasks,
            FaultTarget::Agent,
            FaultTarget::Master,
        ];
        if store != Store::File {
            targets.push(FaultTarget::Store);
        }
        targets
    }

    async fn start_daemon(&self, daemon: &Daemon) -> anyhow::Result<()> {
        let arguments = ["serve".to_owned(), format!("--config={}.toml", daemon.name)];
        let program = Program::start(self.dir(), &daemon.name, Command::new(binary()), arguments)?;
        *daemon.program.lock().await = Some(program);
        Ok(())
    }

    async fn start_redis(&self) -> anyhow::Result<()> {
        let port = self.redis_port.to_string();
        // Acknowledged writes are on disk, so that killing Redis loses none.
        let arguments = [
            "--port",
            &port,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
        ];
        let program = Program::start(self.dir(), "redis", redis::server(), arguments)?;
        *self.redis.lock().await = Some(program);
        let deadline = Instant::now() + START_TIMEOUT;
        while tokio::net::TcpStream::connect(("127.0.0.1", self.redis_port))
            .await
            .is_err()
        {
            if Instant::now() > deadline {
                bail!("the redis-server does not listen; see redis.log");
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Waits until every daemon answers. A daemon that has ended is restarted, as its supervisor
    /// would do; returns the number of restarts.
    pub(crate) async fn wait_until_answering(&self) -> anyhow::Result<u32> {
        let mut restarts = 0;
        for daemon in &self.daemons {
            restarts += self.wait_until_daemon_answers(daemon).await?;
        }
        Ok(restarts)
    }

    async fn wait_until_daemon_answers(&self, daemon: &Daemon) -> anyhow::Result<u32> {
        let deadline = Instant::now() + START_TIMEOUT;
        let mut restarts = 0;
        let ping = format!("http://{}/ping", daemon.apps);
        loop {
            let answer = self.http.get(&ping).timeout(Duration::from_secs(2)).send().await;
            if answer.is_ok() {
                return Ok(restarts);
            }
            if Instant::now() > deadline {
                let (name, limit) = (&daemon.name, START_TIMEOUT.as_secs());
                bail!("{name} does not answer within {limit} s: {answer:?}");
            }
            let ended = daemon
                .program
                .lock()
                .await
                .as_mut()
                .and_then(Program::exit_status);
            if ended.is_some() {
                restarts += 1;
                self.start_daemon(daemon).await?;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Injects a fault and returns when it is over.
    pub(crate) async fn inject_fault(&self, fault: &Fault, run: &str) -> anyhow::Result<()> {
        if let Some((begin, end)) = fault.calls(FRAMEWORK) {
            self.request_fault(&begin).await?;
            tokio::time::sleep(fault.time).await;
            return match end {
                Some(end) => self.request_fault(&end).await,
                None => Ok(()),
            };
        }
        let daemon = self.daemon(fault.pick);
        match fault.kind {
            Kind::StopDaemon => {
                stop(daemon).await?;
                tokio::time::sleep(fault.time).await;
                self.start_daemon(daemon).await?;
            }
            Kind::FreezeDaemon => freeze(&daemon.program, fault.time).await,
            Kind::FreezeStore | Kind::KillStore if self.group.lock().await.is_some() => {
                let mut group = self.group.lock().await;
                group
                    .as_mut()
                    .context("the group")?
                    .fail(fault.kind, fault.time)
                    .await;
            }
            Kind::FreezeStore => freeze(&self.redis, fault.time).await,
            Kind::KillStore => {
                drop(self.redis.lock().await.take());
                tokio::time::sleep(fault.time).await;
                self.start_redis().await?;
            }
            Kind::KillTasks => {
                let running = task_processes::processes(run)?;
                let first = fault.pick % running.len().max(1);
                for process in running.iter().cycle().skip(first).take(fault.count) {
                    let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
                }
            }
            // The cluster injects all other faults.
            _ => {
                drop(daemon.program.lock().await.take());
                tokio::time::sleep(fault.time).await;
                self.start_daemon(daemon).await?;
            }
        }
        Ok(())
    }

    /// Requests a fault from the cluster. An impossible fault (no stream to cut, no framework) is
    /// not an error.
    async fn request_fault(&self, fault: &Value) -> anyhow::Result<()> {
        let page = self.master("/minicluster/faults");
        let answer = self
            .http
            .post(page)
            .json(fault)
            .send()
            .await
            .with_context(|| fault.to_string())?;
        let status = answer.status();
        if status.is_success() || status == reqwest::StatusCode::BAD_REQUEST {
            return Ok(());
        }
        bail!("{fault}: {status} {}", answer.text().await.unwrap_or_default())
    }

    /// Waits until the cluster has recovered: masters are up, agents are registered.
    pub(crate) async fn wait_until_healed(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let page = self.http.get(self.master("/minicluster/faults")).send().await?;
            let document: Value = page.json().await?;
            if document["in_force"].as_array().is_some_and(Vec::is_empty) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("faults do not end: {}", document["in_force"]);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Stops the daemons, then the cluster with its tasks. The error contains the programs that did
    /// not stop.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        for daemon in &self.daemons {
            stop(daemon).await?;
        }
        if let Some(cluster) = self.cluster.take() {
            cluster
                .stop()
                .await
                .context("the cluster did not end on SIGTERM")?;
        }
        drop(self.redis.lock().await.take());
        drop(self.group.lock().await.take());
        Ok(())
    }

    /// Keeps the directory; returns its path.
    pub(crate) fn keep(&mut self) -> PathBuf {
        self.dir.disable_cleanup(true);
        self.dir.path().to_owned()
    }
}

async fn stop(daemon: &Daemon) -> anyhow::Result<()> {
    let program = daemon.program.lock().await.take();
    if let Some(program) = program {
        let ended = program.stop().await;
        ended.with_context(|| format!("{} did not end on SIGTERM", daemon.name))?;
    }
    Ok(())
}

async fn freeze(program: &Mutex<Option<Program>>, time: Duration) {
    if let Some(program) = &*program.lock().await {
        program.signal(Signal::SIGSTOP);
    }
    tokio::time::sleep(time).await;
    if let Some(program) = &*program.lock().await {
        program.signal(Signal::SIGCONT);
    }
}

/// Kills the tasks of this run that the cluster could not kill.
#[derive(Debug)]
struct LeftoverKiller(String);

impl Drop for LeftoverKiller {
    fn drop(&mut self) {
        for process in task_processes::processes(&self.0).unwrap_or_default() {
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
        }
    }
}

async fn master_address(log: &Path, cluster: &mut Program) -> anyhow::Result<SocketAddr> {
    let deadline = Instant::now() + START_TIMEOUT;
    while Instant::now() < deadline {
        let text = fs::read_to_string(log).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let address = whole
            .lines()
            .find_map(|line| line.strip_prefix("cluster master on "));
        if let Some(address) = address {
            return Ok(address.trim().parse()?);
        }
        if let Some(status) = cluster.exit_status() {
            bail!("the cluster ended ({status}):\n{text}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    bail!("the cluster does not say where its master is")
}
