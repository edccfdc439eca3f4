//! Checks (specification, part C, "Check definition"): a probe of each instance whose result is
//! shown and has no effect.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::settings::{CheckRunner, Checks};

/// A check: exactly one kind, and its times. An app names the port by number or index, a pod by the
/// name of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Check{P}")]
pub(crate) struct Check<P = CheckPort> {
    #[serde(flatten)]
    pub(crate) kind: CheckKind<P>,
    /// Seconds between two attempts; larger than the timeout, so at least 1.
    pub(crate) interval_seconds: u32,
    pub(crate) timeout_seconds: u32,
    /// Seconds from the start of the task to the first attempt.
    pub(crate) delay_seconds: u32,
}

impl<P> Check<P> {
    /// Whether this daemon, and not the agent, makes the check.
    pub(crate) fn is_made_by_daemon(&self, checks: Checks) -> bool {
        match self.kind {
            CheckKind::Http { .. } | CheckKind::Tcp { .. } => checks.network_from == CheckRunner::Daemon,
            CheckKind::Exec { .. } => checks.exec_from == CheckRunner::Daemon,
            CheckKind::Plugin(_) => true,
        }
    }

    /// The name of its kind in the document.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self.kind {
            CheckKind::Http { .. } => "http",
            CheckKind::Tcp { .. } => "tcp",
            CheckKind::Exec { .. } => "exec",
            CheckKind::Plugin(_) => "plugin",
        }
    }

    /// The port of the check as its definition names it, for the kinds that have one.
    pub(crate) fn target(&self) -> Option<&P> {
        match &self.kind {
            CheckKind::Http { port, .. } | CheckKind::Tcp { port } => Some(port),
            CheckKind::Exec { .. } | CheckKind::Plugin(_) => None,
        }
    }

    /// The same check with its port in another form; `None` if the port does not exist in that
    /// form.
    pub(crate) fn with_port<Q>(&self, port: impl FnOnce(&P) -> Option<Q>) -> Option<Check<Q>> {
        let kind = match &self.kind {
            CheckKind::Http {
                port: from,
                path,
                scheme,
            } => CheckKind::Http {
                port: port(from)?,
                path: path.clone(),
                scheme: *scheme,
            },
            CheckKind::Tcp { port: from } => CheckKind::Tcp { port: port(from)? },
            CheckKind::Exec { command } => CheckKind::Exec {
                command: command.clone(),
            },
            CheckKind::Plugin(plugin) => CheckKind::Plugin(plugin.clone()),
        };
        Some(Check {
            kind,
            interval_seconds: self.interval_seconds,
            timeout_seconds: self.timeout_seconds,
            delay_seconds: self.delay_seconds,
        })
    }
}

impl Check {
    /// The port of the check, for the kinds that have one.
    pub(crate) fn port(&self) -> Option<CheckPort> {
        self.target().copied()
    }
}

/// The kind of a check, with its target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CheckKind<P = CheckPort> {
    /// A GET; the result is the status code.
    Http {
        #[serde(flatten)]
        port: P,
        /// Shown as given; the default is `/`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        scheme: CheckScheme,
    },
    /// A connection; the result is whether it was accepted.
    Tcp {
        #[serde(flatten)]
        port: P,
    },
    /// A command inside the task; the result is its exit code.
    Exec { command: CheckCommand },
    /// A custom probe; the result is the JSON object that it reports.
    Plugin(PluginCheck),
}

/// The component of a check, and the settings that it receives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PluginCheck {
    /// The name of a check-probe component.
    pub(crate) name: String,
    /// An object.
    #[serde(default = "no_settings")]
    pub(crate) settings: Value,
}

fn no_settings() -> Value {
    Value::Object(Map::new())
}

/// The port of a check, by number or by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AtPort")]
pub(crate) enum CheckPort {
    /// A port number.
    Port(u16),
    /// An index into the app's ports.
    PortIndex(u16),
}

/// Only plain HTTP is supported, as the specification requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum CheckScheme {
    #[serde(rename = "HTTP")]
    Http,
}

/// A command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CheckCommand {
    /// A text for `/bin/sh -c`.
    Shell(String),
    /// A program and its arguments, never empty.
    Argv(Vec<String>),
}
