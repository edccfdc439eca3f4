//! A child process whose output goes to a file, and which is gone when its handle is.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long a program that is asked to end may take.
const FAREWELL: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);

/// A running program; killed when dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    /// Asked to end before it is killed.
    polite: bool,
}

impl Program {
    /// Starts it in `dir`; its output is appended to `dir/NAME.log`.
    pub(crate) fn start<S: AsRef<OsStr>>(
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
        command
            .args(arguments)
            .current_dir(dir)
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("TRANSOM_") {
                command.env_remove(variable);
            }
        }
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { child, polite: false })
    }

    /// Lets it end by itself before it is killed when it is dropped.
    pub(crate) fn polite(mut self) -> Self {
        self.polite = true;
        self
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // Not reaped yet, so the pid is still its own; that it has ended is no error.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// SIGTERM, and SIGKILL when that does not do. Returns how it ended, `None` when it had to be killed.
    pub(crate) async fn stop(mut self) -> Option<ExitStatus> {
        self.signal(Signal::SIGTERM);
        let deadline = Instant::now() + FAREWELL;
        while Instant::now() < deadline {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            tokio::time::sleep(POLL).await;
        }
        None
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.ended().is_some() {
            return;
        }
        if self.polite {
            self.signal(Signal::SIGCONT);
            self.signal(Signal::SIGTERM);
            let deadline = Instant::now() + FAREWELL;
            while self.ended().is_none() && Instant::now() < deadline {
                std::thread::sleep(POLL);
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
