//! The routes of apps and of their tasks.

use serde_json::{Value, json};
use transom_web::routes::{Route, Schemas};

use super::operation::{Operation, delete, either, patch, post, put};
use crate::api::app::{AppInfo, AppList, AppSingle, AppsBelow, VersionList};
use crate::api::change::DeploymentResult;
use crate::api::task::{TaskList, TaskSingle};
use crate::api::{Api, apps};
use crate::model::App;
use crate::model::lengths::max_length;

fn input(_: &mut Schemas) -> Value {
    json!({"$ref": "#/components/schemas/AppInput"})
}

fn inputs(schemas: &mut Schemas) -> Value {
    json!({"type": "array", "maxItems": max_length("apps"), "items": input(schemas)})
}

fn fields(_: &mut Schemas) -> Value {
    json!({
        "type": "object",
        "description": "Fields of an app. Objects are merged field by field, other values replace present ones, and \
                        `null` removes a field that may be absent.",
    })
}

const ROLLBACK: &str = "`{\"version\": …}` alone returns to the definition of that version.";
const KILLED: &str = "What was killed, as it was before. With `scale`, the deployment.";

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn routes() -> Vec<Route<Api>> {
    vec![
        Route::get("/v2/apps", "listApps", "All apps", apps::list)
            .parameters(&["idPart", "cmd", "label", "embedApps"])
            .returns::<AppList<'_>>("The apps.")
            .headers(&["Age"])
            .errors(&[422]),
        post("/v2/apps", "createApp", "Creates an app", apps::create)
            .definition(input)
            .change()
            .response(201, "The app, as it was created.", Schemas::of::<AppInfo<'_>>)
            .headers(&["Location", "Marathon-Deployment-Id"]),
        put(
            "/v2/apps",
            "putApps",
            "Changes or creates apps, by one deployment",
            apps::put_all,
        )
        .parameters(&["partialUpdate"])
        .definition(inputs)
        .change()
        .errors(&[404])
        .deployed(),
        patch(
            "/v2/apps",
            "patchApps",
            "Changes apps, by one deployment",
            apps::patch_all,
        )
        .parameters(&["partialUpdate"])
        .definition(|schemas| json!({"type": "array", "items": fields(schemas)}))
        .change()
        .errors(&[404])
        .deployed(),
        Route::get("/v2/apps/{id}", "getApp", "An app with its tasks", apps::get)
            .parameters(&["embedApps"])
            .returns::<AppSingle<'_>>("The app.")
            .headers(&["Age"])
            .errors(&[404]),
        put("/v2/apps/{id}", "putApp", "Changes or creates an app", apps::put)
            .parameters(&["partialUpdate", "restart"])
            .definition(input)
            .change()
            .description(ROLLBACK)
            .deployed()
            .response(
                201,
                "The app was created; the deployment that starts it.",
                Schemas::of::<DeploymentResult<'_>>,
            )
            .headers(&["Location", "Marathon-Deployment-Id"])
            .errors(&[404]),
        patch("/v2/apps/{id}", "patchApp", "Changes an app", apps::patch)
            .parameters(&["partialUpdate", "restart"])
            .definition(fields)
            .change()
            .description(ROLLBACK)
            .deployed()
            .errors(&[404]),
        delete("/v2/apps/{id}", "deleteApp", "Deletes an app", apps::delete)
            .deletion()
            .deployed()
            .errors(&[404]),
        post(
            "/v2/apps/{id}/restart",
            "restartApp",
            "Replaces all instances of an app",
            apps::post,
        )
        .change()
        .deployed()
        .errors(&[404]),
        Route::get(
            "/v2/apps/{id}/*",
            "listAppsOfGroup",
            "The apps below a group",
            apps::get,
        )
        .parameters(&["embedApps"])
        .returns::<AppsBelow<'_>>("The apps.")
        .headers(&["Age"]),
        tasks_of(
            "/v2/apps/{id}/*/tasks",
            "listTasksOfGroup",
            "The tasks of the apps below a group",
        ),
        tasks_of("/v2/apps/{id}/tasks", "listTasksOfApp", "The tasks of an app").errors(&[404]),
        delete(
            "/v2/apps/{id}/tasks",
            "killTasksOfApp",
            "Kills tasks of an app",
            apps::delete,
        )
        .parameters(&["host", "scale", "wipe"])
        .change()
        .errors(&[404])
        .response(200, KILLED, either::<TaskList<'_>, DeploymentResult<'_>>)
        .headers(&["Marathon-Deployment-Id"]),
        delete(
            "/v2/apps/{id}/tasks/{task}",
            "killTaskOfApp",
            "Kills a task of an app",
            apps::delete,
        )
        .parameters(&["scale", "wipe"])
        .change()
        .errors(&[404])
        .response(200, KILLED, either::<TaskSingle<'_>, DeploymentResult<'_>>)
        .headers(&["Marathon-Deployment-Id"]),
        Route::get(
            "/v2/apps/{id}/versions",
            "listVersionsOfApp",
            "The times of the kept definitions of an app",
            apps::get,
        )
        .returns::<VersionList<'_>>("The times, newest first.")
        .errors(&[404]),
        Route::get(
            "/v2/apps/{id}/versions/{version}",
            "getVersionOfApp",
            "A kept definition of an app",
            apps::get,
        )
        .returns::<App>("The definition.")
        .errors(&[404, 422]),
    ]
}

fn tasks_of(path: &'static str, id: &'static str, summary: &'static str) -> Route<Api> {
    Route::get(path, id, summary, apps::get)
        .parameters(&["embedTasks"])
        .returns::<TaskList<'_>>("The tasks.")
        .headers(&["Age"])
}
