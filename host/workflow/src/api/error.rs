//! Status and body of errors.

use http::StatusCode;
use transom_web::ApiError;

use crate::core::command::Rejection;

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Exists(id) => Self::new(
                StatusCode::CONFLICT,
                format!("Job '{id}' is still active; `unique` allows one active job per id."),
            ),
            Rejection::QueueFull(max_jobs) => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                format!("The queue is full: {max_jobs} jobs are active (`max_jobs`). Try again later."),
            )
            .retry_later(),
            Rejection::QueueBytesFull { needed, max } => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                format!(
                    "The queue is full: the active jobs and this one need {needed} bytes, the maximum is {max} \
                     (`max_jobs_bytes`). Try again later."
                ),
            )
            .retry_later(),
            Rejection::NoJob(id) => Self::not_found(format!("Job '{id}' does not exist.")),
            Rejection::InvalidId(id) => Self::not_found(format!("Job '{id}' does not exist.")),
            Rejection::Actor(error) => error.into(),
        }
    }
}
