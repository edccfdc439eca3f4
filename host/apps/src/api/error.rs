//! Status and body of every rejection, in upstream's form.

use http::StatusCode;
use serde_json::json;
use transom_plugin_host::CallError;
use transom_web::{ApiError, Problems};

use super::change::DeploymentReference;
use crate::core::command::Rejection;
use crate::ids::SpecId;
use crate::model::Invalid;

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        let text = rejection.to_string();
        match rejection {
            Rejection::NoApp(_)
            | Rejection::NoVersion(..)
            | Rejection::NoPod(_)
            | Rejection::NoPodVersion(..)
            | Rejection::NoGroup(_)
            | Rejection::NoGroupVersion(..)
            | Rejection::NotWaiting(_)
            | Rejection::NoTask(_)
            | Rejection::NoDeployment(_) => Self::not_found(text),
            Rejection::NoCanary(_)
            | Rejection::NotRunning(_)
            | Rejection::AppExists(_)
            | Rejection::PodExists(_)
            | Rejection::GroupExists(_)
            | Rejection::AppHasPath(_) => Self::new(StatusCode::CONFLICT, text),
            Rejection::TooManyDeployments(_)
            | Rejection::TooManyApps(_)
            | Rejection::TooManyDefinitionBytes { .. }
            | Rejection::TooManyPastBytes { .. } => Self::new(StatusCode::FORBIDDEN, text),
            Rejection::Locked(deployments) => {
                let deployments = deployments.iter().map(|id| DeploymentReference { id });
                let deployments = json!(deployments.collect::<Vec<_>>());
                Self::new(StatusCode::CONFLICT, text).field("deployments", deployments)
            }
            Rejection::Invalid(invalid) => invalid.into(),
            Rejection::Plugin(error) => unanswered(&error),
            Rejection::Actor(error) => error.into(),
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
