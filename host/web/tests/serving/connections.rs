//! Clients that open more connections than a port has, or keep them.

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use http::StatusCode;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use transom_web::{Limits, Owner};

use super::{Server, WAIT_TIMEOUT, answer, plain, read_to_end};

const REQUEST: &str = "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n";

fn limits(max_connections: usize) -> Limits {
    Limits {
        max_connections,
        header_timeout: WAIT_TIMEOUT * 10,
        ..Limits::default()
    }
}

#[tokio::test]
async fn half_requests_keep_no_other_client_out() {
    let server = Server::start(plain(), limits(100), WAIT_TIMEOUT);
    let mut flood = Vec::new();
    for round in 0..3 {
        for text in [
            "",
            "GET",
            "GET /hello HTTP/1.1\r\nHost: x\r\n",
            "POST / HTTP/1.1\r\nX: ",
        ] {
            for _ in 0..40 {
                flood.push(server.send_text(text).await);
            }
        }
        let answered = server.ask("GET", "/hello", "").await;
        assert!(answered.ends_with("127.0.0.1"), "{round}: {answered}");
    }
    // The oldest ones have been closed; the newest one is still served.
    assert_eq!(read_to_end(&mut flood[0]).await, "");
    let last = flood.last_mut().unwrap();
    last.write_all(b"1\r\n\r\n").await.unwrap();
    assert!(answer(last).await.starts_with("HTTP/1.1 404 "));
    drop(flood);
    server.stop().await;
}

#[tokio::test]
async fn a_client_is_served_while_others_flood_the_port() {
    let server = Server::start(plain(), limits(50), WAIT_TIMEOUT);
    let addr = server.addr;
    let flood = tokio::spawn(async move {
        let mut open = std::collections::VecDeque::new();
        loop {
            let Ok(mut stream) = TcpStream::connect(addr).await else {
                continue;
            };
            let _ = stream.write_all(b"GET /hello HTTP/1.1\r\n").await;
            open.push_back(stream);
            if open.len() > 200 {
                open.pop_front();
            }
        }
    });
    for _ in 0..50 {
        let answered = server.ask("GET", "/hello", "").await;
        assert!(answered.ends_with("127.0.0.1"), "{answered}");
    }
    flood.abort();
    server.stop().await;
}

/// `/slow` reports that it has begun, and ends when it gets a permit; `/login` has valid credentials.
fn slow(began: mpsc::UnboundedSender<()>, gate: Arc<Semaphore>) -> Router {
    let gated = move || {
        let (began, gate) = (began.clone(), Arc::clone(&gate));
        async move {
            began.send(()).unwrap();
            gate.acquire().await.unwrap().forget();
            "done"
        }
    };
    let login = async || {
        let mut response = http::Response::new(axum::body::Body::from("welcome"));
        response.extensions_mut().insert(Owner::Reader);
        response
    };
    plain().route("/slow", get(gated)).route("/login", get(login))
}

#[tokio::test]
async fn requests_in_progress_and_known_clients_are_kept() {
    let (began, mut starts) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let server = Server::start(slow(began, Arc::clone(&gate)), limits(4), WAIT_TIMEOUT);
    let mut busy = server.send_text("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await;
    starts.recv().await.unwrap();
    let mut known = server.send_text("GET /login HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(answer(&mut known).await.ends_with("welcome"));
    for _ in 0..20 {
        let mut idle = server.send_text(REQUEST).await;
        assert!(answer(&mut idle).await.ends_with("127.0.0.1"));
    }
    known.write_all(REQUEST.as_bytes()).await.unwrap();
    assert!(answer(&mut known).await.ends_with("127.0.0.1"));
    gate.add_permits(1);
    assert!(answer(&mut busy).await.ends_with("done"));
    server.stop().await;
}

#[tokio::test]
async fn client_that_is_still_sending_gets_its_answer() {
    let rejected = post(async || (StatusCode::CONFLICT, "no"));
    let server = Server::start(plain().route("/no", rejected), limits(4), WAIT_TIMEOUT);
    let head = "POST /no HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n";
    let mut stream = server.send_text(&format!("{head}\r\n")).await;
    for _ in 0..10 {
        stream.write_all(&vec![b'x'; 100_000]).await.unwrap();
    }
    assert!(answer(&mut stream).await.starts_with("HTTP/1.1 409 "));
    // The connection is still open.
    stream.write_all(REQUEST.as_bytes()).await.unwrap();
    assert!(answer(&mut stream).await.ends_with("127.0.0.1"));
    // This client sends its body only when it is asked for it.
    let mut stream = server
        .send_text(&format!("{head}Expect: 100-continue\r\n\r\n"))
        .await;
    assert!(answer(&mut stream).await.starts_with("HTTP/1.1 409 "));
    server.stop().await;
}

#[tokio::test]
async fn rejected_requests_end_their_connection() {
    let router = plain()
        .route("/401", get(async || StatusCode::UNAUTHORIZED))
        .route("/403", get(async || (StatusCode::FORBIDDEN, "no")));
    let server = Server::start(router, limits(4), WAIT_TIMEOUT);
    for (path, closes) in [
        ("/401", true),
        ("/403", true),
        ("/hello", false),
        ("/none", false),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut stream = server.send_text(&request).await;
        if closes {
            let answer = read_to_end(&mut stream).await;
            assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
        } else {
            answer(&mut stream).await;
            stream.write_all(REQUEST.as_bytes()).await.unwrap();
            assert!(answer(&mut stream).await.ends_with("127.0.0.1"));
        }
    }
    server.stop().await;
}
