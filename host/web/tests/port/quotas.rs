//! The read-only user, and clients without credentials, take only their share of a port.

use std::net::SocketAddr;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use axum::routing::{any, get};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::header;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use transom_web::{AccessRules, Credentials, PortConfig};

use super::{Port, WAIT_TIMEOUT, user};

/// Two users; clients on loopback need no credentials.
fn config() -> PortConfig {
    PortConfig {
        credentials: Some(user("full")),
        reader: Some(user("reader")),
        ..PortConfig::new("quotas", 0)
    }
}

async fn status(port: &Port, path: &str, user: Option<&Credentials>) -> (u16, reqwest::Response) {
    let mut request = port.ask("GET", path);
    if let Some(user) = user {
        request = request.header(header::AUTHORIZATION, user.authorization());
    }
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response)
}

#[tokio::test]
async fn each_user_has_its_share_of_streams_and_requests() {
    let endless = async || {
        let first = Ok::<_, std::io::Error>(Bytes::from_static(b"data: x\n\n"));
        let events = stream::iter([first]).chain(stream::pending());
        ([("content-type", "text/event-stream")], Body::from_stream(events)).into_response()
    };
    // An answer that never ends takes a place of a request.
    let answer = async || {
        let first = Ok::<_, std::io::Error>(Bytes::from_static(b"x"));
        Body::from_stream(stream::iter([first]).chain(stream::pending())).into_response()
    };
    let router = Router::new()
        .route("/events", get(endless))
        .route("/answer", get(answer));
    let mut config = config();
    config.limits.max_streams = 8;
    config.limits.max_requests = Some(8);
    let rules = AccessRules {
        is_stream: |path| path == "/events",
        ..AccessRules::default()
    };
    let port = Port::serve(config.bind().await.unwrap(), router, rules);
    let (full, reader) = (user("full"), user("reader"));
    for path in ["/events", "/answer"] {
        let mut open = Vec::new();
        for (user, expected) in [(Some(&reader), 4), (None, 2), (Some(&full), 2)] {
            let mut count = 0;
            loop {
                let (status, response) = status(&port, path, user).await;
                if status != 200 {
                    assert_eq!(status, 503);
                    assert!(response.headers().contains_key("retry-after"));
                    break;
                }
                open.push(response);
                count += 1;
            }
            assert_eq!(count, expected, "{path} {user:?}");
        }
    }
    port.stop().await;
}

/// Requests an answer and reads only its head, with a small receive buffer.
async fn unread(port: &Port, user: &Credentials) -> (String, TcpStream) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let mut stream = socket.connect(port.addr).await.unwrap();
    let authorization = user.authorization();
    let request = format!("GET /large HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    timeout(WAIT_TIMEOUT, stream.read_exact(&mut head))
        .await
        .unwrap()
        .unwrap();
    (String::from_utf8_lossy(&head).into_owned(), stream)
}

#[tokio::test]
async fn unread_answers_of_one_user_leave_memory_for_others() {
    // The bytes are shared here; those of a real answer are not.
    let large = Bytes::from(vec![b'x'; 16 << 20]);
    let router = Router::new().route("/large", get(async move || large.clone()));
    let port = Port::start(config(), router).await;
    let (full, reader) = (user("full"), user("reader"));
    let mut held = Vec::new();
    let rejected = loop {
        let (status, stream) = unread(&port, &reader).await;
        if status != "HTTP/1.1 200" {
            break status;
        }
        held.push(stream);
        assert!(held.len() <= 8, "the read-only user holds more than half");
    };
    assert_eq!((held.len(), rejected.as_str()), (8, "HTTP/1.1 503"));
    let (status_of_full, answer) = status(&port, "/large", Some(&full)).await;
    assert_eq!(status_of_full, 200);
    assert_eq!(answer.bytes().await.unwrap().len(), 16 << 20);
    // A client that leaves gives its memory back.
    held.pop();
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while status(&port, "/large", Some(&reader)).await.0 != 200 {
        assert!(
            Instant::now() < deadline,
            "the memory of a closed connection is not freed"
        );
    }
    port.stop().await;
}

/// Sends all but the last byte of a body, and reads the beginning of the answer.
async fn incomplete(addr: SocketAddr, user: Credentials) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let authorization = user.authorization();
    // The user may not change anything; a daemon that forwards receives the body of a GET as well.
    let head = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; BODY_BYTES - 1]).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

const BODY_BYTES: usize = 8 << 20;

#[tokio::test]
async fn incomplete_bodies_of_one_user_leave_memory_for_others() {
    let router = Router::new().route("/", any(async |body: Bytes| body.len().to_string()));
    let port = Port::start(config(), router).await;
    let (full, reader) = (user("full"), user("reader"));
    let mut held = JoinSet::new();
    for _ in 0..20 {
        held.spawn(incomplete(port.addr, reader.clone()));
    }
    // Its half of the budget has room for 16.
    for _ in 0..4 {
        let ended = timeout(WAIT_TIMEOUT, held.join_next()).await;
        let status = ended.expect("the read-only user holds more than half");
        assert_eq!(status.unwrap().unwrap(), "HTTP/1.1 503");
    }
    let send = async |method, user: &Credentials| {
        let request = port.ask(method, "/").body(vec![b' '; BODY_BYTES]);
        let request = request.header(header::AUTHORIZATION, user.authorization());
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    assert_eq!(send("POST", &full).await, (200, BODY_BYTES.to_string()));
    // Clients that leave give their memory back.
    held.abort_all();
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while send("GET", &reader).await.0 != 200 {
        assert!(
            Instant::now() < deadline,
            "the memory of closed connections is not freed"
        );
    }
    port.stop().await;
}
