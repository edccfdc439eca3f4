//! The client of a request, including a request that another daemon has forwarded.
//!
//! A daemon that forwards a request states in headers who sent it, and proves the statement with the
//! key that all daemons of the site share ([`DaemonKey`](super::DaemonKey)):
//!
//! | header | content |
//! |---|---|
//! | `X-Transom-Client` | the address of the client |
//! | `X-Transom-User` | its user, if it has credentials |
//! | `X-Transom-Rights` | `full`, `read-only`, `network` or `none`: the [`Authority`] |
//! | `X-Transom-Proof` | the proof |
//!
//! With a valid proof the request has the client, the user and the rights of the statement, whatever
//! other credentials it has. Without one, whoever sent it, the statement is dropped: the request is
//! its sender's. So a daemon of an earlier version, which sends no proof, is a client with the
//! credentials that it sends.
//!
//! `serve` takes every header whose name begins with `x-transom-` out of a request before
//! anything sees it, except those that list the forwarding daemons (`…-via`): they only stop loops,
//! also among daemons of earlier versions.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::Request;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use super::DaemonKey;
use super::authentication::{Authentication, peer};
use super::daemon_key::Signed;

const CLIENT: HeaderName = HeaderName::from_static("x-transom-client");
const USER: HeaderName = HeaderName::from_static("x-transom-user");
const RIGHTS: HeaderName = HeaderName::from_static("x-transom-rights");
const PROOF: HeaderName = HeaderName::from_static("x-transom-proof");
/// The headers of a statement, in the order of [`Signed::statement`].
const STATEMENT: [HeaderName; 3] = [CLIENT, USER, RIGHTS];
/// The beginning of the names of all headers between daemons.
const PREFIX: &str = "x-transom-";
/// The end of the names of headers that list the forwarding daemons.
const VIA_SUFFIX: &str = "-via";
/// Seconds between two warnings of invalid proofs.
const WARNING_INTERVAL: u64 = 60;

/// What allowed a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authority {
    /// Nothing: it needed nothing.
    #[default]
    Nothing,
    /// The network that it comes from.
    Network,
    /// Credentials.
    Credentials,
}

/// Who sent a request; an extension of each request to a port that checks credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The address of the client; `None` if it is unknown, in a router that `serve` does
    /// not serve.
    pub client: Option<IpAddr>,
    /// The user; `None` without credentials.
    pub user: Option<String>,
    /// Whether the user may only read.
    pub read_only: bool,
    /// What allowed the request.
    pub authority: Authority,
}

impl Caller {
    /// The client of a request that the port allows. `trusted`: it comes from a trusted network.
    pub(super) fn of(authentication: Authentication<'_>, trusted: bool, request: &Request) -> Self {
        if let Some(Vouched(caller)) = request.extensions().get() {
            return caller.clone();
        }
        let (user, authority) = match authentication {
            Authentication::Full(user) | Authentication::Reader(user) => (Some(user), Authority::Credentials),
            Authentication::NoneConfigured | Authentication::Missing if trusted => (None, Authority::Network),
            Authentication::NoneConfigured | Authentication::Missing | Authentication::Invalid => {
                (None, Authority::Nothing)
            }
        };
        Self {
            client: peer(request).map(|peer| peer.ip().to_canonical()),
            user: user.map(str::to_owned),
            read_only: matches!(authentication, Authentication::Reader(_)),
            authority,
        }
    }

    fn rights(&self) -> &'static str {
        match (self.authority, self.read_only) {
            (Authority::Credentials, false) => "full",
            (Authority::Credentials, true) => "read-only",
            (Authority::Network, _) => "network",
            (Authority::Nothing, _) => "none",
        }
    }

    fn from_statement(client: Option<&[u8]>, user: Option<&[u8]>, rights: &[u8]) -> Option<Self> {
        let (authority, read_only) = match rights {
            b"full" => (Authority::Credentials, false),
            b"read-only" => (Authority::Credentials, true),
            b"network" => (Authority::Network, false),
            b"none" => (Authority::Nothing, false),
            _ => return None,
        };
        let client = client.and_then(|client| std::str::from_utf8(client).ok()?.parse::<IpAddr>().ok());
        Some(Self {
            client: client.map(|client| client.to_canonical()),
            user: user.map(|user| String::from_utf8_lossy(user).into_owned()),
            read_only,
            authority,
        })
    }
}

