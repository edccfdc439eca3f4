//! A fake master with configurable answers, and a client of both ports.
#![allow(clippy::unwrap_used, clippy::panic, dead_code)] // Tests fail by panicking; not every test uses all.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RecordType};
use http::StatusCode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use transom_discovery::{Config, Discovery};

pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// The answers of the master, and the requests that it has received.
#[derive(Default)]
pub(crate) struct MasterScript {
    /// The state document; none: 503.
    pub(crate) document: Option<Value>,
    /// The snapshot of a subscription; none: subscriptions are rejected with the status below.
    pub(crate) snapshot: Option<Value>,
    pub(crate) rejection: u16,
    /// A redirect of subscriptions, as a new leader sends one to the dead leader until it knows of its
    /// own election; its state document has empty lists until it has recovered.
    pub(crate) redirect: Option<String>,
    /// Whether the state document waits, which the follower reads after each snapshot: a subscription
    /// is then open while events follow its snapshot.
    pub(crate) document_waits: bool,
    /// Open subscriptions.
    pub(crate) streams: Vec<mpsc::Sender<Bytes>>,
    /// Accepted subscriptions so far.
    pub(crate) subscriptions: usize,
    /// Requests for a subscription so far, including rejected ones.
    pub(crate) subscribe_requests: usize,
    /// Requests for the state document so far.
    pub(crate) document_requests: usize,
}

#[derive(Clone)]
pub(crate) struct Master {
    pub(crate) addr: SocketAddr,
    pub(crate) script: Arc<Mutex<MasterScript>>,
}

impl Master {
    pub(crate) async fn start(script: MasterScript) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let master = Self {
            addr: listener.local_addr().unwrap(),
            script: Arc::new(Mutex::new(script)),
        };
        let router = Router::new()
            .route("/state", get(state))
            .route("/api/v1", post(subscribe))
            .with_state(master.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        master
    }

    /// Sends an event on every open subscription.
    pub(crate) async fn send(&self, event: &Value) {
        let streams = self.script.lock().unwrap().streams.clone();
        for stream in streams {
            // Sending on a subscription that discovery has closed fails, which is no error here.
            let _ = stream.send(record(event)).await;
        }
    }

    /// Ends every open subscription.
    pub(crate) fn hang_up(&self) {
        self.script.lock().unwrap().streams.clear();
    }

    pub(crate) fn subscriptions(&self) -> usize {
        self.script.lock().unwrap().subscriptions
    }

    pub(crate) fn subscribe_requests(&self) -> usize {
        self.script.lock().unwrap().subscribe_requests
    }

    pub(crate) fn document_requests(&self) -> usize {
        self.script.lock().unwrap().document_requests
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut MasterScript)) {
        change(&mut self.script.lock().unwrap());
    }

    /// Starts discovery that follows this master, on free ports.
    pub(crate) async fn followed(&self, config: impl Into<Config>) -> Followed {
        followed(self.addr.to_string(), config).await
    }
}

/// Starts discovery that finds its masters at this address, on free ports.
pub(crate) async fn followed(masters: String, config: impl Into<Config>) -> Followed {
    let client = transom_cluster::Client::new(transom_cluster::Config {
        masters: vec![masters],
        ..transom_cluster::Config::default()
    })
    .unwrap();
    let mut config = config.into();
    let settings = &mut config.settings;
    let loopback = [127, 0, 0, 1].into();
    (settings.listener, settings.http_listener) = (loopback, loopback);
    (settings.port, settings.http_port) = (0, 0);
    // Forward only to resolvers of the test, never to those of the system.
    settings.external_on &= !settings.resolvers.is_empty();
    let (token, mut registry) = (CancellationToken::new(), Registry::default());
    let discovery = config.start(client, &mut registry, token.clone()).await.unwrap();
    Followed {
        discovery,
        token,
        registry,
    }
}

pub(crate) struct Followed {
    pub(crate) discovery: Discovery,
    pub(crate) token: CancellationToken,
    pub(crate) registry: Registry,
}

impl Followed {
    pub(crate) async fn stop(self) {
        self.token.cancel();
        tokio::time::timeout(WAIT_TIMEOUT, self.discovery.stopped())
            .await
            .unwrap();
    }

    pub(crate) async fn ready(&self) {
        wait_until("a zone", async || self.discovery.is_ready()).await;
    }

    pub(crate) async fn udp(&self, query: &Message) -> Message {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(self.discovery.dns_addr().unwrap()).await.unwrap();
        socket.send(&query.to_vec().unwrap()).await.unwrap();
        let mut answer = vec![0; 4096];
        let size = tokio::time::timeout(WAIT_TIMEOUT, socket.recv(&mut answer))
            .await
            .unwrap()
            .unwrap();
        Message::from_vec(&answer[..size]).unwrap()
    }

    /// Sends queries one after the other on one connection and returns the answers.
    pub(crate) async fn tcp(&self, queries: &[Message]) -> Vec<Message> {
        let mut stream = TcpStream::connect(self.discovery.dns_addr().unwrap())
            .await
            .unwrap();
        let mut answers = Vec::new();
        for query in queries {
            let query = query.to_vec().unwrap();
            stream.write_u16(query.len() as u16).await.unwrap();
            stream.write_all(&query).await.unwrap();
            let mut answer = vec![0; usize::from(stream.read_u16().await.unwrap())];
            stream.read_exact(&mut answer).await.unwrap();
            answers.push(Message::from_vec(&answer).unwrap());
        }
        answers
    }

