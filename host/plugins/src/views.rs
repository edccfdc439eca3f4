//! [`View`]: a subscriber's query, asked about events.
//!
//! Views with an equal query share one in the component; the order of events within a view is the order in which the caller awaits
//! [`View::decide`].

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use crate::{
    engine::worlds::events::{Job, Opened},
    points::{Answering, Points},
    shadow::FilterSample,
    types::events::{Decision, Event, OpenError, Query},
};

/// A query made ready. Cheap to clone; reopens by itself after a swap.
#[derive(Clone, Debug)]
pub struct View {
    points: Arc<Points>,
    opened: Arc<Opened>,
}

impl View {
    pub(crate) fn new(points: Arc<Points>, opened: Arc<Opened>) -> View {
        View { points, opened }
    }

    /// The query that it answers for.
    pub fn query(&self) -> &Query {
        &self.opened.query
    }

    /// One decision for each event, in order. [`OpenError::Refused`] when a new version of the plugin refuses the query.
    pub async fn decide(&self, events: &[Event]) -> Result<Vec<Decision>, OpenError> {
        let Answering::Version(pair) = self.points.filter()? else {
            return Ok(vec![Decision::Pass; events.len()]);
        };
        let version = &pair.version;
        let _in_flight = version.meta.enter()?;
        let (view, events): (_, Arc<[Event]>) = (Arc::clone(&self.opened), events.into());
        let sampled = pair
            .sampled()
            .map(|shadow| (shadow, Arc::clone(&view), Arc::clone(&events)));
        let decisions = version
            .ask(&mut version.near(self.opened.id as usize), |reply| Job::Decide {
                view,
                events,
                reply,
            })
            .await?;
        if let Some((shadow, view, events)) = sampled {
            shadow.offer(FilterSample {
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
