//! The HTTP server of the master and the agents: connections, bodies, plain responses.

use crate::{
    config::Config,
    guard,
    shared::Shared,
    state::Port,
    wire::{
        recordio::{ConnectionCut, Event},
        schema,
    },
};
use base64::Engine;
use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, future::BoxFuture, stream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Collected, Full, Limited, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{net::TcpListener, sync::Semaphore};

/// A response body, either complete or streamed.
pub(crate) type Body = BoxBody<Bytes, ConnectionCut>;

/// A response that ends a request early.
#[derive(Debug)]
pub(crate) struct Rejection(Box<Response<Body>>);

/// The response to a request, or one that ended it early.
pub(crate) type HttpResult = Result<Response<Body>, Rejection>;

impl From<Response<Body>> for Rejection {
    fn from(response: Response<Body>) -> Self {
        Self(Box::new(response))
    }
}

impl Rejection {
    /// The response to send.
    pub(crate) fn into_response(self) -> Response<Body> {
        *self.0
    }
}

/// Maximum size of a request body.
const MAX_BODY_BYTES: usize = 8 << 20;
/// Maximum connections of each listener.
const MAX_CONNECTIONS: usize = 2048;
/// Timeout for the head, and between two requests of a connection.
const HEADER_TIMEOUT: Duration = Duration::from_mins(2);
/// Timeout for a body.
const BODY_TIMEOUT: Duration = Duration::from_mins(1);

/// Delay between the last bytes of a stream and the cut of its connection, so that the bytes are
/// delivered.
const CUT_DELAY: Duration = Duration::from_millis(50);
/// Maximum events of a stream that are delayed at the same time.
const MAX_DELAYED_EVENTS: usize = 1024;

