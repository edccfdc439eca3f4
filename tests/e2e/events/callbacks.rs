//! Callback subscribers: real HTTP servers to which the daemon posts events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use transom_testkit::{WAIT_TIMEOUT, eventually};
use transom_tests::events::Events;
use transom_tests::site::Site;

/// A server that receives events.
struct Receiver {
    url: String,
    events: mpsc::UnboundedReceiver<Value>,
    status: Arc<AtomicU16>,
    request_count: Arc<AtomicUsize>,
}

#[derive(Clone)]
struct ReceiverState {
    events: mpsc::UnboundedSender<Value>,
    status: Arc<AtomicU16>,
    request_count: Arc<AtomicUsize>,
    redirect_to: Option<String>,
}

async fn receive_event(State(receiver_state): State<ReceiverState>, body: axum::Json<Value>) -> Response {
    receiver_state.request_count.fetch_add(1, Ordering::SeqCst);
    if let Some(redirect_to) = receiver_state.redirect_to {
        return (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, redirect_to)]).into_response();
    }
    let status = StatusCode::from_u16(receiver_state.status.load(Ordering::SeqCst)).expect("a status");
    if status.is_success() {
        receiver_state.events.send(body.0).expect("the test listens");
    }
    status.into_response()
}

impl Receiver {
    async fn start(redirect_to: Option<String>) -> Receiver {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let url = format!("http://{}/events?a=b", listener.local_addr().expect("an address"));
        let (queue, events) = mpsc::unbounded_channel();
        let (status, request_count) = (Arc::new(AtomicU16::new(200)), Arc::new(AtomicUsize::new(0)));
        let receiver_state = ReceiverState {
            events: queue,
            status: status.clone(),
            request_count: request_count.clone(),
            redirect_to,
        };
        let router = Router::new().fallback(receive_event).with_state(receiver_state);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Receiver {
            url,
            events,
            status,
            request_count,
        }
    }

    async fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let event = tokio::time::timeout(WAIT_TIMEOUT, self.events.recv()).await;
            let event = event.expect("an event in time").expect("an event");
            if event["eventType"] == kind {
                return event;
            }
        }
    }
}

