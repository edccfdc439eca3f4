//! Forwards requests to the leader.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::access::{CHECKED_HEADERS, CLIENT, Caller, USER};
use crate::{ApiError, Error, Result, request_trace};

/// The maximum number of daemons that forward a request.
const MAX_HOPS: usize = 3;

/// Headers that belong to one connection.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Why a request was not forwarded, or has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// Daemons forward to each other in a loop.
    #[error("This request was forwarded in a loop without reaching the leader. Try again later.")]
    Loop,
    /// The leader did not receive it, so it may be retried.
    #[error("The leader, {0}, cannot be reached. Try again later.")]
    Unreachable(String),
    /// The leader may have received it; the outcome is unknown.
    #[error("The leader, {0}, did not answer. The request may still take effect; check before retrying.")]
    Unanswered(String),
}

impl From<ForwardError> for ApiError {
    fn from(error: ForwardError) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, error.to_string())
    }
}

/// Forwards requests, and streams the answers back. Cheap to clone.
///
/// A header lists the forwarding daemons, so that two daemons that forward to each other detect the
/// loop. Two more headers pass the [`Caller`] to the leader.
#[derive(Clone, Debug)]
pub struct Forwarder {
    http: reqwest::Client,
    via: HeaderName,
    own_name: HeaderValue,
    scheme: &'static str,
}

impl Forwarder {
    /// The timeout of a connection to the leader.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    /// The timeout of the head of the leader's answer; longer than any wait of a handler.
    pub const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

    /// Forwards as `own_name`, this daemon's host and port, which is added to the header `via`.
    ///
    /// # Errors
    /// [`Error::Forwarder`] when `own_name` is no valid header value.
    pub fn new(via: HeaderName, own_name: &str) -> Result<Self> {
        Self::with_issuers(via, own_name, None)
    }

    /// Like [`new`](Self::new), but over TLS, to daemons whose certificates are one of `issuers`
    /// (PEM) or issued by one.
    ///
    /// # Errors
    /// [`Error::Forwarder`] when `own_name` is no valid header value, or `issuers` contains no
    /// certificates.
    pub fn secured(via: HeaderName, own_name: &str, issuers: &[u8]) -> Result<Self> {
        Self::with_issuers(via, own_name, Some(issuers))
    }

    fn with_issuers(via: HeaderName, own_name: &str, issuers: Option<&[u8]>) -> Result<Self> {
        // Fails if a provider is already installed, which is then used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| Error::Forwarder {
            own: own_name.to_owned(),
            source,
        };
        let trusted = issuers.map_or(Ok(Vec::new()), reqwest::Certificate::from_pem_bundle);
        let trusted = trusted.map_err(|error| failed(error.into()))?;
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Self::CONNECT_TIMEOUT)
            .tls_certs_only(trusted)
            .build()
            .map_err(|error| failed(error.into()))?;
        let own_name = HeaderValue::from_str(own_name).map_err(|error| failed(error.into()))?;
        let scheme = if issuers.is_some() { "https" } else { "http" };
        Ok(Self {
            http,
            via,
            own_name,
            scheme,
        })
    }

    /// `https` if requests are forwarded over TLS, otherwise `http`.
    pub fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// Forwards a request to `leader` (host and port) and returns its answer.
    ///
    /// # Errors
    /// After [`ForwardError::Unreachable`] a retry is safe; after the others it is not.
    pub async fn forward(
        &self,
        leader: &str,
        head: &Parts,
        body: Bytes,
    ) -> std::result::Result<Response, ForwardError> {
        let hops: Vec<&HeaderValue> = head.headers.get_all(&self.via).iter().collect();
        if hops.len() >= MAX_HOPS || hops.contains(&&self.own_name) {
            return Err(ForwardError::Loop);
        }
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut headers = end_to_end(&head.headers);
        headers.remove(header::HOST);
        // This daemon has checked the request's origin; the leader has another name and would
        // reject it.
        for name in CHECKED_HEADERS {
            headers.remove(name);
        }
        // The client's own values of these headers are removed: only this daemon names the client.
        for (name, value) in [CLIENT, USER].into_iter().zip(named(head.extensions.get())) {
            headers.remove(&name);
            if let Some(value) = value {
                headers.insert(name, value);
            }
        }
        headers.append(self.via.clone(), self.own_name.clone());
        request_trace::pass_on(&mut headers);
        let sending = self
            .http
            .request(head.method.clone(), format!("{}://{leader}{path}", self.scheme))
            .headers(headers)
            .body(body)
            .send();
        let answer = match tokio::time::timeout(Self::ANSWER_TIMEOUT, sending).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                let connected = !error.is_connect();
                tracing::warn!(
                    leader,
                    connected,
                    error = &error as &dyn std::error::Error,
                    "forwarding a request to the leader failed"
                );
                return Err(if connected {
                    ForwardError::Unanswered(leader.to_owned())
                } else {
                    ForwardError::Unreachable(leader.to_owned())
                });
            }
            Err(_) => return Err(ForwardError::Unanswered(leader.to_owned())),
        };
        let mut response = Response::new(Body::empty());
        *response.status_mut() = answer.status();
        *response.headers_mut() = end_to_end(answer.headers());
        response
            .headers_mut()
            .append(self.via.clone(), self.own_name.clone());
        *response.body_mut() = Body::from_stream(answer.bytes_stream());
        response.extensions_mut().insert(Forwarded);
        Ok(response)
    }
}

/// An extension of the response to a forwarded request: the leader has written its audit event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forwarded;

/// The values of the headers that name the client and its user. The user's name may have any
/// characters that a header can carry.
fn named(caller: Option<&Caller>) -> [Option<HeaderValue>; 2] {
    let client = caller.and_then(|caller| caller.client);
    let user = caller.and_then(|caller| caller.user.as_ref());
    [
        client.and_then(|client| HeaderValue::from_str(&client.to_string()).ok()),
        user.and_then(|user| HeaderValue::from_bytes(user.as_bytes()).ok()),
    ]
}

/// Removes the headers of one connection: the standard ones, and those that `Connection` names.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    headers
        .iter()
        .filter(|(name, _)| !HOP_BY_HOP.contains(name) && !named.contains(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
