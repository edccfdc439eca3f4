//! [`View`]: a subscriber's query and its decisions about events.
//!
//! Views with an equal query share one guest resource; the order of events within a view is the
//! order in which the caller awaits [`View::decide`].

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use crate::{
    engine::worlds::events::{Call, SharedQuery},
    extension_points::ExtensionPoints,
    shadow::FilterSample,
    types::events::{Decision, Event, OpenError, Query},
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
        let version = &active.primary;
        let _in_flight = version.context.enter()?;
        let (view, events): (_, Arc<[Event]>) = (Arc::clone(&self.opened), events.into());
        let shadow_for_call = active
            .shadow_for_call()
            .map(|shadow| (shadow, Arc::clone(&view), Arc::clone(&events)));
        let decisions = version
            .ask(&mut version.near(self.opened.id as usize), |reply| Call::Decide {
                view,
                events,
                reply,
            })
            .await?;
        if let Some((shadow, view, events)) = shadow_for_call {
            shadow.submit(FilterSample {
                view,
                events: Some(events),
                serving: decisions.clone(),
            });
        }
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
