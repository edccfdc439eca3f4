//! Who may ask what.
//!
//! | asked for | credentials configured | none configured |
//! |---|---|---|
//! | queueing, look-ups | from trusted networks nobody is asked, from others credentials are | trusted networks only |
//! | ending a job | credentials | trusted networks only |
//! | `/v0/dags` | credentials | nobody |
//!
//! The published operator sends no credentials, which is why trusted networks need none to queue and look up.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, Method, StatusCode, header};
use ipnet::IpNet;
use ring::digest;

use super::{Api, plain};
use crate::config::Credentials;

/// What upstream says, whatever is wrong.
const TEXT: &str = "Unauthorized Access";
const CHALLENGE: &str = "Basic realm=\"Authentication Required\"";

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Credentials, or an address that is trusted.
    Either,
    /// Credentials; where none are configured, an address that is trusted.
    Credentials,
    /// Credentials, in any case.
    CredentialsAlways,
}

fn need(method: &Method, path: &str) -> Need {
    if path.trim_end_matches('/') == "/v0/dags" {
        Need::CredentialsAlways
    } else if method == Method::DELETE {
        Need::Credentials
    } else {
        Need::Either
    }
}

/// Lets through who may ask.
pub(super) async fn ask_for_credentials(State(api): State<Api>, request: Request, next: Next) -> Response {
    let known = api
        .0
        .config
        .credentials
        .as_ref()
        .map(|credentials| is_known(credentials, request.headers()));
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let peer = peer.map(|peer| peer.0.ip());
    let trusted = peer.is_some_and(|peer| is_within(&api.0.trusted, peer));
    let may = match (need(request.method(), request.uri().path()), known) {
        (_, Some(true)) => true,
        (Need::Either, _) | (Need::Credentials, None) => trusted,
        (Need::Credentials | Need::CredentialsAlways, _) => false,
    };
    if may {
        return next.run(request).await;
    }
    tracing::info!(
        ?peer,
        path = request.uri().path(),
        configured = known.is_some(),
        "a request without valid credentials was refused"
    );
    let mut refusal = (StatusCode::UNAUTHORIZED, plain(TEXT)).into_response();
    refusal.headers_mut().insert(
        header::WWW_AUTHENTICATE,
        header::HeaderValue::from_static(CHALLENGE),
    );
    refusal
}

/// Compares in a time that does not depend on what is right about it.
fn is_known(credentials: &Credentials, headers: &HeaderMap) -> bool {
    let Some(shown) = shown(headers) else { return false };
    let expected = format!("{}:{}", credentials.username, credentials.password);
    let of = |text: &[u8]| digest::digest(&digest::SHA256, text);
    let (shown, expected) = (of(&shown), of(expected.as_bytes()));
    let differing = shown
        .as_ref()
        .iter()
        .zip(expected.as_ref())
        .fold(0, |differing, (a, b)| differing | (a ^ b));
    differing == 0
}

/// `user:password`, as shown.
fn shown(headers: &HeaderMap) -> Option<Vec<u8>> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = text.trim().split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("basic")
        .then(|| STANDARD.decode(rest.trim()).ok())
        .flatten()
}

/// What a daemon of this site shows another one.
pub(super) fn authorization(credentials: &Credentials) -> String {
    let text = format!("{}:{}", credentials.username, credentials.password);
    format!("Basic {}", STANDARD.encode(text))
}

/// Whether an address belongs to one of the networks.
fn is_within(networks: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    networks.iter().any(|network| network.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs() {
        for (method, path, expected) in [
            (Method::POST, "/v0/queue_command", Need::Either),
            (Method::GET, "/v0/task/x", Need::Either),
            (Method::GET, "/v0/task/x/log", Need::Either),
            (Method::GET, "/v0/events", Need::Either),
            (Method::GET, "/v0/queue", Need::Either),
            (Method::GET, "/v0/agent/x", Need::Either),
            (Method::DELETE, "/v0/task/x", Need::Credentials),
            (Method::GET, "/v0/dags", Need::CredentialsAlways),
            (Method::GET, "/v0/dags/", Need::CredentialsAlways),
            (Method::DELETE, "/v0/dags", Need::CredentialsAlways),
        ] {
            assert_eq!(need(&method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn credentials_are_compared_whole() {
        let credentials = Credentials {
            username: "user".to_owned(),
            password: "pass:word".to_owned(),
        };
        let with = |value: String| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            is_known(&credentials, &headers)
        };
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        assert!(with(authorization(&credentials)));
        assert!(with(basic("user:pass:word").replace("Basic", "basic")));
        for wrong in [
            basic("user:pass"),
            basic("user:pass:wordy"),
            basic("User:pass:word"),
            basic(""),
            "Basic !".to_owned(),
            "Bearer x".to_owned(),
            "Basic".to_owned(),
        ] {
            assert!(!with(wrong.clone()), "{wrong}");
        }
        assert!(!is_known(&credentials, &HeaderMap::new()));
    }
}
