//! Forwarded requests, over real sockets on loopback.
#![allow(clippy::unwrap_used, clippy::panic)] // Tests may panic.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::HeaderName;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transom_web::{Access, ApiError, Forwarder, Limits, Listener, guarded, serve};

const VIA: HeaderName = HeaderName::from_static("x-marathon-via");
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

struct Server {
    addr: SocketAddr,
    token: CancellationToken,
    task: JoinHandle<transom_web::Result<()>>,
}

impl Server {
    fn start(make: impl FnOnce(SocketAddr) -> Router) -> Self {
        let listener = Listener::bind("apps", ([127, 0, 0, 1], 0).into()).unwrap();
        let (addr, token) = (listener.local_addr(), CancellationToken::new());
        let router = make(addr);
        let task = tokio::spawn(serve(
            listener,
            router,
            Limits::default(),
            token.clone(),
            SHUTDOWN_GRACE,
        ));
        Self { addr, token, task }
    }

    /// Forwards everything to `leader`.
    fn standby(leader: SocketAddr) -> Self {
        Self::start(|own| forwarding_router(&own.to_string(), leader.to_string()))
    }

    async fn stop(self) {
        self.token.cancel();
        self.task.await.unwrap().unwrap();
    }
}

fn forwarding_router(own: &str, leader: String) -> Router {
    let forwarder = Forwarder::new(VIA, own).unwrap();
    Router::new().fallback(async move |request: Request| -> Response {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        match forwarder.forward(&leader, &head, body).await {
            Ok(response) => response,
            Err(error) => ApiError::from(error).into_response(),
        }
    })
}

/// Answers with the request that it received.
fn leader(_: SocketAddr) -> Router {
    Router::new().fallback(async |request: Request| {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let header = |name: &str| {
            let values = parts.headers.get_all(name).iter();
            let values: Vec<_> = values.map(|value| value.to_str().unwrap().to_owned()).collect();
            values.join(",")
        };
        let text = format!(
            "{} {} {} te={} mine={} via={}",
            parts.method,
            parts.uri,
            String::from_utf8_lossy(&body),
            header("te"),
            header("x-mine"),
            header("x-marathon-via"),
        );
        (
            http::StatusCode::CONFLICT,
            [("x-answer", "42"), ("keep-alive", "timeout=5")],
            text,
        )
    })
}

fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .build()
        .unwrap()
}

#[tokio::test]
async fn request_and_response_are_forwarded_without_connection_headers() {
    let leader = Server::start(leader);
    let standby = Server::standby(leader.addr);
    let answer = client()
        .put(format!("http://{}/v2/apps//a?force=true&x=%20", standby.addr))
        .header("te", "trailers")
        .header("x-mine", "1")
        .header("x-hop", "1")
        .header("connection", "x-hop")
        .body("{\"cpus\": 1}")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status().as_u16(), 409);
    assert_eq!(answer.headers()["x-answer"], "42");
    assert_eq!(
        answer.headers()["x-marathon-via"],
        standby.addr.to_string().as_str()
    );
    assert!(!answer.headers().contains_key("keep-alive"));
    let expected = format!(
        "PUT /v2/apps//a?force=true&x=%20 {{\"cpus\": 1}} te= mine=1 via={}",
        standby.addr
    );
    assert_eq!(answer.text().await.unwrap(), expected);
    standby.stop().await;
    leader.stop().await;
}

/// The page was loaded from the standby, whose host name is unknown to the leader.
#[tokio::test]
async fn origin_of_a_forwarded_request_is_checked_by_the_standby_only() {
    let guard = |router, host: &str| {
        let hosts = vec![host.parse().unwrap()];
        guarded(router, Access::new("apps", hosts, Vec::new()))
    };
    let leader = Server::start(|own| guard(leader(own), "leader.test"));
    let address = leader.addr.to_string();
    let standby = Server::start(|own| guard(forwarding_router(&own.to_string(), address), "standby.test"));
    for (origin, site, expected) in [
        ("http://standby.test", "same-origin", 409),
        ("http://evil.test", "cross-site", 403),
        ("http://leader.test", "cross-site", 403),
    ] {
        let answer = client()
            .post(format!("http://{}/v2/apps", standby.addr))
            .header("host", "standby.test")
            .header("origin", origin)
            .header("sec-fetch-site", site)
            .header("sec-fetch-mode", "cors")
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status().as_u16(), expected, "{origin}: {answer:?}");
    }
    standby.stop().await;
    leader.stop().await;
}

/// Every `GET` of this test counts as one that changes something.
#[tokio::test]
async fn referer_of_a_forwarded_request_is_checked_by_the_standby_only() {
    let guard = |router, host: &str| {
        let hosts = vec![host.parse().unwrap()];
        let access = Access::new("kubernetes", hosts, Vec::new());
        guarded(router, access.with_changes(|_, _| true))
    };
    let leader = Server::start(|own| guard(leader(own), "leader.test"));
    let address = leader.addr.to_string();
    let standby = Server::start(|own| guard(forwarding_router(&own.to_string(), address), "standby.test"));
    for (referer, expected) in [
        (Some("http://standby.test/page"), 409),
        (Some("http://leader.test/page"), 403),
        (Some("http://evil.test/page"), 403),
        (None, 403),
    ] {
        let mut request = client()
            .get(format!("http://{}/v2/apps", standby.addr))
            .header("host", "standby.test")
            .header("user-agent", "Mozilla/5.0");
        if let Some(referer) = referer {
            request = request.header("referer", referer);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status().as_u16(), expected, "{referer:?}: {answer:?}");
    }
    standby.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn forwarding_loop_is_answered_with_502() {
    let listener = Listener::bind("apps", ([127, 0, 0, 1], 0).into()).unwrap();
    let first = listener.local_addr();
    let second = Server::standby(first);
    let (token, router) = (
        CancellationToken::new(),
        forwarding_router(&first.to_string(), second.addr.to_string()),
    );
    let task = tokio::spawn(serve(
        listener,
        router,
        Limits::default(),
        token.clone(),
        SHUTDOWN_GRACE,
    ));
    for start in [first, second.addr] {
        let answer = client()
            .post(format!("http://{start}/v2/apps"))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status().as_u16(), 502);
        let text = answer.text().await.unwrap();
        assert!(text.contains("without reaching the leader"), "{text}");
    }
    token.cancel();
    task.await.unwrap().unwrap();
    second.stop().await;
}

#[tokio::test]
async fn unreachable_leader_is_answered_with_502_and_its_address() {
    let unused = Listener::bind("apps", ([127, 0, 0, 1], 0).into())
        .unwrap()
        .local_addr();
    let standby = Server::standby(unused);
    let answer = client()
        .get(format!("http://{}/v2/queue", standby.addr))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status().as_u16(), 502);
    let text = answer.text().await.unwrap();
    assert!(
        text.contains(&unused.to_string()) && text.contains("cannot be reached"),
        "{text}"
    );
    standby.stop().await;
}
