//! The comparison of two answers: the first difference, its place and both values.

use std::borrow::Cow;

use serde_json::{Map, Value};
use transom_common::text::{clip, one_line};

use crate::Answer;
use crate::json::is_same_document;
use crate::question::{MAX_TEXT_BYTES, question};

/// Replaces a secret in a recorded answer.
pub const MASK: &str = "********";

/// Whether the first answer may contain masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Masks {
    /// Each text stands for itself.
    Absent,
    /// A [`MASK`] in the first answer, which is a recorded one, matches any text and any value.
    Possible,
}

/// The first difference between two answers to one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The change, one of a few: `fits -> rejected`, `another script`.
    pub change: String,
    /// The value in the first answer, in one line of bounded length.
    pub first: String,
    /// The value in the second answer, likewise.
    pub second: String,
    /// Path to the member of the answer. Empty: the whole answer.
    path: Vec<String>,
}

/// Compares two answers to one call. `None` if they are equal.
pub fn compare(first: &Answer, second: &Answer, masks: Masks) -> Option<Difference> {
    let sides = (Value::Object(first.clone()), Value::Object(second.clone()));
    let mut path = Vec::new();
    let (first, second) = first_difference(Some(&sides.0), Some(&sides.1), masks, &mut path)?;
    let labels = (describe_value(&path, first), describe_value(&path, second));
    Some(Difference {
        change: if labels.0 == labels.1 {
            format!("another {}", labels.0)
        } else {
            format!("{} -> {}", labels.0, labels.1)
        },
        first: text(first),
        second: text(second),
        // The first key is always `expect`, so it is left out.
        path: path.split_off(1.min(path.len())),
    })
}

impl Difference {
    /// Describes the call, with the member of the answer that differs.
    pub fn question(&self, call: &str, case: &Map<String, Value>) -> String {
        let question = question(call, case);
        if self.path.is_empty() {
            return question;
        }
        let member = |member: &String| match member.parse::<usize>() {
            Ok(at) if call == "decide" => event(case, at).unwrap_or_else(|| member.clone()),
            _ => member.clone(),
        };
        let members: Vec<String> = self.path.iter().map(member).collect();
        let question = format!("{question} ({})", members.join("/"));
        clip(&one_line(&question), MAX_TEXT_BYTES)
    }

    /// The same difference, in the step of an attempt with this number.
    pub fn in_step(mut self, number: usize) -> Difference {
        self.path.insert(0, format!("step {number}"));
        self
    }
}

/// The kind of an event of a call.
fn event(case: &Map<String, Value>, at: usize) -> Option<String> {
    let event = case.get("events")?.as_array()?.get(at)?;
    Some(event.get("kind")?.as_str()?.to_owned())
}

type ValuePair<'a> = (Option<&'a Value>, Option<&'a Value>);

/// Finds the first difference. A member that only one side has is a difference.
fn first_difference<'a>(
    first: Option<&'a Value>,
    second: Option<&'a Value>,
    masks: Masks,
    path: &mut Vec<String>,
) -> Option<ValuePair<'a>> {
    let mut compare_member = |key: String, sides: ValuePair<'a>| {
        path.push(key);
        let difference = first_difference(sides.0, sides.1, masks, path);
        if difference.is_none() {
            path.pop();
        }
        difference
    };
    match (first, second) {
        (None, None) => None,
        (Some(first), Some(second)) if masks.is_equal(first, second) => None,
        (Some(Value::Object(first)), Some(Value::Object(second)))
            // Two variants with different names share no members, so they differ as a whole.
            if first.is_empty() || second.is_empty() || first.keys().any(|it| second.contains_key(it)) =>
        {
            let more = second.keys().filter(|it| !first.contains_key(*it));
            let mut keys = first.keys().chain(more);
            keys.find_map(|key| compare_member(key.clone(), (first.get(key), second.get(key))))
        }
        (Some(Value::Array(first)), Some(Value::Array(second))) => {
            let mut indices = 0..first.len().max(second.len());
            indices.find_map(|at| compare_member(at.to_string(), (first.get(at), second.get(at))))
        }
        // A large replaced event is a text, so that its tree is not built.
        (Some(first), Some(second))
            if matches!(path.as_slice(), [_, _, name] if name == "replace")
                && (first.is_string() || second.is_string())
                && is_same_document(&document_text(first), &document_text(second)) =>
        {
            None
        }
        sides => Some(sides),
    }
}

fn document_text(replaced: &Value) -> Cow<'_, str> {
    match replaced {
        Value::String(text) => text.into(),
        tree => tree.to_string().into(),
    }
}

