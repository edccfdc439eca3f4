//! Values that several messages have.

use serde_json::{Map, Value, json};

use super::messages::Pair;
use super::{StoredError, unsupported};

/// Labels and options as an object.
pub(super) fn pairs(pairs: &[Pair]) -> Map<String, Value> {
    let pairs = pairs.iter();
    pairs
        .map(|pair| (pair.key.clone(), json!(pair.value.as_deref().unwrap_or_default())))
        .collect()
}

/// The word for the number of an enumeration; an empty one is not used.
pub(super) fn named<'a>(words: &[&'a str], number: i32, what: &str) -> Result<&'a str, StoredError> {
    let word = usize::try_from(number).ok().and_then(|at| words.get(at));
    let word = word.filter(|word| !word.is_empty());
    word.copied()
        .ok_or_else(|| unsupported(format!("{number} is not a known {what}")))
}
