//! [`View`]: a subscriber's query and its decisions about events.
//!
//! Views with an equal query share one guest resource; the order of events within a view is the
//! order in which the caller awaits [`View::decide`].

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use super::extension_points::ExtensionPoints;
use crate::{
    runtime::{engine::worlds::events::SharedQuery, shadow::calls::Decide},
    worlds::events::{Decision, Event, OpenError, Query},
};

/// An open query. Cheap to clone; reopened automatically after a swap.
#[derive(Clone, Debug)]
pub struct View {
    extension_points: Arc<ExtensionPoints>,
    opened: Arc<SharedQuery>,
}

impl View {
    pub(crate) fn new(extension_points: Arc<ExtensionPoints>, opened: Arc<SharedQuery>) -> View {
        View {
            extension_points,
            opened,
        }
    }

    /// Its query.
    pub fn query(&self) -> &Query {
        &self.opened.query
    }

    /// One decision for each event, in order. [`OpenError::Refused`] when a new version of the
    /// plugin refuses the query.
    pub async fn decide(&self, events: &[Event]) -> Result<Vec<Decision>, OpenError> {
        let active = self.extension_points.filter()?;
        let decide = Decide {
            view: Arc::clone(&self.opened),
            events: events.into(),
        };
        let decisions = active.ask(decide).await?;
        decisions.map_err(OpenError::Refused)
    }
}

/// The queries in use.
#[derive(Debug, Default)]
pub(crate) struct OpenViews(HashMap<Query, Weak<SharedQuery>>);

impl OpenViews {
    pub(crate) fn get_or_insert(&mut self, query: Query, id: impl FnOnce() -> u64) -> Arc<SharedQuery> {
        if let Some(opened) = self.0.get(&query).and_then(Weak::upgrade) {
            return opened;
        }
        self.0.retain(|_, opened| opened.strong_count() > 0);
        let opened = Arc::new(SharedQuery {
            id: id(),
            query: query.clone(),
        });
        self.0.insert(query, Arc::downgrade(&opened));
        opened
    }
}
