//! The connections between the daemons and the masters: requests, answers and event streams, which
//! take time and get lost.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use http::request::Parts;
use rand::rngs::StdRng;
use reqwest::Body;
use tokio::sync::{mpsc, oneshot};
use transom_cluster::{Exchange, Transport};
use transom_minicluster::simulated::{Answer, Cluster, ConnectionCut, Subscription};

use crate::faults::{Faults, Peer};
use crate::store::{Messages, lock, take_due};

/// The request header with the id of the stream that a call belongs to.
const STREAM_ID: &str = "mesos-stream-id";

type Reply = oneshot::Sender<io::Result<http::Response<Body>>>;

/// A request that a daemon has sent.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) daemon: usize,
    pub(crate) path: String,
    /// To whom; `None`: to a host name, which nobody has.
    address: Option<SocketAddr>,
    head: Parts,
    pub(crate) body: Bytes,
    reply: Reply,
}

/// How far a request has come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// It has been sent.
    Sent,
    /// The master has answered it; without a status, it has rejected the connection.
    Answered(Option<http::StatusCode>),
}

/// One daemon's side.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    daemon: usize,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Transport for Link {
    fn exchange(&self, request: reqwest::Request) -> Exchange {
        let (reply, answer) = oneshot::channel();
        let body = request.body().and_then(Body::as_bytes).unwrap_or_default();
        let body = Bytes::copy_from_slice(body);
        let (path, address) = (request.url().path().to_owned(), address(&request));
        // Every URL that a client can use is a URI.
        if let Ok(request) = http::Request::try_from(request) {
            lock(&self.requests).push(Request {
                daemon: self.daemon,
                path,
                address,
                head: request.into_parts().0,
                body,
                reply,
            });
        }
        // A request that gets lost, and whose reply is dropped, has no answer before its timeout.
        async move {
            match answer.await {
                Ok(answer) => answer,
                Err(_) => std::future::pending().await,
            }
        }
        .boxed()
    }
}

/// An event stream.
#[derive(Debug)]
struct Stream {
    daemon: usize,
    subscription: Subscription,
    body: mpsc::UnboundedSender<io::Result<Bytes>>,
    /// Whether the master has ended it while no bytes passed, so that the daemon is not told.
    is_half_open: bool,
    /// Records on their way, with the times at which they arrive.
    records: VecDeque<(Duration, Result<Bytes, ConnectionCut>)>,
}

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Network {
    sent: Arc<Mutex<Vec<Request>>>,
    requests: Messages<(Request, Option<Duration>)>,
    answers: Messages<(Reply, io::Result<http::Response<Body>>)>,
    streams: Vec<Stream>,
    next: u64,
}

impl Network {
    pub(crate) fn connect(&self, daemon: usize) -> Link {
        Link {
            daemon,
            requests: Arc::clone(&self.sent),
        }
    }

