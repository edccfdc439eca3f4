//! Event filtering: the types of the `event-filter` component.
//!
//! The types mirror the WIT package `transom:events`. Events and decisions are passed to and from
//! components as they are, without a conversion.

use wasmtime::component::{ComponentType, Lift, Lower};

use crate::error::CallError;

/// Maximum size in bytes of an event's document, and of the one that replaces it.
pub const MAX_EVENT_BYTES: usize = 1 << 20;

/// An event of the bus.
#[derive(Clone, Debug, PartialEq, Eq, ComponentType, Lower)]
#[component(record)]
pub struct Event {
    /// Position in the stream.
    pub sequence: u64,
    /// `status_update_event` and so on.
    pub kind: String,
    /// The app, pod or group that the event is about, if there is one.
    pub subject: Option<String>,
    /// The event's JSON document.
    pub body: String,
}

/// A subscriber's query.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Query {
    /// `event_type` values, in order; empty: every kind that is not opt-in.
    pub event_types: Vec<String>,
    /// The `filter` parameter, as written; its language is the plugin's.
    pub expression: Option<String>,
    /// The user or address behind the subscription, if the host knows it.
    pub principal: Option<String>,
    /// Fields of later versions of the interface.
    pub extensions: Vec<(String, String)>,
}

/// A query with at least one view. An instance opens it on first use and drops it with the last
/// view.
#[derive(Debug)]
pub(crate) struct SharedQuery {
    pub(crate) id: u64,
    pub(crate) query: Query,
}

/// The decision about one event.
#[derive(Clone, Debug, PartialEq, Eq, ComponentType, Lift)]
#[component(variant)]
pub enum Decision {
    /// Sent as it is.
    #[component(name = "pass")]
    Pass,
    /// Not sent.
    #[component(name = "drop")]
    Drop,
    /// This JSON object is sent instead; it has at most [`MAX_EVENT_BYTES`] bytes.
    #[component(name = "replace")]
    Replace(String),
}

/// Why a view could not be opened or used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The plugin rejects the query, with this text: a 400 for the subscriber.
    #[error("{0}")]
    Rejected(String),
    /// The call of the plugin failed.
    #[error(transparent)]
    Call(#[from] CallError),
}
