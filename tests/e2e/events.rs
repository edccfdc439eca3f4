//! The event stream.

mod callbacks;
pub(crate) mod clients;
mod filters;
mod kinds;
mod resume;
mod slow;
