//! The daemon under test as a process: its configuration, its log, and its addresses.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tokio::time::Instant;
use transom_testkit::retry_until;
use transom_tests::process::binary;
use transom_tests::program::Program;
use transom_tests::site::addresses_in;

use crate::options::Options;
use crate::site::FAILOVER_TIMEOUT;

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Number of log lines in an error.
const MAX_LOG_LINES: usize = 5;

/// The options of a daemon.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The configuration is in `NAME.toml`, the log in `NAME.log`.
    pub(crate) name: &'static str,
    /// The leading master.
    pub(crate) master: String,
    pub(crate) options: Options,
    /// The name of the apps' framework.
    pub(crate) apps: String,
    /// The name of the workflow's framework. `None`: the daemon has neither workflow nor discovery.
    pub(crate) jobs: Option<String>,
    /// `store.server`.
    pub(crate) store: String,
}

impl Setup {
    fn toml(&self) -> String {
        let mut toml = format!(
            "[log]\nformat = \"json\"\nlevel = \"info\"\n[cluster]\nmaster = {}\n",
            quoted(&self.master)
        );
        if let Some(user) = &self.options.username {
            // The password is passed in a variable, because logs and configuration may be kept and
            // passed on.
            let user = quoted(user);
            let _ = writeln!(toml, "username = {user}\nprincipal = {user}");
        }
        let framework = |name: &str| {
            format!(
                "port = 0\nframework_name = {}\nrole = {}\nuser = {}\nfailover_timeout = {}\n",
                quoted(name),
                quoted(&self.options.role),
                quoted(&self.options.task_user),
                FAILOVER_TIMEOUT.as_secs(),
            )
        };
        let _ = write!(
            toml,
            "[store]\nserver = {}\nlease_seconds = 5\n[plugins]\ndir = \"plugins\"\n[admin]\nport = 0\n[apps]\n{}",
            quoted(&self.store),
            framework(&self.apps),
        );
        if let Some(jobs) = &self.jobs {
            let _ = write!(
                toml,
                "[workflow]\n{}containers = false\ntask_disk = 0.0\n\
                 [discovery]\nlistener = \"127.0.0.1\"\nport = 0\nhttp_listener = \"127.0.0.1\"\nhttp_port = 0\n\
                 external_on = false\n",
                framework(jobs),
            );
        }
        toml
    }
}

/// A TOML string.
fn quoted(text: &str) -> String {
    // JSON's escape sequences are valid in TOML.
    Value::from(text).to_string()
}

/// A running daemon; killed when dropped.
#[derive(Debug)]
pub(crate) struct Daemon {
    program: Program,
    addresses: BTreeMap<String, SocketAddr>,
    log: PathBuf,
    /// Offset in the log at which the lines of this process begin.
    log_offset: usize,
}

impl Daemon {
    /// Starts the daemon in `dir` and waits until it listens.
    pub(crate) async fn start(dir: &Path, setup: &Setup, deadline: Instant) -> anyhow::Result<Self> {
        let file = format!("{}.toml", setup.name);
        fs::write(dir.join(&file), setup.toml()).with_context(|| format!("cannot write {file}"))?;
        let log = dir.join(format!("{}.log", setup.name));
        let log_offset = fs::metadata(&log).map_or(0, |log| log.len() as usize);
        let mut command = Command::new(binary());
        if let Some(password) = &setup.options.password {
            command.env("TRANSOM_CLUSTER_PASSWORD", password);
        }
        let program = Program::start(dir, setup.name, command, ["serve", "--config", &file])?;
        let mut daemon = Self {
            program,
            addresses: BTreeMap::new(),
            log,
            log_offset,
        };
        loop {
            if let Some(addresses) = daemon.log_text().lines().find_map(addresses_in) {
                daemon.addresses = addresses;
                return Ok(daemon);
            }
            daemon.check_running()?;
            ensure!(
                Instant::now() < deadline,
                "the daemon did not listen in time: {}",
                daemon.last_lines()
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until the daemon is registered with the master and ready, leading or standing by.
    pub(crate) async fn wait_until_ready(
        &mut self,
        http: &reqwest::Client,
        leading: bool,
        deadline: Instant,
    ) -> anyhow::Result<()> {
        let url = self.url("admin", "/ready")?;
        let what = if leading {
            "the daemon to lead and be ready"
        } else {
            "the daemon to stand by"
        };
        let probe = || async {
            let answer = http.get(&url).send().await.map_err(|error| error.to_string())?;
            let seen: Value = answer.json().await.map_err(|error| error.to_string())?;
            if seen["ready"] == true && seen["services"]["apps"]["framework"]["leading"] == leading {
                Ok(())
            } else {
                Err(seen.to_string())
            }
        };
        match retry_until(deadline, POLL_INTERVAL, what, probe).await {
            Ok(()) => Ok(()),
            Err(error) => {
                self.check_running()?;
                bail!("{error}; the end of its log: {}", self.last_lines())
            }
        }
    }

    /// A URL on one of its ports, by the names of `--port`.
    pub(crate) fn url(&self, port: &str, path: &str) -> anyhow::Result<String> {
        Ok(format!("http://{}{path}", self.address(port)?))
    }

    pub(crate) fn address(&self, port: &str) -> anyhow::Result<SocketAddr> {
        let address = self.addresses.get(port).copied();
        address.with_context(|| format!("the daemon has no port `{port}`"))
    }

    fn check_running(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.program.exit_status() {
            bail!("the daemon ended ({status}): {}", self.last_lines());
        }
        Ok(())
    }

    /// Stops the daemon with SIGTERM, as a supervisor does. An error means that it had to be killed
    /// or ended with a failure.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        let ended = self.program.stop().await;
        let status = ended.context("the daemon did not end on SIGTERM within 20 s")?;
        ensure!(status.success(), "the daemon ended with {status} on SIGTERM");
        Ok(())
    }

    /// Kills the daemon with SIGKILL.
    pub(crate) fn kill(self) {
        drop(self.program);
    }

    fn log_text(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(text.get(self.log_offset..).unwrap_or_default());
        // An incomplete line is read next time.
        text.rfind('\n')
            .map_or(String::new(), |end| text[..end].to_owned())
    }

    /// The last warnings and errors of the log, or its last lines if there are none.
    fn last_lines(&self) -> String {
        let text = self.log_text();
        let warns = |line: &&str| ["\"WARN\"", "\"ERROR\""].iter().any(|level| line.contains(level));
        let mut lines: Vec<&str> = text.lines().filter(warns).collect();
        if lines.is_empty() {
            lines = text.lines().collect();
        }
        let last = &lines[lines.len().saturating_sub(MAX_LOG_LINES)..];
        format!("{} ({})", last.join(" | "), self.log.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_has_no_password() {
        let setup = Setup {
            name: "daemon",
            master: "h:5050".to_owned(),
            options: Options::of(&["--username", "o\"p", "--password", "secret"]),
            apps: "a".to_owned(),
            jobs: Some("j".to_owned()),
            store: "file:store".to_owned(),
        };
        let toml = setup.toml();
        assert!(!toml.contains("secret"), "{toml}");
        assert!(toml.contains("username = \"o\\\"p\""), "{toml}");
    }
}
