use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;

use axum::body::Body;
use axum::routing::any;
use http::{HeaderMap, HeaderName};
use http_body_util::BodyExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use transom_store::Leadership;
use transom_web::{AccessRules, PortConfig};

use super::*;

const VIA: HeaderName = HeaderName::from_static("x-via");

fn policy(method: &Method, path: &str) -> Route {
    match path {
        "/local" => Route::Local,
        "/stream" => Route::Redirect,
        "/read" => Route::ForwardOrLocal,
        _ if *method == Method::OPTIONS => Route::Local,
        _ => Route::Forward,
    }
}

/// A router that answers with its name, the method, the path and the credentials that it received.
fn named_router(name: &'static str) -> Router {
    Router::new().fallback(any(async move |request: Request| {
        let authorization = request.headers().get(header::AUTHORIZATION);
        let authorization = authorization.map_or("-", |value| value.to_str().unwrap_or("?"));
        let status = if request.uri().path() == "/bad" {
            StatusCode::BAD_REQUEST
        } else {
            StatusCode::OK
        };
        let text = format!("{name} {} {} {authorization}", request.method(), request.uri());
        (status, text)
    }))
}

/// The port of a leader.
async fn leader(token: &CancellationToken) -> SocketAddr {
    let port = PortConfig::new("apps", 0).bind().await.unwrap();
    let address = port.addr();
    tokio::spawn(port.serve(named_router("leader"), AccessRules::default(), token.clone()));
    address
}

struct Standby {
    elected: watch::Sender<Leadership>,
    leader: Leader<()>,
    router: Router,
    /// How often the hook ran.
    hook_runs: Arc<AtomicUsize>,
}

impl Standby {
    fn new(leadership: Leadership, credentials: Option<&Credentials>) -> Self {
        let (elected, election) = watch::channel(leadership);
        let leader = Leader::new("own:1", election);
        let forwarder = Forwarder::new(VIA, "own:1").unwrap();
        let hook_runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&hook_runs);
        let forwarding = Forwarding::new(leader.clone(), forwarder, policy)
            .with_credentials(credentials)
            .after_write(move || {
                let counted = Arc::clone(&counted);
                async move {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            });
        Self {
            elected,
            leader,
            router: forwarding.wrap(named_router("own")),
            hook_runs,
        }
    }

    async fn request(&self, method: Method, uri: &str) -> (StatusCode, HeaderMap, String) {
        let mut request = Request::new(Body::empty());
        (*request.method_mut(), *request.uri_mut()) = (method, uri.parse().unwrap());
        self.send(request).await
    }

