//! Ports from the client's side: real sockets on loopback.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests may panic.

mod connections;
mod streams;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::ConnectInfo;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use bytes::Bytes;
use futures::{StreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transom_web::{Json, Limits, Listener, serve, with_fallbacks};

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

struct Server {
    addr: SocketAddr,
    token: CancellationToken,
    task: JoinHandle<transom_web::Result<()>>,
}

impl Server {
    fn start(router: Router, limits: Limits, grace: Duration) -> Self {
        let listener = Listener::bind("apps", ([127, 0, 0, 1], 0).into()).unwrap();
        let (addr, token) = (listener.local_addr(), CancellationToken::new());
        let task = tokio::spawn(serve(
            listener,
            with_fallbacks(router),
            limits,
            token.clone(),
            grace,
        ));
        Self { addr, token, task }
    }

    async fn send_text(&self, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// Sends one request on a new connection and returns the whole answer.
    async fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        read_to_end(&mut self.send_text(&(head + body)).await).await
    }

    async fn stop(self) {
        self.token.cancel();
        tokio::time::timeout(WAIT_TIMEOUT, self.task)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }
}

/// Reads until the server closes the connection.
async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset after the answer also counts as a close.
    let _ = tokio::time::timeout(WAIT_TIMEOUT, stream.read_to_end(&mut bytes))
        .await
        .unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Reads until `text` has arrived.
async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut received = String::new();
    while !received.contains(text) {
        let mut bytes = [0; 1024];
        let n = tokio::time::timeout(WAIT_TIMEOUT, stream.read(&mut bytes))
            .await
            .unwrap()
            .unwrap();
        assert!(n > 0, "closed after {received:?}");
        received.push_str(std::str::from_utf8(&bytes[..n]).unwrap());
    }
    received
}

fn plain() -> Router {
    Router::new()
        .route(
            "/hello",
            get(async |ConnectInfo(client): ConnectInfo<SocketAddr>| client.ip().to_string()),
        )
        .route(
            "/numbers",
            post(async |Json(numbers): Json<Vec<u32>>| Json(numbers.iter().sum::<u32>())),
        )
}

