//! Reading long lists of what others wrote: one entry that cannot be read is left out and counted, so that one odd
//! task does not hide all the others.
//!
//! A document is read as it is first; only when that fails is it taken apart. What is not an entry of one of its lists
//! must be right.

use crate::error::{Error, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A document with lists that may hold entries that cannot be read.
pub(crate) trait Lenient: DeserializeOwned {
    /// Removes from the document, in its JSON form, the entries that cannot be read; how many those were.
    fn prune(document: &mut Value) -> u64;

    /// Writes down how many entries were removed.
    fn set_left_out(&mut self, count: u64);
}

/// Reads a document; `what` names it in the error.
pub(crate) fn read<T: Lenient>(bytes: &[u8], what: impl Fn() -> String) -> Result<T> {
    parse(bytes).map_err(|error| Error::decode(what(), error))
}

/// Reads a document, or says what is wrong with it as it is.
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
    document.set_left_out(count);
    Ok(document)
}

/// Removes the entries of the list at `pointer` that are no `T`; how many those were.
pub(crate) fn prune_list<T: DeserializeOwned>(document: &mut Value, pointer: &str) -> u64 {
    let Some(list) = document.pointer_mut(pointer).and_then(Value::as_array_mut) else {
        return 0;
    };
    let before = list.len();
    list.retain(|entry| match T::deserialize(entry) {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(list = pointer, %error, "an entry of what the cluster told cannot be read and is left out");
            false
        }
    });
    (before - list.len()) as u64
}
