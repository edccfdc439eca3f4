//! Fields that upstream has and this version does not support yet. They are rejected by name:
//! running an app without its volumes or its health checks would be worse than not running it.

use serde_json::{Map, Value};

use transom_web::Problems;

use super::{App, Volume};

/// Fields that are rejected whenever they are not empty.
const FIELDS: [&str; 2] = ["healthChecks", "readinessChecks"];

/// Adds a problem for every unsupported field of `document` that is in use.
pub(super) fn find(document: &Map<String, Value>, problems: &mut Problems) {
    for field in FIELDS {
        if document.get(field).is_some_and(says_something) {
            problems.add(format!("/{field}"), format!("{field} is not supported yet"));
        }
    }
}

/// Adds a problem for every part of a valid definition that cannot be run yet.
pub(super) fn refuse(app: &App, problems: &mut Problems) {
    for (index, volume) in app.volumes().iter().enumerate() {
        if matches!(volume, Volume::Persistent { .. }) {
            problems.add(
                format!("/container/volumes({index})/persistent"),
                "persistent volumes are not supported yet",
            );
        }
    }
    if !matches!(app.executor.as_str(), "" | "//cmd") {
        problems.add(
            "/executor",
            format!(
                "the custom executor {} is not supported yet; leave it empty",
                app.executor
            ),
        );
    }
    if app.executor_resources.is_some() {
        problems.add(
            "/executorResources",
            "executorResources is not supported yet: the command executor has no resources of its own",
        );
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
    use crate::testing::app;
    use serde_json::json;

    #[test]
    fn unsupported_fields_without_effect_are_accepted() {
        let document = json!({"healthChecks": [], "readinessChecks": null});
        let mut problems = Problems::default();
        find(document.as_object().unwrap(), &mut problems);
        assert_eq!(problems, Problems::default());
        refuse(
            &app(&json!({"cmd": "sleep 1", "executor": "//cmd"})),
            &mut problems,
        );
        assert_eq!(problems, Problems::default());
    }

    #[test]
    fn unsupported_fields_in_use_are_reported_with_their_path() {
        for field in FIELDS {
            let document = json!({field: [{}]});
            let mut problems = Problems::default();
            find(document.as_object().unwrap(), &mut problems);
            assert!(
                problems.contains(&format!("/{field}"), "not supported yet"),
                "{problems:?}"
            );
        }
    }

    #[test]
    fn valid_definitions_that_cannot_run_are_rejected_with_their_path() {
        let volume = json!({"containerPath": "data", "mode": "RW", "persistent": {"size": 1}});
        for (more, path) in [
            (
                json!({"container": {"type": "MESOS", "volumes": [volume]}}),
                "/container/volumes(0)/persistent",
            ),
            (json!({"executor": "/bin/mine"}), "/executor"),
            (json!({"executorResources": {"mem": 64}}), "/executorResources"),
        ] {
            let mut body = json!({"cmd": "sleep 1"});
            body.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            let mut problems = Problems::default();
            refuse(&app(&body), &mut problems);
            assert!(
                problems.contains(path, "not supported yet"),
                "{body}: {problems:?}"
            );
        }
    }
}
