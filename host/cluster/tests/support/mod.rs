//! The common part of the tests: the recorded traffic, and a server that sends exactly the bytes of
//! a test.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]
#![allow(dead_code, reason = "every test binary uses its own part of this module")]
#![allow(unreachable_pub, reason = "the module is compiled into several test binaries")]

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use transom_cluster::{Config, Error};

/// The configuration of a client for these masters.
pub fn config(masters: &[String]) -> Config {
    Config {
        masters: masters.to_vec(),
        connect_timeout: Duration::from_secs(5),
        call_timeout: Duration::from_secs(10),
        ..Config::default()
    }
}

/// The text of an error and all its sources.
pub fn error_text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// The folder of recorded traffic.
pub fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/cluster")
}

/// All recorded files whose names end with `ending`, in order. Panics if there are none.
pub fn files(ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in std::fs::read_dir(recordings())
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        if folder.is_dir() {
            found.extend(
                std::fs::read_dir(folder)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    found.retain(|path| path.to_str().unwrap().ends_with(ending));
    found.sort();
    assert!(!found.is_empty(), "no recorded file ends with {ending}");
    found
}

/// A recorded file's bytes.
pub fn recorded(name: &str) -> Vec<u8> {
    std::fs::read(recordings().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A recorded JSON document.
pub fn document(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap();
    serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A request that the server received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// Index of its connection to the server.
    pub connection: usize,
    /// Method and path.
    pub line: String,
    /// Header lines in lower case.
    pub headers: Vec<String>,
    pub body: Vec<u8>,
}

impl ReceivedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// A step of the server in answer to a request.
pub enum Step {
    /// Sends bytes in one write.
    Send(Vec<u8>),
    /// Sends bytes in chunks of this size, each in its own packet.
    Trickle(Vec<u8>, usize),
    /// Sends nothing for this time.
    Wait(Duration),
    /// Sends nothing more until the client closes the connection.
    Silence,
    /// Closes the connection.
    Close,
}

/// The request that a client sends to a master before it subscribes a framework.
const VERSION: &str = "GET /version";

/// A server on a free port of the loopback interface; it ends when it is dropped.
pub struct Server {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    answers_version: bool,
    closed: tokio::sync::watch::Receiver<usize>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Answers each request with the result of `answer`.
    pub async fn start(answer: impl Fn(&ReceivedRequest) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::listen(answer, None).await
    }

    /// As [`Server::start`], for a master to which frameworks subscribe. It also answers the request
    /// for its version that precedes a subscription, and [`Server::requests`] omits that request.
    pub async fn master(answer: impl Fn(&ReceivedRequest) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let server = Self::start(move |request| {
            if request.line == VERSION {
                json_answer(&serde_json::json!({"version": "1.11.0"}))
            } else {
                answer(request)
            }
        });
        Self {
            answers_version: true,
            ..server.await
        }
    }

    /// As [`Server::start`], over TLS with the certificate in `tls/`.
    pub async fn secured(answer: impl Fn(&ReceivedRequest) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let certificate = CertificateDer::from_pem_slice(include_bytes!("../tls/cert.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("../tls/key.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        Self::listen(answer, Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn listen(
        answer: impl Fn(&ReceivedRequest) -> Vec<Step> + Send + Sync + 'static,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (closing, closed) = tokio::sync::watch::channel(0);
        let mut tasks = JoinSet::new();
        let (record, answer) = (Arc::clone(&requests), Arc::new(answer));
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let (record, answer, closing) = (Arc::clone(&record), Arc::clone(&answer), closing.clone());
                let tls = tls.clone();
                connections.spawn(async move {
                    match tls {
                        None => serve(stream, number, &record, &*answer).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, number, &record, &*answer).await;
                            }
                        }
                    }
                    closing.send_modify(|count| *count += 1);
                });
            }
        });
        Self {
            address,
            requests,
            answers_version: false,
            closed,
            _tasks: tasks,
        }
    }

    /// Answers every request with the same bytes.
    pub async fn with_answer(bytes: Vec<u8>) -> Self {
        Self::start(move |_| vec![Step::Send(bytes.clone())]).await
    }

    /// `host:port`.
    pub fn name(&self) -> String {
        self.address.to_string()
    }

    /// Every request so far, except those that [`Server::master`] answers automatically.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        let requests = self.requests.lock().unwrap();
        let hidden = |request: &&ReceivedRequest| !(self.answers_version && request.line == VERSION);
        requests.iter().filter(hidden).cloned().collect()
    }

    /// The number of requests for the version of the master.
    pub fn version_requests(&self) -> usize {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|request| request.line == VERSION).count()
    }

    /// Waits until this number of connections has been closed.
    pub async fn closed(&self, count: usize) {
        let mut closed = self.closed.clone();
        let waiting = closed.wait_for(|closed| *closed >= count);
        tokio::time::timeout(Duration::from_secs(10), waiting)
            .await
            .expect("connections stayed open")
            .unwrap();
    }
}

