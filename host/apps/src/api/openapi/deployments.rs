//! The paths of tasks of all apps, of deployments and of the queue.

use serde_json::json;

use super::operation::{Operation, Paths};
use super::schemas::Schemas;
use crate::api::change::DeploymentResult;
use crate::api::deployments::DeploymentInfo;
use crate::api::queue::Queue;
use crate::api::task::TaskList;
use crate::api::tasks::TasksToKill;

pub(super) fn add(paths: &mut Paths, schemas: &mut Schemas) {
    let result = schemas.of::<DeploymentResult<'_>>();
    let tasks = schemas.of::<TaskList<'_>>();
    paths.add(
        "tasks",
        "/v2/tasks",
        [Operation::new("get", "listTasks", "The tasks of all apps")
            .with_parameters(&["status", "embedTasks"])
            .with_response(200, "The tasks.", &tasks)
            .headers(200, &["Age"])
            .with_errors(&[422])],
    );
    paths.add(
        "tasks",
        "/v2/tasks/delete",
        [Operation::new("post", "killTasks", "Kills tasks of any apps")
            .with_parameters(&["scale", "wipe"])
            .with_body(&schemas.of::<TasksToKill>())
            .change()
            .with_response(
                200,
                "The killed tasks, as they were before; unknown ids are skipped. With `scale`, the deployment.",
                &json!({"anyOf": [tasks, result]}),
            )
            .headers(200, &["Marathon-Deployment-Id"])],
    );
    paths.add(
        "deployments",
        "/v2/deployments",
        [
            Operation::new("get", "listDeployments", "The running deployments")
                .with_parameters(&["embedDeployments"])
                .with_response(
                    200,
                    "The deployments, oldest first.",
                    &schemas.of::<Vec<DeploymentInfo<'_>>>(),
                )
                .headers(200, &["Age"]),
        ],
    );
    paths.add(
        "deployments",
        "/v2/deployments/{deployment}",
        [
            Operation::new("delete", "revertDeployment", "Reverts a deployment")
                .with_parameters(&["stopOnly"])
                .with_response(
                    200,
                    "The deployment that restores what the first has changed.",
                    &result,
                )
                .headers(200, &["Marathon-Deployment-Id"])
                .with_empty_response(202, "With `force`: the deployment has stopped.")
                .with_errors(&[403, 404, 422, 503]),
        ],
    );
    paths.add(
        "deployments",
        "/v2/deployments/{deployment}/continue",
        [
            Operation::new("post", "continueDeployment", "Continues a restart with a canary")
                .with_empty_response(204, "The restart continues.")
                .with_errors(&[404, 409, 503]),
        ],
    );
    paths.add(
        "queue",
        "/v2/queue",
        [Operation::new(
            "get",
            "getQueue",
            "The instances that are not launched yet, and why",
        )
        .with_parameters(&["embedQueue"])
        .with_response(200, "The queue.", &schemas.of::<Queue<'_>>())],
    );
    paths.add(
        "queue",
        "/v2/queue/{id}/delay",
        [Operation::new(
            "delete",
            "resetDelay",
            "Launches instances without the delay after failures",
        )
        .with_empty_response(204, "The delay is over.")
        .with_errors(&[404])],
    );
}
