//! Describes calls in a few words.

use serde_json::{Map, Value};
use transom_common::text::{clip, one_line};

/// Maximum number of bytes of a text that is shown.
pub(crate) const MAX_TEXT_BYTES: usize = 200;

/// Describes a call in a few words. `case` contains its arguments.
pub fn question(call: &str, case: &Map<String, Value>) -> String {
    let text = |key: &str| case.get(key).and_then(Value::as_str).unwrap_or_default();
    let member = |key: &str| case.get(key).map(Value::to_string).unwrap_or_default();
    let what = match call {
        "validate" => member("constraints"),
        "open" | "decide" => {
            let filter = text("filter");
            let types = member("event-types");
            [filter, types.as_str()]
                .into_iter()
                .filter(|it| !it.is_empty())
                .collect::<Vec<_>>()
                .join(" ")
        }
        "prepare" => format!("{} {}", text("role"), text("task")),
        "attempt" => format!("{} {}", text("run-spec"), text("path")),
        _ => text("run-spec").to_owned(),
    };
    let what = what.trim();
    clip(&one_line(&format!("{call} {what}")), MAX_TEXT_BYTES)
        .trim_end()
        .to_owned()
}
