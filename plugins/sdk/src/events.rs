//! `event-filter`: filters the event stream. See the package `transom:events`.

use std::cell::RefCell;

use crate::bindings::exports::transom::events::filter as wit;
use crate::plugin::{Exported, Installed, Plugin, installed};

pub use wit::{Decision, Event, Query};

/// A plugin of the world `event-filter`.
pub trait Filter: Plugin {
    /// A prepared query.
    type View: View;

    /// Prepares a query. The subscriber receives the text of an error unchanged.
    fn open(&self, query: Query) -> Result<Self::View, String>;
}

/// A prepared query. Its decision about an event must always be the same.
pub trait View: 'static {
    /// Returns one decision for each event, in order.
    fn decide(&mut self, events: &[Event]) -> Vec<Decision>;
}

impl Query {
    /// Whether the query selects this kind: it names the kind, or names none at all. A filter may
    /// define kinds that it sends only to subscribers that name them.
    pub fn wants(&self, kind: &str) -> bool {
        self.event_types.is_empty() || self.event_types.iter().any(|it| it == kind)
    }
}

/// A function that decides about one event is a view.
impl<F: FnMut(&Event) -> Decision + 'static> View for F {
    fn decide(&mut self, events: &[Event]) -> Vec<Decision> {
        events.iter().map(self).collect()
    }
}

impl<P: Filter + Installed> wit::Guest for Exported<P> {
    type View = ExportedView<P>;
}

#[doc(hidden)]
#[derive(Debug)]
pub struct ExportedView<P: Filter>(RefCell<P::View>);

impl<P: Filter + Installed> wit::GuestView for ExportedView<P> {
    fn open(query: Query) -> Result<wit::View, String> {
        let view = installed::<P>().open(query)?;
        Ok(wit::View::new(Self(RefCell::new(view))))
    }

    fn decide(&self, events: Vec<Event>) -> Vec<Decision> {
        self.0.borrow_mut().decide(&events)
    }
}

/// Makes the crate a component of the world `event-filter`: `export_filter!(MyFilter)`, once, in a
/// `cdylib`.
#[macro_export]
macro_rules! export_filter {
    ($plugin:ty) => {
        $crate::__export!(
            $plugin,
            EVENTS,
            "component-type:transom:event-filter",
            events::filter,
            __export_transom_events_filter_0_1_0_cabi
        );
    };
}
