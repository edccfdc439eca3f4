//! The master's events for a framework.

use crate::error::{Error, Result};
use crate::ids::{AgentId, ExecutorId, FrameworkId, OfferId};
use crate::v1::{InverseOffer, MasterInfo, Offer, OperationStatus, TaskStatus};
use serde::Deserialize;
use std::time::Duration;

/// One event of the scheduler stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The first event of a subscription that was accepted.
    Subscribed(Subscribed),
    /// Offers.
    Offers(Vec<Offer>),
    /// An inverse offer: the master wants resources back.
    InverseOffers(Vec<InverseOffer>),
    /// An offer was rescinded.
    Rescind(OfferId),
    /// An inverse offer was rescinded.
    RescindInverseOffer(OfferId),
    /// A status update of a task; to be acknowledged when it has a uuid.
    Update(TaskStatus),
    /// A status update of an operation that had an id.
    UpdateOperationStatus(OperationStatus),
    /// A message from an executor.
    Message(Message),
    /// An agent was removed (no `executor_id`), or an executor has ended.
    Failure(Failure),
    /// The subscription was rejected or taken over; the stream ends after it.
    Error(String),
    /// A heartbeat.
    Heartbeat,
    /// An event of an unknown type.
    Unknown(String),
}

/// The content of SUBSCRIBED.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Subscribed {
    /// The framework's id.
    pub framework_id: FrameworkId,
    /// The heartbeat interval in seconds.
    pub heartbeat_interval_seconds: Option<f64>,
    /// The leading master.
    pub master_info: Option<MasterInfo>,
}

impl Subscribed {
    /// The heartbeat interval; none when it is absent or invalid.
    pub fn heartbeat_interval(&self) -> Option<Duration> {
        interval(self.heartbeat_interval_seconds)
    }
}

/// A message from an executor, in base64.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Message {
    /// Its agent.
    pub agent_id: AgentId,
    /// Its id.
    pub executor_id: ExecutorId,
    /// Base64.
    pub data: String,
}

/// The removal of an agent or the end of an executor.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Failure {
    /// The agent.
    pub agent_id: Option<AgentId>,
    /// The executor on it; none when the agent itself was removed.
    pub executor_id: Option<ExecutorId>,
    /// The executor's wait status.
    pub status: Option<i32>,
}

/// A positive, finite number of seconds as a duration.
pub(crate) fn interval(seconds: Option<f64>) -> Option<Duration> {
    let seconds = seconds.filter(|seconds| *seconds > 0.0)?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The event on the wire: a type, and the field named like it.
#[derive(Deserialize)]
struct Wire {
    r#type: Option<String>,
    subscribed: Option<Subscribed>,
    offers: Option<WireOffers>,
    inverse_offers: Option<WireInverseOffers>,
    rescind: Option<WireRescind>,
    rescind_inverse_offer: Option<WireRescindInverse>,
    update: Option<WireUpdate>,
    update_operation_status: Option<WireOperationStatus>,
    message: Option<Message>,
    failure: Option<Failure>,
    error: Option<WireError>,
}

#[derive(Deserialize)]
struct WireOffers {
    #[serde(default)]
    offers: Vec<Offer>,
}

#[derive(Deserialize)]
struct WireInverseOffers {
    #[serde(default)]
    inverse_offers: Vec<InverseOffer>,
}

#[derive(Deserialize)]
struct WireRescind {
    offer_id: OfferId,
}

#[derive(Deserialize)]
struct WireRescindInverse {
    inverse_offer_id: OfferId,
}

#[derive(Deserialize)]
struct WireUpdate {
    status: TaskStatus,
}

#[derive(Deserialize)]
struct WireOperationStatus {
    status: OperationStatus,
}

#[derive(Deserialize)]
struct WireError {
    message: String,
}

impl Event {
    /// Parses one record of the stream. An unknown type is not an error ([`Event::Unknown`]); a
    /// known one without its content is.
    pub fn decode(record: &[u8]) -> Result<Self> {
        let wire: Wire =
            serde_json::from_slice(record).map_err(|source| Error::decode("a scheduler event", source))?;
        let kind = wire.r#type.unwrap_or_default();
        let event = match kind.as_str() {
            "SUBSCRIBED" => wire.subscribed.map(Self::Subscribed),
            "OFFERS" => wire.offers.map(|body| Self::Offers(body.offers)),
            "INVERSE_OFFERS" => wire
                .inverse_offers
                .map(|body| Self::InverseOffers(body.inverse_offers)),
            "RESCIND" => wire.rescind.map(|body| Self::Rescind(body.offer_id)),
            "RESCIND_INVERSE_OFFER" => wire
                .rescind_inverse_offer
                .map(|body| Self::RescindInverseOffer(body.inverse_offer_id)),
            "UPDATE" => wire.update.map(|body| Self::Update(body.status)),
            "UPDATE_OPERATION_STATUS" => wire
                .update_operation_status
                .map(|body| Self::UpdateOperationStatus(body.status)),
            "MESSAGE" => wire.message.map(Self::Message),
            "FAILURE" => wire.failure.map(Self::Failure),
            "ERROR" => wire.error.map(|body| Self::Error(body.message)),
            "HEARTBEAT" => Some(Self::Heartbeat),
            _ => return Ok(Self::Unknown(kind)),
        };
        event.ok_or_else(|| Error::Incomplete {
            what: format!("the scheduler event {kind}"),
            missing: "the field named like its type",
        })
    }
}
