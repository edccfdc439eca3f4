//! Status and body of errors.

use http::{HeaderValue, StatusCode, header};
use transom_common::error_chain;
use transom_web::ApiError;

use crate::core::command::Refusal;
use crate::model::Problems;

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Exists(id) => Self::new(
                StatusCode::CONFLICT,
                format!("Job '{id}' is still active; `unique` allows one active job per id."),
            ),
            Refusal::QueueFull(most) => later(
                StatusCode::TOO_MANY_REQUESTS,
                format!("The queue is full: {most} jobs are active (`max_jobs`). Try again later."),
            ),
            Refusal::NoJob(id) => Self::not_found(format!("Job '{id}' does not exist.")),
            Refusal::InvalidId(id) => Self::not_found(format!("Job '{id}' does not exist.")),
            Refusal::Store(error) => {
                tracing::error!(error = error_chain(&*error), "storing a change failed");
                // Whether an unavailable store applied the batch is not known.
                unavailable("The state store did not confirm the change. Check it before you try again.")
            }
            Refusal::Stopped => {
                unavailable("This daemon is stopping, or is no longer the leader. Try again later.")
            }
            Refusal::TimedOut => {
                unavailable("The change timed out and may still be applied. Check before you try again.")
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
