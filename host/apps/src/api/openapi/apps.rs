//! The paths of apps and of their tasks.

use serde_json::json;

use super::operation::{Operation, Paths};
use super::schemas::Schemas;
use crate::api::app::{AppInfo, AppList, AppSingle, AppsBelow, VersionList};
use crate::api::change::DeploymentResult;
use crate::api::task::{TaskList, TaskSingle};
use crate::model::App;
use crate::model::lengths::max_length;

pub(super) fn add(paths: &mut Paths, schemas: &mut Schemas) {
    let input = json!({"$ref": "#/components/schemas/AppInput"});
    let inputs = json!({"type": "array", "maxItems": max_length("apps"), "items": input});
    let result = schemas.of::<DeploymentResult<'_>>();
    let deployed = |operation: Operation| {
        operation
            .with_response(200, "The deployment that makes the change.", &result)
            .headers(200, &["Marathon-Deployment-Id"])
    };
    let patch = json!({
        "type": "object",
        "description": "Fields of an app. Objects are merged field by field, other values replace present ones, and \
                        `null` removes a field that may be absent.",
    });
    let put = |operation: Operation| {
        operation
            .with_parameters(&["partialUpdate", "restart"])
            .with_definition(&input)
            .change()
            .description("`{\"version\": …}` alone returns to the definition of that version.")
    };
    paths.add(
        "apps",
        "/v2/apps",
        [
            Operation::new("get", "listApps", "All apps")
                .with_parameters(&["idPart", "cmd", "label", "embedApps"])
                .with_response(200, "The apps.", &schemas.of::<AppList<'_>>())
                .headers(200, &["Age"])
                .with_errors(&[422]),
            Operation::new("post", "createApp", "Creates an app")
                .with_definition(&input)
                .change()
                .with_response(201, "The app, as it was created.", &schemas.of::<AppInfo<'_>>())
                .headers(201, &["Location", "Marathon-Deployment-Id"]),
            deployed(
                Operation::new("put", "putApps", "Changes or creates apps, by one deployment")
                    .with_parameters(&["partialUpdate"])
                    .with_definition(&inputs)
                    .change()
                    .with_errors(&[404]),
            ),
            deployed(
                Operation::new("patch", "patchApps", "Changes apps, by one deployment")
                    .with_parameters(&["partialUpdate"])
                    .with_definition(&json!({"type": "array", "items": patch}))
                    .change()
                    .with_errors(&[404]),
            ),
        ],
    );
    paths.add(
        "apps",
        "/v2/apps/{id}",
        [
            Operation::new("get", "getApp", "An app with its tasks")
                .with_parameters(&["embedApps"])
                .with_response(200, "The app.", &schemas.of::<AppSingle<'_>>())
                .headers(200, &["Age"])
                .with_errors(&[404]),
            deployed(put(Operation::new("put", "putApp", "Changes or creates an app")))
                .with_response(
                    201,
                    "The app was created; the deployment that starts it.",
                    &result,
                )
                .headers(201, &["Location", "Marathon-Deployment-Id"])
                .with_errors(&[404]),
            deployed(
                Operation::new("patch", "patchApp", "Changes an app")
                    .with_parameters(&["partialUpdate", "restart"])
                    .with_definition(&patch)
                    .change()
                    .description("`{\"version\": …}` alone returns to the definition of that version."),
            )
            .with_errors(&[404]),
            deployed(Operation::new("delete", "deleteApp", "Deletes an app").deletion()).with_errors(&[404]),
        ],
    );
    paths.add(
        "apps",
        "/v2/apps/{id}/restart",
        [
            deployed(Operation::new("post", "restartApp", "Replaces all instances of an app").change())
                .with_errors(&[404]),
        ],
    );
    add_tasks(paths, schemas);
    add_versions(paths, schemas);
}

/// The tasks of apps, and the apps below a group.
fn add_tasks(paths: &mut Paths, schemas: &mut Schemas) {
    let result = schemas.of::<DeploymentResult<'_>>();
    let tasks = schemas.of::<TaskList<'_>>();
    paths.add(
        "apps",
        "/v2/apps/{id}/*",
        [Operation::new("get", "listAppsOfGroup", "The apps below a group")
            .with_parameters(&["embedApps"])
            .with_response(200, "The apps.", &schemas.of::<AppsBelow<'_>>())
            .headers(200, &["Age"])],
    );
    paths.add(
        "apps",
        "/v2/apps/{id}/*/tasks",
        [
            Operation::new("get", "listTasksOfGroup", "The tasks of the apps below a group")
                .with_parameters(&["embedTasks"])
                .with_response(200, "The tasks.", &tasks)
                .headers(200, &["Age"]),
        ],
    );
    let kill = |operation: Operation| {
        operation
            .with_parameters(&["scale", "wipe"])
            .change()
            .with_errors(&[404])
    };
    let killed = |schema: &serde_json::Value| json!({"anyOf": [schema, result]});
    let description = "What was killed, as it was before. With `scale`, the deployment.";
    paths.add(
        "apps",
        "/v2/apps/{id}/tasks",
        [
            Operation::new("get", "listTasksOfApp", "The tasks of an app")
                .with_parameters(&["embedTasks"])
                .with_response(200, "The tasks.", &tasks)
                .headers(200, &["Age"])
                .with_errors(&[404]),
            kill(
                Operation::new("delete", "killTasksOfApp", "Kills tasks of an app")
                    .with_parameters(&["host"]),
            )
            .with_response(200, description, &killed(&tasks))
            .headers(200, &["Marathon-Deployment-Id"]),
        ],
    );
    paths.add(
        "apps",
        "/v2/apps/{id}/tasks/{task}",
        [kill(Operation::new(
            "delete",
            "killTaskOfApp",
            "Kills a task of an app",
        ))
        .with_response(200, description, &killed(&schemas.of::<TaskSingle<'_>>()))
        .headers(200, &["Marathon-Deployment-Id"])],
    );
}

fn add_versions(paths: &mut Paths, schemas: &mut Schemas) {
    paths.add(
        "apps",
        "/v2/apps/{id}/versions",
        [Operation::new(
            "get",
            "listVersionsOfApp",
            "The times of the kept definitions of an app",
        )
        .with_response(200, "The times, newest first.", &schemas.of::<VersionList<'_>>())
        .with_errors(&[404])],
    );
    paths.add(
        "apps",
        "/v2/apps/{id}/versions/{version}",
        [
            Operation::new("get", "getVersionOfApp", "A kept definition of an app")
                .with_response(200, "The definition.", &schemas.of::<App>())
                .with_errors(&[404, 422]),
        ],
    );
}