/// A connection, secured or not.
trait Pipe: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Pipe for T {}

async fn serve(
    mut stream: impl Pipe,
    connection: usize,
    record: &Mutex<Vec<ReceivedRequest>>,
    answer: &(dyn Fn(&ReceivedRequest) -> Vec<Step> + Send + Sync),
) {
    let mut buffer = Vec::new();
    while let Some(request) = request(&mut stream, &mut buffer, connection).await {
        record.lock().unwrap().push(request.clone());
        for step in answer(&request) {
            let done = match step {
                Step::Send(bytes) => stream.write_all(&bytes).await,
                Step::Trickle(bytes, size) => trickle(&mut stream, &bytes, size).await,
                Step::Wait(time) => {
                    tokio::time::sleep(time).await;
                    Ok(())
                }
                Step::Silence => {
                    let _ = stream.read(&mut [0]).await;
                    return;
                }
                Step::Close => return,
            };
            if done.is_err() {
                return;
            }
        }
    }
}

async fn trickle(stream: &mut impl Pipe, bytes: &[u8], size: usize) -> std::io::Result<()> {
    for piece in bytes.chunks(size) {
        stream.write_all(piece).await?;
        stream.flush().await?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Reads a request with a `Content-Length` or without body.
async fn request(stream: &mut impl Pipe, buffer: &mut Vec<u8>, connection: usize) -> Option<ReceivedRequest> {
    let head_end = loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        (stream.read_buf(buffer).await.ok()? > 0).then_some(())?;
    };
    let head = String::from_utf8(buffer[..head_end].to_vec()).ok()?;
    let mut lines = head.lines();
    let line = lines.next()?.trim_end_matches(" HTTP/1.1").to_owned();
    let headers: Vec<String> = lines
        .map(|line| {
            line.split_once(':')
                .map_or(line.into(), |(key, value)| key.to_lowercase() + ":" + value)
        })
        .collect();
    let mut request = ReceivedRequest {
        connection,
        line,
        headers,
        body: Vec::new(),
    };
    let length: usize = request
        .header("content-length")
        .map_or(0, |length| length.parse().unwrap());
    let body = head_end + 4;
    while buffer.len() < body + length {
        (stream.read_buf(buffer).await.ok()? > 0).then_some(())?;
    }
    request.body = buffer[body..body + length].to_vec();
    buffer.drain(..body + length);
    Some(request)
}

/// A successful answer with a JSON document.
pub fn json_answer(document: &Value) -> Vec<Step> {
    let body = document.to_string();
    let length = body.len();
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
    vec![Step::Send([head.as_bytes(), body.as_bytes()].concat())]
}

/// A status with a text.
pub fn text_answer(status: &str, body: &str) -> Vec<Step> {
    let length = body.len();
    vec![Step::Send(
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes(),
    )]
}

/// A redirect to a scheme-relative location, as masters write it.
pub fn redirect(location: &str) -> Vec<Step> {
    let head = "HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 0\r\nLocation: ";
    vec![Step::Send(format!("{head}{location}\r\n\r\n").into_bytes())]
}

/// The head of an accepted subscription.
pub fn stream_head() -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nMesos-Stream-Id: stream-7\r\n\
                Content-Type: application/json\r\n\r\n";
    head.into()
}

/// One record in one chunk.
pub fn record_chunk(event: &Value) -> Vec<u8> {
    chunk(&transom_cluster::recordio::encode(event.to_string().as_bytes()))
}

/// One chunk.
pub fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// The chunk that ends a stream.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
