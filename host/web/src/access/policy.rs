//! Credentials and trusted networks.
//!
//! | request | credentials configured | not configured |
//! |---|---|---|
//! | from a trusted network | answered | answered |
//! | from elsewhere, with the credentials | answered | rejected |
//! | from elsewhere, without | rejected | rejected |
//! | with wrong credentials, from anywhere | rejected | as without |
//!
//! Wrong credentials are rejected even where none are needed, so that the mistake is noticed. A
//! port may have a stricter or a weaker [`Requirement`] for some of its paths.
//!
//! A port may have a second user, who may only read: with these credentials, which count as
//! credentials everywhere, requests that may change something ([`AccessRules::changes`]) are
//! rejected (403), also from networks that need none.
//!
//! A request that another daemon has forwarded has the rights of its client; see
//! [`caller`](super::caller).

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, StatusCode, header};
use ipnet::IpNet;

use super::DaemonKey;
use super::audit::Audit;
use super::authentication::{Authentication, peer};
use super::caller::{Authority, Caller, Vouched, accept_statement};
use super::guessing::Guesses;
use super::networks::is_within;
use crate::text::truncated;
use crate::throttle::Throttle;
use crate::{ApiError, Credentials, Owner, Presented};

const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"Transom\"");

/// The requirement of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Nothing.
    Nothing,
    /// A trusted network, or credentials.
    NetworkOrCredentials,
    /// Credentials; a trusted network if none are configured.
    Credentials,
    /// Credentials; if none are configured, the request is rejected.
    CredentialsAlways,
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The port has credentials, and the request has none or wrong ones.
    Unauthorized,
    /// The port has no credentials, and the request's network is not trusted.
    UntrustedNetwork,
    /// The request has the credentials of the user who may only read, and changes something.
    ReadOnly,
}

/// The access rules of a port's paths, and the response to a rejected request.
#[derive(Clone, Copy, Debug)]
pub struct AccessRules {
    /// The requirement of a method and path.
    pub requirement: fn(&Method, &str) -> Requirement,
    /// The response to a rejected request for a path.
    pub rejection: fn(&AccessPolicy, Denial, &str) -> Response,
    /// Whether a request with this method and path may change something: it is audited, and
    /// rejected for the user who may only read and for links from other sites. By default every
    /// method but `GET`, `HEAD` and `OPTIONS` may.
    pub changes: fn(&Method, &str) -> bool,
    /// Whether a path opens an event stream. Streams have a budget of their own and do not count
    /// against [`Limits::max_requests`](crate::Limits::max_requests).
    pub is_stream: fn(&str) -> bool,
    /// The header of a response that names what the request has started; its values are part of the
    /// audit event.
    pub audited_header: Option<&'static str>,
}

/// A trusted network or credentials for every path, and JSON bodies that name the settings.
impl Default for AccessRules {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl AccessRules {
    /// A trusted network or credentials for every path, and JSON bodies that name the settings.
    pub const DEFAULT: Self = Self {
        requirement: |_, _| Requirement::NetworkOrCredentials,
        rejection: |policy, denial, _| policy.rejection(denial).into_response(),
        changes: |method, _| !only_reads(method),
        is_stream: |_| false,
        audited_header: None,
    };
}

/// Credentials and trusted networks of one port.
#[derive(Clone, Debug)]
pub struct AccessPolicy {
    pub(crate) section: &'static str,
    pub(crate) credential_keys: [&'static str; 2],
    pub(crate) credentials: Option<Credentials>,
    /// The user who may only read.
    pub(crate) reader: Option<Credentials>,
    pub(crate) networks: Vec<IpNet>,
    /// The key of the daemons that forward requests to the port.
    pub(crate) daemon_key: Option<DaemonKey>,
}

impl AccessPolicy {
    /// Checks a request, which may change something or not (`changes`). A request without the
    /// address of its client, from a router that `serve` does not serve, comes from no
    /// trusted network.
    ///
    /// # Errors
    /// Why the request is rejected.
    pub fn check(&self, requirement: Requirement, changes: bool, request: &Request) -> Result<(), Denial> {
        match (requirement, self.authenticate(request)) {
            (_, Authentication::Reader(_)) if changes => Err(Denial::ReadOnly),
            (Requirement::Nothing, _) | (_, Authentication::Full(_) | Authentication::Reader(_)) => Ok(()),
            (_, Authentication::Invalid) => Err(Denial::Unauthorized),
            (Requirement::NetworkOrCredentials, _)
            | (Requirement::Credentials, Authentication::NoneConfigured)
                if self.trusts_network_of(request) =>
            {
                Ok(())
            }
            (_, Authentication::Missing) => Err(Denial::Unauthorized),
            (_, Authentication::NoneConfigured) => Err(Denial::UntrustedNetwork),
        }
    }

