//! Lookups over DNS.
//!
//! * [`listeners`] carry packets: over UDP, TCP, TLS and HTTPS.
//! * [`handler`] decodes, answers and encodes them; common queries take a fast path, all others
//!   pass through a handler of hickory-server. [`respond`] is the interface between listeners and
//!   handler.
//! * [`forward`] forwards queries for external names, for clients that [`acl`] allows.
//! * [`notify`] notifies secondaries.
//! * [`limit`] is response rate limiting against amplification attacks.
//! * [`packet`] finds offsets in messages that are not parsed.
//!
//! Work is bounded on arrival: a query that needs no waiting is answered before the next one is
//! taken from the same socket or connection; forwarded queries and connections are limited in
//! number, and every wait has a deadline.

pub mod acl;
pub mod forward;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod handler;
pub mod limit;
pub mod listeners;
mod notify;
mod packet;
pub mod respond;

pub(crate) use handler::Handler;
pub(crate) use listeners::{Sockets, serve};
pub use respond::Transport;
