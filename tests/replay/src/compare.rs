//! Compares a response with its recording: status line, relevant headers, shape of the JSON, and
//! text of errors.

use crate::client::Response;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Keys whose values are not compared, because they depend on the site: flags differ by version and
/// command line, metrics by past activity, attributes by agent, and `offer_constraints` by
/// framework.
pub const SITE_KEYS: &[&str] = &[
    "flags",
    "get_flags",
    "get_metrics",
    "attributes",
    "offer_constraints",
];

/// Keys that may exist on one side only, because they depend on the state of machine and tasks:
/// whether ports are in use, statistics of isolators, offers that are open at that moment, and
/// executors whose processes have ended already.
pub const OPTIONAL_KEYS: &[&str] = &[
    "ports",
    "disk",
    "statistics",
    "resource_statistics",
    "offers",
    "offered_resources",
    "executor_ids",
    "domain",
];

/// Keys that depend on the master's build. Builds of the same version differ in them, so these
/// differences are reported separately.
pub const BUILD_KEYS: &[&str] = &[
    "version",
    "build_date",
    "build_time",
    "build_user",
    "git_sha",
    "git_tag",
    "git_branch",
];

/// A document with at least this many keys, all of which contain a slash, is a list of metrics. The
/// set of metrics depends on past activity and on the master's build, so only the types of common
/// metrics are compared.
const METRICS: usize = 10;

/// Headers that must be present on both sides or on neither, and have the same value unless it is
/// unique to the response.
const HEADERS: &[&str] = &["Content-Type", "Allow", "WWW-Authenticate", "Mesos-Stream-Id"];

/// The differences between a recording and an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Differences that count as failures.
    pub counted: Vec<String>,
    /// Differences in [`BUILD_KEYS`].
    pub of_build: Vec<String>,
}

impl Differences {
    /// Adds a difference that counts.
    pub fn push(&mut self, difference: String) {
        self.counted.push(difference);
    }

    /// Adds a difference at a key of a document.
    fn push_at(&mut self, key: &str, difference: String) {
        if BUILD_KEYS.contains(&key) {
            self.of_build.push(difference);
        } else {
            self.counted.push(difference);
        }
    }
}

/// The differences between two responses; empty if they match.
pub fn answers(recorded: &Response, live: &Response) -> Differences {
    let mut differences = heads(recorded, live);
    let kind = recorded.head.header("Content-Type").unwrap_or_default();
    if kind.starts_with("text/plain") {
        let (expected, found) = (without_ids(&recorded.text()), without_ids(&live.text()));
        if expected != found {
            differences.push(format!("body: expected {expected:?}, found {found:?}"));
        }
    } else if kind == "application/json"
        && recorded.head.header("Transfer-Encoding").is_none()
        && !live.body.is_empty()
    {
        shapes(&recorded.json(), &live.json(), "", &mut differences);
    }
    differences
}

/// The differences of status line and headers.
pub fn heads(recorded: &Response, live: &Response) -> Differences {
    let mut differences = Differences::default();
    if recorded.head.status != live.head.status {
        differences.push(format!(
            "status: expected {:?}, found {:?} {:?}",
            recorded.head.status,
            live.head.status,
            live.text()
        ));
    }
    for &name in HEADERS {
        let (expected, found) = (recorded.head.header(name), live.head.header(name));
        let same = if name == "Mesos-Stream-Id" {
            expected.is_some() == found.is_some()
        } else {
            expected == found
        };
        if !same {
            differences.push(format!("{name}: expected {expected:?}, found {found:?}"));
        }
    }
    differences
}

/// Compares keys and types of values recursively. Lists are compared by the union of their
/// elements.
pub fn shapes(recorded: &Value, live: &Value, at: &str, differences: &mut Differences) {
    match (recorded, live) {
        (Value::Object(_), Value::Object(_)) => objects(&[recorded], &[live], at, differences),
        (Value::Array(expected), Value::Array(found)) => lists(expected, found, at, differences),
        _ if kind(recorded) != kind(live) => {
            differences.push(format!(
                "{}: expected {}, found {}",
                path_or_root(at),
                kind(recorded),
                kind(live)
            ));
        }
        _ => {}
    }
}