    async fn send(&self, request: Request) -> (StatusCode, HeaderMap, String) {
        let (head, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        (head.status, head.headers, text)
    }
}

#[tokio::test]
async fn requests_go_where_the_policy_sends_them() {
    let token = CancellationToken::new();
    let address = leader(&token).await;
    let standby = Standby::new(Leadership::Follower(address.to_string()), None);
    for (method, uri, expected) in [
        (Method::GET, "/local?a=1", "own GET /local?a=1 -"),
        (Method::GET, "/x?a=1", "leader GET /x?a=1 -"),
        (Method::POST, "/x", "leader POST /x -"),
        (Method::OPTIONS, "/x", "own OPTIONS /x -"),
    ] {
        let (status, _, text) = standby.request(method, uri).await;
        assert_eq!((status, text.as_str()), (StatusCode::OK, expected));
    }
    let (status, headers, _) = standby.request(Method::GET, "/stream?a=1").await;
    assert_eq!(status, StatusCode::FOUND);
    let location = format!("http://{address}/stream?a=1");
    assert_eq!(headers[header::LOCATION], location);

    // A leader answers every request itself.
    let installed = standby.leader.install((), None);
    let (_, _, text) = standby.request(Method::POST, "/x").await;
    assert_eq!(text, "own POST /x -");
    let (status, _, _) = standby.request(Method::GET, "/stream").await;
    assert_eq!(status, StatusCode::OK);
    drop(installed);
    token.cancel();
}

#[tokio::test]
async fn the_hook_runs_after_successful_writes_only() {
    let token = CancellationToken::new();
    let address = leader(&token).await;
    let standby = Standby::new(Leadership::Follower(address.to_string()), None);
    for (method, uri, hook_runs) in [
        (Method::GET, "/x", 0),
        (Method::HEAD, "/x", 0),
        (Method::POST, "/bad", 0),
        (Method::POST, "/x", 1),
        (Method::DELETE, "/x", 2),
        (Method::POST, "/local", 2),
    ] {
        standby.request(method.clone(), uri).await;
        assert_eq!(
            standby.hook_runs.load(Ordering::SeqCst),
            hook_runs,
            "{method} {uri}"
        );
    }
    token.cancel();
}

#[tokio::test]
async fn requests_are_forwarded_with_the_credentials_of_this_daemon() {
    let token = CancellationToken::new();
    let address = leader(&token).await;
    let credentials = Credentials {
        username: "u".to_owned(),
        password: "p".into(),
    };
    let standby = Standby::new(Leadership::Follower(address.to_string()), Some(&credentials));
    let from = |caller: Option<Caller>| {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = "/x".parse().unwrap();
        if let Some(caller) = caller {
            request.extensions_mut().insert(caller);
        }
        standby.send(request)
    };
    let (own, none) = (
        format!("leader GET /x {}", credentials.authorization()),
        "leader GET /x -",
    );
    for (authority, read_only, expected) in [
        (Authority::Credentials, false, own.as_str()),
        (Authority::Network, false, own.as_str()),
        (Authority::Credentials, true, none),
        (Authority::Nothing, false, none),
    ] {
        let caller = Caller {
            authority,
            read_only,
            ..Caller::default()
        };
        let (_, _, text) = from(Some(caller)).await;
        assert_eq!(text, expected, "{authority:?}");
    }
    let (_, _, text) = from(None).await;
    assert_eq!(text, none);
    let (_, _, text) = standby.request(Method::GET, "/local").await;
    assert_eq!(text, "own GET /local -");
    // The read-only user gets no further permissions at the leader.
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = "/x".parse().unwrap();
    let shown = HeaderValue::from_static("Basic cmVhZGVy");
    request.headers_mut().insert(header::AUTHORIZATION, shown);
    request.extensions_mut().insert(Caller {
        read_only: true,
        authority: Authority::Credentials,
        ..Caller::default()
    });
    let (_, _, text) = standby.send(request).await;
    assert_eq!(text, "leader GET /x Basic cmVhZGVy");
    token.cancel();
}

#[tokio::test]
async fn request_to_an_unreachable_leader_is_sent_to_the_next_one() {
    let token = CancellationToken::new();
    let address = leader(&token).await;
    // The port is bound and not listening: connections are rejected, and no other process can bind it.
    let unused = tokio::net::TcpSocket::new_v4().unwrap();
    unused.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let unreachable = unused.local_addr().unwrap().to_string();
    let standby = Standby::new(Leadership::Follower(unreachable), None);
    let asked = standby.request(Method::POST, "/x");
    let elected = async {
        tokio::task::yield_now().await;
        let next = Leadership::Follower(address.to_string());
        standby.elected.send_replace(next);
    };
    let ((status, _, text), ()) = tokio::join!(asked, elected);
    assert_eq!((status, text.as_str()), (StatusCode::OK, "leader POST /x -"));
    token.cancel();
}

#[tokio::test(start_paused = true)]
async fn without_a_leader_a_request_waits_and_is_then_rejected() {
    for (leadership, expected, text, retry) in [
        (
            Leadership::Unknown,
            502,
            "Could not determine the current leader",
            false,
        ),
        (
            Leadership::StoreUnavailable,
            503,
            "state store is unavailable",
            true,
        ),
    ] {
        let standby = Standby::new(leadership, None);
        let began = Instant::now();
        for (method, uri) in [(Method::POST, "/x"), (Method::GET, "/stream")] {
            let (status, headers, body) = standby.request(method, uri).await;
            assert_eq!(status.as_u16(), expected, "{uri}");
            assert!(body.contains(text), "{body}");
            assert_eq!(headers.contains_key(header::RETRY_AFTER), retry);
        }
        assert!(began.elapsed() >= 2 * ELECTION_TIMEOUT);
        let (status, ..) = standby.request(Method::GET, "/local").await;
        assert_eq!(status, StatusCode::OK);
    }
}

#[tokio::test]
async fn read_is_answered_here_with_its_age_while_no_leader_answers() {
    let token = CancellationToken::new();
    let address = leader(&token).await;
    let standby = Standby::new(Leadership::Follower(address.to_string()), None);
    let (_, headers, text) = standby.request(Method::GET, "/read").await;
    assert!(text.starts_with("leader GET /read"), "{text}");
    assert!(!headers.contains_key(header::AGE));
    let unreachable = SocketAddr::from(([127, 0, 0, 1], 1)).to_string();
    for leadership in [Leadership::Follower(unreachable), Leadership::Unknown] {
        standby.elected.send(leadership).unwrap();
        let (status, headers, text) = standby.request(Method::GET, "/read").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.starts_with("own GET /read"), "{text}");
        let age: u64 = headers[header::AGE].to_str().unwrap().parse().unwrap();
        assert!(age < 60, "{age}");
    }
    token.cancel();
}
