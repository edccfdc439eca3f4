//! Explanations for operators: what the plugins of an extension point decide and why. The serving
//! versions answer on separate instances.
//!
//! These calls count neither in the plugins' metrics nor for their health, and they are not
//! recorded. The types have the form of the admin API's answers. All lists in them are bounded, and
//! secrets are masked as in the call log.

pub(crate) mod filter;
pub(crate) mod matcher;
pub(crate) mod probe;

use serde::Serialize;
use serde_json::Value;
use transom_common::text::clip;

use crate::{
    error::CallError,
    manifest::masks::Masks,
    runtime::{candidate::Candidate, engine::World},
};

/// Maximum size in bytes of one text in an explanation.
const MAX_TEXT: usize = 1024;

/// The answer with canaries, for a question in their share. In service the canaries answer such
/// calls, and the serving versions do so only if a canary fails.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CanaryAnswer<T> {
    /// The canaries.
    pub versions: Vec<CanaryVersion>,
    /// The same explanation with the canaries in place of the serving versions.
    pub answer: Box<T>,
}

/// A canary that was called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CanaryVersion {
    /// The plugin.
    pub plugin: String,
    /// Its own version.
    pub version: String,
    /// `sha256:` and the component's digest.
    pub digest: String,
}

impl CanaryVersion {
    fn of<W: World>(canary: &Candidate<W>) -> CanaryVersion {
        let info = &canary.version.info;
        CanaryVersion {
            plugin: canary.version.context.name.clone(),
            version: info.version.clone(),
            digest: info.digest.clone(),
        }
    }
}

/// A plugin that did not answer. Its failure is the explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PluginFailure {
    /// The plugin. `None`: the host is stopping.
    pub plugin: Option<String>,
    /// The failure in one line, for an operator.
    pub message: String,
}

impl From<&CallError> for PluginFailure {
    fn from(error: &CallError) -> PluginFailure {
        PluginFailure {
            plugin: error.plugin().map(str::to_owned),
            message: error.to_string(),
        }
    }
}

/// Masks the secrets of a document, then truncates its texts.
fn masked(mut document: Value, masks: &[&Masks]) -> Value {
    for masks in masks {
        masks.apply(&mut document);
    }
    clip_texts(&mut document);
    document
}

/// Masks the secrets of a text, then truncates it.
fn masked_text(text: String, masks: &[&Masks]) -> String {
    match masked(text.into(), masks) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn clip_texts(document: &mut Value) {
    match document {
        Value::String(text) => *text = clip(text, MAX_TEXT),
        Value::Array(items) => items.iter_mut().for_each(clip_texts),
        Value::Object(members) => members.values_mut().for_each(clip_texts),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_masked_before_texts_are_truncated() {
        let schema = json!({"properties": {"key": {"type": "string", "writeOnly": true}}}).to_string();
        let masks = Masks::of(Some(&schema), &json!({"key": "hunter2-hunter2"}));
        // The secret extends over the place where the text is truncated.
        let text = "x".repeat(MAX_TEXT - 8) + "hunter2-hunter2";
        let found = masked(json!([{"body": text}]), &[&masks]);
        let body = found[0]["body"].as_str().unwrap();
        assert!(body.len() <= MAX_TEXT && !body.contains("hunter"), "{body}");
    }
}
