//! The client against a small API server with TLS.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::sync::DropGuard;
use transom_common::HostPort;
use transom_web::{Certificate, Limits, Listener, serve};

use super::{ClientConfig, KubeOrchestrator, Orchestrator, OrchestratorError, Pods, Timeouts};

const LIMITS: Limits = Limits {
    max_body: 1 << 20,
    max_head: 64 << 10,
    header_timeout: Duration::from_secs(5),
    body_idle_timeout: Duration::from_secs(5),
    body_timeout: Duration::from_secs(20),
    max_connections: 64,
    write_timeout: Duration::from_secs(20),
    max_streams: 10,
    max_requests: None,
};

/// A small API server with a self-signed certificate.
struct Served {
    port: u16,
    authority: String,
    _guard: DropGuard,
}

/// Serves `answer` for every method and path; the certificate is for `localhost`.
async fn served<F>(answer: F) -> Served
where
    F: Fn(String) -> Response + Clone + Send + Sync + 'static,
{
    let dir = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = self_signed(&key);
    let (key_file, file) = (dir.path().join("key.pem"), dir.path().join("cert.pem"));
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    std::fs::write(&file, &pem).unwrap();
    let certificate = Certificate::read(&file, &key_file, b"http/1.1").await.unwrap();
    let listener = Listener::bind("api", ([127, 0, 0, 1], 0).into()).unwrap();
    let port = listener.local_addr().port();
    let token = CancellationToken::new();
    let router = Router::new().fallback(async move |request: Request| {
        let path = request.uri().path_and_query().unwrap().to_string();
        let asked = format!("{} {path}", request.method());
        let body = axum::body::to_bytes(request.into_body(), 1 << 16).await.unwrap();
        if asked == "DELETE /api/v1/nodes/slow" {
            std::future::pending::<()>().await;
        }
        answer(format!("{asked} {}", String::from_utf8_lossy(&body)))
    });
    let serving = serve(
        listener.with_certificate(certificate),
        router,
        LIMITS,
        token.clone(),
        Duration::ZERO,
    );
    tokio::spawn(async move { (serving.await, dir) });
    Served {
        port,
        authority: pem,
        _guard: token.drop_guard(),
    }
}

fn self_signed(key: &rcgen::KeyPair) -> String {
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.self_signed(key).unwrap().pem()
}

/// A client that trusts this authority.
fn client(host: &str, port: u16, authority: &str, request: Duration) -> KubeOrchestrator {
    let text = format!(
        "clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:6443', certificate-authority-data: {}}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n\
         users: [{{name: u, user: {{token: secret}}}}]\n",
        STANDARD.encode(authority)
    );
    let timeouts = Timeouts {
        connect: Duration::from_secs(2),
        request,
    };
    let config = ClientConfig::parse(&text).unwrap();
    config.connect(&HostPort::new(host, port), timeouts).unwrap()
}

/// A server and a client of it. The client's requests time out after one second.
async fn api<F>(host: &str, answer: F) -> (KubeOrchestrator, Served)
where
    F: Fn(String) -> Response + Clone + Send + Sync + 'static,
{
    let served = served(answer).await;
    let client = client(host, served.port, &served.authority, Duration::from_secs(1));
    (client, served)
}

fn status(code: u16) -> Response {
    let code = StatusCode::from_u16(code).unwrap();
    (code, axum::Json(json!({"message": "because"}))).into_response()
}

fn pods(present: bool) -> Response {
    let pod = json!({"metadata": {"name": "p", "namespace": "d", "uid": "1"}});
    axum::Json(json!({"items": if present { vec![pod] } else { vec![] }})).into_response()
}

#[tokio::test]
async fn drain_retries_rejected_evictions_and_falls_back_to_the_older_version() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let (api, _guard) = api("localhost", move |asked| {
        if asked.contains("/eviction") {
            if asked.contains("\"policy/v1\"") {
                return status(400);
            }
            return status(if count.fetch_add(1, Ordering::SeqCst) == 0 {
                429
            } else {
                201
            });
        }
        pods(count.load(Ordering::SeqCst) < 2)
    })
    .await;
    let drained = api
        .drain("n", Instant::now() + Duration::from_secs(20))
        .await
        .unwrap();
    assert_eq!((drained.evicted, drained.remaining), (1, vec![]));
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn drain_ends_at_its_deadline_when_a_budget_never_yields() {
    let (api, _guard) = api("localhost", |asked| {
        if asked.contains("/eviction") {
            status(429)
        } else {
            pods(true)
        }
    })
    .await;
    let drained = api
        .drain("n", Instant::now() + Duration::from_millis(700))
        .await
        .unwrap();
    assert_eq!(
        (drained.evicted, drained.remaining),
        (0, vec!["d/p: because".to_owned()])
    );
}

