//! `log.level`: a level, or a list of levels and `target=level` directives.
//!
//! The filter itself would accept any word, as the target of a directive: a mistyped level would turn
//! off every other line.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The levels. `off` suppresses the lines of a target.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Valid directives, each with a level, and one of them without a target.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[schemars(with = "String")]
#[serde(try_from = "String")]
pub struct LogLevel(String);

impl LogLevel {
    /// The directives in the form of the filter.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for LogLevel {
    fn default() -> Self {
        Self("info".into())
    }
}

impl TryFrom<String> for LogLevel {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut directives = Vec::new();
        let mut has_default = false;
        for directive in text.split(',').map(str::trim) {
            let (target, name) = match directive.rsplit_once('=') {
                Some((target, name)) => (Some(target.trim()), name.trim()),
                None => (None, directive),
            };
            let level = level(name).filter(|level| match target {
                // The daemon's errors and its audit log are never suppressed.
                None => *level != "off",
                Some(target) => is_target(target),
            });
            let Some(level) = level else {
                return Err(format!(
                    "unknown log level `{directive}`; expected error, warn, info, debug or trace, or a list with \
                     directives such as `info,transom_apps=debug`"
                ));
            };
            has_default |= target.is_none();
            directives.push(target.map_or_else(|| level.to_owned(), |target| format!("{target}={level}")));
        }
        if !has_default {
            // A list that names targets alone adds to the default level.
            directives.insert(0, Self::default().0);
        }
        Ok(Self(directives.join(",")))
    }
}

/// The level with this name, in any case. `warning` is that of other programs.
fn level(name: &str) -> Option<&'static str> {
    if name.eq_ignore_ascii_case("warning") {
        return Some("warn");
    }
    LEVELS.into_iter().find(|level| name.eq_ignore_ascii_case(level))
}

/// Whether this is the path of a module.
fn is_target(target: &str) -> bool {
    let is_allowed = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | ':' | '.');
    !target.is_empty() && target.chars().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_directives_are_read() {
        for (text, expected) in [
            ("info", "info"),
            ("Warning", "warn"),
            ("WARN", "warn"),
            ("trace", "trace"),
            ("transom_apps=debug", "info,transom_apps=debug"),
            (
                "warn, transom_apps::api = Warning,hyper=off",
                "warn,transom_apps::api=warn,hyper=off",
            ),
        ] {
            let level: LogLevel = text.parse().expect(text);
            assert_eq!(level.as_str(), expected, "{text}");
        }
    }

    #[test]
    fn unknown_levels_are_rejected() {
        for text in [
            "",
            " ",
            "inof",
            "verbose",
            "trace1",
            "off",
            "fatal",
            "3",
            "info,",
            "transom_apps",
            "transom_apps=",
            "transom_apps=inof",
            "=debug",
            "a b=debug",
            "info,verbose",
        ] {
            let error = text.parse::<LogLevel>().expect_err(text);
            assert!(error.starts_with("unknown log level `"), "{text}: {error}");
        }
    }
}
