//! A child process that logs to a file and is killed when its handle is dropped.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Time between SIGTERM and SIGKILL.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A running program; killed when dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    /// Whether to send SIGTERM before SIGKILL.
    stops_gracefully: bool,
}

impl Program {
    /// Starts the program in `dir` and appends its output to `dir/NAME.log`. It inherits no
    /// variables `TRANSOM_*` and receives only those that are set on `command`. It has its own
    /// process group, so that Ctrl-C reaches only the caller, which stops its programs in order.
    pub fn start<S: AsRef<OsStr>>(
        dir: &Path,
        name: &str,
        mut command: Command,
        arguments: impl IntoIterator<Item = S>,
    ) -> anyhow::Result<Self> {
        let path = dir.join(format!("{name}.log"));
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        let explicit_variables: Vec<OsString> = command.get_envs().map(|(name, _)| name.to_owned()).collect();
        command
            .args(arguments)
            .current_dir(dir)
            .env("RUST_BACKTRACE", "0")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("TRANSOM_") && !explicit_variables.contains(&variable) {
                command.env_remove(variable);
            }
        }
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self {
            child,
            stops_gracefully: false,
        })
    }

    /// Sends SIGTERM before SIGKILL when it is dropped.
    pub fn with_graceful_stop(mut self) -> Self {
        self.stops_gracefully = true;
        self
    }

    pub fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // The child is not reaped yet, so its pid cannot belong to another process. If it has
            // ended already, the error does not matter.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Its exit status, if it has ended.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends SIGTERM, and SIGKILL after a timeout. Returns the exit status, or `None` if SIGKILL
    /// was necessary.
    pub async fn stop(mut self) -> Option<ExitStatus> {
        self.signal(Signal::SIGTERM);
        let deadline = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.exit_status() {
                return Some(status);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        None
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.exit_status().is_some() {
            return;
        }
        if self.stops_gracefully {
            self.signal(Signal::SIGCONT);
            self.signal(Signal::SIGTERM);
            let deadline = Instant::now() + STOP_TIMEOUT;
            while self.exit_status().is_none() && Instant::now() < deadline {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
