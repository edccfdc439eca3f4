//! The routes of tasks of all apps, of deployments and of the queue.

use transom_web::routes::{Route, Schemas};

use super::operation::{Operation, delete, either, post};
use crate::api::change::DeploymentResult;
use crate::api::deployments::DeploymentInfo;
use crate::api::queue::Queue;
use crate::api::task::TaskList;
use crate::api::tasks::TasksToKill;
use crate::api::{Api, deployments, queue, tasks};

pub(super) fn routes() -> Vec<Route<Api>> {
    vec![
        Route::get("/v2/tasks", "listTasks", "The tasks of all apps", tasks::list)
            .parameters(&["status", "embedTasks"])
            .returns::<TaskList<'_>>("The tasks.")
            .headers(&["Age"])
            .errors(&[422]),
        post(
            "/v2/tasks/delete",
            "killTasks",
            "Kills tasks of any apps",
            tasks::delete,
        )
        .parameters(&["scale", "wipe"])
        .document(Schemas::of::<TasksToKill>)
        .change()
        .response(
            200,
            "The killed tasks, as they were before; unknown ids are skipped. With `scale`, the deployment.",
            either::<TaskList<'_>, DeploymentResult<'_>>,
        )
        .headers(&["Marathon-Deployment-Id"]),
        Route::get(
            "/v2/deployments",
            "listDeployments",
            "The running deployments",
            deployments::list,
        )
        .parameters(&["embedDeployments"])
        .returns::<Vec<DeploymentInfo<'_>>>("The deployments, oldest first.")
        .headers(&["Age"]),
        delete(
            "/v2/deployments/{deployment}",
            "revertDeployment",
            "Reverts a deployment",
            deployments::delete,
        )
        .parameters(&["stopOnly"])
        .returns::<DeploymentResult<'_>>("The deployment that restores what the first has changed.")
        .headers(&["Marathon-Deployment-Id"])
        .empty(202, "With `force`: the deployment has stopped.")
        .errors(&[403, 404, 422, 503]),
        post(
            "/v2/deployments/{deployment}/continue",
            "continueDeployment",
            "Continues a restart with a canary",
            deployments::continue_canary,
        )
        .empty(204, "The restart continues.")
        .errors(&[404, 409, 503]),
        Route::get(
            "/v2/queue",
            "getQueue",
            "The instances that are not launched yet, and why",
            queue::list,
        )
        .parameters(&["embedQueue"])
        .returns::<Queue<'_>>("The queue."),
        delete(
            "/v2/queue/{id}/delay",
            "resetDelay",
            "Launches instances without the delay after failures",
            queue::reset_delay,
        )
        .empty(204, "The delay is over.")
        .errors(&[404]),
    ]
}
