//! Access to a port.
//!
//! * [`PortConfig`]: all settings of a port, and the rule about exposure.
//! * [`AccessPolicy`]: credentials and trusted networks, with a [`Requirement`] for each path.
//! * [`Credentials`]: HTTP basic authentication.
//! * [`Caller`]: the address and the user of the client that sent a request, directly or through
//!   another daemon.
//! * [`Access`]: host names and origins, against web pages of other sites.

mod authentication;
mod caller;
mod credentials;
mod cross_site;
mod networks;
mod policy;
mod port;

pub use caller::Caller;
pub(crate) use caller::{CLIENT, USER};
pub use credentials::{Credentials, Presented};
pub(crate) use cross_site::CHECKED_HEADERS;
pub use cross_site::{Access, AllowedHost, ForeignSite, Origin, guarded};
pub use policy::{AccessPolicy, AccessRules, Denial, Requirement};
pub use port::{BoundPort, LoopbackTrust, PortConfig, Tls, TlsFiles};
