//! Helpers for reading and building JSON documents.

use serde_json::{Map, Value, json};

/// The text at a path of keys, if there is one.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    find(value, path).and_then(Value::as_str)
}

/// The number at a path of keys, if there is one.
pub(crate) fn number(value: &Value, path: &[&str]) -> Option<f64> {
    find(value, path).and_then(Value::as_f64)
}

/// The list at a path of keys; a missing one reads as empty.
pub(crate) fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    find(value, path)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The value at a path of keys.
pub(crate) fn find<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |at, key| at.get(key))
}

/// An id message: `{"value": id}`.
pub(crate) fn id(value: &str) -> Value {
    json!({ "value": value })
}

/// Adds `key` if there is a value.
pub(crate) fn put(object: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        object.insert(key.to_owned(), value);
    }
}

/// Copies the named fields that are present.
pub(crate) fn copy(from: &Value, to: &mut Map<String, Value>, keys: &[&str]) {
    for key in keys {
        put(to, key, from.get(key).cloned());
    }
}

/// A `json!` object as a map for further changes.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
