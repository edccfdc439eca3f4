//! The routes of groups.

use serde_json::{Value, json};
use transom_web::routes::{Route, Schemas};

use super::operation::{Operation, delete, either, patch, post, put};
use crate::api::app::AppInfo;
use crate::api::change::DeploymentResult;
use crate::api::deployments::DeploymentSteps;
use crate::api::group::GroupInfo;
use crate::api::{Api, groups};
use crate::time::Moment;

pub(super) fn routes() -> Vec<Route<Api>> {
    // The same operations for the root group, whose path has no id, and for all other groups.
    let mut routes = operations(
        "/v2/groups",
        [
            "getRootGroup",
            "createRootGroup",
            "putRootGroup",
            "patchRootGroup",
            "deleteRootGroup",
        ],
    );
    routes.extend(operations(
        "/v2/groups/{id}",
        ["getGroup", "createGroup", "putGroup", "patchGroup", "deleteGroup"],
    ));
    routes.extend([
        Route::get(
            "/v2/groups/{id}/apps",
            "listAppsBelowGroup",
            "The apps below a group",
            groups::get,
        )
        .parameters(&["embedApps"])
        .returns::<Vec<AppInfo<'_>>>("The apps.")
        .errors(&[404]),
        Route::get(
            "/v2/groups/{id}/versions",
            "listVersionsOfGroup",
            "The times of the kept changes of a group",
            groups::get,
        )
        .returns::<Vec<Moment>>("The times, newest first.")
        .errors(&[404]),
        Route::get(
            "/v2/groups/{id}/versions/{version}",
            "getVersionOfGroup",
            "The definitions below a group at an earlier time",
            groups::get,
        )
        .parameters(&["embedGroups"])
        .returns::<GroupInfo<'_>>("The group with its present tasks.")
        .errors(&[404, 422]),
    ]);
    routes
}

fn input(_: &mut Schemas) -> Value {
    json!({"$ref": "#/components/schemas/GroupInput"})
}

fn enforced(_: &mut Schemas) -> Value {
    json!({"type": "object", "properties": {"enforceRole": {"type": "boolean"}}})
}

fn operations(path: &'static str, ids: [&'static str; 5]) -> Vec<Route<Api>> {
    let [get_id, create_id, put_id, patch_id, delete_id] = ids;
    let change = "The deployment that makes the change.";
    vec![
        Route::get(
            path,
            get_id,
            "A group with all apps, pods and groups below it",
            groups::get,
        )
        .parameters(&["embedGroups"])
        .returns::<GroupInfo<'_>>("The group.")
        .headers(&["Age"])
        .errors(&[404]),
        post(
            path,
            create_id,
            "Creates a group, at this path or relative to it",
            groups::post,
        )
        .definition(input)
        .change()
        .response(201, change, Schemas::of::<DeploymentResult<'_>>)
        .headers(&["Location", "Marathon-Deployment-Id"]),
        put(
            path,
            put_id,
            "Creates, changes, scales or rolls back a group",
            groups::put,
        )
        .parameters(&["dryRun"])
        .definition(input)
        .change()
        .description("With `dryRun` the answer has the steps of the deployment, and no header.")
        .response(200, change, either::<DeploymentResult<'_>, DeploymentSteps>)
        .headers(&["Marathon-Deployment-Id"])
        .errors(&[404]),
        patch(
            path,
            patch_id,
            "Changes `enforceRole`; the root group enforces no role",
            groups::patch,
        )
        .document(enforced)
        .change()
        .deployed()
        .errors(&[404]),
        delete(
            path,
            delete_id,
            "Deletes a group with everything below it",
            groups::delete,
        )
        .change()
        .deployed()
        .errors(&[404]),
    ]
}