    /// Compares the request with both pairs of credentials, even if the first one matches, so that
    /// the time does not reveal which one did. A request that a daemon vouches for has the rights
    /// that the daemon states.
    pub(super) fn authenticate<'a>(&'a self, request: &'a Request) -> Authentication<'a> {
        if let Some(Vouched(caller)) = request.extensions().get() {
            let user = caller.user.as_deref().unwrap_or_default();
            return match caller.authority {
                Authority::Credentials if caller.read_only => Authentication::Reader(user),
                Authority::Credentials => Authentication::Full(user),
                Authority::Network | Authority::Nothing
                    if self.credentials.is_none() && self.reader.is_none() =>
                {
                    Authentication::NoneConfigured
                }
                Authority::Network | Authority::Nothing => Authentication::Missing,
            };
        }
        let compared = |credentials: &Option<Credentials>| {
            let credentials = credentials.as_ref();
            credentials.map(|credentials| credentials.presented(request.headers()))
        };
        match (compared(&self.credentials), compared(&self.reader)) {
            (None, None) => Authentication::NoneConfigured,
            (Some(Presented::Valid), _) => {
                Authentication::Full(self.credentials.as_ref().map_or("", |it| &it.username))
            }
            (_, Some(Presented::Valid)) => {
                Authentication::Reader(self.reader.as_ref().map_or("", |it| &it.username))
            }
            (Some(Presented::Missing), _) | (_, Some(Presented::Missing)) => Authentication::Missing,
            _ => Authentication::Invalid,
        }
    }

    pub(super) fn trusts_network_of(&self, request: &Request) -> bool {
        if let Some(Vouched(caller)) = request.extensions().get() {
            return caller.authority == Authority::Network;
        }
        peer(request).is_some_and(|peer| is_within(&self.networks, peer.ip()))
    }

    /// The client of a request that the policy allows.
    pub fn caller(&self, request: &Request) -> Caller {
        Caller::of(
            self.authenticate(request),
            self.trusts_network_of(request),
            request,
        )
    }

    /// The default rejection: 401 with a challenge, or 403, and the settings to change.
    pub fn rejection(&self, denial: Denial) -> ApiError {
        let (section, [user, password]) = (self.section, self.credential_keys);
        match denial {
            Denial::Unauthorized => {
                let text = format!(
                    "This port requires the user and the password of the configuration (`{section}.{user}` and \
                     `{section}.{password}`)."
                );
                ApiError::new(StatusCode::UNAUTHORIZED, text).header(header::WWW_AUTHENTICATE, CHALLENGE)
            }
            Denial::UntrustedNetwork => {
                let text = format!(
                    "Requests from this network are not allowed. Add it to `{section}.trusted_networks` in the \
                     configuration, or set `{section}.{user}` and `{section}.{password}`."
                );
                ApiError::new(StatusCode::FORBIDDEN, text)
            }
            Denial::ReadOnly => {
                let text = format!(
                    "This user may only read. Requests that change something need the user of the configuration \
                     (`{section}.{user}` and `{section}.{password}`)."
                );
                ApiError::new(StatusCode::FORBIDDEN, text)
            }
        }
    }

    /// Passes only requests that the policy allows, with their [`Caller`], and writes an audit
    /// event for each that may change something.
    pub fn protect(self, router: Router, rules: AccessRules) -> Router {
        let guesses = Arc::new(Guesses::new(self.section));
        let log = Arc::new(Throttle::of_rejections());
        let policy = Arc::new(self);
        router.layer(middleware::from_fn(move |mut request: Request, next: Next| {
            let (policy, guesses, log) = (Arc::clone(&policy), Arc::clone(&guesses), Arc::clone(&log));
            async move {
                accept_statement(policy.daemon_key.as_ref(), policy.section, &mut request);
                let client = policy.guesser(&request);
                if let Some(rejection) = client.and_then(|client| guesses.rejection(client)) {
                    return rejection;
                }
                let (method, path) = (request.method(), request.uri().path());
                let (requirement, changes) =
                    ((rules.requirement)(method, path), (rules.changes)(method, path));
                if let Err(denial) = policy.check(requirement, changes, &request) {
                    if let Some(suppressed) = log.pass() {
                        tracing::warn!(
                            port = policy.section,
                            peer = peer(&request).map(tracing::field::display),
                            path = truncated(request.uri().path()),
                            reason = ?denial,
                            suppressed,
                            "request rejected"
                        );
                    }
                    let rejection = (rules.rejection)(&policy, denial, request.uri().path());
                    return match (client, policy.authenticate(&request)) {
                        (Some(client), Authentication::Invalid) => guesses.failed(client, rejection).await,
                        _ => rejection,
                    };
                }
                let caller = policy.caller(&request);
                let owner = policy.owner(&caller);
                if let Some(client) = client
                    && caller.authority == Authority::Credentials
                {
                    guesses.succeeded(client);
                }
                request.extensions_mut().insert(owner);
                request.extensions_mut().insert(caller.clone());
                let audit = changes.then(|| Audit::begin(policy.section, caller, &request));
                let mut response = next.run(request).await;
                if let Some(audit) = audit {
                    audit.end(&response, rules.audited_header);
                }
                response.extensions_mut().insert(owner);
                response
            }
        }))
    }

