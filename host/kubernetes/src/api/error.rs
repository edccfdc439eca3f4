//! Status and body of errors.

use http::StatusCode;
use transom_web::ApiError;

use crate::core::command::Rejection;

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::AboveMaximum { count, maximum } => above_maximum(&count.to_string(), maximum),
            Rejection::OutsideAutoscale { count, min, max } => unprocessable(format!(
                "The count {count} is outside of the limits of `agents.autoscale`: `min` is {min}, `max` is \
                 {max}."
            )),
            Rejection::EvenKvstore(count) => unprocessable(format!(
                "The members of a kvstore form a cluster only in odd numbers, and {count} is even."
            )),
            Rejection::SeveralCommands(count) => unprocessable(format!(
                "`ds_command` runs one datastore, not {count}. Without it a kvstore has several members."
            )),
            Rejection::SeveralSqlDatastores(count) => unprocessable(format!(
                "There can be one SQL datastore only, not {count}. Only a kvstore (`DS_ETCD`) has several members."
            )),
            Rejection::AlreadyStarted => {
                not_acceptable("Every kind has a count that is not 0, so there is nothing to start.")
            }
            Rejection::NothingToRestart => not_acceptable("The counts of all kinds to restart are 0, so there is nothing to restart."),
            Rejection::BadResource(problem) => unprocessable(problem),
            Rejection::SeveralMembers => unprocessable(
                "The kvstore has several members, which replace each other: none of them has to be moved."
                    .to_owned(),
            ),
            Rejection::MasterUnavailable => {
                not_acceptable("The request to the master about the framework's id failed. Try again later.")
            }
            Rejection::DatastoreOutside => unprocessable(
                "The datastore is outside of the framework (`ds_count` is 0): back it up where it runs."
                    .to_owned(),
            ),
            Rejection::NoBackupDirectory => no_backup_directory(),
            Rejection::OperationUnderWay(what) => {
                conflict(format!("A backup or restore is under way: {what}."))
            }
            Rejection::DatastoreNotHealthy => conflict("No member of the datastore is healthy."),
            Rejection::OtherEngine { backup, datastore } => unprocessable(format!(
                "The backup is of a datastore of the kind {backup}, and this one is of the kind {datastore}."
            )),
            Rejection::NoOtherPassword => unprocessable(
                "`ds_mysql_username` (DS_MYSQL_USERNAME) and `ds_mysql_password` (DS_MYSQL_PASSWORD) are those in use. \
                 Change the user or the password in the SQL server, set it in the configuration, restart the daemon, \
                 and repeat the request."
                    .to_owned(),
            ),
            Rejection::Actor(error) => error.into(),
        }
    }
}

/// 406, upstream's status for invalid numbers and for requests that the current state does not allow.
pub(super) fn not_acceptable(message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::NOT_ACCEPTABLE, message)
}

/// 422 for a count above the maximum. `count` is its text, which may have any number of digits.
pub(super) fn above_maximum(count: &str, maximum: u32) -> ApiError {
    unprocessable(format!(
        "The count {count} is above the maximum, {maximum} (`max_scale`)."
    ))
}

/// 422 for a request that needs the directory of backups.
pub(super) fn no_backup_directory() -> ApiError {
    unprocessable("No directory for backups is configured (`dir` in `[kubernetes.backup]`).".to_owned())
}

/// 409, for a request that conflicts with another one, or with the state of the datastore.
pub(super) fn conflict(message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::CONFLICT, message)
}

pub(super) fn unprocessable(message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, message)
}