/// Compares the objects of each side, merged into one that has every key of any of them.
fn objects(recorded: &[&Value], live: &[&Value], at: &str, differences: &mut Differences) {
    let (expected, found) = (merged(recorded), merged(live));
    let metrics = found.len() >= METRICS && found.keys().all(|key| key.contains('/'));
    let keys: BTreeSet<&str> = expected.keys().chain(found.keys()).copied().collect();
    for key in keys {
        let path = format!("{at}.{key}");
        match (expected.get(key), found.get(key)) {
            _ if SITE_KEYS.contains(&key) => {}
            (None, _) | (_, None) if metrics => {}
            (None, Some(_)) | (Some(_), None) if OPTIONAL_KEYS.contains(&key) => {}
            (Some(_), None) => differences.push_at(key, format!("{path}: missing")),
            (None, Some(_)) => differences.push_at(key, format!("{path}: not in the recording")),
            (Some(expected), Some(found)) if BUILD_KEYS.contains(&key) => {
                let mut inside = Differences::default();
                all(expected, found, &path, &mut inside);
                differences.of_build.extend(inside.counted);
            }
            (Some(expected), Some(found)) => all(expected, found, &path, differences),
            (None, None) => {}
        }
    }
}

fn merged<'a>(values: &[&'a Value]) -> BTreeMap<&'a str, Vec<&'a Value>> {
    let mut merged: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for (key, value) in values.iter().filter_map(|value| value.as_object()).flatten() {
        merged.entry(key).or_default().push(value);
    }
    merged
}

/// Compares the elements of two lists; the element type of an empty list is unknown.
fn lists(recorded: &[Value], live: &[Value], at: &str, differences: &mut Differences) {
    let (recorded, live): (Vec<&Value>, Vec<&Value>) = (recorded.iter().collect(), live.iter().collect());
    if !recorded.is_empty() && !live.is_empty() {
        all(&recorded, &live, &format!("{at}[]"), differences);
    }
}

/// Compares the values at one path, of which each side may have several.
fn all(recorded: &[&Value], live: &[&Value], at: &str, differences: &mut Differences) {
    let kinds = |values: &[&Value]| values.iter().map(|value| kind(value)).collect::<BTreeSet<_>>();
    let (expected, found) = (kinds(recorded), kinds(live));
    if let Some(unexpected) = found.difference(&expected).next() {
        differences.push(format!(
            "{}: expected {expected:?}, found {unexpected}",
            path_or_root(at)
        ));
        return;
    }
    if expected.contains("object") {
        objects(recorded, live, at, differences);
    }
    let elements = |values: &[&Value]| {
        values
            .iter()
            .filter_map(|value| value.as_array())
            .flatten()
            .cloned()
            .collect::<Vec<_>>()
    };
    lists(&elements(recorded), &elements(live), at, differences);
}

/// The JSON type of a value. Integers and floats are distinguished, because the API writes amounts
/// as `4.0`.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "whole number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn path_or_root(at: &str) -> &str {
    if at.is_empty() { "document" } else { at }
}

/// Removes from events what depends on a race in the executor of a task group: while a task of the
/// group starts or ends, its container may or may not have its process and its network. The
/// recordings contain both.
pub fn without_races(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut object: serde_json::Map<String, Value> = object
                .iter()
                .map(|(key, inner)| (key.clone(), without_races(inner)))
                .collect();
            let runs = object.get("state").is_some_and(|state| state == "TASK_RUNNING");
            if let Some(Value::Object(container)) = object.get_mut("container_status")
                && !runs
                && container
                    .get("container_id")
                    .is_some_and(|id| id.get("parent").is_some())
            {
                container.remove("executor_pid");
                container.remove("network_infos");
            }
            Value::Object(object)
        }
        Value::Array(items) => items.iter().map(without_races).collect(),
        other => other.clone(),
    }
}

