//! Detects what a definition lost when it was parsed. Marathon shows definitions in the form in
//! which this service stores them, so every difference changes the meaning.

use serde_json::{Map, Value};

/// Members of Marathon's documents that are not part of a definition.
const NOT_IN_DEFINITIONS: &[&str] = &[
    "deployments",
    "lastTaskFailure",
    "readinessCheckResults",
    "tasks",
    "tasksHealthy",
    "tasksRunning",
    "tasksStaged",
    "tasksStats",
    "taskStats",
    "tasksUnhealthy",
    "uris",
    "version",
    "versionInfo",
];

/// Lists each difference with the path of its member. `theirs` is Marathon's document, `ours` the
/// stored one.
pub(super) fn differences(theirs: &Value, ours: &Value) -> Vec<String> {
    let mut differences = Vec::new();
    if let (Value::Object(theirs), Value::Object(ours)) = (theirs, ours) {
        let is_excluded = |name: &str| NOT_IN_DEFINITIONS.contains(&name);
        objects("", theirs, ours, &is_excluded, &mut differences);
    }
    differences
}

fn objects(
    path: &str,
    theirs: &Map<String, Value>,
    ours: &Map<String, Value>,
    ignored: &dyn Fn(&str) -> bool,
    differences: &mut Vec<String>,
) {
    for (name, value) in theirs.iter().filter(|(name, _)| !ignored(name)) {
        let path = format!("{path}/{name}");
        compare(&path, value, ours.get(name).unwrap_or(&Value::Null), differences);
    }
}

fn compare(path: &str, theirs: &Value, ours: &Value, differences: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => objects(path, theirs, ours, &|_| false, differences),
        (Value::Array(theirs), Value::Array(ours)) if theirs.len() == ours.len() => {
            for (index, (theirs, ours)) in theirs.iter().zip(ours).enumerate() {
                compare(&format!("{path}({index})"), theirs, ours, differences);
            }
        }
        _ if is_empty(theirs) && is_empty(ours) || is_same(theirs, ours) => {}
        (_, Value::Null) => differences.push(format!("{path} is not imported")),
        // Such a value may be a secret, so it is not shown.
        _ if path.starts_with("/env") || path.contains("secret") => {
            differences.push(format!("{path} has another value"));
        }
        _ => differences.push(format!("{path} is {theirs} in Marathon and {ours} here")),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.values().all(is_empty),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn is_same(theirs: &Value, ours: &Value) -> bool {
    match (theirs.as_f64(), ours.as_f64()) {
        (Some(theirs), Some(ours)) => (theirs - ours).abs() <= f64::EPSILON * theirs.abs().max(1.0),
        _ => theirs == ours,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_name_what_is_lost_or_changed_and_hide_values_of_the_environment() {
        let theirs = json!({
            "id": "/a", "cpus": 1.0, "mem": 16, "env": {"KEY": "hunter2"}, "tasks": [1], "fetch": [],
            "new": 3, "healthChecks": [{"path": "/", "newer": {"a": 1}}], "labels": {"a": "b"},
        });
        let ours = json!({
            "id": "/a", "cpus": 1, "mem": 32, "env": {}, "healthChecks": [{"path": "/"}], "labels": {"a": "b"}, "more": 1,
        });
        let mut listed = differences(&theirs, &ours);
        listed.sort();
        assert_eq!(
            listed,
            [
                "/env/KEY is not imported",
                "/healthChecks(0)/newer is not imported",
                "/mem is 16 in Marathon and 32 here",
                "/new is not imported",
            ]
        );
        let changed = differences(&theirs, &json!({"env": {"KEY": "x"}}));
        assert!(
            changed.contains(&"/env/KEY has another value".to_owned()),
            "{changed:?}"
        );
        assert!(differences(&ours, &ours).is_empty());
    }
}
