//! The operator API: what runs in the cluster, and what happens to it.
//!
//! The stream pushes changes, but not all of them: an agent that becomes unreachable or is marked gone is told only
//! through its tasks' updates. A watcher that must be right asks for the whole state from time to time.

mod types;

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
