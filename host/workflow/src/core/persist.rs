//! The stored data: `<prefix>/jobs/<task id>` is a run of a job, `<prefix>/term` counts the terms.
//! The state of an active run is in the scheduler's task record; the run's own record contains its
//! end.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use transom_cluster::TaskId;
use transom_cluster::v1::TaskStatus;
use transom_common::HostPort;
use transom_store::typed::{self, TypedStore};

use crate::ids::{ChangeSeq, JobId};
use crate::job_state::JobState;
use crate::model::Spec;
use crate::{Error, Result};

/// The folder of the records under the prefix.
const FOLDER: &str = "jobs/";

/// A stored run of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct JobRecord {
    pub(super) id: JobId,
    /// The Mesos task id of this run.
    pub(super) task: TaskId,
    /// The sequence number of the run; later runs of the same job have greater numbers.
    pub(super) number: ChangeSeq,
    pub(super) queued_at: Timestamp,
    /// See [`crate::model::Request`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request_key: Option<Arc<str>>,
    /// The definition of the job; removed when the run has ended.
    pub(super) spec: Option<Arc<Spec>>,
    /// Whether a client has killed the run.
    #[serde(default)]
    pub(super) killed: bool,
    #[serde(default)]
    pub(super) end: Option<End>,
}

/// The end of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) state: JobState,
    pub(super) at: Timestamp,
    /// The sequence number of the change. `None` if clients saw the end only after it was stored:
    /// it then gets a number when it is shown, and a new one at each start.
    #[serde(default)]
    pub(super) changed: Option<ChangeSeq>,
    /// The last status.
    pub(super) status: Option<TaskStatus>,
    #[serde(default)]
    pub(super) message: Option<String>,
    /// Why this daemon ended the run, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// The agent with the run's sandbox.
    #[serde(default)]
    pub(super) agent: Option<HostPort>,
}

/// The job records in the store. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Repository(TypedStore);

impl Repository {
    pub(super) fn new(store: TypedStore) -> Self {
        Self(store)
    }

    /// All records, older runs first.
    pub(super) async fn load(&self) -> Result<Vec<JobRecord>> {
        let stored = self.0.load_all(FOLDER).await;
        let stored = stored.map_err(|error| Error::of_store("reading jobs", error))?;
        let mut records: Vec<JobRecord> = stored.into_iter().map(|stored| stored.value).collect();
        records.sort_by_key(|record| record.number);
        Ok(records)
    }

    /// Begins a term; returns its number.
    pub(super) async fn next_term(&self) -> Result<u64> {
        let term = self.0.next_term().await;
        term.map_err(|error| Error::of_store("counting this term", error))
    }

    /// Stores records; they are durable when it returns.
    pub(super) async fn put(&self, records: &[JobRecord]) -> typed::Result<()> {
        let records: Vec<_> = records.iter().map(|record| (key(&record.task), record)).collect();
        self.0.put_all(records).await
    }

    /// Deletes records.
    pub(super) async fn delete(&self, tasks: &[TaskId]) -> typed::Result<()> {
        let keys: Vec<String> = tasks.iter().map(key).collect();
        self.0.delete_all(keys).await
    }
}

/// Decodes a record of the service, except those of its scheduler. `name`: the key under the prefix. `None` if
/// the service has no records with such a key.
///
/// # Errors
/// The record cannot be decoded, or belongs to another key.
pub fn check_record(name: &str, record: &Value) -> Option<serde_json::Result<()>> {
    if name == typed::TERM_KEY {
        return Some(u64::deserialize(record).map(drop));
    }
    name.starts_with(FOLDER).then(|| {
        let own = key(&JobRecord::deserialize(record)?.task);
        if own == name {
            Ok(())
        } else {
            Err(serde::de::Error::custom(format!(
                "its content belongs to the key {own}"
            )))
        }
    })
}

fn key(task: &TaskId) -> String {
    format!("{FOLDER}{task}")
}
