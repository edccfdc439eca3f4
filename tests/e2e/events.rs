//! The event stream.

mod callbacks;
mod clients;
mod filters;
mod kinds;
mod resume;
mod slow;