async fn subscription(site: &Site, method: Method, url: Option<&str>) -> (u16, Value) {
    let mut request = site.http.request(method, site.apps("/v2/eventSubscriptions"));
    if let Some(url) = url {
        request = request.query(&[("callbackUrl", url)]);
    }
    let answer = request.send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

async fn post(site: &Site, id: &str) {
    site.post_app(&json!({"id": id, "cmd": "exec sleep 1000", "instances": 0}))
        .await;
}

async fn metric(site: &Site, name: &str) -> Option<u64> {
    let text = site
        .http
        .get(site.admin("/metrics"))
        .send()
        .await
        .ok()?
        .text()
        .await
        .ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_get_every_event_also_after_a_restart_and_failures() {
    let mut site = Site::start_with("[apps.callbacks]\nallow = [\"127.0.0.1\"]\n").await;
    let mut stream = Events::open(&site.http, &site.apps("/v2/events")).await;
    let mut receiver = Receiver::start(None).await;
    let url = receiver.url.clone();
    let (status, event) = subscription(&site, Method::POST, Some(&url)).await;
    assert_eq!((status, &event["eventType"]), (200, &json!("subscribe_event")));
    assert_eq!(
        (&event["callbackUrl"], &event["clientIp"]),
        (&json!(url), &json!("127.0.0.1"))
    );
    assert_eq!(
        stream.next_of("subscribe_event").await.data,
        event,
        "other subscribers receive the event"
    );
    assert_eq!(receiver.next_of("subscribe_event").await, event);
    let (_, list) = subscription(&site, Method::GET, None).await;
    assert_eq!(list, json!({"callbackUrls": [url]}));

    post(&site, "/a").await;
    assert_eq!(
        receiver.next_of("api_post_event").await["appDefinition"]["id"],
        "/a"
    );
    // A failed delivery is retried, and the following events wait.
    receiver.status.store(500, Ordering::SeqCst);
    let before = receiver.request_count.load(Ordering::SeqCst);
    post(&site, "/b").await;
    eventually("another attempt", || async {
        let request_count = receiver.request_count.load(Ordering::SeqCst);
        if request_count >= before + 2 {
            Ok(())
        } else {
            Err(request_count.to_string())
        }
    })
    .await;
    receiver.status.store(204, Ordering::SeqCst);
    assert_eq!(
        receiver.next_of("api_post_event").await["appDefinition"]["id"],
        "/b"
    );

    site.kill_daemon();
    site.start_daemon().await;
    let (_, list) = subscription(&site, Method::GET, None).await;
    assert_eq!(list, json!({"callbackUrls": [url]}), "it is kept in the store");
    post(&site, "/c").await;
    assert_eq!(
        receiver.next_of("api_post_event").await["appDefinition"]["id"],
        "/c"
    );
    // The daemon counts an event after it has read the response.
    eventually("the delivered event to be counted", || async {
        let counted = metric(&site, "transom_apps_callback_events_total{outcome=\"delivered\"}").await;
        if counted > Some(0) {
            Ok(())
        } else {
            Err(format!("{counted:?}"))
        }
    })
    .await;

    let mut stream = Events::open(&site.http, &site.apps("/v2/events")).await;
    let (status, event) = subscription(&site, Method::DELETE, Some(&url)).await;
    assert_eq!((status, &event["eventType"]), (200, &json!("unsubscribe_event")));
    assert_eq!(stream.next_of("unsubscribe_event").await.data, event);
    let (status, answer) = subscription(&site, Method::DELETE, Some(&url)).await;
    assert_eq!(status, 404, "{answer}");
    let (_, list) = subscription(&site, Method::GET, None).await;
    assert_eq!(list, json!({"callbackUrls": []}));
    site.cluster.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callbacks_reach_only_allowed_addresses() {
    let forbidden = Receiver::start(None).await;
    let redirecting = Receiver::start(Some(forbidden.url.clone())).await;
    let port = redirecting
        .url
        .split(':')
        .nth(2)
        .expect("a port")
        .split('/')
        .next()
        .expect("a port");
    let settings =
        format!("[apps.callbacks]\nallow = [\"127.0.0.1:{port}\", \"10.0.0.0/8\"]\nattempts = 1\n");
    let site = Site::start_with(&settings).await;
    for (url, status, part) in [
        (forbidden.url.as_str(), 403, "apps.callbacks.allow"),
        ("http://localhost:1/", 403, "loopback"),
        ("http://169.254.169.254/latest", 403, "link-local"),
        ("http://192.0.2.1/", 403, "192.0.2.1, port 80, is not allowed"),
        (&site.apps("/v2/apps"), 403, "the apps port of this daemon"),
        ("file:///etc/passwd", 400, "http or https"),
        ("nonsense", 400, "a URL such as"),
        ("http://a:secret@10.0.0.1/", 400, "without user and password"),
    ] {
        let (found, answer) = subscription(&site, Method::POST, Some(url)).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert_eq!(found, status, "{url}: {answer}");
        assert!(
            message.contains(part) && !message.contains("secret"),
            "{url}: {answer}"
        );
    }
    let (status, answer) = subscription(&site, Method::POST, None).await;
    assert_eq!(status, 400, "{answer}");
    let (_, list) = subscription(&site, Method::GET, None).await;
    assert_eq!(list, json!({"callbackUrls": []}));

    let (status, _) = subscription(&site, Method::POST, Some(&redirecting.url)).await;
    assert_eq!(status, 200);
    eventually("failed deliveries", || async {
        let failed = metric(&site, "transom_apps_callback_events_total{outcome=\"failed\"}").await;
        if failed > Some(0) {
            Ok(())
        } else {
            Err(format!("{failed:?}"))
        }
    })
    .await;
    assert_eq!(
        forbidden.request_count.load(Ordering::SeqCst),
        0,
        "the redirect is not followed"
    );
    site.cluster.stop();

    let closed = Site::start().await;
    let (status, answer) = subscription(&closed, Method::POST, Some("http://10.0.0.1/")).await;
    assert_eq!(status, 403);
    assert!(
        answer["message"]
            .as_str()
            .is_some_and(|text| text.contains("apps.callbacks.allow")),
        "{answer}"
    );
    let (status, list) = subscription(&closed, Method::GET, None).await;
    assert_eq!((status, list), (200, json!({"callbackUrls": []})));
    closed.cluster.stop();
}
