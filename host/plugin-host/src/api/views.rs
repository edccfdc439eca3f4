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
    runtime::{active_version::ActiveVersion, engine::worlds::events::Filter, shadow::calls::Decide},
    worlds::events::{Decision, Event, OpenError, Query, SharedQuery},
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

    /// Returns one decision for each event, in order. Fails with [`OpenError::Rejected`] if a new
    /// version of the plugin rejects the query.
    pub async fn decide(&self, events: &[Event]) -> Result<Vec<Decision>, OpenError> {
        let filters = self.extension_points.filters()?;
        let Some(((_, first), others)) = filters.split_first() else {
            return Ok(vec![Decision::Pass; events.len()]);
        };
        let mut decisions = self.ask(first, events.into()).await?;
        for (_, filter) in others {
            let (remaining, passed): (Vec<usize>, Vec<Event>) = remaining_events(events, &decisions).unzip();
            if remaining.is_empty() {
                break;
            }
            let next = self.ask(filter, passed.into()).await?;
            for (index, decision) in remaining.into_iter().zip(next) {
                // A replacement by an earlier filter remains if this filter passes the event.
                if decision != Decision::Pass {
                    decisions[index] = decision;
                }
            }
        }
        Ok(decisions)
    }

    async fn ask(
        &self,
        filter: &ActiveVersion<Filter>,
        events: Arc<[Event]>,
    ) -> Result<Vec<Decision>, OpenError> {
        let view = Arc::clone(&self.opened);
        let decisions = filter.ask(Decide { view, events }).await?;
        decisions.map_err(OpenError::Rejected)
    }
}

/// Returns the events that the next filter receives, with their indices.
fn remaining_events<'a>(
    events: &'a [Event],
    decisions: &'a [Decision],
) -> impl Iterator<Item = (usize, Event)> {
    let decided = events.iter().zip(decisions).enumerate();
    decided.filter_map(|(index, (event, decision))| match decision {
        Decision::Drop => None,
        Decision::Pass => Some((index, event.clone())),
        Decision::Replace(body) => {
            let body = body.clone();
            Some((
                index,
                Event {
                    body,
                    ..event.clone()
                },
            ))
        }
    })
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
