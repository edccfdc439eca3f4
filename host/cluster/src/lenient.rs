//! Tolerant parsing of long lists: an invalid entry is omitted and counted, so that one invalid
//! task does not hide all others.
//!
//! A document is first parsed as a whole; only if that fails are its lists parsed entry by entry.
//! Everything outside these lists must be valid.

use crate::error::{Error, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A document with lists that may contain invalid entries.
pub(crate) trait Lenient: DeserializeOwned {
    /// Removes the invalid entries from the document's JSON; returns their number.
    fn prune(document: &mut Value) -> u64;

    /// Sets the number of removed entries.
    fn set_invalid_entries(&mut self, count: u64);
}

/// Parses a document; `what` names it in the error.
pub(crate) fn read<T: Lenient>(bytes: &[u8], what: impl Fn() -> String) -> Result<T> {
    parse(bytes).map_err(|error| Error::decode(what(), error))
}

/// Parses a document, or returns the error of the unchanged document.
pub(crate) fn parse<T: Lenient>(bytes: &[u8]) -> serde_json::Result<T> {
    let strict = match serde_json::from_slice(bytes) {
        Ok(document) => return Ok(document),
        Err(error) => error,
    };
    let Ok(mut value) = serde_json::from_slice::<Value>(bytes) else {
        return Err(strict);
    };
    let count = T::prune(&mut value);
    let Ok(mut document) = T::deserialize(value) else {
        return Err(strict);
    };
    document.set_invalid_entries(count);
    Ok(document)
}

/// Removes the entries of the list at `pointer` that are no `T`; returns their number.
pub(crate) fn prune_list<T: DeserializeOwned>(document: &mut Value, pointer: &str) -> u64 {
    let Some(list) = document.pointer_mut(pointer).and_then(Value::as_array_mut) else {
        return 0;
    };
    let before = list.len();
    list.retain(|entry| match T::deserialize(entry) {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(list = pointer, %error, "skipping an invalid entry of a list");
            false
        }
    });
    (before - list.len()) as u64
}
