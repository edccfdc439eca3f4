//! DNS over HTTPS: the limits that protect the port from its clients.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use hickory_proto::rr::RecordType;
use http::{Request, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use transom_discovery::dns::listeners::connection::ConnectionLimits;
use transom_discovery::dns::listeners::https::LIMITS;
use transom_discovery::dns::listeners::tls::ListenerLimits;

use crate::common::{WAIT_TIMEOUT, query, wait_until};
use crate::connect;
use crate::https::Port;

const SHORT_TIMEOUTS: ConnectionLimits = ConnectionLimits {
    query_timeout: Duration::from_millis(200),
    write_timeout: Duration::from_millis(200),
    max_inflight: 4,
};

/// A client of HTTP/2, and its connection.
struct Http2 {
    requests: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

impl Http2 {
    async fn connect(port: &Port) -> Self {
        let stream = connect(port.addr, &port.trusted, &[b"h2"]).await.unwrap();
        let (requests, connection) = h2::client::handshake(stream).await.unwrap();
        Self {
            requests,
            connection: tokio::spawn(connection),
        }
    }

    /// Sends a query and returns the future of its response.
    async fn send(&mut self, name: &str) -> ResponseFuture {
        let ready = self.requests.clone().ready();
        let mut ready = timeout(WAIT_TIMEOUT, ready).await.unwrap().unwrap();
        let request = Request::post("https://dns.test/dns-query")
            .header("content-type", "application/dns-message")
            .body(())
            .unwrap();
        let (response, mut body) = ready.send_request(request, false).unwrap();
        let query = query(name, RecordType::A).to_vec().unwrap();
        body.send_data(query.into(), true).unwrap();
        response
    }

    /// Waits until the server ends the connection, without a protocol error.
    async fn ends(self) {
        drop(self.requests);
        let ended = timeout(WAIT_TIMEOUT, self.connection).await.unwrap().unwrap();
        if let Err(error) = ended {
            assert!(error.is_io() || error.is_go_away(), "{error}");
        }
    }
}

async fn status(response: ResponseFuture) -> StatusCode {
    timeout(WAIT_TIMEOUT, response).await.unwrap().unwrap().status()
}

/// Everything up to the end of the connection.
async fn read_to_end(stream: &mut TlsStream<TcpStream>) -> String {
    let mut text = Vec::new();
    // A reset has ended the connection as well.
    let _ = timeout(WAIT_TIMEOUT, stream.read_to_end(&mut text))
        .await
        .unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

const POST: &str = "POST /dns-query HTTP/1.1\r\nHost: dns.test\r\nContent-Type: application/dns-message\r\n";

#[tokio::test]
async fn slow_http1_clients_are_disconnected() {
    let port = Port::open(ListenerLimits::default(), SHORT_TIMEOUTS).await;
    let body = format!("{POST}Content-Length: 40\r\n\r\nhalf");
    let endless = format!("{POST}Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
    for (sent, expected) in [
        ("", ""),
        ("POST /dns-query HTTP/1.1\r\nHost: dns", ""),
        (body.as_str(), "408 Request Timeout"),
        (endless.as_str(), "408 Request Timeout"),
        // A connection that is kept alive after a response ends after the timeout as well.
        ("GET / HTTP/1.1\r\nHost: dns.test\r\n\r\n", "404 Not Found"),
    ] {
        let mut stream = connect(port.addr, &port.trusted, &[b"http/1.1"]).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let text = read_to_end(&mut stream).await;
        assert!(
            text.contains(expected) && text.is_empty() == expected.is_empty(),
            "{sent}: {text}"
        );
    }
    port.close().await;
}

#[tokio::test]
async fn slow_http2_clients_are_disconnected() {
    let port = Port::open(ListenerLimits::default(), SHORT_TIMEOUTS).await;
    // A client that sends nothing, not even the preface.
    let mut silent = connect(port.addr, &port.trusted, &[b"h2"]).await.unwrap();
    read_to_end(&mut silent).await;
    // A client that is idle from the beginning, and one that is idle after a query.
    Http2::connect(&port).await.ends().await;
    let mut client = Http2::connect(&port).await;
    let response = client.send("web.mesos.").await;
    assert_eq!(status(response).await, StatusCode::OK);
    client.ends().await;
    // A client that never sends the body of its request.
    let mut client = Http2::connect(&port).await;
    let request =
        Request::post("https://dns.test/dns-query").header("content-type", "application/dns-message");
    let sent = client.requests.send_request(request.body(()).unwrap(), false);
    let (response, _body) = sent.unwrap();
    assert_eq!(status(response).await, StatusCode::REQUEST_TIMEOUT);
    client.ends().await;
    port.close().await;
}

#[tokio::test]
async fn client_that_reads_no_answers_is_disconnected() {
    let port = Port::open(ListenerLimits::default(), SHORT_TIMEOUTS).await;
    let stream = connect(port.addr, &port.trusted, &[b"h2"]).await.unwrap();
    // The client's window has no room for a body.
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(0);
    let (requests, connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut client = Http2 { requests, connection };
    let response = client.send("web.mesos.").await;
    assert_eq!(status(response).await, StatusCode::OK);
    client.ends().await;
    port.close().await;
}

#[tokio::test]
async fn heads_and_oversized_requests_are_bounded() {
    let port = Port::open(ListenerLimits::default(), LIMITS).await;
    let mut stream = connect(port.addr, &port.trusted, &[b"http/1.1"]).await.unwrap();
    let head = format!(
        "GET /dns-query?dns={} HTTP/1.1\r\nHost: x\r\n\r\n",
        "A".repeat(20_000)
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    assert!(
        read_to_end(&mut stream).await.starts_with("HTTP/1.1 4"),
        "{}",
        head.len()
    );

    let mut client = Http2::connect(&port).await;
    let request = Request::get("https://dns.test/dns-query").header("x", "x".repeat(20_000));
    let (response, _) = client
        .requests
        .send_request(request.body(()).unwrap(), true)
        .unwrap();
    assert_eq!(
        status(response).await,
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    );
    // A request that announces too large a body is rejected before the body arrives.
    let request = Request::post("https://dns.test/dns-query")
        .header("content-type", "application/dns-message")
        .header("content-length", "1000000");
    let (response, _body) = client
        .requests
        .send_request(request.body(()).unwrap(), false)
        .unwrap();
    assert_eq!(status(response).await, StatusCode::PAYLOAD_TOO_LARGE);
    port.close().await;
}

#[tokio::test]
async fn requests_in_flight_are_bounded_and_finish_at_shutdown() {
    let limits = ConnectionLimits {
        max_inflight: 2,
        ..LIMITS
    };
    let port = Port::open(ListenerLimits::default(), limits).await;
    let mut client = Http2::connect(&port).await;
    // The client learns the limit with the first answer, at the latest.
    let first = client.send("web.mesos.").await;
    assert_eq!(status(first).await, StatusCode::OK);
    let waiting = [client.send("slow.mesos.").await, client.send("slow.mesos.").await];
    let third = client.requests.clone().ready();
    let third = timeout(Duration::from_millis(100), third).await;
    // Either the client cannot open a third stream, or its request gets no response.
    if let Ok(Ok(mut ready)) = third {
        let request = Request::get("https://dns.test/other").body(()).unwrap();
        let sent = ready.send_request(request, true).map(|(response, _)| response);
        let outcome = timeout(Duration::from_millis(200), async { sent?.await }).await;
        assert!(!matches!(outcome, Ok(Ok(_))), "a third request is served");
    }
    // Queries that were received are answered when the daemon stops.
    port.token.cancel();
    port.responder.gate.add_permits(2);
    for response in waiting {
        assert_eq!(status(response).await, StatusCode::OK);
    }
    client.ends().await;
    port.close().await;
}

#[tokio::test]
async fn requests_that_never_end_do_not_delay_the_shutdown() {
    let port = Port::open(ListenerLimits::default(), SHORT_TIMEOUTS).await;
    let mut client = Http2::connect(&port).await;
    let _response = client.send("slow.mesos.").await;
    let gate = Arc::clone(&port.responder.gate);
    wait_until("the query", async || Arc::strong_count(&gate) > 2).await;
    let mut http1 = connect(port.addr, &port.trusted, &[b"http/1.1"]).await.unwrap();
    http1.write_all(b"GET /dns").await.unwrap();
    port.close().await;
    client.ends().await;
}

#[tokio::test]
async fn many_cancelled_requests_do_not_harm_other_connections() {
    let port = Port::open(ListenerLimits::default(), LIMITS).await;
    let client = Http2::connect(&port).await;
    // Each is cancelled before its body is sent.
    for _ in 0..5_000 {
        let Ok(Ok(mut ready)) = timeout(WAIT_TIMEOUT, client.requests.clone().ready()).await else {
            break;
        };
        let request = Request::get("https://dns.test/dns-query").body(()).unwrap();
        let Ok((response, mut body)) = ready.send_request(request, false) else {
            break;
        };
        body.send_reset(h2::Reason::CANCEL);
        drop(response);
    }
    // Whether or not that connection has ended, the port serves others.
    let mut other = Http2::connect(&port).await;
    let response = other.send("web.mesos.").await;
    assert_eq!(status(response).await, StatusCode::OK);
    drop(client);
    port.close().await;
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_place() {
    let limits = ListenerLimits {
        max_connections: 2,
        ..ListenerLimits::default()
    };
    let port = Port::open(limits, SHORT_TIMEOUTS).await;
    // Both versions at the same time on one port.
    let mut http1 = connect(port.addr, &port.trusted, &[b"http/1.1"]).await.unwrap();
    let mut http2 = Http2::connect(&port).await;
    let _slow = http2.send("slow.mesos.").await;
    http1
        .write_all(b"GET /dns-query?dns=AAABAAABAAAAAAAABHNsb3cAAAEAAQ HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let third = connect(port.addr, &port.trusted, &[b"h2"]);
    let early = timeout(Duration::from_millis(400), third).await;
    assert!(early.is_err(), "a third connection is accepted");
    let third = connect(port.addr, &port.trusted, &[b"http/1.1"]);
    port.responder.gate.add_permits(2);
    let mut third = third.await.unwrap();
    third
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    assert!(read_to_end(&mut third).await.starts_with("HTTP/1.1 404"));
    assert!(read_to_end(&mut http1).await.starts_with("HTTP/1.1 200"));
    http2.ends().await;
    port.close().await;
}
