//! Which destinations may be contacted: by the fetches of this crate, and by the probes of the
//! plugin host.
//!
//! [`Destination`] is what an operator grants or configures, [`Guard`] what only an exact
//! destination opens, [`Reserved`] the daemon's own ports and servers. Names are resolved through
//! [`Resolver`].

mod destination;
mod guard;
mod reserved;
mod resolver;

pub use destination::Destination;
pub use guard::{Guard, embedded, names_no_peer};
pub use reserved::{Reserved, Server};
pub use resolver::{Resolver, SystemResolver, Unresolved};
