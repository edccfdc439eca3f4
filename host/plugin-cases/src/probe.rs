//! Cases of world `check-probe`: a request, the answer to each step, and the result.
//!
//! ```toml
//! [[self-test]]
//! endpoint = "10.0.0.1:80"                 # the check's port; left out: it names none
//! path = "/health"                         # also `command` and `settings`
//! answers = [{ http = { status = 503, body = "no" } }]
//!           # or { connected = 3 }, { sent = true }, { received = "text" }, { ran = { exit-code = 1, stdout = "", stderr = "" } },
//!           # or { error = "refused" } to whatever it asks for
//! expect = { http = 503 }                  # or { tcp = true }, { command = 1 }, { custom = {} }, { failed = "timed-out" }
//! ```
//!
//! Also: `run-spec`, `task`, `agent`, `labels` and `extensions` (pairs), `ports` (a list of `{ name
//! = "http", protocol = "tcp", endpoint = "10.0.0.1:80" }`), `previous` (as `expect`),
//! `timeout-millis`, and `steps`: the steps that the component has to request, one for each answer,
//! in the form of recorded calls. Bytes that are not UTF-8 are `{ hex = "…" }`.

#![allow(missing_docs, reason = "the page describes the keys")]

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use transom_common::text::clip;

use crate::{Answer, Masks, answer, compare, forms::Bytes};

/// One recorded attempt.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Case {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_spec: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<GivenPort>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    #[serde(default = "root")]
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub settings: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<Expected>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_millis: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<GivenStep>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<GivenAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expected>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GivenPort {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub protocol: String,
    pub endpoint: String,
}

fn root() -> String {
    "/".to_owned()
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Expected {
    Http(u16),
    Tcp(bool),
    Command(i32),
    Custom(Value),
    Failed(Reason),
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum GivenAnswer {
    Http(GivenResponse),
    Connected(u64),
    Sent(bool),
    Received(Bytes),
    Ran(GivenOutput),
    Error(GivenError),
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GivenResponse {
    pub status: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    #[serde(default)]
    pub body: Bytes,
    #[serde(default = "default_elapsed_millis")]
    pub elapsed_millis: u64,
}

fn default_elapsed_millis() -> u64 {
    1
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GivenOutput {
    pub exit_code: i32,
    #[serde(default)]
    pub stdout: Bytes,
    #[serde(default)]
    pub stderr: Bytes,
}

/// `"refused"`, or `{ kind = "tls", message = "…" }`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum GivenError {
    Kind(ErrorKind),
    Detailed { kind: ErrorKind, message: String },
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    Denied,
    Unresolved,
    Refused,
    Unreachable,
    TimedOut,
    Closed,
    Tls,
    Protocol,
    Unavailable,
}

impl GivenAnswer {
    /// Returns the key of the answer in a case.
    pub fn key(&self) -> &'static str {
        match self {
            GivenAnswer::Http(_) => "http",
            GivenAnswer::Connected(_) => "connected",
            GivenAnswer::Sent(_) => "sent",
            GivenAnswer::Received(_) => "received",
            GivenAnswer::Ran(_) => "ran",
            GivenAnswer::Error(_) => "error",
        }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum GivenStep {
    Http(GivenRequest),
    Connect {
        to: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        tls: Option<GivenTls>,
    },
    Send(Bytes),
    Receive(u32),
    Shell(String),
    Argv(Vec<String>),
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GivenRequest {
    pub method: String,
    pub to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<GivenTls>,
    pub path: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    #[serde(default)]
    pub body: Bytes,
    pub max_body: u32,
    #[serde(default)]
    pub redirects: u8,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GivenTls {
    pub server_name: String,
    pub verify: bool,
}

/// Maximum number of bytes of a step in a message.
const MAX_STEP_BYTES: usize = 200;

/// Checks a requested step against the recorded one, in which a mask matches any text. `None`: the
/// component ends the attempt.
pub fn check_step(requested: Option<&GivenStep>, expected: &GivenStep) -> Result<(), String> {
    let step = |step: Option<&GivenStep>| match step {
        Some(step) => answer("expect", step),
        None => answer("expect", "its end"),
    };
    let (mut expected, mut requested) = (step(Some(expected)), step(requested));
    if compare(&expected, &requested, Masks::Possible).is_none() {
        return Ok(());
    }
    keep_differences(&mut expected["expect"], &mut requested["expect"]);
    let clipped = |step: &Answer| clip(&step["expect"].to_string(), MAX_STEP_BYTES);
    Err(format!(
        "it requests {}, expected {}",
        clipped(&requested),
        clipped(&expected)
    ))
}

/// Reduces two steps of one kind to the members that differ.
fn keep_differences(expected: &mut Value, requested: &mut Value) {
    let (Value::Object(expected), Value::Object(requested)) = (expected, requested) else {
        return;
    };
    for (kind, expected) in expected {
        if let (Value::Object(expected), Some(Value::Object(requested))) = (expected, requested.get_mut(kind))
        {
            expected.retain(|name, value| {
                let requested_value = requested.get(name);
                let is_equal = requested_value.is_some_and(|it| Masks::Possible.is_equal(value, it));
                if is_equal {
                    requested.remove(name);
                }
                !is_equal
            });
        }
    }
}

/// The reason why an attempt has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The attempt's deadline passed.
    TimedOut,
    /// A destination or the running of commands is not granted.
    Denied,
    /// The task could not be reached.
    Unreachable,
    /// The check's settings are invalid for the component.
    Invalid,
    /// An internal error of the component.
    Internal,
    /// The plugin is missing, trapped, or exceeded one of its limits.
    Plugin,
}

impl Reason {
    /// Returns its name in JSON documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TimedOut => "timed-out",
            Self::Denied => "denied",
            Self::Unreachable => "unreachable",
            Self::Invalid => "invalid",
            Self::Internal => "internal",
            Self::Plugin => "plugin",
        }
    }
}
