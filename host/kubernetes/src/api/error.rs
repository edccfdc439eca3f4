//! Status and body of errors.

use http::StatusCode;
use transom_web::ApiError;

use crate::core::command::Refusal;

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::AboveMaximum { count, maximum } => above_maximum(&count.to_string(), maximum),
            Refusal::OutsideAutoscale { count, min, max } => unprocessable(format!(
                "The count {count} is outside of the limits of `kubernetes.agents.autoscale`: `min` is {min}, `max` is \
                 {max}."
            )),
            Refusal::EvenKvstore(count) => unprocessable(format!(
                "The members of a kvstore form a cluster only in odd numbers, and {count} is even."
            )),
            Refusal::SeveralCommands(count) => unprocessable(format!(
                "`ds_command` runs one datastore, not {count}. Without it a kvstore has several members."
            )),
            Refusal::SeveralSqlDatastores(count) => unprocessable(format!(
                "There can be one SQL datastore only, not {count}. Only a kvstore (`DS_ETCD`) has several members."
            )),
            Refusal::AlreadyStarted => {
                not_acceptable("Every kind has a count that is not 0, so there is nothing to start.")
            }
            Refusal::NothingToRestart => not_acceptable("All counts are 0, so there is nothing to restart."),
            Refusal::BadResource(problem) => unprocessable(problem),
            Refusal::MasterUnavailable => {
                not_acceptable("The master could not be asked about the framework's id. Try again later.")
            }
            Refusal::Actor(error) => error.into(),
        }
    }
}

/// 406, upstream's status for numbers that are none and for requests out of turn.
pub(super) fn not_acceptable(message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::NOT_ACCEPTABLE, message)
}

/// 422 for a count above the maximum. It may have any number of digits.
pub(super) fn above_maximum(count: &str, maximum: u32) -> ApiError {
    unprocessable(format!(
        "The count {count} is above the maximum, {maximum} (`max_scale`)."
    ))
}

fn unprocessable(message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, message)
}