    /// The IPv4 addresses of a name, sorted.
    pub(crate) async fn a(&self, name: &str) -> Vec<String> {
        let answer = self.udp(&query(name, RecordType::A)).await;
        let mut ips: Vec<_> = answer
            .answers
            .iter()
            .map(|record| record.data.to_string())
            .collect();
        ips.sort();
        ips
    }

    /// Sends a request and returns status, head in lower case and body.
    pub(crate) async fn http(&self, request: &Value) -> (u16, String, String) {
        let method = request["method"].as_str().unwrap_or("GET");
        let mut stream = TcpStream::connect(self.discovery.http_addr().unwrap())
            .await
            .unwrap();
        let path = request["path"].as_str().unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        for (name, value) in request["headers"].as_object().into_iter().flatten() {
            head.extend([name, ": ", value.as_str().unwrap_or_default(), "\r\n"]);
        }
        stream.write_all((head + "\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(WAIT_TIMEOUT, stream.read_to_string(&mut answer))
            .await
            .unwrap()
            .unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let head = head.to_ascii_lowercase();
        let body = if head.contains("transfer-encoding: chunked") {
            join_chunks(body)
        } else {
            body.to_owned()
        };
        (status, head, body)
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let (status, _, body) = self.http(&json!({ "path": path })).await;
        (status, body)
    }

    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }

    /// The value of a metric without labels.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let metrics = self.metrics();
        let value = metrics
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value
            .unwrap_or_else(|| panic!("no {name} in {metrics}"))
            .parse()
            .unwrap()
    }

    /// The possible sources of records, each with whether the metrics report it as the present one.
    pub(crate) fn sources(&self) -> [(&'static str, bool); 2] {
        let metrics = self.metrics();
        ["stream", "polling"].map(|source| {
            let line = format!("transom_discovery_source{{source=\"{source}\"}} ");
            let value = metrics.lines().find_map(|all| all.strip_prefix(&line));
            (
                source,
                value.unwrap_or_else(|| panic!("no {source} in {metrics}")) == "1",
            )
        })
    }
}

/// Joins the chunks of a body.
fn join_chunks(mut chunks: &str) -> String {
    let mut body = String::new();
    while let Some((size, rest)) = chunks.split_once("\r\n") {
        let (chunk, rest) = rest.split_at(usize::from_str_radix(size, 16).unwrap());
        body += chunk;
        chunks = rest.strip_prefix("\r\n").unwrap();
    }
    body
}

pub(crate) fn query(name: &str, kind: RecordType) -> Message {
    let mut query = Message::new(4660, MessageType::Query, OpCode::Query);
    let labels = name.trim_end_matches('.').split('.').map(str::as_bytes);
    query.add_query(Query::query(Name::from_labels(labels).unwrap(), kind));
    query.metadata.recursion_desired = true;
    query
}

pub(crate) fn with_edns(mut query: Message, payload: u16, version: u8) -> Message {
    let mut edns = Edns::new();
    edns.set_max_payload(payload).set_version(version);
    query.set_edns(edns);
    query
}

/// Waits until `condition` returns true. Panics after [`WAIT_TIMEOUT`].
pub(crate) async fn wait_until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(
        tokio::time::timeout(WAIT_TIMEOUT, waiting).await.is_ok(),
        "timeout waiting for {what}"
    );
}

pub(crate) fn record(event: &Value) -> Bytes {
    let text = event.to_string();
    Bytes::from(format!("{}\n{text}", text.len()))
}

async fn state(State(master): State<Master>) -> Response {
    master.script.lock().unwrap().document_requests += 1;
    while master.script.lock().unwrap().document_waits {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let script = master.script.lock().unwrap();
    match &script.document {
        Some(document) => axum::Json(document.clone()).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "No leader elected").into_response(),
    }
}

async fn subscribe(State(master): State<Master>, call: String) -> Response {
    assert!(call.contains("SUBSCRIBE"), "unexpected call: {call}");
    let (sender, receiver) = mpsc::channel(64);
    let first = {
        let mut script = master.script.lock().unwrap();
        script.subscribe_requests += 1;
        if let Some(to) = &script.redirect {
            return (StatusCode::TEMPORARY_REDIRECT, [("location", to.clone())]).into_response();
        }
        let Some(snapshot) = &script.snapshot else {
            return (StatusCode::from_u16(script.rejection).unwrap(), "refused").into_response();
        };
        let body = json!({"get_state": snapshot, "heartbeat_interval_seconds": 15.0});
        let first = record(&json!({"type": "SUBSCRIBED", "subscribed": body}));
        script.streams.push(sender);
        script.subscriptions += 1;
        first
    };
    let rest = futures::stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|event| (event, receiver))
    });
    let events = futures::StreamExt::chain(futures::stream::iter([first]), rest);
    let body = Body::from_stream(futures::StreamExt::map(events, Ok::<_, std::io::Error>));
    ([("content-type", "application/json")], body).into_response()
}