/// The headers between daemons that a request came with; an extension of it.
#[derive(Clone, Debug)]
struct Statement(HeaderMap);

/// The client of a request that a daemon has forwarded and vouches for; an extension of it.
#[derive(Clone, Debug)]
pub(super) struct Vouched(pub(super) Caller);

/// Moves the headers between daemons from the head of a request into an extension.
pub(crate) fn take_statement(request: &mut Request) {
    let is_taken =
        |name: &&HeaderName| name.as_str().starts_with(PREFIX) && !name.as_str().ends_with(VIA_SUFFIX);
    let names: Vec<HeaderName> = request.headers().keys().filter(is_taken).cloned().collect();
    let mut statement = HeaderMap::new();
    for name in names {
        let values = request.headers().get_all(&name).iter().cloned();
        statement.extend(
            values
                .map(|value| (Some(name.clone()), value))
                .collect::<Vec<_>>(),
        );
        request.headers_mut().remove(&name);
    }
    if !statement.is_empty() {
        request.extensions_mut().insert(Statement(statement));
    }
}

/// Accepts the statement of a request if it is proved, and drops it otherwise.
pub(super) fn accept_statement(key: Option<&DaemonKey>, port: &'static str, request: &mut Request) {
    let Some(Statement(headers)) = request.extensions_mut().remove() else {
        return;
    };
    let now = unix_time();
    match vouched(key, port, request.method(), request.uri(), &headers, now) {
        Ok(caller) => drop(request.extensions_mut().insert(Vouched(caller))),
        Err(reason) if headers.contains_key(PROOF) && is_warning_due(now) => tracing::warn!(
            port,
            peer = peer(request).map(tracing::field::display),
            reason,
            "the client that X-Transom-* headers name was dropped, because X-Transom-Proof is invalid"
        ),
        Err(reason) => tracing::debug!(
            port,
            peer = peer(request).map(tracing::field::display),
            reason,
            "X-Transom-* headers dropped"
        ),
    }
}

fn vouched(
    key: Option<&DaemonKey>,
    port: &str,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    now: Duration,
) -> Result<Caller, &'static str> {
    let key = key.ok_or("no daemon forwards requests to this port")?;
    let proof = single_header(headers, &PROOF).ok_or("they are not proved")?;
    let statement = STATEMENT.map(|name| single_header(headers, &name));
    let signed = Signed {
        port,
        method,
        uri,
        statement,
    };
    key.check(&signed, proof, now)?;
    let [client, user, rights] = statement;
    Caller::from_statement(client, user, rights.unwrap_or_default()).ok_or("it states unknown rights")
}

