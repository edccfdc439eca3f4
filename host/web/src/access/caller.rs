//! The client of a request, including a request that another daemon has forwarded.
//!
//! A daemon that forwards a request names its client in `X-Transom-Client` (an address) and
//! `X-Transom-User`. A port accepts these headers only from another daemon, which it recognises by
//! the credentials or networks that all daemons share:
//!
//! | this port | the headers count when the request |
//! |---|---|
//! | has credentials | has the credentials, not those of the user who may only read |
//! | has none | comes from a trusted network |
//!
//! So a client that may only read cannot impersonate another client. A client with the full
//! credentials can, but it has all rights of a daemon anyway.

use std::net::IpAddr;

use axum::extract::Request;
use http::{HeaderMap, HeaderName};

use super::authentication::{Authentication, peer};

/// The address of a forwarded request's client.
pub(crate) const CLIENT: HeaderName = HeaderName::from_static("x-transom-client");
/// Its user, if it has credentials.
pub(crate) const USER: HeaderName = HeaderName::from_static("x-transom-user");

/// Who sent a request; an extension of each request to a port that checks credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The address of the client; `None` if it is unknown, in a router that [`crate::serve`] does
    /// not serve.
    pub client: Option<IpAddr>,
    /// The user; `None` without credentials.
    pub user: Option<String>,
    /// Whether the user may only read.
    pub read_only: bool,
}

impl Caller {
    /// The client of a request that the port allows. `trusted`: it comes from a trusted network.
    pub(super) fn of(authentication: Authentication<'_>, trusted: bool, request: &Request) -> Self {
        let from_daemon = match authentication {
            Authentication::Full(_) => true,
            Authentication::NoneConfigured => trusted,
            Authentication::Missing | Authentication::Invalid | Authentication::Reader(_) => false,
        };
        if from_daemon && let Some(client) = named_client(request.headers()) {
            let user = single_header(request.headers(), &USER);
            return Self {
                client: Some(client),
                user: user.map(|user| String::from_utf8_lossy(user).into_owned()),
                read_only: false,
            };
        }
        Self {
            client: peer(request).map(|peer| peer.ip().to_canonical()),
            user: match authentication {
                Authentication::Full(user) | Authentication::Reader(user) => Some(user.to_owned()),
                Authentication::NoneConfigured | Authentication::Missing | Authentication::Invalid => None,
            },
            read_only: matches!(authentication, Authentication::Reader(_)),
        }
    }
}

fn named_client(headers: &HeaderMap) -> Option<IpAddr> {
    let client: IpAddr = std::str::from_utf8(single_header(headers, &CLIENT)?)
        .ok()?
        .parse()
        .ok()?;
    Some(client.to_canonical())
}

/// Returns the value of a header that occurs exactly once. A repeated header is ignored, because
/// daemons never repeat it.
fn single_header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value.as_bytes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use std::net::SocketAddr;

    use axum::body::Body;
    use axum::extract::ConnectInfo;
    use http::header;

    use super::*;
    use crate::{Credentials, PortConfig};

    fn user(name: &str) -> Credentials {
        Credentials {
            username: name.to_owned(),
            password: "p".into(),
        }
    }

    #[test]
    fn client_headers_are_accepted_from_other_daemons_only() {
        let (full, reader) = (user("full").authorization(), user("reader").authorization());
        let (loopback, remote) = ("127.0.0.1", "192.0.2.1");
        let named = &["203.0.113.7"][..];
        // With credentials; peer, authorization, clients named; expected client and user.
        for (with, peer, authorization, clients, client, user) in [
            (true, remote, Some(&full), named, "203.0.113.7", Some("ann")),
            (true, loopback, Some(&full), named, "203.0.113.7", Some("ann")),
            // On a port with credentials, a trusted network is not enough to recognise a daemon.
            (true, loopback, None, named, loopback, None),
            (true, remote, Some(&reader), named, remote, Some("reader")),
            (false, loopback, None, named, "203.0.113.7", Some("ann")),
            (false, remote, None, named, remote, None),
            (true, remote, Some(&full), &[], remote, Some("full")),
            (true, remote, Some(&full), &["nobody"], remote, Some("full")),
            (
                true,
                remote,
                Some(&full),
                &["203.0.113.7", "203.0.113.8"],
                remote,
                Some("full"),
            ),
            (
                true,
                remote,
                Some(&full),
                &["::ffff:203.0.113.7"],
                "203.0.113.7",
                Some("ann"),
            ),
        ] {
            let port = PortConfig {
                credentials: with.then(|| self::user("full")),
                reader: with.then(|| self::user("reader")),
                ..PortConfig::new("apps", 0)
            };
            let peer = SocketAddr::new(peer.parse().unwrap(), 1);
            let mut request = Request::builder()
                .extension(ConnectInfo(peer))
                .header(USER, "ann");
            for client in clients {
                request = request.header(CLIENT, *client);
            }
            if let Some(authorization) = authorization {
                request = request.header(header::AUTHORIZATION, authorization);
            }
            let (policy, request) = (port.policy(), request.body(Body::empty()).unwrap());
            let (authentication, trusted) =
                (policy.authenticate(&request), policy.trusts_network_of(&request));
            let caller = Caller::of(authentication, trusted, &request);
            let case = format!("credentials: {with}, {peer} {authorization:?} {clients:?}");
            assert_eq!(caller.client, Some(client.parse().unwrap()), "{case}");
            assert_eq!(caller.user.as_deref(), user, "{case}");
            assert_eq!(caller.read_only, authorization == Some(&reader), "{case}");
        }
    }
}
