//! The destinations of callbacks, and the check of a URL against them.

use std::net::IpAddr;
use std::sync::Arc;

use reqwest::Url;
use transom_common::HostPort;
use transom_registry::network::{Destination, Reserved, Resolver, SystemResolver, names_no_peer};

/// The maximum length of a URL in bytes.
const MAX_URL_BYTES: usize = 2048;

/// Why a URL is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DestinationError {
    /// It is not a valid URL for callbacks.
    #[error("callbackUrl: expected {expected}, found {found:?}")]
    Malformed { expected: &'static str, found: String },
    /// The settings do not allow its destination.
    #[error(
        "callbackUrl {url}: {why}; the setting apps.callbacks.allow names the destinations that callbacks may have"
    )]
    NotAllowed { url: String, why: String },
}

/// A URL that may be posted to. Its host is checked again for each connection.
#[derive(Clone, Debug)]
pub(super) struct CheckedUrl {
    pub(super) url: Url,
    /// Its host and port, the host without brackets.
    pub(super) endpoint: HostPort,
}

/// The destinations that the settings allow for callbacks.
pub(crate) struct Policy {
    allow: Vec<Destination>,
    /// This daemon's own ports and servers.
    reserved: Reserved,
    names: Arc<dyn Resolver>,
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy")
            .field("allow", &self.allow)
            .finish_non_exhaustive()
    }
}

impl Policy {
    pub(crate) fn new(allow: Vec<Destination>, reserved: Reserved) -> Self {
        Self {
            allow,
            reserved,
            names: Arc::new(SystemResolver::default()),
        }
    }

    #[cfg(test)]
    pub(super) fn with_names(self, names: Arc<dyn Resolver>) -> Self {
        Self { names, ..self }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.allow.is_empty()
    }

    /// Checks a URL, and the addresses to which its host currently resolves.
    pub(super) async fn check(&self, text: &str) -> Result<CheckedUrl, DestinationError> {
        let checked = parse(text)?;
        match self.addresses(&checked.endpoint).await {
            Ok(_) => Ok(checked),
            Err(why) => Err(not_allowed(text, why)),
        }
    }

    /// Checks a URL without resolving names: rejects it if no address of its host can be allowed.
    pub(super) fn check_unresolved(&self, text: &str) -> Result<CheckedUrl, DestinationError> {
        let checked = parse(text)?;
        let HostPort { host, port } = &checked.endpoint;
        let may_cover = |destination: &Destination| match (destination, host.parse::<IpAddr>()) {
            (_, Ok(address)) => destination.covers(address, *port),
            (Destination::Network { port: allowed, .. }, Err(_)) => {
                allowed.is_none_or(|allowed| allowed == *port)
            }
            (_, Err(_)) => is_named(destination, &checked.endpoint),
        };
        if self.allow.iter().any(may_cover) {
            Ok(checked)
        } else {
            Err(not_allowed(text, format!("{host}, port {port}, is not allowed")))
        }
    }

    /// The allowed addresses of an endpoint, at least one.
    pub(super) async fn addresses(&self, endpoint: &HostPort) -> Result<Vec<IpAddr>, String> {
        let addresses = match endpoint.host.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => match self.names.addresses(&endpoint.host).await {
                Ok(addresses) => addresses,
                Err(error) => return Err(error.to_string()),
            },
        };
        let mut allowed = Vec::new();
        let mut denied = String::from("the name resolves to no address");
        for address in addresses {
            match self.permit(endpoint, address).await {
                Ok(()) => allowed.push(address),
                Err(why) => denied = why,
            }
        }
        if allowed.is_empty() {
            Err(denied)
        } else {
            Ok(allowed)
        }
    }

    async fn permit(&self, endpoint: &HostPort, address: IpAddr) -> Result<(), String> {
        if names_no_peer(address) {
            return Err(format!(
                "{address} is an unspecified, multicast or broadcast address"
            ));
        }
        let guard = self
            .reserved
            .guard(address, endpoint.port, self.names.as_ref())
            .await;
        if let Some(guard) = guard {
            let named = self
                .allow
                .iter()
                .any(|destination| destination.names(endpoint, address, &guard));
            return if named {
                Ok(())
            } else {
                Err(format!("{address} is {guard}, which must be named exactly"))
            };
        }
        let covered = self
            .allow
            .iter()
            .any(|destination| is_named(destination, endpoint) || destination.covers(address, endpoint.port));
        if covered {
            Ok(())
        } else {
            Err(format!("{address}, port {}, is not allowed", endpoint.port))
        }
    }
}

/// Parses a URL for callbacks.
fn parse(text: &str) -> Result<CheckedUrl, DestinationError> {
    let malformed = |expected| {
        let found = text.chars().take(200).collect();
        Err(DestinationError::Malformed { expected, found })
    };
    if text.len() > MAX_URL_BYTES {
        return malformed("a URL of at most 2048 bytes");
    }
    let Ok(url) = Url::parse(text) else {
        return malformed("a URL such as http://host:port/path");
    };
    if !["http", "https"].contains(&url.scheme()) {
        return malformed("a URL with the scheme http or https");
    }
    if !url.username().is_empty() || url.password().is_some() {
        // Events and lists show the URL, so it must not contain a password.
        return Err(DestinationError::Malformed {
            expected: "a URL without user and password",
            found: "a URL with credentials".to_owned(),
        });
    }
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return malformed("a URL with a host");
    };
    let endpoint = HostPort {
        host: host.trim_matches(['[', ']']).to_owned(),
        port,
    };
    Ok(CheckedUrl { url, endpoint })
}

fn not_allowed(url: &str, why: String) -> DestinationError {
    DestinationError::NotAllowed {
        url: url.to_owned(),
        why,
    }
}

/// Whether the destination is the name of an endpoint.
fn is_named(destination: &Destination, endpoint: &HostPort) -> bool {
    match destination {
        Destination::Name { host, port } => {
            host.eq_ignore_ascii_case(&endpoint.host) && port.is_none_or(|port| port == endpoint.port)
        }
        _ => false,
    }
}
