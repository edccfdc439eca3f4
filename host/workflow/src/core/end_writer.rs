//! Stores the ends of runs in the background, so that the core does not wait for the store.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use transom_common::error_chain;

use super::persist::{JobRecord, Repository};

/// Pause after a failure.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The ends of runs that are not stored yet. Their number is bounded by the number of jobs.
pub(super) struct EndWriter {
    repository: Repository,
    waiting: Vec<JobRecord>,
    /// The running write; only one runs at a time.
    writing: Option<BoxFuture<'static, Vec<JobRecord>>>,
}

impl EndWriter {
    pub(super) fn new(repository: Repository) -> Self {
        Self {
            repository,
            waiting: Vec::new(),
            writing: None,
        }
    }

    pub(super) fn add(&mut self, record: JobRecord) {
        self.waiting.push(record);
    }

    /// Stores the pending records and returns them. Does not return while there are none.
    /// Cancel-safe: a write that has begun continues with the next call.
    pub(super) async fn stored(&mut self) -> Vec<JobRecord> {
        if self.writing.is_none() && self.waiting.is_empty() {
            return std::future::pending().await;
        }
        let writing = self.writing.get_or_insert_with(|| {
            let (repository, records) = (self.repository.clone(), std::mem::take(&mut self.waiting));
            put_until_stored(repository, records).boxed()
        });
        let stored = writing.await;
        self.writing = None;
        stored
    }
}

/// Writes the records, with retries until it succeeds. Until then clients do not see that a job has
/// ended, or the scheduler's task record still has its end.
async fn put_until_stored(repository: Repository, records: Vec<JobRecord>) -> Vec<JobRecord> {
    while let Err(error) = repository.put(&records).await {
        tracing::warn!(
            error = error_chain(&error),
            jobs = records.len(),
            "storing the end of jobs failed; retrying"
        );
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
    records
}