/// Accepts connections until the cluster stops, then waits until the open ones have ended. Active
/// faults and the guard against web pages apply to each request before it is answered.
pub(crate) async fn serve<F>(listener: TcpListener, port: Port, shared: Arc<Shared>, handler: F)
where
    F: Fn(Arc<Shared>, Request<Incoming>) -> BoxFuture<'static, Response<Body>>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let token = shared.token.clone();
    let connections = tokio_util::task::TaskTracker::new();
    while let Some(Ok(permit)) = token
        .run_until_cancelled(Arc::clone(&permits).acquire_owned())
        .await
    {
        let socket = match token.run_until_cancelled(listener.accept()).await {
            None => break,
            Some(Ok((socket, _))) => socket,
            Some(Err(error)) => {
                // Most likely this process has no free file descriptors until other connections end.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (shared, port, handler) = (Arc::clone(&shared), port.clone(), handler.clone());
        connections.spawn(async move {
            let _permit = permit;
            // Events are small and must be sent without delay.
            let _ = socket.set_nodelay(true);
            connection(TokioIo::new(socket), port, shared, handler).await;
        });
    }
    connections.close();
    connections.wait().await;
}

async fn connection<F>(io: TokioIo<tokio::net::TcpStream>, port: Port, shared: Arc<Shared>, handler: F)
where
    F: Fn(Arc<Shared>, Request<Incoming>) -> BoxFuture<'static, Response<Body>>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let token = shared.token.clone();
    let local = io.inner().local_addr().ok();
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (shared, port, handler) = (Arc::clone(&shared), port.clone(), handler.clone());
        async move {
            // Requests to the faults page are exempt from faults.
            if !request.uri().path().starts_with("/minicluster/") {
                shared.wait_for_port(&port).await?;
            }
            if let Err((status, why)) = guard::check(&shared.access, &request, local) {
                return Ok(rejection(status, why).into_response());
            }
            Ok::<_, ConnectionCut>(handler(shared, request).await)
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .title_case_headers(true)
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(io, service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = token.cancelled() => {
            connection.as_mut().graceful_shutdown();
            // Streams end with the token; a client that does not read is dropped after a timeout.
            tokio::time::timeout(Duration::from_secs(2), connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

/// Reads a request's body; the error is the response to send.
pub(crate) async fn read_body(body: Incoming) -> Result<Bytes, Rejection> {
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(rejection(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("The body is larger than {MAX_BODY_BYTES} bytes"),
        )),
        Ok(Err(error)) => Err(rejection(
            StatusCode::BAD_REQUEST,
            format!("Failed to read the body: {error}"),
        )),
        Err(_) => Err(rejection(
            StatusCode::REQUEST_TIMEOUT,
            "The body did not arrive in time",
        )),
    }
}

/// Reads a call: a POST whose JSON body matches the message.
pub(crate) async fn read_call(
    message: &schema::Message,
    method: &Method,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Value, Rejection> {
    check_post(method)?;
    parse_call(message, headers, &read_body(body).await?)
}

pub(crate) fn check_post(method: &Method) -> Result<(), Rejection> {
    if method == Method::POST {
        return Ok(());
    }
    Err(not_allowed(method, &["POST"]))
}

/// Parses the body of a call.
pub(crate) fn parse_call(
    message: &schema::Message,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Value, Rejection> {
    check_content_type(headers)?;
    schema::read_body(message, "Call", body).map_err(|why| rejection(StatusCode::BAD_REQUEST, why))
}

/// The path without a trailing slash and without the prefix of the master (`/master`) or the agent.
pub(crate) fn route<'a>(path: &'a str, process: &str) -> &'a str {
    let path = path
        .strip_suffix('/')
        .filter(|path| !path.is_empty())
        .unwrap_or(path);
    path.strip_prefix(process)
        .filter(|rest| rest.starts_with('/'))
        .unwrap_or(path)
}

/// A response without body and type, as for successful calls.
pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(full_body(Bytes::new()));
    *response.status_mut() = status;
    response
}

/// A text response, as for all errors.
pub(crate) fn text(status: StatusCode, body: impl Into<String>) -> Response<Body> {
    with_content_type(status, "text/plain; charset=utf-8", body.into())
}

/// A text response that ends the request early.
pub(crate) fn rejection(status: StatusCode, body: impl Into<String>) -> Rejection {
    text(status, body).into()
}

/// A JSON document.
pub(crate) fn json(value: &Value) -> Response<Body> {
    with_content_type(StatusCode::OK, "application/json", value.to_string())
}

/// A JSON document; as a call of the function that the query parameter `jsonp` names, if there is one.
pub(crate) fn json_or_jsonp(document: &Value, query: &BTreeMap<String, String>) -> Response<Body> {
    match query.get("jsonp") {
        Some(callback) => with_content_type(
            StatusCode::OK,
            "text/javascript",
            format!("{callback}({document});"),
        ),
        None => json(document),
    }
}

/// A response with this content type.
pub(crate) fn with_content_type(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(full_body(body.into()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A response whose body is not a stream.
pub(crate) fn complete(response: Response<Body>) -> Response<Bytes> {
    let (parts, body) = response.into_parts();
    let body = body.collect().now_or_never().and_then(Result::ok);
    Response::from_parts(parts, body.map(Collected::to_bytes).unwrap_or_default())
}

fn full_body(body: Bytes) -> Body {
    Full::new(body).map_err(|never| match never {}).boxed()
}

/// A response with the status and text of the reply. Without a text it has no content type.
pub(crate) fn reply(reply: &crate::state::Reply) -> Response<Body> {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if reply.body.is_empty() {
        empty(status)
    } else {
        text(status, reply.body.clone())
    }
}

pub(crate) fn not_found() -> Rejection {
    rejection(StatusCode::NOT_FOUND, "404 Not Found.")
}

pub(crate) fn not_allowed(method: &Method, allowed: &[&str]) -> Rejection {
    let expected = allowed.join("', '");
    let mut response = text(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("405 Method Not Allowed. Expecting one of {{ '{expected}' }}, but received '{method}'."),
    );
    if let Ok(allowed) = HeaderValue::from_str(&allowed.join(", ")) {
        response.headers_mut().insert(header::ALLOW, allowed);
    }
    response.into()
}

/// A chunked response in which each item is one chunk. It ends when the stream ends or the cluster
/// stops; an error closes the connection.
pub(crate) fn stream_response(
    content_type: &'static str,
    chunks: impl Stream<Item = Event> + Send + Sync + 'static,
    shared: &Arc<Shared>,
) -> Response<Body> {
    let token = shared.token.clone();
    let shared = Arc::clone(shared);
    let frames = chunks
        .map(move |chunk| {
            let delay = shared.delay();
            let wait = if chunk.is_err() { delay + CUT_DELAY } else { delay };
            let until = tokio::time::Instant::now() + wait;
            async move {
                if !wait.is_zero() {
                    tokio::time::sleep_until(until).await;
                }
                chunk.map(Frame::data)
            }
        })
        .buffered(MAX_DELAYED_EVENTS)
        .take_until(token.cancelled_owned());
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(frames)));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A stream of the items of a queue. `ended` runs when the client disconnects or the queue is closed.
pub(crate) fn queue_stream<T: Send + Sync>(
    events: tokio::sync::mpsc::Receiver<T>,
    ended: impl FnOnce() + Send + Sync + 'static,
) -> impl Stream<Item = T> + Send + Sync {
    struct Guard<F: FnOnce()>(Option<F>);
    impl<F: FnOnce()> Drop for Guard<F> {
        fn drop(&mut self) {
            if let Some(ended) = self.0.take() {
                ended();
            }
        }
    }
    stream::unfold((events, Guard(Some(ended))), |(mut events, guard)| async move {
        let event = events.recv().await?;
        Some((event, (events, guard)))
    })
}

/// The decoded query; the last parameter of a name wins. Without [`Config::jsonp`], `jsonp` is
/// ignored like an unknown parameter.
///
/// [`Config::jsonp`]: crate::Config::jsonp
pub(crate) fn query(config: &Config, uri: &http::Uri) -> BTreeMap<String, String> {
    let mut query = form(uri.query().unwrap_or_default());
    if !config.jsonp {
        query.remove("jsonp");
    }
    query
}

/// A form or query string.
pub(crate) fn form(text: &str) -> BTreeMap<String, String> {
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
        .collect()
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        let hex = tail
            .get(..2)
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (first, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            (b'+', _) => bytes.push(b' '),
            (other, _) => bytes.push(*other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Rejects bodies that are not JSON: the type must be exactly `application/json`, without
/// parameters.
pub(crate) fn check_content_type(headers: &HeaderMap) -> Result<(), Rejection> {
    let reject = |status, body: &str| Err(rejection(status, body));
    match headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes) {
        None => reject(StatusCode::BAD_REQUEST, "Expecting 'Content-Type' to be present"),
        Some(b"application/json") => Ok(()),
        Some(b"application/x-protobuf") => reject(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "This cluster speaks application/json only",
        ),
        Some(_) => reject(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "Expecting 'Content-Type' of application/json or application/x-protobuf",
        ),
    }
}

/// Rejects bodies of another type than `expected` on a route whose real counterpart reads no type.
/// Its clients send the expected one or none.
pub(crate) fn check_plain_type(headers: &HeaderMap, expected: &str) -> Result<(), Rejection> {
    let is_expected = |value: &HeaderValue| {
        let essence = value.to_str().unwrap_or_default().split(';').next();
        essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case(expected))
    };
    if headers.get_all(header::CONTENT_TYPE).iter().all(is_expected) {
        return Ok(());
    }
    Err(rejection(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        format!("Expecting 'Content-Type' of {expected}, or none"),
    ))
}

/// Whether the client accepts a type. No `Accept` accepts everything; weights are ignored.
pub(crate) fn accepts(headers: &HeaderMap, content_type: &str) -> bool {
    let family = content_type.split('/').next().unwrap_or_default();
    let mut accept_values = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .peekable();
    accept_values.peek().is_none()
        || accept_values
            .flat_map(|value| value.split(','))
            .map(|one| one.split(';').next().unwrap_or_default().trim())
            .any(|one| {
                one == content_type
                    || one == "*/*"
                    || one.strip_suffix("/*").is_some_and(|prefix| prefix == family)
            })
}

/// Rejects clients that do not accept JSON.
pub(crate) fn check_accept(headers: &HeaderMap) -> Result<(), Rejection> {
    if accepts(headers, "application/json") {
        return Ok(());
    }
    Err(rejection(
        StatusCode::NOT_ACCEPTABLE,
        "Expecting 'Accept' to allow 'application/x-protobuf' or 'application/json'",
    ))
}

/// The principal of the client: `Ok(None)` if the cluster requires no credentials, the principal if
/// the credentials are valid, otherwise the 401 response.
pub(crate) fn authenticate(
    config: &Config,
    headers: &HeaderMap,
    realm: &str,
) -> Result<Option<String>, Rejection> {
    if config.credentials.is_empty() {
        return Ok(None);
    }
    let credentials = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Basic "))
        .and_then(|encoded| {
            base64::engine::general_purpose::STANDARD
                .decode(encoded.trim())
                .ok()
        })
        .and_then(|decoded| String::from_utf8(decoded).ok());
    let authenticated = credentials
        .as_deref()
        .and_then(|credentials| credentials.split_once(':'))
        .filter(|(principal, secret)| {
            config
                .credentials
                .iter()
                .any(|(known_principal, known_secret)| known_principal == principal && known_secret == secret)
        });
    if let Some((principal, _)) = authenticated {
        return Ok(Some(principal.to_owned()));
    }
    let mut response = text(StatusCode::UNAUTHORIZED, "401 Unauthorized.");
    if let Ok(challenge) = HeaderValue::from_str(&format!("Basic realm=\"{realm}\"")) {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    Err(response.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_header_matches_exact_types_and_wildcards() {
        let cases = [
            (None, true),
            (Some("*/*"), true),
            (Some("application/json;q=0.5, application/x-protobuf;q=0.9"), true),
            (Some("application/*"), true),
            (Some("application/recordio"), false),
            (Some("text/html"), false),
        ];
        for (accept, expected) in cases {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            }
            assert_eq!(accepts(&headers, "application/json"), expected, "{accept:?}");
        }
    }

    #[test]
    fn queries_are_decoded() {
        let query = form("path=%2Fa%20b+c&x&y=%zz");
        assert_eq!(query["path"], "/a b c");
        assert_eq!(query["x"], "");
        assert_eq!(query["y"], "%zz");
    }
}
