//! The maximum number of concurrent requests.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tower::ServiceExt;
use transom_web::{AccessRules, Origin, PortConfig};

use super::{Port, WAIT_TIMEOUT};

#[tokio::test]
async fn requests_beyond_the_maximum_get_503_and_streams_do_not_count() {
    // `/slow` reports that it has begun, then waits until the test opens the gate.
    let (began, mut starts) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let gated = {
        let gate = Arc::clone(&gate);
        move || {
            let (began, gate) = (began.clone(), Arc::clone(&gate));
            async move {
                began.send(()).unwrap();
                gate.acquire().await.unwrap().forget();
                "done"
            }
        }
    };
    let events = async || {
        let first = Ok::<_, std::io::Error>(Bytes::from("data: x\n\n"));
        let events = stream::iter([first]).chain(stream::pending());
        ([("content-type", "text/event-stream")], Body::from_stream(events)).into_response()
    };
    let router = Router::new()
        .route("/slow", get(gated))
        .route("/fast", get(async || "fast"))
        .route("/events", get(events));
    let mut config = PortConfig::new("apps", 0);
    config.limits.max_requests = Some(2);
    config.allowed_origins = vec!["https://ui.example".parse::<Origin>().unwrap()];
    let rules = AccessRules {
        is_stream: |path| path == "/events",
        ..AccessRules::default()
    };
    let port = Port::serve(config.bind().await.unwrap(), router, rules);

    // More streams than requests are allowed.
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = port.ask("GET", "/events").send().await.unwrap();
        assert!(stream.chunk().await.unwrap().is_some());
        streams.push(stream);
    }
    let pending: Vec<_> = (0..2)
        .map(|_| tokio::spawn(port.ask("GET", "/slow").send()))
        .collect();
    for _ in 0..2 {
        starts.recv().await.unwrap();
    }
    let rejected = port.ask("GET", "/fast").header("origin", "https://ui.example");
    let rejected = rejected.send().await.unwrap();
    assert_eq!(rejected.status().as_u16(), 503);
    assert!(rejected.headers().contains_key("retry-after"));
    // A page of an allowed site may read the reason.
    assert_eq!(
        rejected.headers()["access-control-allow-origin"],
        "https://ui.example"
    );
    let text = rejected.text().await.unwrap();
    assert_eq!(text, r#"{"message":"Too many concurrent requests! Allowed: 2."}"#);
    let mut another = port.ask("GET", "/events").send().await.unwrap();
    assert!(
        another.chunk().await.unwrap().is_some(),
        "a stream does not count as a request"
    );

    gate.add_permits(2);
    for answer in pending {
        assert_eq!(answer.await.unwrap().unwrap().text().await.unwrap(), "done");
    }
    let answer = port.ask("GET", "/fast").send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "fast");
    port.stop().await;
}

#[tokio::test]
async fn callers_of_a_limited_router_share_the_limits_of_the_port() {
    let (began, mut starts) = mpsc::unbounded_channel();
    let gated = move || {
        let began = began.clone();
        async move {
            began.send(()).unwrap();
            std::future::pending::<()>().await;
        }
    };
    let router = Router::new()
        .route("/slow", get(gated))
        .route("/echo", post(async |body: Bytes| body));
    let mut config = PortConfig::new("apps", 0);
    config.limits.max_requests = Some(1);
    config.limits.max_body = 10;
    let mut bound = config.bind().await.unwrap();
    let limited = bound.limited(router, AccessRules::default());
    let port = Port::serve(bound, limited.clone(), AccessRules::default());
    let echo = async |bytes: usize| {
        let request = Request::post("/echo").body(Body::from("x".repeat(bytes)));
        let response = limited.clone().oneshot(request.unwrap()).await.unwrap();
        response.status().as_u16()
    };

    assert_eq!(echo(10).await, 200);
    assert_eq!(echo(11).await, 413);
    let pending = tokio::spawn(port.ask("GET", "/slow").send());
    starts.recv().await.unwrap();
    assert_eq!(echo(1).await, 503);
    pending.abort();
    port.stop().await;
}

#[tokio::test]
async fn a_client_that_stops_sending_its_body_does_not_keep_its_request() {
    let router = Router::new().route("/echo", post(async |body: Bytes| body));
    let mut config = PortConfig::new("apps", 0);
    config.limits.max_requests = Some(1);
    config.limits.body_idle_timeout = Duration::from_millis(50);
    let port = Port::start(config, router).await;
    for _ in 0..3 {
        let mut stalled = TcpStream::connect(port.addr).await.unwrap();
        let head = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nx";
        stalled.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = timeout(WAIT_TIMEOUT, stalled.read_to_string(&mut answer)).await;
        read.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    let echo = port.ask("POST", "/echo").body("x").send().await.unwrap();
    assert_eq!(echo.text().await.unwrap(), "x");
    port.stop().await;
}
