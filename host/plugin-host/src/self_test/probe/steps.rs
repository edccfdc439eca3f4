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
const SHOWN: usize = 200;

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
            Step::Receive(most) => GivenStep::Receive(*most),
            Step::Run(CommandLine::Shell(line)) => GivenStep::Shell(line.clone()),
            Step::Run(CommandLine::Argv(words)) => GivenStep::Argv(words.clone()),
            Step::Done(_) | Step::Failed(_) => return None,
        })
    }
}

impl GivenRequest {
    fn of(it: &HttpRequest) -> GivenRequest {
        GivenRequest {
            method: it.method.clone(),
            to: it.endpoint.to_string(),
            tls: it.tls.as_ref().map(GivenTls::of),
            path: it.path.clone(),
            headers: it.headers.clone(),
            body: Bytes::of(&it.body),
            max_body: it.max_body,
            redirects: it.redirects,
        }
    }
}

impl GivenTls {
    fn of(it: &Tls) -> GivenTls {
        GivenTls {
            server_name: it.server_name.clone(),
            verify: it.verify,
        }
    }
}

/// Whether this is the recorded step. A mask in the recorded one matches any text.
pub(super) fn check(step: &Step, wanted: &GivenStep) -> Result<(), String> {
    let value = |step: &GivenStep| serde_json::to_value(step).unwrap_or_default();
    let (wanted, asked) = (value(wanted), GivenStep::of(step).as_ref().map(value));
    if asked
        .as_ref()
        .is_some_and(|asked| equal_but_for_masks(&wanted, asked))
    {
        return Ok(());
    }
    let (wanted, asked) = differing(wanted, asked.unwrap_or_else(|| "its end".into()));
    let shown = |it: &Value| clip(&it.to_string(), SHOWN);
    Err(format!(
        "it requests {}, expected {}",
        shown(&asked),
        shown(&wanted)
    ))
}

/// Reduces two steps of one kind to the members that differ.
fn differing(mut wanted: Value, mut asked: Value) -> (Value, Value) {
    if let (Value::Object(wanted), Value::Object(asked)) = (&mut wanted, &mut asked) {
        for (kind, wanted) in wanted {
            if let (Value::Object(wanted), Some(Value::Object(asked))) = (wanted, asked.get_mut(kind)) {
                wanted.retain(|name, value| {
                    let same = asked
                        .get(name)
                        .is_some_and(|asked| equal_but_for_masks(value, asked));
                    if same {
                        asked.remove(name);
                    }
                    !same
                });
            }
        }
    }
    (wanted, asked)
}
