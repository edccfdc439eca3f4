//! The status and body of everything that is refused.

use http::{HeaderValue, StatusCode, header};
use transom_web::ApiError;

use crate::core::command::Refusal;
use crate::model::Problems;

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Exists(id) => Self::new(
                StatusCode::CONFLICT,
                format!("The job '{id}' has not ended, and was to be the only one with its id."),
            ),
            Refusal::QueueFull(most) => later(
                StatusCode::TOO_MANY_REQUESTS,
                format!(
                    "There are {most} jobs already, which is as many as this daemon takes. Try again later."
                ),
            ),
            Refusal::NoJob(id) => Self::not_found(format!("There is no job '{id}'")),
            Refusal::InvalidId(id) => Self::not_found(format!("There is no job '{id}'")),
            Refusal::Store(error) => {
                let error: &dyn std::error::Error = &*error;
                tracing::error!(error, "a change could not be stored");
                unavailable("The change could not be stored, so nothing was changed. Try again later.")
            }
            Refusal::Stopped => unavailable("This daemon is stopping, or has just ceased to lead."),
            Refusal::TimedOut => {
                unavailable("The change took too long; it may still happen. Look before trying again.")
            }
        }
    }
}

impl From<Problems> for ApiError {
    fn from(problems: Problems) -> Self {
        Self::invalid(problems.details())
    }
}

pub(super) fn unavailable(message: &str) -> ApiError {
    later(StatusCode::SERVICE_UNAVAILABLE, message.to_owned())
}

fn later(status: StatusCode, message: String) -> ApiError {
    ApiError::new(status, message).header(header::RETRY_AFTER, HeaderValue::from_static("5"))
}
