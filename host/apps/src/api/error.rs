//! Status and body of every rejection, in upstream's form.

use http::StatusCode;
use serde_json::{Value, json};
use transom_plugin_host::CallError;
use transom_web::{ApiError, Problems};

use crate::core::command::Refusal;
use crate::model::Invalid;

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
            Refusal::Plugin(error) => unanswered(&error),
            Refusal::Actor(error) => error.into(),
        }
    }
}

impl From<Invalid> for ApiError {
    fn from(invalid: Invalid) -> Self {
        match invalid {
            Invalid::Shape(problems) => Self::invalid_json(&problems),
            Invalid::Rules(problems) => Self::invalid(&problems),
        }
    }
}

/// One problem with a client's document.
pub(super) fn invalid(path: &str, error: impl Into<String>) -> ApiError {
    ApiError::invalid(&Problems::one(path, error))
}

/// A component that must decide could not be called: the request is rejected.
pub(super) fn unanswered(error: &CallError) -> ApiError {
    ApiError::unavailable(error.to_string()).field("reason", reason(error))
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
