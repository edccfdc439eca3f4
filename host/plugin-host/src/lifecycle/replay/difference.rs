//! The first difference between a recorded answer and another one: its place, its kind and both
//! values.

use serde_json::Value;
use transom_common::text::{clip, one_line};

use crate::{manifest::masks::equal_but_for_masks, self_test::CaseAnswer, storage::call_log::CallRecord};

/// Maximum number of bytes of a text that is shown.
const MAX_TEXT_BYTES: usize = 200;

/// The place of a difference in an answer, and both values.
#[derive(Debug, PartialEq)]
pub(super) struct Difference {
    /// The name of the call and the change.
    pub(super) kind: String,
    /// Path to the member of the answer. Empty: the whole answer.
    path: Vec<String>,
    pub(super) recorded: String,
    pub(super) candidate: String,
}

impl Difference {
    /// `None` if the answers are equal.
    pub(super) fn between(call: &str, recorded: &CaseAnswer, found: &CaseAnswer) -> Option<Difference> {
        let sides = (Value::Object(recorded.clone()), Value::Object(found.clone()));
        let mut path = Vec::new();
        let (recorded, found) = first_difference(Some(&sides.0), Some(&sides.1), &mut path)?;
        let labels = (describe_value(&path, recorded), describe_value(&path, found));
        let kind = if labels.0 == labels.1 {
            format!("{call}: another {}", labels.0)
        } else {
            format!("{call}: {} -> {}", labels.0, labels.1)
        };
        Some(Difference {
            kind,
            recorded: text(recorded),
            candidate: text(found),
            // The first key is always `expect`, so it is left out.
            path: path.split_off(1.min(path.len())),
        })
    }

    /// Describes the call, with the member of the answer that differs.
    pub(super) fn question(&self, record: &CallRecord) -> String {
        let question = question(record);
        let members = self
            .path
            .iter()
            .map(|member| match (record.call.as_str(), member.parse::<usize>()) {
                ("decide", Ok(at)) => event(record, at).unwrap_or_else(|| member.clone()),
                _ => member.clone(),
            });
        let members: Vec<String> = members.collect();
        if members.is_empty() {
            question
        } else {
            clip(
                &one_line(&format!("{question} ({})", members.join("/"))),
                MAX_TEXT_BYTES,
            )
        }
    }
}

/// Describes a call in a few words.
pub(super) fn question(record: &CallRecord) -> String {
    let text = |key: &str| record.case.get(key).and_then(Value::as_str).unwrap_or_default();
    let what = match record.call.as_str() {
        "validate" => member(record, "constraints"),
        "open" | "decide" => {
            let filter = text("filter");
            let types = member(record, "event-types");
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
    clip(&one_line(&format!("{} {what}", record.call)), MAX_TEXT_BYTES)
        .trim_end()
        .to_owned()
}

fn member(record: &CallRecord, key: &str) -> String {
    record.case.get(key).map(Value::to_string).unwrap_or_default()
}

/// The kind of an event of a call.
fn event(record: &CallRecord, at: usize) -> Option<String> {
    let event = record.case.get("events")?.as_array()?.get(at)?;
    Some(event.get("kind")?.as_str()?.to_owned())
}

type ValuePair<'a> = (Option<&'a Value>, Option<&'a Value>);

/// Finds the first difference. A member that only one side has is a difference.
fn first_difference<'a>(
    recorded: Option<&'a Value>,
    found: Option<&'a Value>,
    path: &mut Vec<String>,
) -> Option<ValuePair<'a>> {
    let mut compare_member = |key: String, sides: ValuePair<'a>| {
        path.push(key);
        let difference = first_difference(sides.0, sides.1, path);
        if difference.is_none() {
            path.pop();
        }
        difference
    };
    match (recorded, found) {
        (None, None) => None,
        (Some(recorded), Some(found)) if equal_but_for_masks(recorded, found) => None,
        (Some(Value::Object(recorded)), Some(Value::Object(found)))
            // Two variants with different names share no members, so they differ as a whole.
            if recorded.is_empty() || found.is_empty() || recorded.keys().any(|it| found.contains_key(it)) =>
        {
            let more = found.keys().filter(|it| !recorded.contains_key(*it));
            let mut keys = recorded.keys().chain(more);
            keys.find_map(|key| compare_member(key.clone(), (recorded.get(key), found.get(key))))
        }
        (Some(Value::Array(recorded)), Some(Value::Array(found))) => {
            let mut indices = 0..recorded.len().max(found.len());
            indices.find_map(|at| compare_member(at.to_string(), (recorded.get(at), found.get(at))))
        }
        sides => Some(sides),
    }
}

