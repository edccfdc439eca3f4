//! The interface `about` of the WIT package `transom:plugin`. Not public.

use serde::{Deserialize, Serialize};
use transom_common::text::{clip, one_line};

/// A component's description of itself.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) summary: String,
    /// JSON Schema of the configuration. `None`: the plugin takes no configuration.
    pub(crate) config_schema: Option<String>,
}

/// An error in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct ConfigError {
    /// JSON Pointer into the manifest's `[config]`. Empty: the error concerns the whole
    /// configuration.
    pub(crate) pointer: String,
    pub(crate) message: String,
}

/// Maximum number of errors shown to an operator.
pub(crate) const MAX_ERRORS: usize = 10;

/// Maximum bytes of a text of a description, as the interface says.
const MAX_TEXT_BYTES: usize = 256;

/// A text of a description as an operator sees it.
pub(crate) fn shown_text(text: &str) -> String {
    clip(&one_line(&clip(text, MAX_TEXT_BYTES)), MAX_TEXT_BYTES)
}

impl ConfigError {
    /// Formats errors on one line, for an operator.
    pub(crate) fn list(errors: &[ConfigError]) -> String {
        let lines: Vec<String> = errors
            .iter()
            .take(MAX_ERRORS)
            .map(|error| {
                let location = if error.pointer.is_empty() {
                    "[config] as a whole"
                } else {
                    &error.pointer
                };
                format!("{}: {}", one_line(location), one_line(&error.message))
            })
            .collect();
        if lines.is_empty() {
            "no reason given".to_owned()
        } else {
            lines.join("; ")
        }
    }
}
