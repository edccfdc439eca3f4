//! Event streams and their budget.

use std::time::{Duration, Instant};

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use bytes::Bytes;
use futures::{StreamExt, stream};
use transom_web::Limits;

use super::{Server, WAIT_TIMEOUT, plain, read_to_end, read_until};

/// A router with an event stream that never ends, one with more data than any buffer holds, one that
/// ends, and a short response.
fn streams() -> Router {
    let endless = || async {
        let first = stream::once(async { Ok::<_, std::io::Error>(Bytes::from_static(b"data: 1\n\n")) });
        let body = axum::body::Body::from_stream(first.chain(stream::pending()));
        ([("content-type", "text/event-stream")], body).into_response()
    };
    let flood = || async {
        let chunks = stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 1 << 16])));
        let body = axum::body::Body::from_stream(chunks);
        ([("content-type", "text/event-stream")], body).into_response()
    };
    let ended = || async {
        let body = axum::body::Body::from_stream(stream::iter([Ok::<_, std::io::Error>("data: 1\n\n")]));
        ([("content-type", "text/event-stream")], body).into_response()
    };
    plain()
        .route("/events", get(endless))
        .route("/flood", get(flood))
        .route("/ended", get(ended))
}

#[tokio::test]
async fn a_response_without_a_stream_leaves_its_connection_in_the_budget() {
    let limits = Limits {
        max_connections: 1,
        ..Limits::default()
    };
    let server = Server::start(streams(), limits, WAIT_TIMEOUT);
    for path in ["/events", "/ended"] {
        let mut first = server
            .send_text(&format!("HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
            .await;
        let head = read_until(&mut first, "\r\n\r\n").await;
        assert!(head.contains("text/event-stream"), "{head}");
        // It is idle, so it makes room for the second one.
        let mut second = server
            .send_text("GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .await;
        assert!(read_to_end(&mut second).await.contains("127.0.0.1"));
        assert_eq!(read_to_end(&mut first).await, "", "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn connection_is_closed_after_its_stream() {
    let limits = Limits {
        max_connections: 1,
        max_streams: 1,
        ..Limits::default()
    };
    let server = Server::start(streams(), limits, WAIT_TIMEOUT);
    // The second request on the connection is not answered.
    let request = "GET /ended HTTP/1.1\r\nHost: x\r\n\r\n";
    for _ in 0..3 {
        let mut stream = server.send_text(&request.repeat(2)).await;
        let answer = read_to_end(&mut stream).await;
        assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 1, "{answer}");
        assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
        assert!(answer.ends_with("data: 1\n\n\r\n0\r\n\r\n"), "{answer}");
    }
    server.stop().await;
}

#[tokio::test]
async fn streams_over_their_budget_do_not_block_requests() {
    let limits = Limits {
        max_connections: 1,
        max_streams: 2,
        ..Limits::default()
    };
    let server = Server::start(streams(), limits, WAIT_TIMEOUT);
    let request = "GET /events HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut first = server.send_text(request).await;
    read_until(&mut first, "data: 1").await;
    let mut second = server.send_text(request).await;
    read_until(&mut second, "data: 1").await;

    let rejected = server.ask("GET", "/events", "").await;
    assert!(rejected.starts_with("HTTP/1.1 503"), "{rejected}");
    assert!(rejected.contains("maximum number of event streams"), "{rejected}");
    assert!(rejected.contains("Retry-After: 5"), "{rejected}");
    for _ in 0..3 {
        let answered = server.ask("GET", "/hello", "").await;
        assert!(answered.ends_with("127.0.0.1"), "{answered}");
    }

    // The end of a stream makes room for the next one.
    drop(first);
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        let mut third = server.send_text(request).await;
        if read_until(&mut third, "\r\n\r\n")
            .await
            .starts_with("HTTP/1.1 200")
        {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "the slot of a closed stream is not freed"
        );
    }
    drop(second);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_stops_reading_is_disconnected_and_its_slot_freed() {
    let limits = Limits {
        max_streams: 1,
        write_timeout: Duration::from_millis(200),
        ..Limits::default()
    };
    let server = Server::start(streams(), limits, WAIT_TIMEOUT);
    let stalled = server.send_text("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n").await;
    stalled.readable().await.unwrap();

    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        let mut next = server.send_text("GET /events HTTP/1.1\r\nHost: x\r\n\r\n").await;
        if read_until(&mut next, "\r\n\r\n")
            .await
            .starts_with("HTTP/1.1 200")
        {
            break;
        }
        assert!(Instant::now() < deadline, "the stalled client still has its slot");
    }
    drop(stalled);
    server.stop().await;
}
