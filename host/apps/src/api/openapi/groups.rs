//! The paths of groups.

use serde_json::{Value, json};

use super::operation::{Operation, Paths};
use super::schemas::Schemas;
use crate::api::app::AppInfo;
use crate::api::change::DeploymentResult;
use crate::api::deployments::DeploymentSteps;
use crate::api::group::GroupInfo;
use crate::time::Moment;

pub(super) fn add(paths: &mut Paths, schemas: &mut Schemas) {
    let group = schemas.of::<GroupInfo<'_>>();
    let result = schemas.of::<DeploymentResult<'_>>();
    let steps = schemas.of::<DeploymentSteps>();
    // The same operations for the root group, whose path has no id, and for all other groups.
    for (path, of) in [("/v2/groups", "RootGroup"), ("/v2/groups/{id}", "Group")] {
        paths.add("groups", path, operations(of, &group, &result, &steps));
    }
    paths.add(
        "groups",
        "/v2/groups/{id}/apps",
        [
            Operation::new("get", "listAppsBelowGroup", "The apps below a group")
                .with_parameters(&["embedApps"])
                .with_response(200, "The apps.", &schemas.of::<Vec<AppInfo<'_>>>())
                .with_errors(&[404]),
        ],
    );
    paths.add(
        "groups",
        "/v2/groups/{id}/versions",
        [Operation::new(
            "get",
            "listVersionsOfGroup",
            "The times of the kept changes of a group",
        )
        .with_response(200, "The times, newest first.", &schemas.of::<Vec<Moment>>())
        .with_errors(&[404])],
    );
    paths.add(
        "groups",
        "/v2/groups/{id}/versions/{version}",
        [Operation::new(
            "get",
            "getVersionOfGroup",
            "The definitions below a group at an earlier time",
        )
        .with_parameters(&["embedGroups"])
        .with_response(200, "The group with its present tasks.", &group)
        .with_errors(&[404, 422])],
    );
}

fn operations(of: &str, group: &Value, result: &Value, steps: &Value) -> [Operation; 5] {
    let input = json!({"$ref": "#/components/schemas/GroupInput"});
    let enforce = json!({"type": "object", "properties": {"enforceRole": {"type": "boolean"}}});
    let id = |verb: &str| format!("{verb}{of}");
    let deployed = |operation: Operation, status, schema: &Value| {
        operation
            .with_response(status, "The deployment that makes the change.", schema)
            .headers(status, &["Marathon-Deployment-Id"])
    };
    [
        Operation::new(
            "get",
            &id("get"),
            "A group with all apps, pods and groups below it",
        )
        .with_parameters(&["embedGroups"])
        .with_response(200, "The group.", group)
        .headers(200, &["Age"])
        .with_errors(&[404]),
        Operation::new(
            "post",
            &id("create"),
            "Creates a group, at this path or relative to it",
        )
        .with_definition(&input)
        .change()
        .with_response(201, "The deployment that makes the change.", result)
        .headers(201, &["Location", "Marathon-Deployment-Id"]),
        deployed(
            Operation::new(
                "put",
                &id("put"),
                "Creates, changes, scales or rolls back a group",
            )
            .with_parameters(&["dryRun"])
            .with_definition(&input)
            .change()
            .description("With `dryRun` the answer has the steps of the deployment, and no header."),
            200,
            &json!({"anyOf": [result, steps]}),
        )
        .with_errors(&[404]),
        deployed(
            Operation::new(
                "patch",
                &id("patch"),
                "Changes `enforceRole`; the root group enforces no role",
            )
            .with_body(&enforce)
            .change(),
            200,
            result,
        )
        .with_errors(&[404]),
        deployed(
            Operation::new(
                "delete",
                &id("delete"),
                "Deletes a group with everything below it",
            )
            .change(),
            200,
            result,
        )
        .with_errors(&[404]),
    ]
}