    /// The address of a request whose credentials are to be compared. Those of a request that a daemon
    /// vouches for are not.
    fn guesser(&self, request: &Request) -> Option<IpAddr> {
        if request.extensions().get::<Vouched>().is_some() {
            return None;
        }
        let has_users = self.credentials.is_some() || self.reader.is_some();
        let has_credentials = request.headers().contains_key(header::AUTHORIZATION);
        let peer = peer(request).filter(|_| has_users && has_credentials);
        peer.map(|peer| peer.ip())
    }

    /// Whose share of the port's budgets a request uses.
    fn owner(&self, caller: &Caller) -> Owner {
        if caller.read_only {
            Owner::Reader
        } else if caller.user.is_some() || self.credentials.is_none() {
            Owner::Full
        } else {
            Owner::Anonymous
        }
    }
}

/// Whether requests with this method change nothing, by default; see [`AccessRules::changes`].
fn only_reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests may panic")]

    use axum::body::Body;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;
    use crate::{LoopbackTrust, PortConfig};
    use axum::extract::ConnectInfo;
    use std::net::SocketAddr;

    fn credentials() -> Credentials {
        Credentials {
            username: "u".to_owned(),
            password: "p".into(),
        }
    }

    fn policy(trust: LoopbackTrust, with_credentials: bool, networks: &[&str]) -> AccessPolicy {
        let networks: Vec<IpNet> = networks.iter().map(|network| network.parse().unwrap()).collect();
        let port = PortConfig {
            credentials: with_credentials.then(credentials),
            trusted_networks: (!networks.is_empty()).then_some(networks),
            loopback_trust: trust,
            ..PortConfig::new("apps", 0)
        };
        port.policy()
    }

    #[test]
    fn the_reader_may_read_wherever_credentials_are_needed_and_change_nothing() {
        let reader = Credentials {
            username: "r".to_owned(),
            password: "q".into(),
        };
        let authorization = reader.authorization();
        let port = PortConfig {
            credentials: Some(credentials()),
            reader: Some(reader),
            loopback_trust: LoopbackTrust::UnlessBoth,
            ..PortConfig::new("apps", 0)
        };
        let policy = port.policy();
        let ask = |method: &str, peer: &str, authorization: &str| {
            let peer = SocketAddr::new(peer.parse().unwrap(), 1);
            let request = Request::builder()
                .method(method)
                .header(header::AUTHORIZATION, authorization);
            request.extension(ConnectInfo(peer)).body(Body::empty()).unwrap()
        };
        for requirement in [
            Requirement::Nothing,
            Requirement::NetworkOrCredentials,
            Requirement::Credentials,
            Requirement::CredentialsAlways,
        ] {
            for peer in ["127.0.0.1", "192.0.2.1"] {
                for (method, expected) in [
                    ("GET", Ok(())),
                    ("HEAD", Ok(())),
                    ("OPTIONS", Ok(())),
                    ("POST", Err(Denial::ReadOnly)),
                    ("PUT", Err(Denial::ReadOnly)),
                    ("PATCH", Err(Denial::ReadOnly)),
                    ("DELETE", Err(Denial::ReadOnly)),
                    ("get", Err(Denial::ReadOnly)),
                ] {
                    let request = ask(method, peer, &authorization);
                    let changes = (AccessRules::DEFAULT.changes)(request.method(), "/");
                    let found = policy.check(requirement, changes, &request);
                    assert_eq!(found, expected, "{requirement:?} {method} {peer}");
                }
                let full = ask("DELETE", peer, &credentials().authorization());
                assert_eq!(policy.check(requirement, true, &full), Ok(()));
            }
        }
        let invalid = ask("GET", "192.0.2.1", "Basic cjpw");
        let found = policy.check(Requirement::NetworkOrCredentials, false, &invalid);
        assert_eq!(
            found,
            Err(Denial::Unauthorized),
            "the reader's name with the other password"
        );
        assert!(!format!("{port:?} {policy:?}").contains("\"q\""));
    }