#[tokio::test]
async fn failures_are_reported_as_the_matching_errors() {
    let (wrong_name, _guard) = api("127.0.0.1", |_| status(200)).await;
    let error = wrong_name.observe().await.unwrap_err();
    assert!(matches!(error, OrchestratorError::Tls { .. }), "{error:?}");
    let (api, _guard) = api("localhost", |asked| {
        status(if asked.contains("missing") { 404 } else { 200 })
    })
    .await;
    let error = api.observe().await.unwrap_err();
    assert!(matches!(error, OrchestratorError::Nonsense { .. }), "{error:?}");
    api.cordon("missing", true).await.unwrap();
    api.remove_node("missing").await.unwrap();
    let error = api.remove_node("slow").await.unwrap_err();
    assert!(
        matches!(error, OrchestratorError::Unreachable { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_rejected() {
    let served = served(|_| pods(false)).await;
    let other = self_signed(&rcgen::KeyPair::generate().unwrap());
    let wrong = client("localhost", served.port, &other, Duration::from_secs(1));
    for error in [
        wrong.observe().await.unwrap_err(),
        wrong.pods().await.unwrap_err(),
    ] {
        assert!(matches!(error, OrchestratorError::Tls { .. }), "{error:?}");
    }
    let right = client(
        "localhost",
        served.port,
        &served.authority,
        Duration::from_secs(1),
    );
    assert_eq!(right.pods().await.unwrap(), Pods::default());
}

/// The text of the error of a request whose answer is invalid.
fn nonsense<T: std::fmt::Debug>(result: Result<T, OrchestratorError>) -> String {
    match result {
        Err(OrchestratorError::Nonsense { request, why }) => format!("{request}: {why}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn invalid_lists_of_pods_are_rejected_with_the_reason() {
    let pod = |spec: Value| json!({"items": [{"metadata": {"name": "p", "namespace": "d", "uid": "1"}, "spec": spec}]});
    let much = json!({"containers": [{"resources": {"requests": {"cpu": "much"}}}]});
    for (body, why) in [
        ("<html>Not Found</html>".to_owned(), "expected value"),
        (String::new(), "EOF"),
        ("[]".to_owned(), "line 1 column"),
        (
            "{\"items\": [{\"metadata\": {}}]}".to_owned(),
            "missing field `name`",
        ),
        ("{\"items\": [".to_owned(), "EOF"),
        (json!({"items": "many"}).to_string(), "expected a sequence"),
        (pod(json!({"nodeName": 5})).to_string(), "expected a string"),
        (pod(much).to_string(), "pod d/p: \"much\" is not a valid quantity"),
    ] {
        let answer = body.clone();
        let (api, _served) = api("localhost", move |_| answer.clone().into_response()).await;
        let error = nonsense(api.pods().await);
        assert!(
            error.starts_with("GET /api/v1/pods: ") && error.contains(why),
            "{body}: {error}"
        );
    }
}

#[tokio::test]
async fn size_and_number_of_pages_are_limited() {
    let large = "x".repeat((16 << 20) + 1);
    let served = served(move |_| large.clone().into_response()).await;
    let patient = client(
        "localhost",
        served.port,
        &served.authority,
        Duration::from_secs(30),
    );
    let error = nonsense(patient.pods().await);
    assert!(error.ends_with("it exceeds 16777216 bytes"), "{error}");

    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let (api, _served) = api("localhost", move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        axum::Json(json!({"metadata": {"continue": "again"}, "items": []})).into_response()
    })
    .await;
    let error = nonsense(api.pods().await);
    assert!(error.ends_with("more than 100 pages"), "{error}");
    assert_eq!(asked.load(Ordering::SeqCst), 100);
}

#[tokio::test]
async fn an_incomplete_answer_times_out() {
    let (api, _served) = api("localhost", |_| {
        let begin = futures::stream::iter([Ok::<_, std::io::Error>("{\"items\": [")]);
        axum::body::Body::from_stream(begin.chain(futures::stream::pending())).into_response()
    })
    .await;
    let begin = Instant::now();
    let error = api.pods().await.unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert!(
        matches!(&error, OrchestratorError::Unreachable { why, .. } if why.contains("within 1 s")),
        "{error:?}"
    );
}

#[tokio::test]
async fn pods_are_listed_in_pages_with_and_without_a_node() {
    let (api, _served) = api("localhost", |asked| {
        let waits = asked.contains("fieldSelector=spec.nodeName%3D%2Cstatus.phase%3DPending");
        let placed = asked.contains("fieldSelector=spec.nodeName%21%3D&") || asked.contains("fieldSelector=spec.nodeName%21%3D ");
        assert!(waits != placed, "{asked}");
        let second = asked.contains("continue=next");
        let name = format!("{}{}", if waits { "waits" } else { "placed" }, u8::from(second));
        let node = placed.then(|| format!("node{}", u8::from(second)));
        axum::Json(json!({
            "metadata": {"continue": if second { "" } else { "next" }},
            "items": [{"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": {"nodeName": node}}],
        }))
        .into_response()
    })
    .await;
    let found = api.pods().await.unwrap();
    let names: Vec<&str> = found.waiting.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(names, ["d/waits0", "d/waits1"]);
    let loads: Vec<(&str, bool)> = found
        .loads
        .iter()
        .map(|(node, load)| (node.as_str(), load.busy))
        .collect();
    assert_eq!(loads, [("node0", true), ("node1", true)]);
}

#[tokio::test]
async fn drain_marks_the_node_until_it_is_cordoned_or_uncordoned() {
    let patches = Arc::new(std::sync::Mutex::new(Vec::<Value>::new()));
    let seen = Arc::clone(&patches);
    let (api, _served) = api("localhost", move |asked| {
        if let Some(patch) = asked.strip_prefix("PATCH /api/v1/nodes/n ") {
            seen.lock().unwrap().push(serde_json::from_str(patch).unwrap());
        }
        pods(false)
    })
    .await;
    api.drain("n", Instant::now() + Duration::from_secs(5))
        .await
        .unwrap();
    api.cordon("n", true).await.unwrap();
    api.cordon("n", false).await.unwrap();
    let patch = |draining: Value, unschedulable: Value| -> Value {
        json!({"metadata": {"annotations": {"transom/draining": draining}}, "spec": {"unschedulable": unschedulable}})
    };
    let expected = [
        patch(json!("true"), json!(true)),
        patch(Value::Null, json!(true)),
        patch(Value::Null, Value::Null),
    ];
    assert_eq!(*patches.lock().unwrap(), expected);
}
