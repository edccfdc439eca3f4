//! Masks the secrets of a plugin, so that they do not get into the call log.
//!
//! The schema of the configuration marks them: a property is secret if its schema, or a part of its
//! schema, has `"writeOnly": true` or `"format": "password"`. A record is masked in two ways: by
//! name, every member that has the name of a secret property, and by value, every occurrence of a
//! configured secret. Values are compared literally: a value in another encoding (Base64,
//! percent-encoded) is not found. Names are compared without regard to case.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use transom_plugin_cases::MASK;

/// Headers with credentials. A probe may build their values from its secrets.
const CREDENTIALS: &[&str] = &["authorization", "proxy-authorization", "cookie"];
/// Minimum length in bytes of a secret that is also masked inside longer texts. A shorter one would
/// occur by chance.
const MIN_PARTIAL_SECRET: usize = 4;
/// Maximum size in bytes of a schema that is searched. Admission rejects a larger one anyway.
const MAX_SCHEMA: usize = 64 << 10;
/// Maximum depth of nested schemas that are searched.
const MAX_DEPTH: usize = 16;

/// The names and the values of a plugin's secrets.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Masks {
    names: BTreeSet<String>,
    values: BTreeSet<String>,
}

impl Masks {
    /// Finds the secrets of a configuration. A schema that is not JSON yields none; admission
    /// rejects it.
    pub(crate) fn of(schema: Option<&str>, config: &Value) -> Masks {
        let schema = schema.filter(|it| it.len() <= MAX_SCHEMA);
        let Some(schema) = schema.and_then(|it| serde_json::from_str::<Value>(it).ok()) else {
            return Masks::default();
        };
        let schema = Schema(&schema);
        let mut masks = Masks::default();
        schema.collect(schema.0, &mut masks.names);
        if schema.is_secret(schema.0, 0, false)
            && let Some(members) = config.as_object()
        {
            masks.names.extend(members.keys().cloned());
        }
        masks.collect_values(config, false);
        masks
    }

    /// Returns the masks for a probe's steps, which also cover the headers with credentials.
    pub(crate) fn with_credentials(&self) -> Masks {
        let more = CREDENTIALS.iter().map(|it| (*it).to_owned());
        Masks {
            names: self.names.iter().cloned().chain(more).collect(),
            values: self.values.clone(),
        }
    }

    /// Masks all secrets in a document; returns whether there were any.
    pub(crate) fn apply(&self, document: &mut Value) -> bool {
        if self.names.is_empty() && self.values.is_empty() {
            return false;
        }
        match document {
            Value::Object(members) => self.apply_to_members(members),
            Value::Array(items) => match items.as_mut_slice() {
                // A pair of name and value: headers and variables have this form.
                [Value::String(name), value] if self.has_name(name) => mask(value),
                items => items
                    .iter_mut()
                    .fold(false, |masked, item| self.apply(item) | masked),
            },
            Value::String(text) => self.apply_to_text(text),
            Value::Number(number) if self.values.contains(&number.to_string()) => mask(document),
            Value::Number(_) | Value::Bool(_) | Value::Null => false,
        }
    }

    pub(crate) fn apply_to_members(&self, members: &mut Map<String, Value>) -> bool {
        let mut masked = false;
        for (name, value) in members {
            masked |= if self.has_name(name) {
                mask(value)
            } else {
                self.apply(value)
            };
        }
        masked
    }

    fn apply_to_text(&self, text: &mut String) -> bool {
        let mut masked = false;
        // Longest first, so that replacing a short secret does not break up a longer one that
        // contains it.
        let mut values: Vec<&String> = self
            .values
            .iter()
            .filter(|it| text.contains(it.as_str()))
            .collect();
        values.sort_by_key(|it| std::cmp::Reverse(it.len()));
        for value in values {
            if text == value {
                MASK.clone_into(text);
                return true;
            }
            if value.len() >= MIN_PARTIAL_SECRET && text.contains(value.as_str()) {
                *text = text.replace(value.as_str(), MASK);
                masked = true;
            }
        }
        masked
    }

    fn has_name(&self, name: &str) -> bool {
        // Header names are case-insensitive.
        self.names.iter().any(|it| it.eq_ignore_ascii_case(name))
    }

    fn collect_values(&mut self, config: &Value, secret: bool) {
        match config {
            Value::Object(members) => {
                for (name, value) in members {
                    let secret = secret || self.names.contains(name);
                    self.collect_values(value, secret);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.collect_values(item, secret)),
            Value::String(text) if secret && !text.is_empty() => {
                self.values.insert(text.clone());
                // The secret as it is escaped inside a JSON text.
                let quoted = config.to_string();
                self.values.insert(quoted.trim_matches('"').to_owned());
            }
            Value::Number(number) if secret => {
                self.values.insert(number.to_string());
            }
            _ => {}
        }
    }
}

/// Masks a value unless it is null. Returns whether it was masked.
fn mask(value: &mut Value) -> bool {
    let masked = !value.is_null();
    if masked {
        *value = MASK.into();
    }
    masked
}

/// The whole schema, to resolve references within it.
struct Schema<'a>(&'a Value);

