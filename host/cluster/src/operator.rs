//! The operator API: what runs in the cluster, and what happens to it.
//!
//! The stream pushes changes, but not all of them: an agent that becomes unreachable or is marked gone is told only
//! through its tasks' updates. A watcher that must be right asks for the whole state from time to time.

mod snapshot;
mod types;

pub use snapshot::Snapshot;
pub use types::{
    Agent, DrainConfig, DrainInfo, Event, Executor, Framework, GetAgents, GetExecutors, GetFrameworks,
    GetState, GetTasks, TaskUpdated,
};

pub(crate) use types::Answer;

use crate::error::Result;
use crate::scheduler::interval;
use crate::stream::RecordStream;

/// The longest event that is read: SUBSCRIBED carries the whole state.
pub(crate) const MAX_RECORD: u64 = 512 << 20;

/// The events of the cluster.
#[derive(Debug)]
pub struct Stream {
    records: RecordStream,
}

impl Stream {
    pub(crate) fn new(records: RecordStream) -> Self {
        Self { records }
    }

    /// Reads on to the snapshot that the stream begins with, and tells it entry by entry, on a thread for such work; none
    /// when the master has ended the stream before. An entry that cannot be read is left out, and that is told.
    ///
    /// Fails as [`next`](Self::next); when dropped, the snapshot may be lost.
    pub async fn snapshot<S: Snapshot + Send + 'static>(&mut self, mut into: S) -> Result<Option<S>> {
        while let Some(record) = self.records.next().await? {
            let reading = tokio::task::spawn_blocking(move || {
                let told = snapshot::read(&record, &mut into)?;
                Ok((into, told))
            });
            let told;
            // A panic goes on here; otherwise reading ends early only with the runtime.
            (into, told) = match reading.await {
                Ok(read) => read?,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => return Ok(None),
                },
            };
            if let Some(told) = told {
                if let Some(interval) = interval(told.interval) {
                    self.records.expect_every(interval);
                }
                return Ok(Some(into));
            }
        }
        Ok(None)
    }

    /// The next event; none when the master has ended the stream. Fails, and may be dropped, exactly as
    /// [`scheduler::Stream::next`](crate::scheduler::Stream::next).
    pub async fn next(&mut self) -> Result<Option<Event>> {
        let Some(record) = self.records.next().await? else {
            return Ok(None);
        };
        let (event, seconds) = Event::decode_with_interval(&record)?;
        if let Some(interval) = interval(seconds) {
            self.records.expect_every(interval);
        }
        Ok(Some(event))
    }
}
