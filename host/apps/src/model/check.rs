//! Checks (specification, part C, "Check definition"): an abstract look at each instance whose result is shown and not judged.

use serde::{Deserialize, Serialize};

/// A check: exactly one kind, and when it is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Check {
    #[serde(flatten)]
    pub(crate) kind: CheckKind,
    /// Seconds between two looks; larger than the timeout, so at least 1.
    pub(crate) interval_seconds: u32,
    pub(crate) timeout_seconds: u32,
    /// Seconds from the start of the task to the first look.
    pub(crate) delay_seconds: u32,
}

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CheckKind {
    /// A GET; the result is the status code.
    Http {
        #[serde(flatten)]
        port: CheckPort,
        /// Shown as given; `/` is asked for when there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        scheme: CheckScheme,
    },
    /// A connection; the result is whether it was accepted.
    Tcp {
        #[serde(flatten)]
        port: CheckPort,
    },
    /// A command inside the task; the result is its exit code.
    Exec { command: CheckCommand },
}

/// The port that a check names, one way or the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum CheckPort {
    /// This very port.
    Port(u16),
    /// Index into the app's ports.
    PortIndex(u16),
}

/// Only plain HTTP is supported, as the specification says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CheckScheme {
    #[serde(rename = "HTTP")]
    Http,
}

/// A command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CheckCommand {
    /// For `/bin/sh -c`.
    Shell(String),
    /// A program and its arguments; at least the program.
    Argv(Vec<String>),
}

impl Check {
    /// The port it names, for the kinds that name one.
    pub(crate) fn port(&self) -> Option<CheckPort> {
        match &self.kind {
            CheckKind::Http { port, .. } | CheckKind::Tcp { port } => Some(*port),
            CheckKind::Exec { .. } => None,
        }
    }
}
