//! Serves a port until shutdown.

mod body_deadline;
mod rejections;
mod streams;
mod unread_body;
mod write_deadline;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use transom_common::error_chain;

use self::body_deadline::BodyLate;
use self::rejections::{Rejections, RequestActivity};
use self::streams::{CLOSE, Streams};
use self::write_deadline::WriteDeadline;
use crate::connections::LocalAddr;
use crate::json::{self, MaxBody};
use crate::text::truncated;
use crate::throttle::Throttle;
use crate::{
    ApiError, Certificate, ConnectionSlot, Connections, Error, Listener, Owner, Result, Shares, access,
    target,
};

/// The limits of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's body; more is 413.
    pub max_body: usize,
    /// Bytes of a request's head, at least 8192; more is 431.
    pub max_head: usize,
    /// The timeout of the first byte of a new connection, of each request's head, and between two
    /// requests.
    pub header_timeout: Duration,
    /// The timeout of each part of a request's body; 408.
    pub body_idle_timeout: Duration,
    /// The timeout of a request's whole body, also for a slow client with a large upload; 408.
    pub body_timeout: Duration,
    /// The timeout of a write, because the client does not read: in this time it has to read
    /// everything that was sent to it, or 256 KiB of it.
    pub write_timeout: Duration,
    /// The maximum number of connections without an event stream; further ones replace idle ones. See
    /// [`Connections`].
    pub max_connections: usize,
    /// The maximum number of event streams, of which each user has its [`Shares`]; further ones are
    /// rejected with 503. A connection is closed after its stream.
    pub max_streams: usize,
    /// The maximum number of requests that are handled at the same time, event streams not counted, of
    /// which each user has its [`Shares`]; further ones are rejected with 503. By default
    /// [`max_connections`](Self::max_connections). Enforced by [`PortConfig::protect`](crate::PortConfig).
    pub max_requests: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body: 8 << 20,
            max_head: 64 << 10,
            header_timeout: Duration::from_secs(30),
            body_idle_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_mins(10),
            write_timeout: Duration::from_secs(30),
            max_connections: 4096,
            max_streams: 4096,
            max_requests: None,
        }
    }
}

/// Ends a connection whose client does not keep up with an event stream; an extension of each
/// request. Ending the body is not enough: the connection closes only after the client has read
/// everything before the end.
#[derive(Clone, Debug, Default)]
pub struct Disconnect(CancellationToken);

impl Disconnect {
    /// Closes the connection in two seconds, in which the client can still read the end of the body.
    pub fn schedule(&self) {
        self.0.cancel();
    }

    /// Returns when the connection has to be closed.
    async fn elapsed(&self) {
        self.0.cancelled().await;
        tokio::time::sleep(LAST_WRITES_TIMEOUT).await;
    }
}

/// How long a client that is being disconnected can read what was already written.
const LAST_WRITES_TIMEOUT: Duration = Duration::from_secs(2);
/// The minimum size of hyper's buffer for heads.
const MIN_HEAD_BYTES: usize = 8192;
/// The timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long after its acceptance a connection may send its first request, even if the port stops.
const FIRST_REQUEST_GRACE: Duration = Duration::from_secs(2);
/// The interval of checks of the certificate's files.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// The pause after `accept` failed for lack of resources; an immediate retry would only use CPU.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Serves a router until `token` is cancelled. Then it accepts no more connections, closes idle
/// ones, ends event streams (`text/event-stream`), gives pending requests `grace` to finish, and
/// closes the rest. A connection that was just accepted still has two seconds for its first request,
/// because the client cannot know that it will not be answered.
///
/// HTTP/1.0 and 1.1, within TLS where the listener has a certificate. Handlers receive the client's
/// address as [`ConnectInfo`]`<SocketAddr>`.
pub async fn serve(
    listener: Listener,
    router: Router,
    limits: Limits,
    token: CancellationToken,
    grace: Duration,
) -> Result<()> {
    let (name, addr) = (listener.name, listener.local_addr());
    let mut certificate = listener.certificate;
    let acceptor = certificate.as_ref().map(Certificate::acceptor);
    let mut certificate_check = interval(CERTIFICATE_CHECK_INTERVAL);
    certificate_check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let listener =
        TcpListener::from_std(listener.socket).map_err(|source| Error::Bind { name, addr, source })?;
    tracing::info!(listener = name, %addr, tls = acceptor.is_some(), "listening");
    let router = judged(body_limited(router, limits.max_body), name);

    let places = Connections::new(name, limits.max_connections);
    let streams = Shares::new(name, "streams", limits.max_streams);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = token.cancelled() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            _ = certificate_check.tick(), if certificate.is_some() => {
                if let Some(certificate) = &mut certificate {
                    certificate.reload_if_changed().await;
                }
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, client)) => {
                let (slot, places, accepted) = (places.admit(client).await, places.clone(), Instant::now());
                let (router, acceptor, streams) = (router.clone(), acceptor.clone(), streams.clone());
                let token = token.clone();
                connections.spawn(async move {
                    let slot = match slot {
                        Some(slot) => Some(slot),
                        None => token.run_until_cancelled(places.wait(client)).await.flatten(),
                    };
                    let Some(slot) = slot else { return };
                    let connection = NewConnection {
                        addresses: ConnectionAddresses {
                            client,
                            local: stream.local_addr().unwrap_or(addr),
                        },
                        accepted,
                        limits,
                        token: token.clone(),
                        streams: Streams::new(streams, slot.clone(), token),
                        slot: slot.clone(),
                    };
                    tokio::select! {
                        () = connection.serve(stream, acceptor, router) => {}
                        () = slot.evicted() => {}
                    }
                });
            }
            Err(error) if is_client_error(&error) => {}
            // A place that is not used gives its file descriptor to the waiting connection.
            Err(error) if is_out_of_files(&error) && places.relieve() => tokio::task::yield_now().await,
            Err(error) => {
                tracing::warn!(listener = name, %error, "accepting connections failed; retrying");
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
            }
        }
    }
    drop(listener);

    let closing = async { while connections.join_next().await.is_some() {} };
    if timeout(grace, closing).await.is_err() {
        tracing::info!(
            listener = name,
            left = connections.len(),
            "closing connections that did not finish in time"
        );
        connections.shutdown().await;
    }
    Ok(())
}