/// Replaces every UUID in a text, and the numbers that belong to ids of frameworks, agents and
/// offers.
pub fn without_ids(text: &str) -> String {
    let mut rest = text;
    let mut plain = String::new();
    while let Some(first) = rest.chars().next() {
        if is_uuid(rest) {
            plain.push_str("<id>");
            rest = &rest[36..];
            let suffix = rest.strip_prefix('-').map_or(0, |tail| {
                tail.chars().take_while(char::is_ascii_alphanumeric).count()
            });
            rest = if suffix > 0 { &rest[1 + suffix..] } else { rest };
        } else {
            plain.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    plain
}

fn is_uuid(text: &str) -> bool {
    let Some(text) = text.get(..36) else { return false };
    text.bytes().enumerate().all(|(index, byte)| {
        if [8, 13, 18, 23].contains(&index) {
            byte == b'-'
        } else {
            byte.is_ascii_hexdigit()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn compared(recorded: &Value, live: &Value) -> Differences {
        let mut differences = Differences::default();
        shapes(recorded, live, "", &mut differences);
        differences
    }

    fn differences(recorded: &Value, live: &Value) -> Vec<String> {
        compared(recorded, live).counted
    }

    #[test]
    fn build_differences_are_reported_separately() {
        let recorded = json!({"version_info": {"version": "1.11.0", "build_user": ""}, "leader": "m"});
        let live = json!({"version_info": {"version": "1.11.0", "git_sha": "0fcd", "build_user": 5}});
        let found = compared(&recorded, &live);
        assert_eq!(found.counted, [".leader: missing"]);
        let of_build = [
            ".version_info.build_user: expected {\"string\"}, found whole number",
            ".version_info.git_sha: not in the recording",
        ];
        assert_eq!(found.of_build, of_build);
    }

    #[test]
    fn starting_task_of_a_group_may_have_a_process() {
        let update = |state: &str, parent: bool, more: Value| {
            let mut container = more;
            container["container_id"] = if parent {
                json!({"value": "c", "parent": {"value": "p"}})
            } else {
                json!({"value": "c"})
            };
            json!({"update": {"status": {"state": state, "container_status": container}}})
        };
        let differ = |state: &str, parent: bool| {
            let recorded = update(state, parent, json!({"network_infos": []}));
            let live = update(state, parent, json!({"executor_pid": 5}));
            differences(&without_races(&recorded), &without_races(&live)).len()
        };
        assert_eq!(differ("TASK_STARTING", true), 0);
        assert_eq!(differ("TASK_KILLING", true), 0);
        assert_eq!(differ("TASK_RUNNING", true), 2);
        assert_eq!(differ("TASK_STARTING", false), 2);
    }

    #[test]
    fn shapes_are_compared_by_keys_kinds_and_element_unions() {
        let cases: [(Value, Value, &[&str]); 8] = [
            (json!({"a": 1}), json!({"a": 2}), &[]),
            (
                json!({"a": 1}),
                json!({"b": 1}),
                &[".a: missing", ".b: not in the recording"],
            ),
            (
                json!({"a": 1.0}),
                json!({"a": 1}),
                &[".a: expected {\"float\"}, found whole number"],
            ),
            (json!([{"a": 1}, {"b": 1}]), json!([{"b": 2, "a": 2}]), &[]),
            (json!([{"a": 1}]), json!([]), &[]),
            (json!({"flags": {"x": "1"}}), json!({"flags": {}}), &[]),
            (
                json!({"l": [{"x": [1]}]}),
                json!({"l": [{"x": ["1"]}]}),
                &[".l[].x[]: expected {\"whole number\"}, found string"],
            ),
            (json!({}), json!([]), &["document: expected object, found array"]),
        ];
        for (recorded, live, expected) in cases {
            assert_eq!(
                differences(&recorded, &live),
                expected,
                "{recorded} against {live}"
            );
        }
    }

    #[test]
    fn ids_are_not_compared() {
        let text = "framework ID 9a8a442f-2124-4a79-afc6-be3ed497be4a-0000.";
        assert_eq!(without_ids(text), "framework ID <id>.");
    }
}
