//! The scheduler API.
mod event;
pub(crate) use event::interval;
pub use event::{Event, Failure, Message, Subscribed};
