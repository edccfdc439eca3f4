//! Status and body of every rejection, in upstream's form.

use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use transom_common::error_chain;
use transom_plugin_host::CallError;
use transom_web::ApiError;

use crate::core::command::Refusal;
use crate::model::Invalid;
use crate::problems::Problems;

/// Without the id of a deployment: clients have always received the placeholder.
const LOCKED: &str = "App is locked by one or more deployments. Override with the option '?force=true'. \
                      View details at '/v2/deployments/<DEPLOYMENT_ID>'.";

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoApp(id) => Self::not_found(format!("App '{id}' does not exist")),
            Refusal::NoVersion(id, version) => {
                Self::not_found(format!("App '{id}' does not exist in version {version}"))
            }
            Refusal::NoTask(task) => Self::not_found(format!("Task '{task}' does not exist")),
            Refusal::NoDeployment(id) => Self::not_found(format!("DeploymentPlan {id} does not exist")),
            Refusal::Exists(id) => Self::new(
                StatusCode::CONFLICT,
                format!("An app with id [{id}] already exists."),
            ),
            Refusal::Locked(deployments) => {
                let deployments: Vec<Value> = deployments.iter().map(|id| json!({"id": id})).collect();
                Self::new(StatusCode::CONFLICT, LOCKED).field("deployments", deployments)
            }
            Refusal::Invalid(invalid) => invalid.into(),
            Refusal::Store(error) => {
                tracing::error!(error = error_chain(&*error), "storing a change failed");
                // It is unknown whether an unavailable store applied the batch.
                later("The state store did not confirm the change. Check it before you try again.".to_owned())
            }
            Refusal::Plugin(error) => unanswered(&error),
            Refusal::Stopped => {
                later("This daemon is stopping, or is no longer the leader. Try again later.".to_owned())
            }
            Refusal::TimedOut => {
                later("The change timed out and may still be applied. Check before you try again.".to_owned())
            }
        }
    }
}

impl From<Invalid> for ApiError {
    fn from(invalid: Invalid) -> Self {
        let (message, problems) = match invalid {
            Invalid::Shape(problems) => ("Invalid JSON", problems),
            Invalid::Rules(problems) => ("Object is not valid", problems),
        };
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, message).details(json!(problems))
    }
}

/// One problem with a client's document.
pub(super) fn invalid(path: &str, error: impl Into<String>) -> ApiError {
    let mut problems = Problems::default();
    problems.add(path, error);
    Invalid::Rules(problems).into()
}

/// A component that must decide could not be called: the request is rejected.
pub(super) fn unanswered(error: &CallError) -> ApiError {
    later(error.to_string()).field("reason", reason(error))
}

/// The reason as one word for programs.
pub(super) fn reason(error: &CallError) -> &'static str {
    match error {
        CallError::Missing { .. } => "missing",
        CallError::Trapped { .. } => "trapped",
        CallError::TimedOut { .. } => "timed-out",
        CallError::CpuExhausted { .. } => "cpu-exhausted",
        CallError::OutOfMemory { .. } => "out-of-memory",
        CallError::Busy { .. } => "busy",
        CallError::Malformed { .. } => "malformed",
        CallError::Disabled { .. } => "disabled",
        CallError::Stopped => "stopped",
    }
}

/// 503 with a `Retry-After` header.
pub(super) fn later(message: String) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
        .header(header::RETRY_AFTER, HeaderValue::from_static("5"))
}