#[tokio::test]
async fn errors_are_answered_with_status_and_json_message() {
    let limits = Limits {
        max_body: 64,
        ..Limits::default()
    };
    let server = Server::start(plain(), limits, WAIT_TIMEOUT);
    let cases = [
        ("GET", "/hello", "", "200", "127.0.0.1"),
        ("POST", "/numbers", "[1, 2]", "200", "3"),
        ("GET", "/none", "", "404", r#"{"message":"Not found: /none"}"#),
        (
            "DELETE",
            "/numbers",
            "",
            "405",
            r#"{"message":"DELETE is not allowed on /numbers"}"#,
        ),
        (
            "POST",
            "/numbers",
            "",
            "400",
            r#"{"message":"Please specify data in JSON format","details":"the body is empty"}"#,
        ),
        (
            "POST",
            "/numbers",
            "[1",
            "400",
            r#""message":"Invalid JSON","details":"EOF"#,
        ),
        (
            "POST",
            "/numbers",
            "[1, -1]",
            "422",
            r#"{"message":"Invalid JSON","details":[{"errors":["#,
        ),
        (
            "POST",
            "/numbers",
            &format!("[{}1]", "1,".repeat(40)),
            "413",
            r#"{"message":"The body is larger than the 64 bytes"#,
        ),
    ];
    for (method, path, body, status, expected) in cases {
        let answer = server.ask(method, path, body).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{method} {path} {body}: {answer}"
        );
        assert!(answer.contains(expected), "{method} {path} {body}: {answer}");
    }
    let answer = server.ask("DELETE", "/numbers", "").await.to_ascii_lowercase();
    assert!(answer.contains("\r\nallow: post"), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn chunked_body_is_limited_in_size() {
    let server = Server::start(
        plain(),
        Limits {
            max_body: 64,
            ..Limits::default()
        },
        WAIT_TIMEOUT,
    );
    let chunk = format!("32\r\n{}\r\n", "1".repeat(50));
    let head = "POST /numbers HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = read_to_end(&mut server.send_text(&format!("{head}{chunk}{chunk}0\r\n\r\n")).await).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains(r#"{"message":"#), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn body_that_does_not_arrive_in_time_gets_408() {
    let limits = Limits {
        body_idle_timeout: Duration::from_millis(50),
        ..Limits::default()
    };
    let server = Server::start(plain(), limits, WAIT_TIMEOUT);
    for body in [
        "Content-Length: 3\r\n\r\n",
        "Content-Length: 3\r\n\r\n[1",
        "Transfer-Encoding: chunked\r\n\r\n2\r\n[1\r\n",
    ] {
        let request = format!("POST /numbers HTTP/1.1\r\nHost: x\r\n{body}");
        let answer = read_to_end(&mut server.send_text(&request).await).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
        let message = r#"{"message":"The body of the request did not arrive in time"}"#;
        assert!(answer.ends_with(message), "{answer}");
    }
    server.stop().await;
}

#[tokio::test]
async fn oversized_request_head_is_rejected() {
    let server = Server::start(
        plain(),
        Limits {
            max_head: 8192,
            ..Limits::default()
        },
        WAIT_TIMEOUT,
    );
    let answer = read_to_end(
        &mut server
            .send_text(&format!(
                "GET /hello HTTP/1.1\r\nX: {}\r\n\r\n",
                "x".repeat(20_000)
            ))
            .await,
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    server.stop().await;
}

/// Reads one answer to its end.
async fn answer(stream: &mut TcpStream) -> String {
    let head = read_until(stream, "\r\n\r\n").await;
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: ")?.parse::<usize>().ok())
        .unwrap();
    let (_, body) = head.split_once("\r\n\r\n").unwrap();
    let mut remaining = vec![0; length - body.len()];
    stream.read_exact(&mut remaining).await.unwrap();
    head.clone() + std::str::from_utf8(&remaining).unwrap()
}

#[tokio::test]
async fn requests_rejected_before_the_router_get_json_errors() {
    let limits = Limits {
        max_head: 8192,
        ..Limits::default()
    };
    let server = Server::start(plain(), limits, WAIT_TIMEOUT);
    let long = "x".repeat(20_000);
    for (request, status, expected) in [
        (
            format!("GET /hello HTTP/1.1\r\nX: {long}\r\n\r\n"),
            431,
            "larger than the 8192 bytes",
        ),
        (
            "GET /hello HTTP/1.1\r\nno colon\r\n\r\n".to_owned(),
            400,
            "is not HTTP",
        ),
        ("\u{1}\r\n\r\n".to_owned(), 400, "is not HTTP"),
    ] {
        // First on a new connection, then after requests that the router has answered.
        for before in 0..3 {
            let mut stream = server.send_text("").await;
            for _ in 0..before {
                stream
                    .write_all(b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")
                    .await
                    .unwrap();
                assert!(answer(&mut stream).await.ends_with("127.0.0.1"));
            }
            stream.write_all(request.as_bytes()).await.unwrap();
            let rejected = answer(&mut stream).await;
            let (head, body) = rejected.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{rejected}");
            assert!(head.contains("Content-Type: application/json"), "{rejected}");
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            assert!(body["message"].as_str().unwrap().contains(expected), "{rejected}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn silent_client_is_disconnected_after_the_header_timeout() {
    let limits = Limits {
        header_timeout: Duration::from_millis(150),
        ..Limits::default()
    };
    let server = Server::start(plain(), limits, WAIT_TIMEOUT);
    // Three silent clients: one sends nothing, one sends half a head, one sends nothing after an
    // answer.
    for text in ["", "GET /hello HT", "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"] {
        let began = Instant::now();
        read_to_end(&mut server.send_text(text).await).await;
        assert!(
            began.elapsed() >= Duration::from_millis(140),
            "{text:?}: closed before the timeout"
        );
        assert!(began.elapsed() < WAIT_TIMEOUT / 2, "{text:?}: closed late");
    }
    server.stop().await;
}

#[tokio::test]
async fn stopping_ends_streams_cleanly_and_closes_idle_connections() {
    let events = async || {
        let first = stream::once(async { Ok::<_, std::io::Error>(Bytes::from_static(b"data: 1\n\n")) });
        let body = axum::body::Body::from_stream(first.chain(stream::pending()));
        ([("content-type", "text/event-stream")], body).into_response()
    };
    let server = Server::start(
        plain().route("/events", get(events)),
        Limits::default(),
        WAIT_TIMEOUT,
    );
    let mut idle = server.send_text("GET /hello HTTP/1.1\r\nHost: x\r\n\r\n").await;
    read_until(&mut idle, "127.0.0.1").await;
    let mut silent = TcpStream::connect(server.addr).await.unwrap();
    let mut open = server.send_text("GET /events HTTP/1.1\r\nHost: x\r\n\r\n").await;
    read_until(&mut open, "data: 1").await;
    let began = Instant::now();
    let addr = server.addr;
    server.stop().await;
    assert!(
        began.elapsed() < WAIT_TIMEOUT / 4,
        "shutdown does not wait for idle connections"
    );
    assert!(
        read_to_end(&mut open).await.ends_with("0\r\n\r\n"),
        "the stream ends with its last chunk"
    );
    assert_eq!(read_to_end(&mut idle).await, "");
    assert_eq!(read_to_end(&mut silent).await, "");
    assert!(TcpStream::connect(addr).await.is_err(), "the port is closed");
}

#[tokio::test]
async fn requests_of_accepted_connections_are_answered_while_the_port_stops() {
    const CLIENTS: usize = 5;
    const REQUEST: &str = "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n";
    let server = Server::start(plain(), Limits::default(), WAIT_TIMEOUT);
    let mut silent = Vec::new();
    let mut sending = Vec::new();
    for _ in 0..CLIENTS {
        silent.push(TcpStream::connect(server.addr).await.unwrap());
        sending.push(TcpStream::connect(server.addr).await.unwrap());
    }
    // Connections are accepted in the order of their arrival.
    server.ask("GET", "/hello", "").await;
    for client in &mut sending {
        client.write_all(REQUEST.as_bytes()).await.unwrap();
    }
    server.token.cancel();
    for client in &mut silent {
        client.write_all(REQUEST.as_bytes()).await.unwrap();
    }
    for client in silent.iter_mut().chain(&mut sending) {
        assert!(read_to_end(client).await.contains("127.0.0.1"));
    }
    server.stop().await;
}

#[tokio::test]
async fn stopping_lets_answers_finish_within_the_grace() {
    let (entered, mut entries) = mpsc::channel(2);
    let (release, released) = tokio::sync::watch::channel(false);
    let slow = async move || {
        entered.send(()).await.unwrap();
        released.clone().wait_for(|released| *released).await.unwrap();
        "done"
    };
    let server = Server::start(
        Router::new().route("/slow", get(slow)),
        Limits::default(),
        WAIT_TIMEOUT,
    );
    let mut client = server.send_text("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await;
    entries.recv().await.unwrap();
    server.token.cancel();
    release.send(true).unwrap();
    assert!(read_to_end(&mut client).await.contains("done"));
    server.stop().await;
}

#[tokio::test]
async fn stopping_closes_connections_after_the_grace_period() {
    let (entered, mut entries) = mpsc::channel(1);
    let stuck = async move || {
        entered.send(()).await.unwrap();
        std::future::pending::<()>().await;
    };
    let server = Server::start(
        Router::new().route("/stuck", get(stuck)),
        Limits::default(),
        Duration::from_millis(50),
    );
    let mut client = server.send_text("GET /stuck HTTP/1.1\r\nHost: x\r\n\r\n").await;
    entries.recv().await.unwrap();
    server.stop().await;
    assert_eq!(read_to_end(&mut client).await, "");
}

#[test]
fn bind_error_of_a_used_port_names_the_port_option() {
    let first = Listener::bind("apps", ([127, 0, 0, 1], 0).into()).unwrap();
    let addr = first.local_addr();
    let rejected = Listener::bind("discovery", addr).unwrap_err();
    assert!(
        matches!(rejected, transom_web::Error::Taken { name: "discovery", addr: at } if at == addr),
        "{rejected:?}"
    );
    let text = rejected.to_string();
    for part in [
        &addr.port().to_string(),
        "127.0.0.1",
        "`discovery`",
        "--port discovery=N",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let foreign = Listener::bind("apps", ([192, 0, 2, 1], 1).into()).unwrap_err();
    assert!(matches!(&foreign, transom_web::Error::Bind { .. }), "{foreign:?}");
}

#[tokio::test]
async fn metrics_have_the_format_that_the_client_accepts() {
    let mut registry = prometheus_client::registry::Registry::default();
    let counter = prometheus_client::metrics::counter::Counter::<u64>::default();
    registry.register("transom_web_test", "A count", counter.clone());
    counter.inc();
    let router = transom_web::metrics::router(std::sync::Arc::new(registry));
    let server = Server::start(router, Limits::default(), WAIT_TIMEOUT);
    let answer = server.ask("GET", "/metrics", "").await;
    assert!(
        answer.contains("transom_web_test_total 1\n") && answer.ends_with("# EOF\n"),
        "{answer}"
    );
    assert!(
        answer
            .to_ascii_lowercase()
            .contains("content-type: application/openmetrics-text; version=1.0.0"),
        "{answer}"
    );
    for (accept, is_plain) in [
        ("text/plain;version=0.0.4;q=1,*/*;q=0.1", true),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            false,
        ),
        ("*/*", false),
    ] {
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept: {accept}\r\n\r\n");
        let answer = read_to_end(&mut server.send_text(&request).await).await;
        let named = answer.contains("# TYPE transom_web_test_total counter");
        assert_eq!(
            (named, !answer.ends_with("# EOF\n")),
            (is_plain, is_plain),
            "{answer}"
        );
    }
    server.stop().await;
}
