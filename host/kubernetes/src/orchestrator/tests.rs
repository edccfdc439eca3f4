//! The client against a small API server with TLS.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::sync::DropGuard;
use transom_common::HostPort;
use transom_web::{Certificate, Limits, Listener, serve};

use super::{ClientConfig, KubeOrchestrator, Orchestrator, OrchestratorError, Timeouts};

const LIMITS: Limits = Limits {
    max_body: 1 << 20,
    max_head: 64 << 10,
    header_timeout: Duration::from_secs(5),
    max_connections: 64,
    write_timeout: Duration::from_secs(20),
    max_streams: 10,
    max_requests: None,
};

/// Serves `answer` for every method and path; the certificate is for `localhost`.
async fn api<F>(host: &str, answer: F) -> (KubeOrchestrator, DropGuard)
where
    F: Fn(String) -> Response + Clone + Send + Sync + 'static,
{
    let dir = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let (key_file, file) = (dir.path().join("key.pem"), dir.path().join("cert.pem"));
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    std::fs::write(&file, &pem).unwrap();
    let certificate = Certificate::read(&file, &key_file, b"http/1.1").await.unwrap();
    let listener = Listener::bind("api", ([127, 0, 0, 1], 0).into()).unwrap();
    let port = listener.local_addr().port();
    let token = CancellationToken::new();
    let router = Router::new().fallback(async move |request: Request| {
        let path = request.uri().path().to_owned();
        let asked = format!("{} {path}", request.method());
        let body = axum::body::to_bytes(request.into_body(), 1 << 16).await.unwrap();
        if path == "/slow" || asked == "DELETE /api/v1/nodes/slow" {
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
    let text = format!(
        "clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:6443', certificate-authority-data: {}}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n\
         users: [{{name: u, user: {{token: secret}}}}]\n",
        STANDARD.encode(pem)
    );
    let timeouts = Timeouts {
        connect: Duration::from_secs(2),
        request: Duration::from_secs(1),
    };
    let client = ClientConfig::parse(&text).unwrap();
    let client = client.connect(&HostPort::new(host, port), timeouts).unwrap();
    (client, token.drop_guard())
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
async fn drain_repeats_refused_evictions_in_the_older_version() {
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
async fn failures_have_their_kinds() {
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