/// Whether the connection broke before it was accepted, which is not an error of the listener.
fn is_client_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

/// Whether the process or the system has its maximum of open files (`EMFILE`, `ENFILE`).
fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(24 | 23))
}

/// A connection that has sent no request yet.
struct NewConnection {
    addresses: ConnectionAddresses,
    accepted: Instant,
    limits: Limits,
    token: CancellationToken,
    slot: ConnectionSlot,
    streams: Streams,
}

impl NewConnection {
    async fn serve(self, stream: TcpStream, acceptor: Option<TlsAcceptor>, router: Router) {
        let Some(stream) = self.wait_for_first_byte(stream).await else {
            return;
        };
        match acceptor {
            None => self.serve_requests(stream, router).await,
            Some(acceptor) => {
                if let Some(stream) = self.shake_hands(stream, acceptor).await {
                    self.serve_requests(stream, router).await;
                }
            }
        }
    }

    /// Waits for the first byte with a timeout, because hyper's own timer starts only then.
    async fn wait_for_first_byte(&self, stream: TcpStream) -> Option<TcpStream> {
        let mut first = [0];
        let first_byte = timeout(self.limits.header_timeout, stream.peek(&mut first));
        if !matches!(self.run_until_stopped(first_byte).await?, Ok(Ok(1..))) {
            return None;
        }
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(client = %self.addresses.client, %error, "cannot set TCP_NODELAY");
        }
        Some(stream)
    }

    /// Performs the TLS handshake, and then waits for the first decrypted byte with a timeout.
    async fn shake_hands(
        &self,
        stream: TcpStream,
        acceptor: TlsAcceptor,
    ) -> Option<BufReader<TlsStream<TcpStream>>> {
        let handshake = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream));
        let stream = match self.run_until_stopped(handshake).await? {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(client = %self.addresses.client, %error, "TLS handshake failed");
                return None;
            }
            Err(_) => {
                tracing::debug!(client = %self.addresses.client, "TLS handshake timeout");
                return None;
            }
        };
        let mut stream = BufReader::new(stream);
        let first_byte = timeout(self.limits.header_timeout, stream.fill_buf());
        let first_byte = matches!(self.run_until_stopped(first_byte).await?, Ok(Ok([_, ..])));
        first_byte.then_some(stream)
    }

    /// Runs a step until the port stops and, after its acceptance, [`FIRST_REQUEST_GRACE`] has passed.
    async fn run_until_stopped<T>(&self, step: impl Future<Output = T>) -> Option<T> {
        let mut step = std::pin::pin!(step);
        if let Some(done) = self.token.run_until_cancelled(step.as_mut()).await {
            return Some(done);
        }
        timeout_at(self.accepted + FIRST_REQUEST_GRACE, step).await.ok()
    }
}

/// The local and the remote address of a connection.
#[derive(Clone, Copy, Debug)]
struct ConnectionAddresses {
    client: SocketAddr,
    local: SocketAddr,
}

