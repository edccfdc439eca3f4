//! The interface `about` of the WIT package `transom:plugin`. Not public.

use transom_common::text::one_line;

/// A component's description of itself.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) summary: String,
    /// JSON Schema of the configuration. None: it takes none.
    pub(crate) config_schema: Option<String>,
}

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigError {
    /// JSON Pointer into the manifest's `[config]`; empty: all of it.
    pub(crate) pointer: String,
    pub(crate) message: String,
}

/// Errors that an operator is shown.
pub(crate) const MAX_ERRORS: usize = 10;

impl ConfigError {
    /// Errors for an operator, on one line.
    pub(crate) fn list(errors: &[ConfigError]) -> String {
        let lines: Vec<String> = errors
            .iter()
            .take(MAX_ERRORS)
            .map(|error| {
                let place = if error.pointer.is_empty() {
                    "the whole of [config]"
                } else {
                    &error.pointer
                };
                format!("{}: {}", one_line(place), one_line(&error.message))
            })
            .collect();
        if lines.is_empty() {
            "no reason given".to_owned()
        } else {
            lines.join("; ")
        }
    }
}
