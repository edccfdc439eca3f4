//! Probes: the types of `check-probe` components.
//!
//! The types mirror the WIT package `transom:probe` and do not depend on the engine.
//! [`crate::Plugins::probe`] calls the component. The host does the input and output that the
//! component requests, within the plugin's grants and limits.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// The kind of a [`Failure`].
pub use transom_plugin_cases::probe::Reason;

/// A host (name or address, IPv6 without brackets) and a TCP port.
pub use transom_common::HostPort as Endpoint;

/// The plugin that probes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The plugin that `uses.http` names.
    Http,
    /// The plugin that `uses.tcp` names.
    Tcp,
    /// The plugin that `uses.exec` names.
    Exec,
    /// The plugin that a check of kind `plugin` names.
    Named(String),
}

/// One of the task's own ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The port's name in the definition.
    pub name: Option<String>,
    /// `tcp`, `udp`.
    pub protocol: String,
    /// Address and port under which it can be reached.
    pub endpoint: Endpoint,
}

/// Maximum size in bytes of a custom outcome. The outcome is kept for each task and sent to each
/// subscriber of the event stream.
pub const MAX_OUTCOME: usize = 4096;

/// The result of an attempt, in the form of `checkResult`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// HTTP status code.
    Http(u16),
    /// Whether the connection succeeded.
    Tcp(bool),
    /// The command's exit code.
    Command(i32),
    /// A JSON object as text, of at most [`MAX_OUTCOME`] bytes. If a component reports more, its
    /// attempt fails.
    Custom(String),
}

/// One probe of one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Absolute id of the app or pod: `/shop/web`.
    pub run_spec: String,
    /// The task's id.
    pub task: String,
    /// Host name of the agent that it runs on.
    pub agent: String,
    /// The task's labels.
    pub labels: Vec<(String, String)>,
    /// The task's ports. The grant `network = ["task"]` allows these and `endpoint`.
    pub ports: Vec<Port>,
    /// The port that the check names.
    pub endpoint: Option<Endpoint>,
    /// The check's `path`; `/` when it has none.
    pub path: String,
    /// The check's `exec.command.shell`.
    pub command: Option<String>,
    /// The check's `plugin.settings` as JSON; `{}` when it has none.
    pub settings: String,
    /// The result of the last finished attempt.
    pub previous: Option<Outcome>,
    /// Time limit of the attempt as a whole. Fractions of a millisecond are ignored.
    pub timeout: Duration,
    /// Fields of later versions of the interface; see `transom:probe`.
    pub extensions: Vec<(String, String)>,
}

/// A command to run where the task runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandLine {
    /// Handed to `/bin/sh -c`.
    Shell(String),
    /// Program and arguments.
    Argv(Vec<String>),
}

/// The result of a command. Only the last 4,096 bytes of each stream reach the component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// The exit code; 128 plus the number of the signal if a signal ended it.
    pub exit_code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

/// Why a step of input or output failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoError {
    /// The destination, or running commands, is not granted to this plugin.
    #[error("not granted to this plugin")]
    Denied,
    /// The name did not resolve.
    #[error("the name does not resolve")]
    Unresolved,
    /// The peer refused the connection.
    #[error("connection refused")]
    Refused,
    /// No route to the peer.
    #[error("unreachable")]
    Unreachable,
    /// The attempt's deadline passed.
    #[error("timed out")]
    TimedOut,
    /// The peer closed the connection.
    #[error("connection closed by the peer")]
    Closed,
    /// The TLS handshake failed.
    #[error("TLS: {0}")]
    Tls(String),
    /// The peer broke the protocol, or sent more than was allowed.
    #[error("protocol: {0}")]
    Protocol(String),
    /// The task does not run, or its agent cannot run a command in it.
    #[error("unavailable: {0}")]
    Unavailable(String),
}

/// The reason why the probe has no result. The check keeps its last result and shows this failure
/// with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The kind, for programs.
    pub reason: Reason,
    /// The failure in one line, for an operator.
    pub message: String,
}

/// Runs commands where a task runs, for components that were granted `command`.
#[async_trait]
pub trait Runner: Send + Sync {
    /// Runs `command` with the task's environment; fails after `timeout`.
    async fn run(&self, command: CommandLine, timeout: Duration) -> Result<CommandOutput, IoError>;
}
