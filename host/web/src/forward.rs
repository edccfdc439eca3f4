//! Forwards requests to the leader.
//!
//! The target is forwarded byte for byte: the URI for the leader has the parts of the request's URI,
//! and no text is parsed again. What this daemon has authorised is thus what the leader routes.

mod connector;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Uri, header};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use self::connector::Connector;
use crate::access::{self, CHECKED_HEADERS, Caller, Forwarded};
use crate::{ApiError, DaemonKey, Error, Result, request_trace};

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

/// How long a connection to the leader is kept for the next request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

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

/// Takes the place of the network between daemons, for simulations.
pub trait DaemonTransport: std::fmt::Debug + Send + Sync {
    /// Sends a request to `leader`, host and port.
    fn send(
        &self,
        leader: &str,
        request: Request<Body>,
    ) -> BoxFuture<'static, std::result::Result<Response, ForwardError>>;
}

/// Forwards requests, and streams the answers back. Cheap to clone.
///
/// A header lists the forwarding daemons, so that two daemons that forward to each other detect the
/// loop. More headers state the [`Caller`] to the leader and prove it.
#[derive(Clone, Debug)]
pub struct Forwarder {
    http: Client<Connector, Body>,
    via: HeaderName,
    own_name: HeaderValue,
    scheme: Scheme,
    /// The key of the daemons, and the section of the port.
    key: Option<(DaemonKey, &'static str)>,
    transport: Option<Arc<dyn DaemonTransport>>,
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
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| Error::Forwarder {
            own: own_name.to_owned(),
            source,
        };
        let connector = connector::new(issuers, Self::CONNECT_TIMEOUT).map_err(failed)?;
        let http = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_timer(TokioTimer::new())
            .build(connector);
        let own_name = HeaderValue::from_str(own_name).map_err(|error| failed(error.into()))?;
        let scheme = if issuers.is_some() {
            Scheme::HTTPS
        } else {
            Scheme::HTTP
        };
        Ok(Self {
            http,
            via,
            own_name,
            scheme,
            key: None,
            transport: None,
        })
    }

    /// Proves with the key of the daemons who sent a request to the port of `section`.
    #[must_use]
    pub fn proving(mut self, key: DaemonKey, section: &'static str) -> Self {
        self.key = Some((key, section));
        self
    }

    /// Sends requests with `transport` instead of over the network.
    #[must_use]
    pub fn over(mut self, transport: Arc<dyn DaemonTransport>) -> Self {
        self.transport = Some(transport);
        self
    }

    /// `https` if requests are forwarded over TLS, otherwise `http`.
    pub fn scheme(&self) -> &str {
        self.scheme.as_str()
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
        let target = head.uri.path_and_query();
        let uri = self
            .uri(leader, target)
            .ok_or_else(|| ForwardError::Unreachable(leader.to_owned()))?;
        let mut headers = end_to_end(&head.headers);
        headers.remove(header::HOST);
        // This daemon has checked the request's origin; the leader has another name and would
        // reject it.
        for name in CHECKED_HEADERS {
            headers.remove(name);
        }
        let key = self.key.as_ref().map(|(key, section)| (key, *section));
        let caller = head.extensions.get::<Caller>();
        access::state(caller, key, &head.method, &uri, &mut headers);
        headers.append(self.via.clone(), self.own_name.clone());
        request_trace::pass_on(&mut headers);
        let mut request = Request::new(Body::from(body));
        (*request.method_mut(), *request.uri_mut()) = (head.method.clone(), uri);
        *request.headers_mut() = headers;
        let answer = tokio::time::timeout(Self::ANSWER_TIMEOUT, self.send(leader, request)).await;
        let answer = answer.unwrap_or_else(|_| Err(ForwardError::Unanswered(leader.to_owned())))?;
        let (head, body) = answer.into_parts();
        let mut response = Response::new(body);
        *response.status_mut() = head.status;
        *response.headers_mut() = end_to_end(&head.headers);
        response
            .headers_mut()
            .append(self.via.clone(), self.own_name.clone());
        response.extensions_mut().insert(Forwarded);
        Ok(response)
    }

    async fn send(
        &self,
        leader: &str,
        request: Request<Body>,
    ) -> std::result::Result<Response, ForwardError> {
        if let Some(transport) = &self.transport {
            return transport.send(leader, request).await;
        }
        match self.http.request(request).await {
            Ok(answer) => Ok(answer.map(Body::new)),
            Err(error) => {
                let connected = !error.is_connect();
                tracing::warn!(
                    leader,
                    connected,
                    error = &error as &dyn std::error::Error,
                    "forwarding a request to the leader failed"
                );
                Err(if connected {
                    ForwardError::Unanswered(leader.to_owned())
                } else {
                    ForwardError::Unreachable(leader.to_owned())
                })
            }
        }
    }

    /// The URI of a target at `leader`. `None` if `leader` is not a host and port.
    fn uri(&self, leader: &str, target: Option<&PathAndQuery>) -> Option<Uri> {
        let root = || PathAndQuery::from_static("/");
        let uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(leader.parse::<Authority>().ok()?)
            .path_and_query(target.cloned().unwrap_or_else(root));
        uri.build().ok()
    }
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
