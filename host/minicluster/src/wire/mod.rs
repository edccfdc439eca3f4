//! What travels: JSON by the message tables of the API, RecordIO framing, resource arithmetic.
//!
//! Everything here is pure. The tables in [`messages`] are this crate's own reading of the API: they are
//! deliberately not shared with the client crate, so that the two can only agree on the wire.

pub(crate) mod amounts;
pub(crate) mod json;
pub(crate) mod messages;
pub(crate) mod recordio;
pub(crate) mod resources;
pub(crate) mod schema;
