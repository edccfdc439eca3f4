//! The stored data: `<prefix>/jobs/<task id>` is a run of a job, `<prefix>/workflow-term` counts
//! the terms. The state of an active run is in the scheduler's record; the run's own record has its
//! end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use transom_cluster::TaskId;
use transom_cluster::v1::TaskStatus;
use transom_common::HostPort;
use transom_store::{Batch, Entry, Expect, Store};

use crate::ids::{ChangeSeq, JobId};
use crate::job_state::JobState;
use crate::model::Spec;
use crate::{Error, Result};

/// Timeout of one store operation.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum changes and bytes of one batch; stores limit its size.
const BATCH: usize = 500;
const BATCH_BYTES: usize = 16 << 20;

/// A stored run of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct JobRecord {
    pub(super) id: JobId,
    /// The Mesos task id of this run.
    pub(super) task: TaskId,
    /// Later runs of the same job have greater ones.
    pub(super) number: ChangeSeq,
    pub(super) queued_at: Timestamp,
    /// See [`crate::model::Request`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request_key: Option<Arc<str>>,
    /// What to run; removed when the run has ended.
    pub(super) spec: Option<Arc<Spec>>,
    /// A client killed it.
    #[serde(default)]
    pub(super) killed: bool,
    #[serde(default)]
    pub(super) end: Option<End>,
}

/// How a run ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) state: JobState,
    pub(super) at: Timestamp,
    /// The sequence number of the change.
    pub(super) changed: ChangeSeq,
    /// The last status.
    pub(super) status: Option<TaskStatus>,
    #[serde(default)]
    pub(super) message: Option<String>,
    /// The agent with its sandbox.
    #[serde(default)]
    pub(super) agent: Option<HostPort>,
}

/// The job records in the store. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Repository {
    store: Arc<dyn Store>,
    prefix: String,
}

impl Repository {
    pub(super) fn new(store: Arc<dyn Store>, prefix: &str) -> Self {
        Self {
            store,
            prefix: prefix.to_owned(),
        }
    }

    /// All records, older runs first.
    pub(super) async fn load(&self) -> Result<Vec<JobRecord>> {
        let failed = |source| Error::Store {
            doing: "reading jobs",
            source,
        };
        let entries = self.store.scan(&format!("{}/jobs/", self.prefix)).await;
        let mut records: Vec<JobRecord> = entries
            .map_err(failed)?
            .iter()
            .map(decode)
            .collect::<Result<_>>()?;
        records.sort_by_key(|record| record.number);
        Ok(records)
    }

    /// Increments and stores the term.
    pub(super) async fn next_term(&self) -> Result<u64> {
        let key = format!("{}/workflow-term", self.prefix);
        let failed = |source| Error::Store {
            doing: "counting this term",
            source,
        };
        let last: u64 = match self.store.get(&key).await.map_err(failed)? {
            Some(entry) => decode(&entry)?,
            None => 0,
        };
        let term = last + 1;
        let value = Bytes::from(term.to_string());
        self.store.put(&key, value, Expect::Any).await.map_err(failed)?;
        Ok(term)
    }

    /// Stores records; they are durable when it returns.
    pub(super) async fn put(&self, records: &[JobRecord]) -> transom_store::Result<()> {
        let (mut batch, mut count, mut bytes) = (Batch::new(), 0, 0);
        for record in records {
            // Records have only string keys, so encoding cannot fail.
            let value = serde_json::to_vec(record).unwrap_or_default();
            if count > 0 && (count == BATCH || bytes + value.len() > BATCH_BYTES) {
                self.commit(std::mem::take(&mut batch)).await?;
                (count, bytes) = (0, 0);
            }
            (count, bytes) = (count + 1, bytes + value.len());
            batch = batch.put(self.key(&record.task), value, Expect::Any);
        }
        if count > 0 {
            self.commit(batch).await?;
        }
        Ok(())
    }

    /// Deletes records.
    pub(super) async fn delete(&self, tasks: &[TaskId]) -> transom_store::Result<()> {
        for some in tasks.chunks(BATCH) {
            let batch = some.iter().fold(Batch::new(), |batch, task| {
                batch.delete(self.key(task), Expect::Any)
            });
            self.commit(batch).await?;
        }
        Ok(())
    }

    async fn commit(&self, batch: Batch) -> transom_store::Result<()> {
        let committed = tokio::time::timeout(STORE_TIMEOUT, self.store.commit(batch)).await;
        match committed {
            Ok(outcome) => outcome.map(drop),
            Err(late) => Err(transom_store::Error::Unavailable {
                what: "answer in time",
                source: late.into(),
            }),
        }
    }

    fn key(&self, task: &TaskId) -> String {
        format!("{}/jobs/{task}", self.prefix)
    }
}

fn decode<T: DeserializeOwned>(entry: &Entry) -> Result<T> {
    serde_json::from_slice(&entry.value).map_err(|source| Error::Record {
        key: entry.key.clone(),
        source,
    })
}
