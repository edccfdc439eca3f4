//! gzip.

use std::io::Read;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use axum::routing::get;
use bytes::Bytes;
use flate2::read::GzDecoder;
use futures::{StreamExt, stream};
use transom_web::PortConfig;

use super::{Port, standby};

/// A long and a short text, a stream that stays open, and a body that is already encoded.
fn texts() -> Router {
    Router::new()
        .route("/long", get(async || "word ".repeat(2000)))
        .route("/short", get(async || "word"))
        .route(
            "/events",
            get(async || {
                let event = Ok::<_, std::io::Error>(Bytes::from("data: x\n\n".repeat(1000)));
                let events = stream::iter([event]).chain(stream::pending());
                let kind = "text/event-stream;charset=utf-8";
                ([("content-type", kind)], Body::from_stream(events)).into_response()
            }),
        )
        .route(
            "/encoded",
            get(async || ([("content-encoding", "br")], "word ".repeat(2000))),
        )
}

#[tokio::test]
async fn long_responses_are_compressed_when_the_client_accepts_gzip() {
    let port = Port::start(PortConfig::new("apps", 0), texts()).await;
    for (path, accepted, expected) in [
        ("/long", "gzip", Some("gzip")),
        ("/long", "deflate, gzip;q=0.5", Some("gzip")),
        ("/long", "", None),
        ("/long", "br", None),
        ("/long", "gzip;q=0", None),
        ("/short", "gzip", None),
        ("/encoded", "gzip", Some("br")),
    ] {
        let answer = port.ask("GET", path).header("accept-encoding", accepted);
        let answer = answer.send().await.unwrap();
        let encoding = answer.headers().get("content-encoding");
        let encoding = encoding.map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(encoding.as_deref(), expected, "{path} {accepted:?}");
        let body = answer.bytes().await.unwrap();
        let text = if expected == Some("gzip") {
            assert!(body.len() < 500, "{path}: {} bytes", body.len());
            let mut text = String::new();
            GzDecoder::new(&*body).read_to_string(&mut text).unwrap();
            text
        } else {
            String::from_utf8(body.to_vec()).unwrap()
        };
        let words = if path == "/short" {
            "word".to_owned()
        } else {
            "word ".repeat(2000)
        };
        assert_eq!(text, words, "{path} {accepted:?}");
    }
    port.stop().await;
}

#[tokio::test]
async fn event_streams_are_never_compressed() {
    let port = Port::start(PortConfig::new("apps", 0), texts()).await;
    let answer = port.ask("GET", "/events").header("accept-encoding", "gzip");
    let mut answer = answer.send().await.unwrap();
    assert!(!answer.headers().contains_key("content-encoding"), "{answer:?}");
    let first = answer.chunk().await.unwrap().unwrap();
    assert!(first.starts_with(b"data: x\n\n"), "{first:?}");
    port.stop().await;
}

/// The leader compresses the response, and the standby forwards it unchanged.
#[tokio::test]
async fn a_forwarded_response_is_compressed_once() {
    let leader = Port::start(PortConfig::new("apps", 0), texts()).await;
    let standby = standby(PortConfig::new("apps", 0), leader.addr).await;
    let answer = standby.ask("GET", "/long").header("accept-encoding", "gzip");
    let answer = answer.send().await.unwrap();
    assert_eq!(answer.headers()["content-encoding"], "gzip");
    let (body, mut text) = (answer.bytes().await.unwrap(), String::new());
    GzDecoder::new(&*body).read_to_string(&mut text).unwrap();
    assert_eq!(text, "word ".repeat(2000));
    standby.stop().await;
    leader.stop().await;
}
