//! Status and body of every rejection, in upstream's form.

use http::StatusCode;
use serde_json::json;
use transom_plugin_host::CallError;
use transom_web::{ApiError, Problems};

use super::change::DeploymentReference;
use crate::core::command::Refusal;
use crate::ids::SpecId;
use crate::model::Invalid;

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let text = refusal.to_string();
        match refusal {
            Refusal::NoApp(_)
            | Refusal::NoVersion(..)
            | Refusal::NoPod(_)
            | Refusal::NoPodVersion(..)
            | Refusal::NoGroup(_)
            | Refusal::NoGroupVersion(..)
            | Refusal::NotWaiting(_)
            | Refusal::NoTask(_)
            | Refusal::NoDeployment(_) => Self::not_found(text),
            Refusal::NoCanary(_)
            | Refusal::NotRunning(_)
            | Refusal::AppExists(_)
            | Refusal::PodExists(_)
            | Refusal::GroupExists(_)
            | Refusal::AppHasPath(_) => Self::new(StatusCode::CONFLICT, text),
            Refusal::TooManyDeployments(_)
            | Refusal::TooManyApps(_)
            | Refusal::TooManyDefinitionBytes { .. }
            | Refusal::TooManyPastBytes { .. } => Self::new(StatusCode::FORBIDDEN, text),
            Refusal::Locked(deployments) => {
                let deployments = deployments.iter().map(|id| DeploymentReference { id });
                let deployments = json!(deployments.collect::<Vec<_>>());
                Self::new(StatusCode::CONFLICT, text).field("deployments", deployments)
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

/// The rejection of a method that the path does not support.
pub(super) fn no_such_method() -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "This method is not allowed on this path",
    )
}

/// Returns the id of a new app or pod. If it is absent, the rejection reports either the missing
/// member or the problems in `broken`, which include an invalid id.
pub(super) fn required_id(id: Option<SpecId>, broken: &Problems, what: &str) -> Result<SpecId, ApiError> {
    id.ok_or_else(|| {
        if broken.is_empty() {
            invalid("/id", format!("is undefined: {what} needs its id"))
        } else {
            ApiError::invalid(broken)
        }
    })
}

/// The rejection of a request that depends on a component which could not be called.
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
