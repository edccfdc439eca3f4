//! Imports the state of another Marathon or another store.
//!
//! * [`stored`] reads the state of a stopped Marathon into the form of such responses.
//! * [`translate`] turns a Marathon's responses and the master's view of its tasks into records. It
//!   is pure: the caller sends the requests.
//! * [`Backup`] is a copy of a store's records as one document.
//! * [`Target`] writes records into a store on which no daemon leads.
//!
//! # Promises
//!
//! * Nothing is lost silently: everything that cannot be imported is rejected by name in one report,
//!   and every difference is listed.
//! * A store with records of another origin is never changed. Records from the same origin are
//!   replaced until a daemon has led with them, so an interrupted copy can be repeated.
//! * A daemon rejects a store with an incomplete copy. The framework's id is written last.
//! * A running task of the current configuration is kept: its record contains its version, and all
//!   versions of one configuration have the same digest.
//!
//! # Not here
//!
//! Persistent volumes of Marathon's apps, because their reservations were made by another program
//! and become known only with offers. Backoffs, results of health checks and running deployments.

mod backup;
mod definitions;
mod difference;
mod marathon;
mod report;
mod settings;
pub mod stored;
mod target;
mod task_index;
mod tasks;
#[cfg(test)]
mod tests;
mod translation;

pub use backup::{Backup, BackupError, check_record};
pub use marathon::Marathon;
pub use report::{Carried, Finding, Kind, Report};
pub use target::{Target, TargetError};
pub use translation::translate;

use std::collections::BTreeMap;

use serde_json::Value;

/// Records for a store.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_field_names, reason = "the other fields are about them")]
pub struct Records {
    /// The origin of the records. It is the same text for each copy from the same place.
    pub(crate) origin: String,
    /// The id of the framework that launched their tasks.
    pub(crate) framework_id: Option<String>,
    /// The records by their keys, without the prefix of the service.
    pub(crate) records: BTreeMap<String, Value>,
}

impl Records {
    /// The id of the framework that launched the tasks of the records.
    pub fn framework_id(&self) -> Option<&str> {
        self.framework_id.as_deref()
    }
}
