//! The wire format: JSON according to the API's message tables, RecordIO framing, resource
//! arithmetic.
//!
//! Everything here is pure. The tables in [`messages`] are this crate's own reading of the API.
//! They are deliberately not shared with the client crate, so that the same bug cannot hide in
//! both.

pub(crate) mod amounts;
pub(crate) mod duration;
pub(crate) mod json;
pub(crate) mod messages;
pub(crate) mod recordio;
pub(crate) mod resources;
pub(crate) mod schema;
