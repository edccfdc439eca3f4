//! Status and body of errors.

use http::StatusCode;
use transom_web::ApiError;

use crate::core::command::Refusal;

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Exists(id) => Self::new(
                StatusCode::CONFLICT,
                format!("Job '{id}' is still active; `unique` allows one active job per id."),
            ),
            Refusal::QueueFull(max_jobs) => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                format!("The queue is full: {max_jobs} jobs are active (`max_jobs`). Try again later."),
            )
            .retry_later(),
            Refusal::QueueBytesFull { needed, max } => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                format!(
                    "The queue is full: the active jobs and this one need {needed} bytes, the maximum is {max} \
                     (`max_jobs_bytes`). Try again later."
                ),
            )
            .retry_later(),
            Refusal::NoJob(id) => Self::not_found(format!("Job '{id}' does not exist.")),
            Refusal::InvalidId(id) => Self::not_found(format!("Job '{id}' does not exist.")),
            Refusal::Actor(error) => error.into(),
        }
    }
}
