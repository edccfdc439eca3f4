//! Fields that upstream has and this version does not support yet. They are rejected by name:
//! running an app without its volumes would be worse than not running it.

use serde_json::{Map, Value};

use transom_web::Problems;

/// Fields that are rejected whenever they are not empty.
const FIELDS: [&str; 7] = [
    "container",
    "executorResources",
    "ipAddress",
    "residency",
    "resourceLimits",
    "secrets",
    "tty",
];

/// Adds a problem for every unsupported field of `document` that is in use.
pub(super) fn find(document: &Map<String, Value>, problems: &mut Problems) {
    for field in FIELDS {
        if document.get(field).is_some_and(says_something) {
            problems.add(format!("/{field}"), format!("{field} is not supported yet"));
        }
    }
    if let Some(networks) = document.get("networks").and_then(Value::as_array) {
        for (index, network) in networks.iter().enumerate() {
            match network.get("mode").and_then(Value::as_str) {
                Some("host") => host_network(network, problems),
                Some(mode) => problems.add(
                    format!("/networks({index})/mode"),
                    format!("the network mode {mode} is not supported yet; only host is"),
                ),
                None => problems.add(
                    format!("/networks({index})/mode"),
                    "only the network mode host is supported yet",
                ),
            }
        }
    }
    if let Some(env) = document.get("env").and_then(Value::as_object) {
        for (name, value) in env.iter().filter(|(_, value)| value.is_object()) {
            if value.get("secret").is_some() {
                problems.add(
                    format!("/env/{name}"),
                    "secrets are not supported yet; give the value itself",
                );
            }
        }
    }
    if let Some(executor) = document.get("executor").and_then(Value::as_str)
        && !matches!(executor, "" | "//cmd")
    {
        problems.add(
            "/executor",
            format!("the custom executor {executor} is not supported yet; leave it empty"),
        );
    }
}

fn host_network(network: &Value, problems: &mut Problems) {
    let named = ["name", "labels"]
        .iter()
        .any(|key| network.get(key).is_some_and(says_something));
    if named {
        problems.add("/networks", "Host networks may not have names or labels");
    }
}

/// Clients send back the documents that they were shown, with empty lists and nulls.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use serde_json::json;

    #[test]
    fn unsupported_fields_without_effect_are_accepted() {
        let document = json!({
            "container": null, "secrets": {}, "tty": false,
            "networks": [{"mode": "host"}], "env": {"A": "b"}, "executor": "",
        });
        let mut problems = Problems::default();
        find(document.as_object().unwrap(), &mut problems);
        assert_eq!(problems, Problems::default());
    }

    #[test]
    fn unsupported_fields_in_use_are_reported_with_their_path() {
        for (document, path) in [
            (json!({"container": {"type": "DOCKER"}}), "/container"),
            (
                json!({"residency": {"taskLostBehavior": "WAIT_FOREVER"}}),
                "/residency",
            ),
            (json!({"networks": [{"mode": "container"}]}), "/networks(0)/mode"),
            (json!({"networks": [{"mode": "host", "name": "x"}]}), "/networks"),
            (json!({"secrets": {"a": {"source": "b"}}}), "/secrets"),
            (json!({"env": {"A": {"secret": "s"}}}), "/env/A"),
            (json!({"executor": "/bin/mine"}), "/executor"),
            (json!({"tty": true}), "/tty"),
        ] {
            let mut problems = Problems::default();
            find(document.as_object().unwrap(), &mut problems);
            assert!(problems.contains(path, ""), "{document}: {problems:?}");
        }
    }
}
