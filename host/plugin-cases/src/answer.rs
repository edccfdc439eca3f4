//! Answers in the form of a case, and their check against the expected ones.

use serde::{Deserializer, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use transom_common::text::one_line;

use crate::{Masks, compare};

/// The keys of a case that contain its expected answer.
pub const ANSWER_KEYS: &[&str] = &["expect", "refused"];

/// An expected or found answer: the keys `expect` and `refused`.
pub type Answer = Map<String, Value>;

/// Creates an answer with one key.
pub fn answer(key: &str, value: impl Serialize) -> Answer {
    // These values can always be converted to JSON.
    let value = serde_json::to_value(value).unwrap_or_default();
    Map::from_iter([(key.to_owned(), value)])
}

/// Parses a case, without its `name`. The error names the key with the mistake.
pub fn parse<'a, C: DeserializeOwned>(
    case: impl Deserializer<'a, Error = serde_json::Error>,
) -> Result<C, String> {
    serde_path_to_error::deserialize(case).map_err(|error| {
        let path = error.path().to_string();
        format!("`{path}`: {}", error.into_inner())
    })
}

/// Splits off a case's name.
pub fn split_name(case: &Value) -> (Option<String>, Value) {
    let mut case = case.clone();
    let name = match case.as_object_mut().map(|it| it.remove("name")) {
        Some(Some(Value::String(name))) => Some(one_line(&name)),
        _ => None,
    };
    (name, case)
}

/// Checks a found answer against the expected one. The error shows both.
pub fn check(found: &Answer, expected: Option<&Answer>) -> Result<(), String> {
    match expected {
        Some(expected) if compare(expected, found, Masks::Absent).is_none() => Ok(()),
        Some(expected) => Err(format!(
            "found {}, expected {}",
            format_answer(found),
            format_answer(expected)
        )),
        None => Err(format!(
            "found {}, but the case has no expectation",
            format_answer(found)
        )),
    }
}

/// Formats an answer: only the value of `expect` if there is no other key.
pub fn format_answer(answer: &Answer) -> String {
    match answer.get("expect") {
        Some(expect) if answer.len() == 1 => expect.to_string(),
        _ => Value::Object(answer.clone()).to_string(),
    }
}
