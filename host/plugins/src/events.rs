//! What a subscriber of the event stream sees: what is asked of the `event-filter` component.
//!
//! The types mirror the WIT package `transom:events`. Views with an equal query share one; the order of events within a view is the order in
//! which the caller awaits [`View::decide`].

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use crate::{CallError, Plugins, engine::worlds::events::Job};

/// An event of the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Position in the stream.
    pub sequence: u64,
    /// `status_update_event` and so on.
    pub kind: String,
    /// App, pod or group the event is about, where there is one.
    pub subject: Option<String>,
    /// The event's JSON document.
    pub body: String,
}

/// What a subscriber asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Query {
    /// `event_type` values, in order; empty: every kind that is not opt-in.
    pub event_types: Vec<String>,
    /// The `filter` parameter, as written; its language is the plugin's.
    pub expression: Option<String>,
    /// Who asks, where the host knows.
    pub principal: Option<String>,
    /// For what later versions may add.
    pub extra: Vec<(String, String)>,
}

/// What becomes of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Sent as it is.
    Pass,
    /// Not sent.
    Drop,
    /// This JSON document is sent instead.
    Replace(String),
}

/// Why a view could not be opened or asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The plugin refuses the query, with this text: a 400 for the subscriber.
    #[error("{0}")]
    Refused(String),
    /// The plugin could not be asked.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// A query made ready. Cheap to clone; reopens by itself after a swap.
#[derive(Clone, Debug)]
pub struct View {
    plugins: Plugins,
    opened: Arc<Opened>,
}

impl View {
    pub(crate) fn new(plugins: Plugins, opened: Arc<Opened>) -> View {
        View { plugins, opened }
    }

    /// The query that it answers for.
    pub fn query(&self) -> &Query {
        &self.opened.query
    }

    /// One decision for each event, in order. [`OpenError::Refused`] when a new version of the plugin refuses the query.
    pub async fn decide(&self, events: &[Event]) -> Result<Vec<Decision>, OpenError> {
        let version = self.plugins.filter()?;
        let _in_flight = version.meta.enter()?;
        let (view, events) = (Arc::clone(&self.opened), events.into());
        version
            .ask(version.near(self.opened.id as usize), |reply| Job::Decide {
                view,
                events,
                reply,
            })
            .await?
            .map_err(OpenError::Refused)
    }
}

/// A query that at least one view is held of. Instances open it when first asked, and free it when the last view is dropped.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) id: u64,
    pub(crate) query: Query,
}

/// The queries in use.
#[derive(Debug, Default)]
pub(crate) struct OpenViews(HashMap<Query, Weak<Opened>>);

impl OpenViews {
    pub(crate) fn get_or_insert(&mut self, query: Query, id: impl FnOnce() -> u64) -> Arc<Opened> {
        if let Some(opened) = self.0.get(&query).and_then(Weak::upgrade) {
            return opened;
        }
        self.0.retain(|_, opened| opened.strong_count() > 0);
        let opened = Arc::new(Opened {
            id: id(),
            query: query.clone(),
        });
        self.0.insert(query, Arc::downgrade(&opened));
        opened
    }
}
