//! `event-filter`: filters the event stream. See the package `transom:events`.

use std::cell::RefCell;

use crate::bindings::exports::transom::events::filter as wit;
use crate::plugin::{Exported, Installed, Plugin, installed};

pub use wit::{Decision, Event, Query};

/// A plugin of the world `event-filter`.
pub trait Filter: Plugin {
    /// A query made ready.
    type View: View;

    /// Makes a query ready. A refusal is shown to the subscriber as it stands.
    fn open(&self, query: Query) -> Result<Self::View, String>;
}

/// A query made ready: the same events always get the same decisions.
pub trait View: 'static {
    /// One decision for each event, in order.
    fn decide(&mut self, events: &[Event]) -> Vec<Decision>;
}

impl Query {
    /// Whether it asks for this kind: it names it, or names none at all. Which kinds are sent only
    /// to those who name them is the filter's to say.
    pub fn wants(&self, kind: &str) -> bool {
        self.event_types.is_empty() || self.event_types.iter().any(|it| it == kind)
    }
}

/// A view can be as little as a function that decides about one event.
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
