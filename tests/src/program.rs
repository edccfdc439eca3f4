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

/// How long a program that is asked to end may take.
const FAREWELL: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);

/// A running program; killed when dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    /// Asked to end before it is killed.
    polite: bool,
}

impl Program {
    /// Starts it in `dir` and appends its output to `dir/NAME.log`. Of the variables `TRANSOM_*` it gets only those set on
    /// `command`. It has a process group of its own, so that Ctrl-C reaches the caller alone, which stops its programs in
    /// order.
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
        let set: Vec<OsString> = command.get_envs().map(|(name, _)| name.to_owned()).collect();
        command
            .args(arguments)
            .current_dir(dir)
            .env("RUST_BACKTRACE", "0")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("TRANSOM_") && !set.contains(&variable) {
                command.env_remove(variable);
            }
        }
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { child, polite: false })
    }

    /// Lets it end by itself before it is killed when it is dropped.
    pub fn polite(mut self) -> Self {
        self.polite = true;
        self
    }

    pub fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // Not reaped yet, so the pid is still its own; that it has ended is no error.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// SIGTERM, and SIGKILL when that does not do. Returns how it ended, `None` when it had to be killed.
    pub async fn stop(mut self) -> Option<ExitStatus> {
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