    async fn status(policy: &AccessPolicy, peer: Option<&str>, authorization: Option<&str>) -> u16 {
        let router = Router::new().route("/", get(async || "hello"));
        let router = policy.clone().protect(router, AccessRules::default());
        let mut request = Request::new(Body::empty());
        if let Some(peer) = peer {
            let peer = SocketAddr::new(peer.parse().unwrap(), 1);
            request.extensions_mut().insert(ConnectInfo(peer));
        }
        if let Some(value) = authorization {
            let value = value.parse().unwrap();
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let answer = router.oneshot(request).await.unwrap();
        let challenged = answer.headers().contains_key(header::WWW_AUTHENTICATE);
        assert_eq!(challenged, answer.status() == StatusCode::UNAUTHORIZED);
        answer.status().as_u16()
    }

    #[tokio::test]
    async fn without_credentials_other_networks_are_rejected() {
        let policy = policy(LoopbackTrust::UnlessBoth, false, &["10.1.0.0/16", "fd00::/8"]);
        for (peer, expected) in [
            (Some("127.0.0.1"), 200),
            (Some("::1"), 200),
            (Some("::ffff:127.0.0.1"), 200),
            (Some("10.1.255.255"), 200),
            (Some("::ffff:10.1.0.1"), 200),
            (Some("fd12::1"), 200),
            (Some("10.2.0.1"), 403),
            (Some("2001:db8::1"), 403),
            (None, 403),
        ] {
            assert_eq!(status(&policy, peer, None).await, expected, "{peer:?}");
        }
    }

    #[tokio::test]
    async fn requests_are_answered_by_credentials_and_network() {
        use LoopbackTrust::{UnlessBoth, UnlessCredentials, UnlessNetworks};
        let valid = credentials().authorization();
        let (valid, invalid) = (Some(valid.as_str()), Some("Basic dTp4"));
        let (local, lan, remote) = ("127.0.0.1", "::ffff:10.0.0.1", "192.0.2.1");
        let some = &["10.0.0.0/8"][..];
        // Trust in local, credentials, networks; peer, credentials of the request: status.
        for (trust, with, networks, cases) in [
            (
                UnlessCredentials,
                false,
                &[][..],
                &[
                    (local, None, 200),
                    (lan, None, 403),
                    (remote, valid, 403),
                    (local, invalid, 200),
                ][..],
            ),
            (
                UnlessCredentials,
                false,
                some,
                &[
                    (local, None, 200),
                    (lan, None, 200),
                    (remote, None, 403),
                    (remote, valid, 403),
                ],
            ),
            (
                UnlessCredentials,
                true,
                &[],
                &[
                    (local, None, 401),
                    (local, valid, 200),
                    (remote, valid, 200),
                    (remote, invalid, 401),
                ],
            ),
            (
                UnlessCredentials,
                true,
                some,
                &[
                    (local, None, 401),
                    (lan, None, 200),
                    (lan, invalid, 401),
                    (remote, valid, 200),
                ],
            ),
            (
                UnlessBoth,
                true,
                &[],
                &[
                    (local, None, 200),
                    (local, invalid, 401),
                    (lan, None, 401),
                    (lan, valid, 200),
                ],
            ),
            (
                UnlessBoth,
                false,
                some,
                &[(local, None, 200), (lan, None, 200), (remote, valid, 403)],
            ),
            (
                UnlessBoth,
                true,
                some,
                &[
                    (local, None, 401),
                    (lan, None, 200),
                    (lan, invalid, 401),
                    (local, valid, 200),
                ],
            ),
            (
                UnlessNetworks,
                false,
                some,
                &[(local, None, 403), (lan, None, 200)],
            ),
            (UnlessNetworks, true, &[], &[(local, None, 200), (lan, None, 401)]),
        ] {
            let policy = policy(trust, with, networks);
            for (peer, authorization, expected) in cases {
                assert_eq!(
                    status(&policy, Some(peer), *authorization).await,
                    *expected,
                    "{trust:?}, credentials: {with}, {networks:?}, {peer}, {authorization:?}"
                );
            }
        }
    }

    #[test]
    fn requirement_of_a_path_determines_the_needed_credentials() {
        let loopback = || {
            let mut request = Request::new(Body::empty());
            let peer = SocketAddr::from(([127, 0, 0, 1], 1));
            request.extensions_mut().insert(ConnectInfo(peer));
            request
        };
        for (requirement, with, expected) in [
            (Requirement::Nothing, true, Ok(())),
            (Requirement::NetworkOrCredentials, true, Ok(())),
            (Requirement::Credentials, true, Err(Denial::Unauthorized)),
            (Requirement::Credentials, false, Ok(())),
            (Requirement::CredentialsAlways, true, Err(Denial::Unauthorized)),
            (
                Requirement::CredentialsAlways,
                false,
                Err(Denial::UntrustedNetwork),
            ),
        ] {
            let policy = policy(LoopbackTrust::UnlessBoth, with, &[]);
            let found = policy.check(requirement, true, &loopback());
            assert_eq!(found, expected, "{requirement:?}, credentials: {with}");
        }
    }
}