/// Replaces the headers between daemons by a statement about the caller, with its proof.
pub(crate) fn state(
    caller: Option<&Caller>,
    key: Option<(&DaemonKey, &str)>,
    method: &Method,
    uri: &Uri,
    headers: &mut HeaderMap,
) {
    for name in STATEMENT.iter().chain([&PROOF]) {
        headers.remove(name);
    }
    let Some(caller) = caller else { return };
    let client = caller.client.map(|client| client.to_string());
    let client = client.and_then(|client| HeaderValue::from_str(&client).ok());
    // The user's name may have any characters that a header can carry.
    let user = caller.user.as_ref();
    let user = user.and_then(|user| HeaderValue::from_bytes(user.as_bytes()).ok());
    let values = [client, user, Some(HeaderValue::from_static(caller.rights()))];
    if let Some((key, port)) = key {
        let statement = values
            .each_ref()
            .map(|value| value.as_ref().map(HeaderValue::as_bytes));
        let signed = Signed {
            port,
            method,
            uri,
            statement,
        };
        // Digits, a dot and base64 are always a valid header value.
        if let Ok(mut proof) = HeaderValue::from_str(&key.prove(&signed, unix_time())) {
            proof.set_sensitive(true);
            headers.insert(PROOF, proof);
        }
    }
    for (name, value) in STATEMENT.into_iter().zip(values) {
        if let Some(value) = value {
            headers.insert(name, value);
        }
    }
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

fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Whether the last warning is long enough ago.
fn is_warning_due(now: Duration) -> bool {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let (last, now) = (LAST.load(Ordering::Relaxed), now.as_secs());
    now.abs_diff(last) >= WARNING_INTERVAL
        && LAST
            .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
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

    /// A request with a statement of `daemon`, as the port sees it.
    fn forwarded(
        daemon: Option<&DaemonKey>,
        stated: &Caller,
        peer: &str,
        authorization: Option<&str>,
    ) -> Request {
        let peer = SocketAddr::new(peer.parse().unwrap(), 1);
        let mut request = Request::builder()
            .uri("/x?y")
            .extension(ConnectInfo(peer))
            .header("x-transom-apps-via", "a:1")
            .header("x-transom-other", "1");
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let mut request = request.body(Body::empty()).unwrap();
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let key = daemon.map(|key| (key, "apps"));
        state(Some(stated), key, &method, &uri, request.headers_mut());
        take_statement(&mut request);
        let left: Vec<&str> = request.headers().keys().map(HeaderName::as_str).collect();
        assert!(
            left.iter()
                .all(|name| ["x-transom-apps-via", "authorization"].contains(name)),
            "{left:?}"
        );
        request
    }

    #[test]
    fn statement_is_accepted_from_a_daemon_that_proves_it() {
        use Authority::{Credentials, Network, Nothing};

        let (key, other) = (DaemonKey::new(&[1; 32]), DaemonKey::new(&[2; 32]));
        let authorization = user("full").authorization();
        let (loopback, remote) = ("127.0.0.1", "192.0.2.1");
        let caller = |client: &str, user: Option<&str>, read_only, authority| Caller {
            client: Some(client.parse().unwrap()),
            user: user.map(str::to_owned),
            read_only,
            authority,
        };
        let full = caller("203.0.113.7", Some("ann"), false, Credentials);
        let stated = [
            full.clone(),
            caller("203.0.113.7", Some("ann"), true, Credentials),
            caller("203.0.113.7", None, false, Network),
            caller("2001:db8::1", None, false, Nothing),
        ];
        let found = |key: Option<&DaemonKey>, mut request: Request, with: bool| {
            let port = PortConfig {
                credentials: with.then(|| user("full")),
                ..PortConfig::new("apps", 0)
            };
            let policy = port.policy();
            accept_statement(key, "apps", &mut request);
            let (authentication, trusted) =
                (policy.authenticate(&request), policy.trusts_network_of(&request));
            Caller::of(authentication, trusted, &request)
        };
        for stated in &stated {
            for (peer, authorization, with) in [
                (remote, None, false),
                (remote, None, true),
                (loopback, None, false),
                (remote, Some(authorization.as_str()), true),
            ] {
                let request = forwarded(Some(&key), stated, peer, authorization);
                assert_eq!(
                    &found(Some(&key), request, with),
                    stated,
                    "{peer} {authorization:?} {with}"
                );
            }
        }
        for (expected, peer, authorization, with) in [
            (caller(remote, None, false, Nothing), remote, None, false),
            (caller(loopback, None, false, Network), loopback, None, false),
            (
                caller(remote, Some("full"), false, Credentials),
                remote,
                Some(authorization.as_str()),
                true,
            ),
        ] {
            for (sender, receiver) in [(None, Some(&key)), (Some(&other), Some(&key)), (Some(&key), None)] {
                let request = forwarded(sender, &full, peer, authorization);
                assert_eq!(
                    found(receiver, request, with),
                    expected,
                    "{sender:?} {receiver:?}"
                );
            }
        }
    }

    #[test]
    fn repeated_headers_prove_nothing() {
        let key = DaemonKey::new(&[1; 32]);
        let mut headers = HeaderMap::new();
        let caller = Caller {
            authority: Authority::Credentials,
            ..Caller::default()
        };
        let (method, uri) = (Method::GET, Uri::from_static("/"));
        state(Some(&caller), Some((&key, "apps")), &method, &uri, &mut headers);
        let check = |headers: &HeaderMap| vouched(Some(&key), "apps", &method, &uri, headers, unix_time());
        assert_eq!(check(&headers), Ok(caller));
        for name in [&RIGHTS, &PROOF] {
            let mut repeated = headers.clone();
            repeated.append(name, headers[name].clone());
            assert!(check(&repeated).is_err(), "{name}");
        }
        let mut without = headers.clone();
        without.remove(RIGHTS);
        assert!(check(&without).is_err());
    }
}
