//! DNS over HTTPS (RFC 8484): GET and POST of `/dns-query`, HTTP/1.1 and HTTP/2 on one port.
//!
//! The TLS handshake chooses the version (ALPN). A query is answered as over TCP, except zone
//! transfers, which are a series of messages. Everything is bounded: connections ([`super::tls`]),
//! requests in flight on each, heads, bodies and every wait ([`ConnectionLimits`]).

mod activity;
mod freshness;
mod request;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transom_web::ConnectionSlot;

use super::connection::ConnectionLimits;
use crate::dns::respond::{Client, Reply, Respond, Transport};
use activity::Activity;
use request::Rejection;

/// The maximum size of a request's head; a longer one is rejected with 431.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Bytes of a request's body that are buffered before they are read: the maximum of a message.
const STREAM_WINDOW_BYTES: u32 = 1 << 16;
/// The same for all requests of a connection.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 18;
/// Requests that a client sent and cancelled before they were accepted; more end the connection.
const MAX_CANCELLED_REQUESTS: usize = 20;
/// The media type of queries and answers.
const DNS_MESSAGE: &str = "application/dns-message";

/// The limits of a connection. Clients of DNS over HTTPS send more queries at a time than those of
/// TCP.
pub const LIMITS: ConnectionLimits = ConnectionLimits {
    query_timeout: Duration::from_secs(10),
    write_timeout: Duration::from_secs(4),
    max_inflight: 32,
};

/// Serves requests until the client closes the connection or is idle, or the token is cancelled.
/// Requests received by then are still answered.
///
/// [`ConnectionLimits::query_timeout`] is for a whole request to arrive, since the connection or
/// the last response; `write_timeout` for the connection to end after that; `max_inflight` bounds
/// the requests of an HTTP/2 connection. The slot is busy while requests are in flight.
pub async fn serve_requests<R: Respond>(
    stream: TlsStream<TcpStream>,
    client: SocketAddr,
    respond: Arc<R>,
    limits: ConnectionLimits,
    slot: ConnectionSlot,
    token: &CancellationToken,
) {
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let client = Client::new(client.ip(), Transport::Tcp);
    let activity = Activity::new(slot.clone());
    let service = service_fn(|request: Request<Incoming>| {
        let (respond, in_flight) = (Arc::clone(&respond), activity.begin());
        async move {
            let is_head = request.method() == Method::HEAD;
            let mut response = match request::query(request, limits.query_timeout).await {
                Ok(query) => answer(&query, client, &*respond).await,
                Err(rejection) => rejection.response(),
            };
            if is_head {
                *response.body_mut() = Full::default();
            }
            drop(in_flight);
            Ok::<_, Infallible>(response)
        }
    });
    let idle = activity.idle(limits.query_timeout);
    let idle = async move {
        tokio::select! { () = idle => {}, () = slot.evicted() => {} }
    };
    let io = TokioIo::new(stream);
    if is_http2 {
        let requests = Requests::default();
        let mut builder = http2::Builder::new(requests.clone());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.max_inflight as u32)
            .max_header_list_size(MAX_HEAD_BYTES as u32)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_pending_accept_reset_streams(MAX_CANCELLED_REQUESTS);
        let connection = builder.serve_connection(io, service);
        let close = |connection: Pin<&mut _>| http2::Connection::graceful_shutdown(connection);
        serve_until_idle(connection, close, idle, limits, token).await;
        requests.end().await;
    } else {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(limits.query_timeout)
            .max_header_size(MAX_HEAD_BYTES);
        let connection = builder.serve_connection(io, service);
        let close = |connection: Pin<&mut _>| http1::Connection::graceful_shutdown(connection);
        serve_until_idle(connection, close, idle, limits, token).await;
    }
}

/// Serves a connection; when it is idle or the daemon stops, ends it with `close`.
async fn serve_until_idle<C: Future<Output = hyper::Result<()>>>(
    connection: C,
    close: impl FnOnce(Pin<&mut C>),
    idle: impl Future<Output = ()>,
    limits: ConnectionLimits,
    token: &CancellationToken,
) {
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = async { tokio::select! { () = idle => {}, () = token.cancelled() => {} } } => {
            close(connection.as_mut());
            timeout(limits.write_timeout, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection of DNS over HTTPS ended with an error");
    }
}

/// Answers a query with a DNS message of any response code, or rejects it with an HTTP status.
async fn answer<R: Respond>(query: &[u8], client: Client, respond: &R) -> Response<Full<Bytes>> {
    let mut answer = Vec::with_capacity(512);
    match respond.respond(query, client, &mut answer) {
        Reply::Written => {}
        Reply::Later(later) => answer = later.await,
        Reply::Last | Reply::Silence => return Rejection::NoQuery.response(),
        Reply::Messages(_) => return Rejection::Transfer.response(),
    }
    if answer.is_empty() {
        return Rejection::NoQuery.response();
    }
    if !respond.is_within_rate(client, &answer) {
        return Rejection::TooMany.response();
    }
    let cache_control = freshness::cache_control(&answer);
    let mut response = Response::new(Full::from(answer));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(DNS_MESSAGE));
    headers.insert(header::CACHE_CONTROL, cache_control);
    response
}

/// Owns the tasks of an HTTP/2 connection's requests.
#[derive(Clone, Debug, Default)]
struct Requests {
    tasks: TaskTracker,
    ended: CancellationToken,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Requests {
    fn execute(&self, request: F) {
        let ended = self.ended.clone();
        self.tasks.spawn(async move {
            ended.run_until_cancelled(request).await;
        });
    }
}

impl Requests {
    /// Cancels the requests that remain after their connection has ended.
    async fn end(self) {
        self.ended.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