impl Schema<'_> {
    /// The names of all secret properties, wherever they are declared.
    fn collect(&self, part: &Value, names: &mut BTreeSet<String>) {
        match part {
            Value::Object(members) => {
                if let Some(Value::Object(properties)) = members.get("properties") {
                    let secret = properties.iter().filter(|(_, it)| self.is_secret(it, 0, true));
                    names.extend(secret.map(|(name, _)| name.clone()));
                }
                members.values().for_each(|it| self.collect(it, names));
            }
            Value::Array(items) => items.iter().for_each(|it| self.collect(it, names)),
            _ => {}
        }
    }

    /// Whether a schema marks its value as secret. With `inside`, a mark on array items or on
    /// members without a declared name also counts.
    fn is_secret(&self, schema: &Value, depth: usize, inside: bool) -> bool {
        let Some(members) = schema.as_object().filter(|_| depth < MAX_DEPTH) else {
            return false;
        };
        let is_marked = members.get("writeOnly") == Some(&Value::Bool(true))
            || members.get("format").and_then(Value::as_str) == Some("password");
        let referred = members.get("$ref").and_then(Value::as_str);
        let referred = referred.and_then(|it| self.0.pointer(it.strip_prefix('#')?));
        let nested: &[&str] = if inside {
            &["additionalProperties", "items", "contains"]
        } else {
            &[]
        };
        let lists: &[&str] = if inside {
            &["allOf", "anyOf", "oneOf", "prefixItems"]
        } else {
            &["allOf", "anyOf", "oneOf"]
        };
        let single = nested.iter().filter_map(|key| members.get(*key)).chain(referred);
        let listed = lists
            .iter()
            .filter_map(|key| members.get(*key)?.as_array())
            .flatten();
        let patterns = members.get("patternProperties").filter(|_| inside);
        let patterns = patterns
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(Map::values);
        is_marked
            || single
                .chain(listed)
                .chain(patterns)
                .any(|it| self.is_secret(it, depth + 1, inside))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SCHEMA: &str = r##"{
        "type": "object",
        "properties": {
            "url": {"type": "string"},
            "token": {"type": "string", "writeOnly": true},
            "login": {"type": "object", "properties": {"password": {"$ref": "#/$defs/secret"}}},
            "keys": {"type": "object", "additionalProperties": {"format": "password"}},
            "pin": {"anyOf": [{"type": "integer", "writeOnly": true}, {"type": "null"}]},
            "list": {"type": "array", "items": {"writeOnly": true}}
        },
        "$defs": {"secret": {"type": "string", "format": "password"}, "loop": {"$ref": "#/$defs/loop"}}
    }"##;

    fn masks() -> Masks {
        let config = json!({
            "url": "http://a", "token": "hun\"ter2", "login": {"password": "xyz"},
            "keys": {"one": "first-key"}, "pin": 4711, "list": ["listed"]
        });
        Masks::of(Some(SCHEMA), &config)
    }

    fn masked(mut document: Value) -> (Value, bool) {
        let any = masks().apply(&mut document);
        (document, any)
    }

    #[test]
    fn secrets_are_masked_by_name_and_by_value() {
        for (document, expected) in [
            // By name: members and pairs that have the name of a secret property.
            (
                json!({"token": "of another", "a": 1}),
                json!({"token": MASK, "a": 1}),
            ),
            (
                json!({"x": {"password": ["a", 1]}}),
                json!({"x": {"password": MASK}}),
            ),
            (
                json!([["Token", "a"], ["b", "c"]]),
                json!([["Token", MASK], ["b", "c"]]),
            ),
            (json!({"keys": {"two": "x"}}), json!({"keys": MASK})),
            // By value: configured secrets, wherever they occur.
            (json!(["Bearer hun\"ter2"]), json!([format!("Bearer {MASK}")])),
            (
                json!({"body": r#"{"t":"hun\"ter2"}"#}),
                json!({"body": format!(r#"{{"t":"{MASK}"}}"#)}),
            ),
            (json!("a first-key first-key"), json!(format!("a {MASK} {MASK}"))),
            (json!({"n": 4711}), json!({"n": MASK})),
            (json!("listed"), json!(MASK)),
            // A short secret is masked only where it is the whole text.
            (json!(["xyz", "wxyz"]), json!([MASK, "wxyz"])),
        ] {
            assert_eq!(masked(document.clone()), (expected, true), "{document}");
        }
        for document in [
            json!({"url": "http://a"}),
            json!({"token": null}),
            json!([1, true, "x"]),
        ] {
            assert_eq!(masked(document.clone()), (document, false));
        }
    }

    #[test]
    fn plugins_without_marks_have_no_secrets() {
        let config = json!({"token": "hunter2"});
        for schema in [
            None,
            Some("{"),
            Some("1"),
            Some(r#"{"properties": {"token": {"type": "string"}}}"#),
        ] {
            let mut document = config.clone();
            assert!(!Masks::of(schema, &config).apply(&mut document), "{schema:?}");
            assert_eq!(document, config);
        }
        // A schema whose root is marked as secret.
        let mut document = json!({"other": "hunter2"});
        assert!(Masks::of(Some(r#"{"writeOnly": true}"#), &config).apply(&mut document));
        assert_eq!(document, json!({"other": MASK}));
    }
}
