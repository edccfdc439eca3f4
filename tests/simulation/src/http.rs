//! Requests to the daemons' ports, of clients and of other daemons, which take time and get lost.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::response::Response;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use http::{Method, Request, header};
use rand::rngs::StdRng;
use tokio::sync::oneshot;
use tower::ServiceExt;
use transom_web::{DaemonTransport, ForwardError};

use crate::faults::{Faults, Peer};
use crate::process::Process;
use crate::store::{Fate, Messages, lock, take_due};

/// How long the sender of a request that got lost learns nothing: longer than anybody waits.
const SILENCE: Duration = Duration::from_mins(2);

/// A complete answer, or why there is none.
pub(crate) type Answer = Result<http::Response<Bytes>, ForwardError>;
type Reply = oneshot::Sender<Answer>;

/// A port of each daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Apps,
    Workflow,
    Kubernetes,
}

impl Port {
    /// The address of the port at a host.
    pub(crate) fn of(self, host: &str) -> String {
        match self {
            Self::Apps => format!("{host}:8080"),
            Self::Workflow => format!("{host}:11000"),
            Self::Kubernetes => format!("{host}:10000"),
        }
    }

    /// The daemon and the port of an address.
    fn at(address: &str) -> Option<(usize, Self)> {
        let (host, port) = address.split_once(':')?;
        let port = match port {
            "8080" => Self::Apps,
            "11000" => Self::Workflow,
            "10000" => Self::Kubernetes,
            _ => return None,
        };
        Some((host.strip_prefix("daemon-")?.parse().ok()?, port))
    }
}

#[derive(Debug)]
struct Call {
    /// The daemon that forwards it; none: a client sends it.
    from: Option<usize>,
    /// Host and port.
    to: String,
    request: Request<Bytes>,
    reply: Reply,
}

/// One daemon's way to the others.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    daemon: usize,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl DaemonTransport for Link {
    fn send(
        &self,
        leader: &str,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response, ForwardError>> {
        let (daemon, calls, to) = (self.daemon, Arc::clone(&self.calls), leader.to_owned());
        async move {
            let lost = ForwardError::Unanswered(to.clone());
            let (head, body) = request.into_parts();
            let body = to_bytes(body, usize::MAX).await.map_err(|_| lost.clone())?;
            let (reply, answer) = oneshot::channel();
            lock(&calls).push(Call {
                from: Some(daemon),
                to,
                request: Request::from_parts(head, body),
                reply,
            });
            answer
                .await
                .map_err(|_| lost)?
                .map(|answer| answer.map(Body::from))
        }
        .boxed()
    }
}

/// The new bytes of a stream, as text.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) text: String,
    pub(crate) has_ended: bool,
    /// Where the daemon has sent the client instead.
    pub(crate) location: Option<String>,
}

/// A response that a client reads while it is sent. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Stream(Arc<Mutex<Received>>);

impl Stream {
    pub(crate) fn take(&self) -> Received {
        std::mem::take(&mut *lock(&self.0))
    }
}

/// The daemon's end of a stream.
#[derive(Debug)]
struct Connection(Weak<Mutex<Received>>);

impl Connection {
    /// Returns whether the client is still connected.
    fn with(&self, change: impl FnOnce(&mut Received)) -> bool {
        let stream = self.0.upgrade();
        stream.is_some_and(|stream| {
            change(&mut lock(&stream));
            true
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.with(|received| received.has_ended = true);
    }
}

/// What daemons and clients have put there since the last step.
type Mailbox<T> = Arc<Mutex<Vec<T>>>;

/// All requests.
#[derive(Debug, Default)]
pub(crate) struct Http {
    sent: Mailbox<Call>,
    /// Requests for streams, with their addresses.
    opened: Mailbox<(String, Request<Bytes>, Connection)>,
    requests: Messages<(Call, Option<Duration>)>,
    /// Answers, with the time that they take unless they get lost.
    answered: Mailbox<(Reply, Option<Duration>, Answer)>,
    answers: Messages<(Reply, Answer)>,
    next: u64,
}

impl Http {
    pub(crate) fn connect(&self, daemon: usize) -> Link {
        Link {
            daemon,
            calls: Arc::clone(&self.sent),
        }
    }

    /// Sends the request of a client to an address. `body`: JSON.
    pub(crate) fn call(
        &self,
        to: &str,
        method: &Method,
        path: &str,
        body: &str,
    ) -> anyhow::Result<oneshot::Receiver<Answer>> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Bytes::copy_from_slice(body.as_bytes()))?;
        let (reply, answer) = oneshot::channel();
        lock(&self.sent).push(Call {
            from: None,
            to: to.to_owned(),
            request,
            reply,
        });
        Ok(answer)
    }

