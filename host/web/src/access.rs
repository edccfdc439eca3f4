//! Access to a port.
//!
//! * [`AccessPolicy`]: credentials and trusted networks, with a [`Requirement`] for each path.
//! * [`Credentials`]: HTTP basic authentication.
//! * [`Caller`]: the address and the user of the client that sent a request, directly or through
//!   another daemon, which proves it with the [`DaemonKey`].
//! * [`Access`]: host names and origins, against web pages of other sites.

mod audit;
mod authentication;
mod caller;
mod credentials;
mod cross_site;
mod daemon_key;
mod guessing;
mod networks;
mod policy;

pub(crate) use audit::Forwarded;
pub use caller::{Authority, Caller};
pub(crate) use caller::{state, take_statement};
pub use credentials::{Credentials, Presented};
pub(crate) use cross_site::CHECKED_HEADERS;
pub use cross_site::{Access, AllowedHost, ForeignSite, Origin, guarded};
pub use daemon_key::DaemonKey;
pub(crate) use networks::loopback;
pub use policy::{AccessPolicy, AccessRules, Denial, Requirement};