/// Describes a value for the kind of a difference. There are few possible descriptions.
fn describe_value(path: &[String], value: Option<&Value>) -> String {
    // The members of the first level have fixed names, such as the script of a container.
    let named = match path {
        [_, name, ..] if ["script", "environment", "arguments", "custom"].contains(&name.as_str()) => {
            Some(name)
        }
        // A member inside a replaced event.
        [_, _, name, ..] if name == "replace" => Some(name),
        _ => None,
    };
    if let Some(name) = named {
        return name.clone();
    }
    match value {
        None => "nothing".to_owned(),
        Some(Value::String(text)) if ["pass", "drop", "fits"].contains(&text.as_str()) => text.clone(),
        Some(Value::String(_)) => "agent".to_owned(),
        Some(Value::Number(number)) => match path {
            // The status or the exit code of a probe.
            [_, kind] if ["http", "command"].contains(&kind.as_str()) => format!("{kind} {number}"),
            [_, member] if member.parse::<usize>().is_err() => "rejected".to_owned(),
            _ => "index".to_owned(),
        },
        Some(Value::Object(members)) => match members.iter().next() {
            Some((name, _)) if name == "expect" => "answered".to_owned(),
            Some((name, _)) if name == "refused" => "rejected".to_owned(),
            Some((name, Value::String(text))) if name == "failed" => format!("failed {text}"),
            Some((name, _)) => name.clone(),
            None => "nothing".to_owned(),
        },
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(other) => clip(&other.to_string(), 20),
    }
}

fn text(value: Option<&Value>) -> String {
    value.map_or_else(
        || "nothing".to_owned(),
        |value| clip(&one_line(&value.to_string()), MAX_TEXT_BYTES),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kind(call: &str, recorded: Value, found: Value) -> Option<String> {
        let keys = |value| match value {
            Value::Object(keys) => keys,
            other => panic!("{other}"),
        };
        Difference::between(call, &keys(recorded), &keys(found)).map(|it| it.kind)
    }

    #[test]
    fn differences_are_grouped_by_what_changed() {
        let expect = |value: Value| json!({ "expect": value });
        for (call, recorded, found, expected) in [
            (
                "evaluate",
                json!({"a": "fits", "b": 0}),
                json!({"a": "fits", "b": "fits"}),
                "evaluate: rejected -> fits",
            ),
            (
                "evaluate",
                json!({"a": "fits"}),
                json!({"a": 1}),
                "evaluate: fits -> rejected",
            ),
            (
                "evaluate",
                json!({"a": 0}),
                json!({"a": 1}),
                "evaluate: another rejected",
            ),
            (
                "place",
                json!(["a", "b"]),
                json!(["a"]),
                "place: agent -> nothing",
            ),
            ("place", json!(["a"]), json!(["b"]), "place: another agent"),
            (
                "select-kills",
                json!([0]),
                json!([1]),
                "select-kills: another index",
            ),
            ("validate", json!([]), json!([0]), "validate: nothing -> index"),
            (
                "decide",
                json!(["pass", "drop"]),
                json!(["pass", "pass"]),
                "decide: drop -> pass",
            ),
            (
                "decide",
                json!(["pass"]),
                json!([{"replace": {}}]),
                "decide: pass -> replace",
            ),
            (
                "decide",
                json!([{"replace": {"a": 1}}]),
                json!([{"replace": {"a": 2}}]),
                "decide: another replace",
            ),
            (
                "prepare",
                json!({"script": "a"}),
                json!({"script": "b"}),
                "prepare: another script",
            ),
            (
                "attempt",
                json!({"http": 200}),
                json!({"http": 503}),
                "attempt: http 200 -> http 503",
            ),
            (
                "attempt",
                json!({"http": 200}),
                json!({"failed": "invalid"}),
                "attempt: http -> failed invalid",
            ),
            (
                "attempt",
                json!({"custom": {"a": 1}}),
                json!({"custom": {"b": 1}}),
                "attempt: another custom",
            ),
            (
                "attempt",
                json!({"tcp": true}),
                json!({"tcp": false}),
                "attempt: true -> false",
            ),
        ] {
            let found = kind(call, expect(recorded.clone()), expect(found.clone()));
            assert_eq!(found.as_deref(), Some(expected), "{recorded}");
        }
        let rejected = json!({"refused": true});
        let opened = expect(json!([]));
        assert_eq!(
            kind("open", opened, rejected.clone()).as_deref(),
            Some("open: answered -> rejected")
        );
        assert_eq!(kind("open", rejected.clone(), rejected), None);
        let masked = expect(json!([{"replace": {"token": "********"}}]));
        assert_eq!(
            kind("decide", masked, expect(json!([{"replace": {"token": "x"}}]))),
            None
        );
    }

    #[test]
    fn question_names_the_member_that_differs() {
        let record: CallRecord = serde_json::from_value(json!({
            "at": 1, "plugin": "p", "version": "1", "digest": "", "manifest": "", "world": "event-filter",
            "interface": "0.1.0", "call": "decide", "micros": 1, "memory": 1,
            "case": {"filter": "/shop/*", "events": [{"kind": "a"}, {"kind": "b\u{1b}"}], "expect": ["pass", "pass"]}
        }))
        .unwrap();
        let answers = (
            json!({"expect": ["pass", "pass"]}),
            json!({"expect": ["pass", "drop"]}),
        );
        let (Value::Object(recorded), Value::Object(found)) = answers else {
            panic!("objects");
        };
        let difference = Difference::between("decide", &recorded, &found).unwrap();
        let question = difference.question(&record);
        assert!(
            question.starts_with("decide /shop/* (b") && !question.contains('\u{1b}'),
            "{question}"
        );
        assert_eq!(
            (difference.recorded.as_str(), difference.candidate.as_str()),
            ("\"pass\"", "\"drop\"")
        );
    }
}