    /// Opens a stream of events after the event `last`.
    pub(crate) fn open(&self, to: &str, path: &str, last: Option<&str>) -> anyhow::Result<Stream> {
        let request = Request::builder()
            .uri(path)
            .header(header::ACCEPT, "text/event-stream")
            .header("last-event-id", last.unwrap_or_default())
            .body(Bytes::new())?;
        let received = Arc::default();
        let connection = Connection(Arc::downgrade(&received));
        lock(&self.opened).push((to.to_owned(), request, connection));
        Ok(Stream(received))
    }

    /// Delivers requests and answers. `daemon`: the process of a daemon and the routes of its port,
    /// if it runs and listens.
    pub(crate) fn step<'w>(
        &mut self,
        now: Duration,
        faults: &Faults,
        rng: &mut StdRng,
        daemon: impl Fn(usize, Port) -> Option<(&'w Process, Router)>,
    ) {
        let sent = std::mem::take(&mut *lock(&self.sent));
        for call in sent {
            let Some((target, _)) = Port::at(&call.to) else {
                self.answer(now, call.reply, Err(ForwardError::Unreachable(call.to)));
                continue;
            };
            let Fate { request, answer } = faults.fate_between(call.from, target, rng);
            match request {
                Some(delay) => {
                    self.next += 1;
                    self.requests.insert((now + delay, self.next), (call, answer));
                }
                None => self.answer(now + SILENCE, call.reply, Err(ForwardError::Unanswered(call.to))),
            }
        }
        while let Some((call, delay)) = take_due(&mut self.requests, now) {
            let found = Port::at(&call.to).and_then(|(number, port)| daemon(number, port));
            let Some((process, router)) = found else {
                self.answer(now, call.reply, Err(ForwardError::Unreachable(call.to)));
                continue;
            };
            let (to, answered, reply) = (call.to.clone(), Arc::clone(&self.answered), call.reply);
            let request = delivered(call.request, &call.to);
            // A daemon that is killed meanwhile drops the reply, as its connections end.
            process.spawn(async move {
                let Ok::<_, Infallible>(response) = router.oneshot(request).await;
                let (head, body) = response.into_parts();
                let body = to_bytes(body, usize::MAX).await;
                let answer = body.map(|body| http::Response::from_parts(head, body));
                let answer = answer.map_err(|_| ForwardError::Unanswered(to));
                lock(&answered).push((reply, delay, answer));
            });
        }
        let opened = std::mem::take(&mut *lock(&self.opened));
        for (to, request, connection) in opened {
            let found = Port::at(&to).filter(|(number, _)| faults.connects(Peer::Daemons, *number));
            // A connection that is rejected ends at once.
            if let Some((process, router)) = found.and_then(|(number, port)| daemon(number, port)) {
                process.spawn(respond(router, delivered(request, &to), connection));
            }
        }
        let answered = std::mem::take(&mut *lock(&self.answered));
        for (reply, delay, answer) in answered {
            if let Some(delay) = delay {
                self.answer(now + delay, reply, answer);
            } else {
                let lost = Err(ForwardError::Unanswered(String::new()));
                self.answer(now + SILENCE, reply, lost);
            }
        }
        while let Some((reply, answer)) = take_due(&mut self.answers, now) {
            // The sender may have died or given up.
            let _ = reply.send(answer);
        }
    }

    fn answer(&mut self, at: Duration, reply: Reply, answer: Answer) {
        self.next += 1;
        self.answers.insert((at, self.next), (reply, answer));
    }
}

/// Answers a request piece by piece.
async fn respond(router: Router, request: Request<Body>, connection: Connection) {
    let Ok::<_, Infallible>(response) = router.oneshot(request).await;
    let location = response.headers().get(header::LOCATION);
    if let Some(location) = location.and_then(|location| location.to_str().ok()) {
        connection.with(|received| received.location = Some(location.to_owned()));
        return;
    }
    let mut pieces = response.into_body().into_data_stream();
    while let Some(Ok(piece)) = pieces.next().await {
        let text = String::from_utf8_lossy(&piece);
        if !connection.with(|received| received.text.push_str(&text)) {
            return;
        }
    }
}

/// The request as the port receives it.
fn delivered(request: Request<Bytes>, to: &str) -> Request<Body> {
    let (mut head, body) = request.into_parts();
    // As a client of HTTP/1.1 sends it.
    if let Some(path) = head.uri.path_and_query().cloned() {
        head.uri = path.into();
    }
    if let Ok(host) = to.parse() {
        head.headers.entry(header::HOST).or_insert(host);
    }
    head.headers.insert(header::CONTENT_LENGTH, body.len().into());
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    head.extensions.insert(ConnectInfo(peer));
    Request::from_parts(head, Body::from(body))
}
