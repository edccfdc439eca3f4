//! Validates a manifest's `[config]` against the schema of the plugin, before the plugin receives
//! it.
//!
//! The schema is JSON Schema 2020-12. It comes from the component, so it is untrusted: no reference
//! is fetched, patterns are matched in linear time (without look-around and back-references), and
//! the size, the depth and the number of references are bounded. Validation may still take
//! exponential time, so the runtime's `config_check` runs it within limits. Errors name the place in
//! the configuration and never quote its values, which may be secret.

use std::time::Duration;

use jsonschema::{Draft, PatternOptions, Validator};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use transom_common::text::one_line;

use crate::worlds::about::{ConfigError, MAX_ERRORS};

/// Processor time of an evaluation. Real schemas take milliseconds.
pub(crate) const MAX_CPU: Duration = Duration::from_secs(3);
/// Writable memory of an evaluation in bytes.
pub(crate) const MAX_MEMORY: u64 = 256 << 20;
/// Maximum size of a schema in bytes.
const MAX_SCHEMA: usize = 64 << 10;
/// Maximum number of references in a schema. References can be nested, so that the work grows
/// exponentially with their number.
const MAX_REFERENCES: usize = 32;
/// Maximum levels of nested objects and lists in a schema.
const MAX_DEPTH: usize = 32;
/// Approximate maximum size in bytes of a compiled pattern.
const MAX_PATTERN: usize = 256 << 10;

/// Why a plugin is not configured. Display is for an operator.
#[derive(Debug, PartialEq, Eq, Deserialize, Serialize, thiserror::Error)]
pub(crate) enum SchemaError {
    #[error("it takes no configuration (no config-schema), but the manifest's [config] has {}", names(.0))]
    NotTaken(Vec<String>),
    #[error("invalid config-schema: {0}")]
    Invalid(String),
    #[error("the manifest's [config] does not match the plugin's config-schema: {}", ConfigError::list(.0))]
    Config(Vec<ConfigError>),
    #[error(
        "checking [config] against its config-schema takes more than {MAX_CPU:?} of processor time or {} MiB: \
         expected a simpler schema, with fewer nested `allOf`, `anyOf`, `unevaluatedProperties` and references",
        MAX_MEMORY >> 20
    )]
    TooExpensive,
    #[error("its config-schema was not evaluated, retrying: {0}")]
    NotEvaluated(String),
    #[error("the evaluation of its config-schema ended unexpectedly: {0}")]
    Failed(String),
}

fn names(keys: &[String]) -> String {
    let quoted: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    one_line(&quoted.join(", "))
}

/// Checks `config`, a JSON object, against `schema`. Without a schema the object has to be empty.
/// This may take long, so that only the runtime's `config_check` calls it.
pub(crate) fn check(schema: Option<&str>, config: &Value) -> Result<(), SchemaError> {
    let Some(schema) = schema else {
        return match config.as_object().filter(|it| !it.is_empty()) {
            Some(members) => Err(SchemaError::NotTaken(members.keys().cloned().collect())),
            None => Ok(()),
        };
    };
    let validator = validator(schema).map_err(|message| SchemaError::Invalid(one_line(&message)))?;
    let errors: Vec<ConfigError> = validator
        .iter_errors(config)
        .take(MAX_ERRORS)
        .map(|error| ConfigError {
            pointer: error.instance_path().to_string(),
            message: error.masked().to_string(),
        })
        .collect();
    if errors.is_empty() {
        Ok(())
    } else {
        Err(SchemaError::Config(errors))
    }
}

/// Checks size and depth of a schema, which takes linear time.
pub(crate) fn check_form(schema: &str) -> Result<(), SchemaError> {
    parsed(schema)
        .map(drop)
        .map_err(|message| SchemaError::Invalid(one_line(&message)))
}

fn parsed(schema: &str) -> Result<Value, String> {
    if schema.len() > MAX_SCHEMA {
        return Err(format!("it has {} bytes, {MAX_SCHEMA} are allowed", schema.len()));
    }
    let schema: Value = serde_json::from_str(schema).map_err(|error| format!("it is not JSON: {error}"))?;
    if depth(&schema) > MAX_DEPTH {
        return Err(format!(
            "it has more than {MAX_DEPTH} levels of nested objects and lists"
        ));
    }
    Ok(schema)
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn validator(schema: &str) -> Result<Validator, String> {
    let schema = parsed(schema)?;
    let found = references(&schema);
    if found > MAX_REFERENCES {
        return Err(format!("it has {found} references, {MAX_REFERENCES} are allowed"));
    }
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN))
        .offline()
        .build(&schema)
        .map_err(|error| {
            let location = error.instance_path().to_string();
            let location = if location.is_empty() {
                "the schema as a whole"
            } else {
                &location
            };
            format!("{location}: {error}")
        })
}

