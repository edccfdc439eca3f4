//! Parts of definitions that upstream has and this version does not support yet. They are rejected
//! by name: running an app without what it asks for would be worse than not running it.

use transom_web::Problems;

use super::App;

/// Adds a problem for every part of a valid definition that cannot be run yet.
pub(super) fn refuse(app: &App, problems: &mut Problems) {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::testing::app;
    use serde_json::json;

    #[test]
    fn valid_definitions_that_cannot_run_are_rejected_with_their_path() {
        for (more, path) in [
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
