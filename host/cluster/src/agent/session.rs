//! One command in a running task: a session that streams its output, then a call for its exit
//! status.
//!
//! The container lives as long as the session's connection, so dropping this future ends the
//! command.

use crate::error::{Error, Result};
use crate::http::{AGENT, Http, Request, address};
use crate::ids::ContainerId;
use crate::stream::{Opened, RecordStream};
use crate::v1::CommandInfo;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{ACCEPT, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;
use url::Url;

/// The number of bytes that are kept from the end of each output.
const MAX_OUTPUT_BYTES: usize = 4096;
/// The maximum size of one chunk of output.
const MAX_RECORD_BYTES: u64 = 4 << 20;
/// The timeout of the cleanup.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(1);

const MESSAGE_ACCEPT: HeaderName = HeaderName::from_static("message-accept");
const LAUNCH: &str = "LAUNCH_NESTED_CONTAINER_SESSION";

/// The exit status and the output of a command.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CommandResult {
    /// The exit code; as in a shell, 128 and the signal's number for a command ended by a signal.
    pub exit_code: i32,
    /// The last 4,096 bytes of standard output.
    pub stdout: Vec<u8>,
    /// The last 4,096 bytes of standard error.
    pub stderr: Vec<u8>,
}

/// One record of a session.
#[derive(Deserialize)]
struct ProcessIo {
    data: Option<OutputChunk>,
}

#[derive(Deserialize)]
struct OutputChunk {
    r#type: String,
    /// Base64.
    #[serde(default)]
    data: String,
}

#[derive(Deserialize)]
struct WaitResult {
    wait_nested_container: Termination,
}

#[derive(Deserialize)]
struct Termination {
    exit_status: Option<i32>,
}

pub(super) async fn run(
    http: &Http,
    url: Url,
    parent: &ContainerId,
    command: &CommandInfo,
    limit: Duration,
) -> Result<CommandResult> {
    let container = parent.child(uuid::Uuid::new_v4().to_string());
    let outcome = timeout(limit, session(http, &url, &container, command, limit)).await;
    let cleanup_call = if outcome.is_ok() {
        "REMOVE_NESTED_CONTAINER"
    } else {
        "KILL_NESTED_CONTAINER"
    };
    // An agent that did not accept the container has nothing to remove.
    if !matches!(
        outcome,
        Ok(Err(Error::Rejected { .. }
            | Error::Unauthorized { .. }
            | Error::Unreachable { .. }))
    ) {
        let cleanup = timeout(
            CLEANUP_TIMEOUT,
            call_container(http, &url, cleanup_call, &container),
        )
        .await;
        if !matches!(cleanup, Ok(Ok(()))) {
            tracing::debug!(%container, call = cleanup_call, "cannot remove the container of a command from the agent");
        }
    }
    outcome.unwrap_or_else(|_| {
        Err(Error::TimedOut {
            address: address(&url),
            call: LAUNCH.to_owned(),
            after: limit,
        })
    })
}

async fn session(
    http: &Http,
    url: &Url,
    container: &ContainerId,
    command: &CommandInfo,
    limit: Duration,
) -> Result<CommandResult> {
    let launch = json!({"type": LAUNCH, "launch_nested_container_session": {
        "container_id": container, "command": command,
    }});
    let mut request = Request::post(url.clone(), AGENT, LAUNCH, &launch)?;
    request
        .headers
        .insert(ACCEPT, HeaderValue::from_static("application/recordio"));
    request
        .headers
        .insert(MESSAGE_ACCEPT, HeaderValue::from_static("application/json"));
    let opened = Opened {
        url: url.clone(),
        response: http.open(&request).await?,
        changes: None,
    };
    let mut records = RecordStream::new(opened, MAX_RECORD_BYTES);
    // A command may be silent until its deadline, and not every agent sends heartbeats here.
    records.set_heartbeat_interval(limit);

    let mut result = CommandResult::default();
    while let Some(record) = records.next().await? {
        let io: ProcessIo =
            serde_json::from_slice(&record).map_err(|source| Error::decode("a command's output", source))?;
        let Some(data) = io.data else { continue };
        let output = match data.r#type.as_str() {
            "STDOUT" => &mut result.stdout,
            "STDERR" => &mut result.stderr,
            _ => continue,
        };
        let bytes = STANDARD.decode(&data.data).map_err(|_| Error::Incomplete {
            what: "a piece of a command's output".to_owned(),
            missing: "data in base64",
        })?;
        append_bounded(output, &bytes);
    }
    let waited: WaitResult = http
        .fetch_json(&container_request(url, "WAIT_NESTED_CONTAINER", container)?)
        .await?;
    let status = waited
        .wait_nested_container
        .exit_status
        .ok_or_else(|| Error::Incomplete {
            what: format!("the answer of {} to WAIT_NESTED_CONTAINER", address(url)),
            missing: "an exit_status",
        })?;
    result.exit_code = exit_code(status);
    Ok(result)
}

async fn call_container(http: &Http, url: &Url, call: &str, container: &ContainerId) -> Result<()> {
    http.execute(&container_request(url, call, container)?).await
}

/// A call about one container; its field is named like its type, in lower case.
fn container_request(url: &Url, call: &str, container: &ContainerId) -> Result<Request> {
    let body = json!({"type": call, call.to_lowercase(): {"container_id": container}});
    Request::post(url.clone(), AGENT, call, &body)
}

/// Appends bytes and keeps only the last [`MAX_OUTPUT_BYTES`].
fn append_bounded(output: &mut Vec<u8>, bytes: &[u8]) {
    output.extend_from_slice(&bytes[bytes.len().saturating_sub(MAX_OUTPUT_BYTES)..]);
    output.drain(..output.len().saturating_sub(MAX_OUTPUT_BYTES));
}

/// A wait status as a shell's exit code.
fn exit_code(status: i32) -> i32 {
    match status & 0x7f {
        0 => (status >> 8) & 0xff,
        signal => 128 + signal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_statuses_map_to_exit_codes_as_in_a_shell() {
        for (status, code) in [
            (0, 0),
            (256, 1),
            (3 << 8, 3),
            (255 << 8, 255),
            (9, 137),
            (15, 143),
            (0x8b, 139),
        ] {
            assert_eq!(exit_code(status), code, "{status}");
        }
    }

    #[test]
    fn the_end_of_output_is_kept() {
        let mut output = Vec::new();
        append_bounded(&mut output, b"abc");
        assert_eq!(output, b"abc");
        append_bounded(&mut output, &[b'x'; MAX_OUTPUT_BYTES - 1]);
        assert_eq!((output.len(), output[0]), (MAX_OUTPUT_BYTES, b'c'));
        append_bounded(&mut output, &[[b'y'; MAX_OUTPUT_BYTES].as_slice(), b"z"].concat());
        assert_eq!(
            (output.len(), output[0], output[MAX_OUTPUT_BYTES - 1]),
            (MAX_OUTPUT_BYTES, b'y', b'z')
        );
    }
}
