//! The steps that a recorded attempt requested. If another version requests other steps, the
//! recorded answers do not answer them, and the difference is reported.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use transom_common::text::clip;

use crate::{
    manifest::masks::equal_but_for_masks,
    self_test::forms::Bytes,
    worlds::{
        probe::CommandLine,
        step::{HttpRequest, Step, Tls},
    },
};

/// Maximum number of bytes of a step in a message.
const MAX_STEP_BYTES: usize = 200;

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) enum GivenStep {
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
pub(super) struct GivenRequest {
    method: String,
    to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<GivenTls>,
    path: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
    #[serde(default)]
    body: Bytes,
    max_body: u32,
    #[serde(default)]
    redirects: u8,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct GivenTls {
    server_name: String,
    verify: bool,
}

impl GivenStep {
    /// `None` if the step ends the attempt.
    pub(super) fn of(step: &Step) -> Option<GivenStep> {
        Some(match step {
            Step::Http(request) => GivenStep::Http(GivenRequest::of(request)),
            Step::Connect(to, tls) => GivenStep::Connect {
                to: to.to_string(),
                tls: tls.as_ref().map(GivenTls::of),
            },
            Step::Send(bytes) => GivenStep::Send(Bytes::of(bytes)),
            Step::Receive(max_bytes) => GivenStep::Receive(*max_bytes),
            Step::Run(CommandLine::Shell(line)) => GivenStep::Shell(line.clone()),
            Step::Run(CommandLine::Argv(words)) => GivenStep::Argv(words.clone()),
            Step::Done(_) | Step::Failed(_) => return None,
        })
    }
}

impl GivenRequest {
    fn of(request: &HttpRequest) -> GivenRequest {
        GivenRequest {
            method: request.method.clone(),
            to: request.endpoint.to_string(),
            tls: request.tls.as_ref().map(GivenTls::of),
            path: request.path.clone(),
            headers: request.headers.clone(),
            body: Bytes::of(&request.body),
            max_body: request.max_body,
            redirects: request.redirects,
        }
    }
}

impl GivenTls {
    fn of(tls: &Tls) -> GivenTls {
        GivenTls {
            server_name: tls.server_name.clone(),
            verify: tls.verify,
        }
    }
}

/// Whether this is the recorded step. A mask in the recorded one matches any text.
pub(super) fn check(step: &Step, expected: &GivenStep) -> Result<(), String> {
    let value = |step: &GivenStep| serde_json::to_value(step).unwrap_or_default();
    let (expected, requested) = (value(expected), GivenStep::of(step).as_ref().map(value));
    if requested
        .as_ref()
        .is_some_and(|requested| equal_but_for_masks(&expected, requested))
    {
        return Ok(());
    }
    let (expected, requested) = keep_differences(expected, requested.unwrap_or_else(|| "its end".into()));
    let clipped = |it: &Value| clip(&it.to_string(), MAX_STEP_BYTES);
    Err(format!(
        "it requests {}, expected {}",
        clipped(&requested),
        clipped(&expected)
    ))
}

/// Reduces two steps of one kind to the members that differ.
fn keep_differences(mut expected: Value, mut requested: Value) -> (Value, Value) {
    if let (Value::Object(expected), Value::Object(requested)) = (&mut expected, &mut requested) {
        for (kind, expected) in expected {
            if let (Value::Object(expected), Some(Value::Object(requested))) =
                (expected, requested.get_mut(kind))
            {
                expected.retain(|name, value| {
                    let is_equal = requested
                        .get(name)
                        .is_some_and(|requested| equal_but_for_masks(value, requested));
                    if is_equal {
                        requested.remove(name);
                    }
                    !is_equal
                });
            }
        }
    }
    (expected, requested)
}
