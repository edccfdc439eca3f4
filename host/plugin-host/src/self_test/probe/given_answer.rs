//! The answers to the steps of a probe's case.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    self_test::forms::Bytes,
    worlds::{
        probe::{CommandOutput, IoError},
        step::{Answer, HttpResponse},
    },
};

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) enum GivenAnswer {
    Http(GivenResponse),
    Connected(u64),
    Sent(bool),
    Received(Bytes),
    Ran(GivenOutput),
    Error(GivenError),
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct GivenResponse {
    status: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
    #[serde(default)]
    body: Bytes,
    #[serde(default = "default_elapsed_millis")]
    elapsed_millis: u64,
}

fn default_elapsed_millis() -> u64 {
    1
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct GivenOutput {
    exit_code: i32,
    #[serde(default)]
    stdout: Bytes,
    #[serde(default)]
    stderr: Bytes,
}

/// `"refused"`, or `{ kind = "tls", message = "…" }`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub(super) enum GivenError {
    Kind(ErrorKind),
    Detailed { kind: ErrorKind, message: String },
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ErrorKind {
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
    pub(super) fn key(&self) -> &'static str {
        match self {
            GivenAnswer::Http(_) => "http",
            GivenAnswer::Connected(_) => "connected",
            GivenAnswer::Sent(_) => "sent",
            GivenAnswer::Received(_) => "received",
            GivenAnswer::Ran(_) => "ran",
            GivenAnswer::Error(_) => "error",
        }
    }

    /// Converts an answer of a recorded attempt.
    pub(super) fn of(answer: &Answer) -> GivenAnswer {
        match answer {
            Answer::Http(Ok(it)) => GivenAnswer::Http(GivenResponse {
                status: it.status,
                headers: it.headers.clone(),
                body: Bytes::of(&it.body),
                elapsed_millis: millis(it.elapsed),
            }),
            Answer::Connected(Ok(elapsed)) => GivenAnswer::Connected(millis(*elapsed)),
            Answer::Sent(Ok(())) => GivenAnswer::Sent(true),
            Answer::Received(Ok(bytes)) => GivenAnswer::Received(Bytes::of(bytes)),
            Answer::Ran(Ok(it)) => GivenAnswer::Ran(GivenOutput {
                exit_code: it.exit_code,
                stdout: Bytes::of(&it.stdout),
                stderr: Bytes::of(&it.stderr),
            }),
            Answer::Http(Err(error))
            | Answer::Connected(Err(error))
            | Answer::Sent(Err(error))
            | Answer::Received(Err(error))
            | Answer::Ran(Err(error)) => GivenAnswer::Error(GivenError::of(error)),
        }
    }
}

/// Converts to milliseconds, the unit of the interface.
fn millis(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

impl GivenResponse {
    pub(super) fn into_response(self) -> HttpResponse {
        HttpResponse {
            status: self.status,
            headers: self.headers,
            body: self.body.into_bytes(),
            elapsed: Duration::from_millis(self.elapsed_millis),
        }
    }
}

impl GivenOutput {
    pub(super) fn into_output(self) -> CommandOutput {
        CommandOutput {
            exit_code: self.exit_code,
            stdout: self.stdout.into_bytes(),
            stderr: self.stderr.into_bytes(),
        }
    }
}

impl GivenError {
    /// The error that `{ sent = false }` stands for.
    pub(super) fn closed() -> IoError {
        IoError::Closed
    }

    pub(super) fn is_protocol(&self) -> bool {
        let (GivenError::Kind(kind) | GivenError::Detailed { kind, .. }) = self;
        *kind == ErrorKind::Protocol
    }

    fn of(error: &IoError) -> GivenError {
        let detailed = |kind, message: &String| GivenError::Detailed {
            kind,
            message: message.clone(),
        };
        GivenError::Kind(match error {
            IoError::Denied => ErrorKind::Denied,
            IoError::Unresolved => ErrorKind::Unresolved,
            IoError::Refused => ErrorKind::Refused,
            IoError::Unreachable => ErrorKind::Unreachable,
            IoError::TimedOut => ErrorKind::TimedOut,
            IoError::Closed => ErrorKind::Closed,
            IoError::Tls(text) => return detailed(ErrorKind::Tls, text),
            IoError::Protocol(text) => return detailed(ErrorKind::Protocol, text),
            IoError::Unavailable(text) => return detailed(ErrorKind::Unavailable, text),
        })
    }

    pub(super) fn into_error(self) -> IoError {
        let (kind, text) = match self {
            GivenError::Kind(kind) => (kind, "from the self-test".to_owned()),
            GivenError::Detailed { kind, message } => (kind, message),
        };
        match kind {
            ErrorKind::Denied => IoError::Denied,
            ErrorKind::Unresolved => IoError::Unresolved,
            ErrorKind::Refused => IoError::Refused,
            ErrorKind::Unreachable => IoError::Unreachable,
            ErrorKind::TimedOut => IoError::TimedOut,
            ErrorKind::Closed => IoError::Closed,
            ErrorKind::Tls => IoError::Tls(text),
            ErrorKind::Protocol => IoError::Protocol(text),
            ErrorKind::Unavailable => IoError::Unavailable(text),
        }
    }
}
