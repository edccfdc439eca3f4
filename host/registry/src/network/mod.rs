//! Which destinations may be contacted: by the fetches of this crate, and by the probes of the
//! plugin host.
//!
//! A [`Destination`] is what an operator grants or configures. A [`Guard`] protects addresses that
//! only an exact destination allows. [`Reserved`] has the daemon's own ports and servers.
//! [`Resolver`] resolves names.

mod destination;
mod guard;
mod reserved;
mod resolver;

pub use destination::Destination;
pub use guard::{Guard, embedded, names_no_peer};
pub use reserved::{Reserved, Server};
pub use resolver::{LookupError, Resolver, SystemResolver};