    /// Takes new requests, has the master answer those that have arrived, and delivers answers and
    /// records. `seen` is called for each stage of a request.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        cluster: &mut Cluster,
        time: Instant,
        faults: &Faults,
        rng: &mut StdRng,
        mut seen: impl FnMut(&Request, Stage),
    ) {
        let sent = std::mem::take(&mut *lock(&self.sent));
        for request in sent {
            seen(&request, Stage::Sent);
            let fate = faults.fate(Peer::Master, request.daemon, rng);
            if let Some(delay) = fate.request {
                self.next += 1;
                self.requests
                    .insert((now + delay, self.next), (request, fate.answer));
            }
        }
        while let Some((request, answer_delay)) = take_due(&mut self.requests, now) {
            // The daemon may have died, or have closed the connection.
            if request.reply.is_closed() {
                continue;
            }
            let answer = match request.address {
                Some(address) => cluster.answer(address, &request.head, &request.body, time),
                None => Answer::Refused,
            };
            let status = match &answer {
                Answer::Refused => None,
                Answer::Complete(response) => Some(response.status()),
                Answer::Stream(_) => Some(http::StatusCode::OK),
            };
            seen(&request, Stage::Answered(status));
            let response = match answer {
                Answer::Refused => Err(io::ErrorKind::ConnectionRefused.into()),
                Answer::Complete(response) => Ok(response.map(Body::from)),
                Answer::Stream(subscription) => Ok(self.open(request.daemon, subscription)),
            };
            if let Some(delay) = answer_delay {
                self.next += 1;
                self.answers
                    .insert((now + delay, self.next), (request.reply, response));
            }
        }
        while let Some((reply, response)) = take_due(&mut self.answers, now) {
            let _ = reply.send(response);
        }
        self.deliver(now, cluster, time, faults, rng);
    }

    fn open(&mut self, daemon: usize, subscription: Subscription) -> http::Response<Body> {
        let (body, records) = mpsc::unbounded_channel();
        let records =
            futures::stream::unfold(records, |mut records: mpsc::UnboundedReceiver<_>| async move {
                records.recv().await.map(|record| (record, records))
            });
        let mut response = http::Response::new(Body::wrap_stream(records));
        if let Some(Ok(id)) = subscription.stream_id.as_ref().map(|id| id.parse()) {
            response.headers_mut().insert(STREAM_ID, id);
        }
        self.streams.push(Stream {
            daemon,
            subscription,
            body,
            is_half_open: false,
            records: VecDeque::new(),
        });
        response
    }

    fn deliver(
        &mut self,
        now: Duration,
        cluster: &mut Cluster,
        time: Instant,
        faults: &Faults,
        rng: &mut StdRng,
    ) {
        let mut closed = Vec::new();
        self.streams.retain_mut(|stream| {
            let is_connected = faults.connects(Peer::Master, stream.daemon);
            let mut has_ended = stream.is_half_open;
            while !has_ended {
                let record = match stream.subscription.events.try_recv() {
                    Ok(record) => record,
                    Err(mpsc::error::TryRecvError::Empty) => break,
                    Err(mpsc::error::TryRecvError::Disconnected) => Err(ConnectionCut),
                };
                has_ended = record.is_err();
                // Bytes of one connection do not overtake each other. Those that get lost are sent again,
                // later.
                let fate = faults.fate(Peer::Master, stream.daemon, rng);
                let delay = fate.answer.unwrap_or(Duration::from_secs(3));
                let last = stream.records.back().map_or(Duration::ZERO, |(at, _)| *at);
                stream.records.push_back((last.max(now + delay), record));
            }
            if !is_connected {
                stream.is_half_open |= has_ended;
                return true;
            }
            if stream.is_half_open {
                stream.records.clear();
            }
            while stream.records.front().is_some_and(|(at, _)| *at <= now) {
                let Some((_, record)) = stream.records.pop_front() else {
                    break;
                };
                let is_cut = record.is_err();
                let record = record.map_err(|_| io::ErrorKind::ConnectionReset.into());
                if stream.body.send(record).is_err() || is_cut {
                    has_ended = true;
                    stream.records.clear();
                }
            }
            // The daemon has closed the connection, or has died.
            if stream.body.is_closed() {
                closed.push((
                    stream.subscription.framework.clone(),
                    stream.subscription.stream_id.clone(),
                ));
                return false;
            }
            stream.is_half_open || !has_ended || !stream.records.is_empty()
        });
        for (framework, stream_id) in closed {
            if let (Some(framework), Some(stream_id)) = (framework, stream_id) {
                cluster.stream_closed(&framework, &stream_id, time);
            }
        }
    }

    /// Cuts all connections of a daemon.
    pub(crate) fn cut(&mut self, daemon: usize, cluster: &mut Cluster, time: Instant) {
        for stream in self.streams.extract_if(.., |stream| stream.daemon == daemon) {
            let _ = stream.body.send(Err(io::ErrorKind::ConnectionReset.into()));
            let subscription = &stream.subscription;
            if let (Some(framework), Some(stream_id)) = (&subscription.framework, &subscription.stream_id) {
                cluster.stream_closed(framework, stream_id, time);
            }
        }
    }
}

fn address(request: &reqwest::Request) -> Option<SocketAddr> {
    let url = request.url();
    let ip = url.host_str()?.parse().ok()?;
    Some(SocketAddr::new(ip, url.port_or_known_default()?))
}
