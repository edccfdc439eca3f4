//! The operator API: the state of the cluster, and its events.
//!
//! The stream omits some changes: an agent that becomes unreachable or is marked gone appears only
//! in its tasks' updates. A client that needs an exact state must fetch the whole state at
//! intervals.

mod snapshot;
mod types;

pub use snapshot::Snapshot;
pub use types::{
    Agent, DrainConfig, DrainInfo, Event, Executor, Framework, GetAgents, GetExecutors, GetFrameworks,
    GetState, GetTasks, TaskUpdated,
};

pub(crate) use types::OperatorAnswer;

use transom_common::ambient;

use crate::error::Result;
use crate::scheduler::interval;
use crate::stream::RecordStream;

/// The maximum size of an event: SUBSCRIBED contains the whole state, about 1.5 KiB for each task.
pub(crate) const MAX_RECORD_BYTES: u64 = 4 << 30;

/// The events of the cluster.
#[derive(Debug)]
pub struct Stream {
    records: RecordStream,
}

impl Stream {
    pub(crate) fn new(records: RecordStream) -> Self {
        Self { records }
    }

    /// Reads the snapshot at the beginning of the stream and reports it entry by entry, on a
    /// blocking thread; none when the master has ended the stream before, or when reading has failed,
    /// which is logged. Invalid entries are omitted and reported.
    ///
    /// Fails as [`next`](Self::next); when dropped, the snapshot may be lost.
    pub async fn snapshot<S: Snapshot + Send + 'static>(&mut self, mut into: S) -> Result<Option<S>> {
        while let Some(record) = self.records.next().await? {
            let reading = ambient::blocking(move || {
                let header = snapshot::read(&record, &mut into)?;
                Ok((into, header))
            });
            let header;
            (into, header) = match reading.await {
                Some(read) => read?,
                None => return Ok(None),
            };
            if let Some(header) = header {
                if let Some(interval) = interval(header.interval) {
                    self.records.set_heartbeat_interval(interval);
                }
                return Ok(Some(into));
            }
        }
        Ok(None)
    }

    /// The next event; none when the master has ended the stream. Fails, and may be dropped,
    /// exactly as [`scheduler::Stream::next`](crate::scheduler::Stream::next).
    pub async fn next(&mut self) -> Result<Option<Event>> {
        let Some(record) = self.records.next().await? else {
            return Ok(None);
        };
        let (event, seconds) = Event::decode_with_interval(&record)?;
        if let Some(interval) = interval(seconds) {
            self.records.set_heartbeat_interval(interval);
        }
        Ok(Some(event))
    }
}