fn references(schema: &Value) -> usize {
    match schema {
        Value::Array(items) => items.iter().map(references).sum(),
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| {
                usize::from(matches!(key.as_str(), "$ref" | "$dynamicRef" | "$recursiveRef"))
                    + references(value)
            })
            .sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SCHEMA: &str = r##"{
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "retries": {"type": "integer", "maximum": 10},
            "hosts": {"type": "array", "items": {"$ref": "#/$defs/host"}},
            "token": {"type": "string", "minLength": 8}
        },
        "required": ["retries"],
        "additionalProperties": false,
        "$defs": {"host": {"type": "string", "pattern": "^[a-z]+$"}}
    }"##;

    #[test]
    fn schema_accepts_and_rejects_configurations() {
        for (config, errors) in [
            (json!({"retries": 3, "hosts": ["a", "b"]}), &[][..]),
            (
                json!({"retries": 11}),
                &["/retries: value is greater than the maximum of 10"],
            ),
            (
                json!({"retries": "x", "hosts": ["a", "B"]}),
                &["/hosts/1: ", "/retries: value is not of type \"integer\""],
            ),
            (
                json!({}),
                &["[config] as a whole: \"retries\" is a required property"],
            ),
            (
                json!({"retries": 1, "rteries": 1}),
                &["[config] as a whole", "'rteries'"],
            ),
        ] {
            let found = check(Some(SCHEMA), &config).map_err(|error| error.to_string());
            assert_eq!(found.is_ok(), errors.is_empty(), "{config}: {found:?}");
            let found = found.err().unwrap_or_default();
            for error in errors {
                assert!(found.contains(error), "{config}: {found}");
            }
        }
    }

    #[test]
    fn rejection_does_not_reveal_secrets() {
        let config = json!({"retries": 1, "token": "hunter2"});
        let error = check(Some(SCHEMA), &config).unwrap_err().to_string();
        assert!(
            error.contains("/token: ") && !error.contains("hunter2"),
            "{error}"
        );
    }

    #[test]
    fn config_without_a_schema_must_be_empty() {
        assert_eq!(check(None, &json!({})), Ok(()));
        let error = check(None, &json!({"a": 1, "b": 2})).unwrap_err();
        assert_eq!(error, SchemaError::NotTaken(vec!["a".into(), "b".into()]));
        assert!(error.to_string().contains("[config] has `a`, `b`"), "{error}");
    }

    #[test]
    fn invalid_schemas_are_rejected() {
        let long = format!("{{\"title\": \"{}\"}}", "x".repeat(MAX_SCHEMA));
        let deep = (0..33)
            .fold(json!({}), |inner, _| json!({"not": inner}))
            .to_string();
        let many = json!({"allOf": vec![json!({"$ref": "#/$defs/a"}); 33], "$defs": {"a": true}}).to_string();
        for (schema, reason) in [
            ("{", "not JSON"),
            ("1", "the schema as a whole"),
            (r#"{"type": "objekt"}"#, "/type"),
            (r##"{"$ref": "#/$defs/none"}"##, "none"),
            (r#"{"$ref": "https://example.com/schema.json"}"#, "example.com"),
            (r#"{"$ref": "file:///etc/hostname"}"#, "hostname"),
            (r#"{"properties": {"a": {"pattern": "("}}}"#, "pattern"),
            (
                r#"{"properties": {"a": {"pattern": "\\w{1000}{1000}"}}}"#,
                "pattern",
            ),
            (&long, "65536 are allowed"),
            (&many, "33 references, 32 are allowed"),
            (&deep, "more than 32 levels"),
        ] {
            let error = check(Some(schema), &json!({})).unwrap_err();
            assert!(matches!(error, SchemaError::Invalid(_)), "{schema}: {error}");
            assert!(error.to_string().contains(reason), "{schema}: {error}");
        }
    }

    /// Validation of a hostile schema terminates: with cyclic references, and with a chain in which
    /// each definition refers twice to the previous one.
    #[test]
    fn cyclic_and_nested_references_terminate() {
        let mut defs = json!({"d0": {"type": "string"}});
        for level in 1..16 {
            let below = json!({"$ref": format!("#/$defs/d{}", level - 1)});
            defs[format!("d{level}")] = json!({"anyOf": [below, below]});
        }
        let bomb = json!({"$ref": "#/$defs/d15", "$defs": defs}).to_string();
        assert!(check(Some(&bomb), &json!({})).is_err());
        let circle = r##"{"allOf": [{"$ref": "#"}], "properties": {"a": {"$ref": "#"}}}"##;
        assert_eq!(check(Some(circle), &json!({"a": {"a": {}}})), Ok(()));
    }
}
