//! The scheduler API: one subscription per framework, and the calls made on its behalf.
//!
//! [`Client::subscribe`](crate::Client::subscribe) returns both halves. Events arrive on their own
//! connection; calls use others and carry the subscription's `Mesos-Stream-Id`. A subscription ends
//! with its stream: the next one needs the framework's id, and the old [`Caller`] is then useless
//! (the master answers 400). Nothing is retried here.

mod call;
mod event;

pub use call::Caller;
pub(crate) use event::interval;
pub use event::{Event, Failure, Message, Subscribed};

use crate::error::{Error, Result};
use crate::http::{Http, address};
use crate::ids::FrameworkId;
use crate::stream::{Opened, RecordStream};
use crate::v1::FrameworkInfo;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};

/// The maximum size of an event: OFFERS of a very large cluster, about 1 KiB for each agent.
const MAX_RECORD_BYTES: u64 = 512 << 20;

const STREAM_ID: HeaderName = HeaderName::from_static("mesos-stream-id");

/// A subscribed framework.
#[derive(Debug)]
pub struct Subscription {
    /// Makes calls on the framework's behalf.
    pub caller: Caller,
    /// The master's events; [`Event::Subscribed`] first, or [`Event::Error`].
    pub events: Stream,
}

impl Subscription {
    pub(crate) fn new(http: Http, opened: Opened, id: Option<FrameworkId>) -> Result<Self> {
        let stream_id: HeaderValue =
            opened
                .response
                .headers()
                .get(STREAM_ID)
                .cloned()
                .ok_or_else(|| Error::Incomplete {
                    what: format!("the answer of {} to SUBSCRIBE", address(&opened.url)),
                    missing: "the header Mesos-Stream-Id",
                })?;
        let caller = Caller::new(http, opened.url.clone(), stream_id);
        let records = RecordStream::new(opened, MAX_RECORD_BYTES);
        if let Some(id) = id {
            caller.set_framework_id(id);
        }
        let events = Stream {
            records,
            caller: caller.clone(),
        };
        Ok(Self { caller, events })
    }
}

/// The events of a subscription.
#[derive(Debug)]
pub struct Stream {
    records: RecordStream,
    /// The stream sets the framework's id in it when SUBSCRIBED arrives.
    caller: Caller,
}

impl Stream {
    /// The next event; none when the master has ended the stream (a failover, a teardown, after an
    /// ERROR).
    ///
    /// Fails with [`Error::Broken`] or [`Error::Truncated`] when the connection broke, with
    /// [`Error::Silent`] when nothing arrived for two advertised heartbeat intervals and a margin
    /// (15 s are assumed before SUBSCRIBED), with [`Error::LeaderMoved`] when ZooKeeper names
    /// another leader than the stream's master, with [`Error::BadRecordLength`] or
    /// [`Error::RecordTooLarge`] when it cannot be parsed: then it is over. [`Error::Decode`] and
    /// [`Error::Incomplete`] concern one event, and the stream continues.
    ///
    /// The future may be dropped and created again without losing an event or the elapsed silence.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        let Some(record) = self.records.next().await? else {
            return Ok(None);
        };
        let event = Event::decode(&record)?;
        if let Event::Subscribed(subscribed) = &event {
            self.caller.set_framework_id(subscribed.framework_id.clone());
            if let Some(interval) = subscribed.heartbeat_interval() {
                self.records.set_heartbeat_interval(interval);
            }
        }
        Ok(Some(event))
    }
}

/// The body of SUBSCRIBE; the id of a framework that reconnects appears twice.
pub(crate) fn subscribe_body(info: &FrameworkInfo) -> Value {
    let mut body = json!({"type": "SUBSCRIBE", "subscribe": {"framework_info": info}});
    if let (Some(id), Some(object)) = (&info.id, body.as_object_mut()) {
        object.insert("framework_id".to_owned(), json!(id));
    }
    body
}