impl Masks {
    /// Whether two documents are equal.
    pub(crate) fn is_equal(self, first: &Value, second: &Value) -> bool {
        match self {
            Masks::Absent => first == second,
            Masks::Possible => equal_but_for_masks(first, second),
        }
    }
}

/// Whether a document equals the recorded one. A mask in the recorded one matches any text and any
/// value.
fn equal_but_for_masks(recorded: &Value, found: &Value) -> bool {
    match (recorded, found) {
        (Value::String(recorded), _) if recorded == MASK => true,
        (Value::String(recorded), Value::String(found)) if recorded.contains(MASK) => {
            matches_masked(recorded, found)
        }
        (Value::Object(recorded), Value::Object(found)) => {
            recorded.len() == found.len()
                && recorded.iter().all(|(name, value)| {
                    let found = found.get(name);
                    found.is_some_and(|found| equal_but_for_masks(value, found))
                })
        }
        (Value::Array(recorded), Value::Array(found)) => {
            let mut pairs = recorded.iter().zip(found);
            recorded.len() == found.len()
                && pairs.all(|(recorded, found)| equal_but_for_masks(recorded, found))
        }
        (recorded, found) => recorded == found,
    }
}

/// Whether `found` contains the parts of `recorded` between its masks, in their order.
fn matches_masked(recorded: &str, found: &str) -> bool {
    let parts: Vec<&str> = recorded.split(MASK).collect();
    let [first, middle @ .., last] = parts.as_slice() else {
        return recorded == found;
    };
    let Some(mut rest) = found.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else {
        return false;
    };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    true
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
    use crate::answer;

    fn kind(call: &str, recorded: Value, found: Value) -> Option<String> {
        let keys = |value| match value {
            Value::Object(keys) => keys,
            other => panic!("{other}"),
        };
        compare(&keys(recorded), &keys(found), Masks::Possible).map(|it| format!("{call}: {}", it.change))
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
        let case = json!({"filter": "/shop/*", "events": [{"kind": "a"}, {"kind": "b\u{1b}"}]});
        let answers = (
            json!({"expect": ["pass", "pass"]}),
            json!({"expect": ["pass", "drop"]}),
        );
        let (Value::Object(recorded), Value::Object(found), Value::Object(case)) =
            (answers.0, answers.1, case)
        else {
            panic!("objects");
        };
        let difference = compare(&recorded, &found, Masks::Absent).unwrap();
        let question = difference.question("decide", &case);
        assert!(
            question.starts_with("decide /shop/* (b") && !question.contains('\u{1b}'),
            "{question}"
        );
        assert_eq!(
            (difference.first.as_str(), difference.second.as_str()),
            ("\"pass\"", "\"drop\"")
        );
    }
    #[test]
    fn masks_in_a_recorded_document_stand_for_any_value() {
        for (recorded, found, equal) in [
            (json!({"a": MASK}), json!({"a": {"b": 1}}), true),
            (json!({"a": MASK}), json!({"a": 1, "b": 2}), false),
            (json!(["Bearer ********"]), json!(["Bearer x"]), true),
            (json!(["Bearer ********"]), json!(["Basic x"]), false),
            (json!("a ******** b ******** c"), json!("a 1 b 2 c"), true),
            (json!("a ******** b ******** c"), json!("a 1 2 c"), false),
            (json!("ab********b"), json!("ab"), false),
            (json!([1]), json!([1, 2]), false),
            (json!(1), json!(1), true),
        ] {
            assert_eq!(
                equal_but_for_masks(&recorded, &found),
                equal,
                "{recorded} and {found}"
            );
        }
    }

    #[test]
    fn large_replaced_events_are_compared_as_documents() {
        let replaced = |event: Value| answer("expect", [json!({ "replace": event })]);
        let first = replaced(r#"{"a":1,"b":2}"#.into());
        let differs = |second| compare(&first, &replaced(second), Masks::Absent).is_some();
        assert!(!differs(r#"{"b": 2, "a": 1}"#.into()));
        assert!(!differs(json!({"b": 2, "a": 1})));
        assert!(differs(r#"{"b": 2, "a": 2}"#.into()));
        assert!(differs(json!({"b": 2, "a": 2})));
    }

    #[test]
    fn masks_are_plain_texts_unless_the_answer_is_recorded() {
        let (first, second) = (answer("expect", MASK), answer("expect", "x"));
        assert!(compare(&first, &second, Masks::Absent).is_some());
        assert_eq!(compare(&first, &second, Masks::Possible), None);
    }
}
