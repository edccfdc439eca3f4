//! Takes the state of another Marathon or another store over.
//!
//! * [`translate`] turns a Marathon's answers and the master's view of its tasks into records. It is
//!   pure; who reads the answers is up to the caller.
//! * [`Backup`] is a copy of a store's records as one document.
//! * [`Target`] writes records into a store on which no daemon leads.
//!
//! # Promises
//!
//! * Nothing is lost silently: what cannot be carried is refused by name, all of it at once, and
//!   every difference is listed.
//! * A store that has records of its own is never changed. Records that were copied from the same
//!   place are replaced until a daemon has led with them, so an interrupted copy can be repeated.
//! * A daemon refuses a store with a part of a copy; the framework's id is written last.
//! * A running task of the current configuration stays: its record has its version, and versions of
//!   one configuration have one digest.
//!
//! # Not here
//!
//! Persistent volumes of Marathon's apps: reservations of another program would have to be seen on
//! offers first. Backoffs, results of health checks and running deployments.

mod backup;
mod definitions;
mod difference;
mod marathon;
mod report;
mod settings;
mod target;
mod task_index;
mod tasks;
#[cfg(test)]
mod tests;
mod translation;

pub use backup::{Backup, BackupError};
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
    /// Where they come from; the same place has the same text.
    pub(crate) origin: String,
    /// The id of the framework whose tasks they have.
    pub(crate) framework_id: Option<String>,
    /// By key, without the prefix of the service.
    pub(crate) records: BTreeMap<String, Value>,
}

impl Records {
    /// The id of the framework whose tasks they have.
    pub fn framework_id(&self) -> Option<&str> {
        self.framework_id.as_deref()
    }
}