impl NewConnection {
    async fn serve_requests<S>(self, stream: S, router: Router)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (limits, stopping, activity) = (self.limits, self.token, RequestActivity::new(self.slot.clone()));
        let ConnectionAddresses { client, local } = self.addresses;
        let (slot, streams, disconnect) = (self.slot, self.streams, Disconnect::default());
        let request_disconnect = disconnect.clone();
        let max_head = limits.max_head.max(MIN_HEAD_BYTES);
        let stream = WriteDeadline::new(TokioIo::new(stream), limits.write_timeout);
        let stream = Rejections::new(stream, activity.clone(), max_head);
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let (head, body) = request.into_parts();
            let (body, unread) = unread_body::track(body, head.headers.contains_key(header::EXPECT));
            let (body, late) = body_deadline::bounded(body, limits);
            let mut request = Request::from_parts(head, body);
            let extensions = request.extensions_mut();
            extensions.insert(late);
            extensions.insert(ConnectInfo(client));
            extensions.insert(LocalAddr(local));
            extensions.insert(request_disconnect.clone());
            let (router, activity) = (router.clone(), activity.clone());
            let (slot, streams) = (slot.clone(), streams.clone());
            let may_begin = activity.begin();
            async move {
                if !may_begin {
                    return Err(io::Error::other("the connection is closed for another one"));
                }
                let method = request.method().clone();
                let Ok(mut response) = router.oneshot(request).await;
                if response.status() != StatusCode::REQUEST_TIMEOUT {
                    unread.discard().await;
                }
                let owner = response.extensions().get().copied();
                if matches!(owner, Some(Owner::Full | Owner::Reader)) {
                    slot.authenticated();
                }
                if matches!(
                    response.status(),
                    StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS
                ) {
                    // Rejected requests keep no connection open.
                    response.headers_mut().insert(header::CONNECTION, CLOSE);
                }
                let response = streams.pass(&method, owner.unwrap_or(Owner::Full), response);
                Ok(activity.end_with(response))
            }
        });
        let mut connection = std::pin::pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                // Marathon and Mesos-DNS write header names so, and some clients accept no other form.
                .title_case_headers(true)
                .header_read_timeout(limits.header_timeout)
                .max_buf_size(max_head)
                .serve_connection(stream, service)
        );
        let ended = tokio::select! {
            // The connection is polled first, so that it has read its first request when it is stopped:
            // hyper closes connections that have read nothing.
            biased;
            ended = connection.as_mut() => ended,
            () = stopping.cancelled() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = connection.as_mut() => ended,
                    () = disconnect.elapsed() => return,
                }
            }
            () = disconnect.elapsed() => return,
        };
        if let Err(error) = ended {
            tracing::debug!(%client, error = error_chain(&error), "connection lost");
        }
    }
}

/// Rejects invalid request targets, and takes the headers by which daemons name a client out of the
/// request: nothing sees them but the port's access policy.
fn judged(router: Router, port: &'static str) -> Router {
    let log = Arc::new(Throttle::of_rejections());
    router.layer(middleware::from_fn(move |mut request: Request, next: Next| {
        let log = Arc::clone(&log);
        async move {
            if let Err(error) = target::check_target(request.uri()) {
                if let Some(suppressed) = log.pass() {
                    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
                    tracing::warn!(
                        port,
                        peer = peer.map(|peer| tracing::field::display(peer.0)),
                        path = truncated(request.uri().path()),
                        reason = %error,
                        suppressed,
                        "request rejected"
                    );
                }
                return ApiError::from(error).into_response();
            }
            access::take_statement(&mut request);
            next.run(request).await
        }
    }))
}

/// Limits the bytes of a request's body on this router, on every port that serves it. Of several limits the
/// innermost one counts, and one that is larger than the port's has no effect.
pub fn body_limited(router: Router, max: usize) -> Router {
    router
        .layer(middleware::from_fn(move |mut request: Request, next: Next| {
            request.extensions_mut().insert(MaxBody(max));
            async move {
                let late = request.extensions().get::<BodyLate>().cloned();
                let response = reject_large_body(max, request, next).await;
                body_deadline::replaced(response, late.as_ref())
            }
        }))
        .layer(DefaultBodyLimit::max(max))
}

/// A body with a too large `Content-Length` is rejected before it is read, whether or not the
/// handler would read it.
async fn reject_large_body(max: usize, request: Request, next: Next) -> Response {
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let announced = announced
        .and_then(|length| length.to_str().ok())
        .and_then(|length| length.parse::<u64>().ok());
    if announced.is_some_and(|length| length > max as u64) {
        let text = json::too_large(Some(MaxBody(max)));
        return ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
    }
    let mut response = next.run(request).await;
    if response.status() == StatusCode::PAYLOAD_TOO_LARGE {
        // For the message: the innermost limit is the one that was exceeded.
        response.extensions_mut().get_or_insert(MaxBody(max));
    }
    response
}
