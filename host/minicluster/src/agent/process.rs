//! Processes in their own process groups: starts and signals them, and describes how they ended.

use crate::{state::Launch, wire::json as doc};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::{Pid, User},
};
use serde_json::Value;
use std::{
    io,
    os::unix::process::ExitStatusExt,
    process::{ExitStatus, Stdio},
};
use tokio::process::{Child, Command};

/// The default `PATH` of tasks.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A started process, the leader of its group.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) pid: u32,
    /// Clock ticks from the start of the machine to the start of the process. Together with the pid
    /// they identify the process.
    pub(crate) started: u64,
}

impl Process {
    /// Starts a command in its own group. Directory, environment and streams of the command are
    /// already set.
    pub(crate) fn spawn(mut command: Command) -> io::Result<Self> {
        command.process_group(0).kill_on_drop(true);
        let child = command.spawn()?;
        let pid = child
            .id()
            .ok_or_else(|| io::Error::other("the process has no id"))?;
        Ok(Self {
            child,
            pid,
            started: start_time(pid).unwrap_or(0),
        })
    }

    /// Signals the whole group. A missing group is no error.
    pub(crate) fn signal(&self, signal: Signal) {
        signal_group(self.pid, signal);
    }

    /// Waits for the leader, then kills the rest of the group.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.signal(Signal::SIGKILL);
        status
    }

    /// Kills the group and waits for its leader.
    pub(crate) async fn destroy(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::SIGKILL);
        self.wait().await
    }
}

/// The 22nd field of `/proc/<pid>/stat`. The second one is a name in brackets that may contain any
/// character.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Signals a process group by its leader.
pub(crate) fn signal_group(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        // ESRCH: the group has already ended, which is the desired result.
        let _ = killpg(Pid::from_raw(pid), signal);
    }
}

/// Turns a `CommandInfo` into a command in the task's sandbox, with the environment of tasks.
pub(crate) fn command(info: &Value, launch: &Launch) -> Command {
    let value = doc::text(info, &["value"]).unwrap_or_default();
    let mut command = if info["shell"] == false {
        let mut command = Command::new(value);
        let arguments: Vec<&str> = doc::list(info, &["arguments"])
            .iter()
            .filter_map(Value::as_str)
            .collect();
        if let Some((name, others)) = arguments.split_first() {
            command.arg0(name).args(others);
        }
        command
    } else {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(value);
        command
    };
    command
        .env_clear()
        .envs(environment(launch))
        .current_dir(&launch.directory)
        .stdin(Stdio::null());
    set_variables(&mut command, info);
    if let Some(user) = user_to_switch_to(&launch.user) {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    command
}

/// Turns the `CommandInfo` of a check or of a nested container into a command beside the task.
///
/// A real agent passes the variables of a task's command to its command executor, and the executor's
/// checks inherit them; a nested container for debugging inherits those of its parent. The command's
/// own variables take precedence.
pub(crate) fn command_in_task(info: &Value, launch: &Launch) -> Command {
    let mut command = command(info, launch);
    set_variables(&mut command, &launch.info["command"]);
    set_variables(&mut command, info);
    command
}

fn set_variables(command: &mut Command, info: &Value) {
    for variable in doc::list(info, &["environment", "variables"]) {
        if let (Some(name), Some(value)) = (variable["name"].as_str(), variable["value"].as_str())
            && !name.is_empty()
            && !name.contains(['=', '\0'])
            && !value.contains('\0')
        {
            command.env(name, value);
        }
    }
}

/// The environment of every task without the variables of its own command: the variables that a
/// real agent passes to the executor. None of them identifies the task; a framework that needs this
/// sets a variable in the command. For a command task, the executor's id is the task's id.
pub(crate) fn environment(launch: &Launch) -> Vec<(&'static str, String)> {
    let sandbox = launch.directory.display().to_string();
    let ip = launch.agent_addr.ip().to_string();
    let mut variables = vec![
        ("PATH", DEFAULT_PATH.to_owned()),
        ("LIBPROCESS_IP", ip.clone()),
        ("LIBPROCESS_PORT", "0".to_owned()),
        ("MESOS_SANDBOX", sandbox.clone()),
        ("MESOS_DIRECTORY", sandbox),
        ("MESOS_EXECUTOR_ID", launch.executor_id.clone()),
        ("MESOS_FRAMEWORK_ID", launch.key.framework.to_string()),
        ("MESOS_SLAVE_ID", launch.agent.to_string()),
        ("MESOS_SLAVE_PID", format!("slave(1)@{}", launch.agent_addr)),
        ("MESOS_AGENT_ENDPOINT", launch.agent_addr.to_string()),
    ];
    variables.extend(launch.variables.iter().cloned());
    // Only the executor of a task group sets this variable.
    if launch.executor_id != launch.key.task.as_str() {
        variables.push(("MESOS_CONTAINER_IP", ip));
    }
    variables
}

/// The account to switch to: only root can switch, and only to another account.
pub(crate) fn user_to_switch_to(name: &str) -> Option<User> {
    if !nix::unistd::geteuid().is_root() || name.is_empty() || name == "root" {
        return None;
    }
    User::from_name(name).ok().flatten()
}

/// Describes the end of a process with the executor's message.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("Command exited with status {code}"),
        (None, Some(signal)) => format!("Command terminated with signal {}", signal_name(signal)),
        (None, None) => "Command ended for an unknown reason".to_owned(),
    }
}

/// The raw wait status of a process, as the agent API reports it.
pub(crate) fn raw_status(status: ExitStatus) -> i32 {
    status.into_raw()
}

/// The name of a signal as in `strsignal`.
fn signal_name(signal: i32) -> String {
    let name = match Signal::try_from(signal) {
        Ok(Signal::SIGHUP) => "Hangup",
        Ok(Signal::SIGINT) => "Interrupt",
        Ok(Signal::SIGQUIT) => "Quit",
        Ok(Signal::SIGILL) => "Illegal instruction",
        Ok(Signal::SIGTRAP) => "Trace/breakpoint trap",
        Ok(Signal::SIGABRT) => "Aborted",
        Ok(Signal::SIGBUS) => "Bus error",
        Ok(Signal::SIGFPE) => "Floating point exception",
        Ok(Signal::SIGKILL) => "Killed",
        Ok(Signal::SIGUSR1) => "User defined signal 1",
        Ok(Signal::SIGSEGV) => "Segmentation fault",
        Ok(Signal::SIGUSR2) => "User defined signal 2",
        Ok(Signal::SIGPIPE) => "Broken pipe",
        Ok(Signal::SIGALRM) => "Alarm clock",
        Ok(Signal::SIGTERM) => "Terminated",
        _ => return signal.to_string(),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_statuses_are_described_as_recorded() {
        assert_eq!(
            describe(ExitStatus::from_raw(3 << 8)),
            "Command exited with status 3"
        );
        assert_eq!(
            describe(ExitStatus::from_raw(9)),
            "Command terminated with signal Killed"
        );
        assert_eq!(
            describe(ExitStatus::from_raw(15)),
            "Command terminated with signal Terminated"
        );
    }
}
