//! Checks and health checks that the agent runs: COMMAND, HTTP, TCP.

use super::{
    container::Container,
    process::{self, Process},
};
use crate::{
    state::{CheckResult, Launch},
    wire::json as doc,
};
use serde_json::Value;
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process::Stdio,
    sync::Arc,
    time::Duration,
};
use tokio::{net::TcpStream, process::Command, sync::mpsc};
use tokio_util::sync::CancellationToken;

/// A result of a check.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProbeResult {
    /// A result of the task's `check`.
    Check(CheckResult),
    /// A result of the task's `health_check`.
    Health(bool),
}

/// Whether a probe serves the task's check or its health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckKind {
    Check,
    Health,
}

/// A check of a task.
#[derive(Debug)]
enum Probe {
    Command(Value),
    Http { port: u16, path: String, scheme: String },
    Tcp { port: u16 },
}

/// The initial result of a task with a check.
pub(crate) fn initial_result(info: &Value) -> Option<CheckResult> {
    match doc::text(info, &["check", "type"])? {
        "COMMAND" => Some(CheckResult::Command(None)),
        "HTTP" => Some(CheckResult::Http(None)),
        "TCP" => Some(CheckResult::Tcp(None)),
        _ => None,
    }
}

/// Runs the check at its interval until it is stopped. Returns immediately if the task has no check
/// of this kind, or one that cannot be run.
pub(crate) async fn run(
    client: reqwest::Client,
    task: RunningTask,
    kind: CheckKind,
    results: mpsc::Sender<ProbeResult>,
    stop: CancellationToken,
) {
    let key = if kind == CheckKind::Check {
        "check"
    } else {
        "health_check"
    };
    let check = &task.launch.info[key];
    let Some(probe) = Probe::parse(check, kind) else {
        return;
    };
    let seconds = |name: &str, default: f64| {
        let seconds = doc::number(check, &[name]).unwrap_or(default).max(0.0);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_hours(1))
    };
    let (delay, interval, timeout) = (
        seconds("delay_seconds", 15.0),
        seconds("interval_seconds", 10.0).max(Duration::from_millis(10)),
        seconds("timeout_seconds", 20.0),
    );
    // Zero means no timeout. One day has the same effect, and the attempt still ends.
    let timeout = if timeout.is_zero() {
        Duration::from_hours(24)
    } else {
        timeout
    };
    let mut wait = delay;
    while stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_some() {
        let Some(result) = probe.attempt(&client, &task, timeout, &stop).await else {
            return;
        };
        let probe_result = match kind {
            CheckKind::Check => ProbeResult::Check(result),
            CheckKind::Health => ProbeResult::Health(is_healthy(result)),
        };
        if results.send(probe_result).await.is_err() {
            return;
        }
        wait = interval;
    }
}

/// Healthy: exit status 0, an HTTP status from 200 to 399, or an accepted connection.
fn is_healthy(result: CheckResult) -> bool {
    match result {
        CheckResult::Command(code) => code == Some(0),
        CheckResult::Http(status) => status.is_some_and(|status| (200..400).contains(&status)),
        CheckResult::Tcp(succeeded) => succeeded == Some(true),
    }
}

impl Probe {
    fn parse(check: &Value, kind: CheckKind) -> Option<Self> {
        let port = |kind: &str| u16::try_from(check[kind]["port"].as_u64()?).ok();
        match doc::text(check, &["type"])? {
            // A check nests its command one level deeper than a health check does.
            "COMMAND" if kind == CheckKind::Check => {
                Some(Self::Command(doc::find(check, &["command", "command"])?.clone()))
            }
            "COMMAND" => Some(Self::Command(check.get("command")?.clone())),
            "HTTP" => Some(Self::Http {
                port: port("http")?,
                path: doc::text(check, &["http", "path"]).unwrap_or_default().to_owned(),
                scheme: doc::text(check, &["http", "scheme"]).unwrap_or("http").to_owned(),
            }),
            "TCP" => Some(Self::Tcp { port: port("tcp")? }),
            _ => None,
        }
    }

    /// Makes one attempt; `None` if the check was stopped meanwhile.
    async fn attempt(
        &self,
        client: &reqwest::Client,
        task: &RunningTask,
        timeout: Duration,
        stop: &CancellationToken,
    ) -> Option<CheckResult> {
        match self {
            Self::Command(command) => run_command(command, task, timeout, stop)
                .await
                .map(CheckResult::Command),
            Self::Http { port, path, scheme } => {
                let request = http_status(client, task.addresses(*port), path, scheme);
                let status = stop
                    .run_until_cancelled(tokio::time::timeout(timeout, request))
                    .await?;
                Some(CheckResult::Http(status.unwrap_or_default()))
            }
            Self::Tcp { port } => {
                let connection = accepts_connection(task.addresses(*port));
                let connected = stop
                    .run_until_cancelled(tokio::time::timeout(timeout, connection))
                    .await?;
                Some(CheckResult::Tcp(Some(connected.unwrap_or(false))))
            }
        }
    }
}

/// A running task, in whose sandbox or container its checks run.
#[derive(Clone, Debug)]
pub(crate) struct RunningTask {
    pub(crate) launch: Arc<Launch>,
    /// `None` if the task runs as a process.
    pub(crate) container: Option<Arc<Container>>,
}

impl RunningTask {
    /// The addresses to connect to. Processes may listen on their agent's address or, as under a
    /// real agent, on 127.0.0.1. No two agents share a port, so either response is from the task
    /// itself. A container has its own address, unless it shares the agent's network.
    fn addresses(&self, port: u16) -> Vec<SocketAddr> {
        let container = self.container.as_ref();
        container
            .and_then(|container| container.addresses(port))
            .unwrap_or_else(|| {
                let (ip, local) = (self.launch.agent_addr.ip(), IpAddr::V4(Ipv4Addr::LOCALHOST));
                let all = if ip == local { vec![ip] } else { vec![ip, local] };
                all.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()
            })
    }

    /// A command in the task's sandbox or container; `None` if a container's command has no value.
    pub(crate) fn command(&self, info: &Value) -> Option<Command> {
        match &self.container {
            Some(container) => container.exec(info),
            None => Some(process::command_in_task(info, &self.launch)),
        }
    }
}

async fn accepts_connection(addresses: Vec<SocketAddr>) -> bool {
    for address in addresses {
        if TcpStream::connect(address).await.is_ok() {
            return true;
        }
    }
    false
}

async fn http_status(
    client: &reqwest::Client,
    addresses: Vec<SocketAddr>,
    path: &str,
    scheme: &str,
) -> Option<u16> {
    for address in addresses {
        let url = format!("{scheme}://{address}{path}");
        if let Ok(response) = client.get(url).send().await {
            return Some(response.status().as_u16());
        }
    }
    None
}

/// Runs the command of a check and returns its exit code: `Some(None)` if it could not be run or
/// timed out, `None` if the check was stopped.
async fn run_command(
    info: &Value,
    task: &RunningTask,
    timeout: Duration,
    stop: &CancellationToken,
) -> Option<Option<i32>> {
    let Some(mut command) = task.command(info) else {
        return Some(None);
    };
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut process) = Process::spawn(command) else {
        return Some(None);
    };
    let waited = stop
        .run_until_cancelled(tokio::time::timeout(timeout, process.wait()))
        .await;
    let Some(Ok(ended)) = waited else {
        // The check was stopped or timed out: kill every process that it started.
        let _ = process.destroy().await;
        return waited.map(|_| None);
    };
    Some(ended.ok().and_then(|status| status.code()))
}
