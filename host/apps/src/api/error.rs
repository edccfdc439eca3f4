//! Status and body of every rejection, in upstream's form.

use http::StatusCode;
use serde_json::{Value, json};
use transom_plugin_host::CallError;
use transom_web::{ApiError, Problems};

use crate::core::command::Refusal;
use crate::model::Invalid;

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let text = refusal.to_string();
        match refusal {
            Refusal::NoApp(_)
            | Refusal::NoVersion(..)
            | Refusal::NoGroup(_)
            | Refusal::NoGroupVersion(..)
            | Refusal::NotWaiting(_)
            | Refusal::NoTask(_)
            | Refusal::NoDeployment(_) => Self::not_found(text),
            Refusal::AppExists(_) | Refusal::GroupExists(_) | Refusal::AppHasPath(_) => {
                Self::new(StatusCode::CONFLICT, text)
            }
            Refusal::TooManyDeployments(_) | Refusal::TooManyApps(_) => {
                Self::new(StatusCode::FORBIDDEN, text)
            }
            Refusal::Locked(deployments) => {
                let deployments: Vec<Value> = deployments.iter().map(|id| json!({"id": id})).collect();
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
