//! The master's documents and operator calls, and invalid requests that need no framework.

use crate::{client::Request, run::Run};
use serde_json::{Value, json};

/// Documents that were recorded at several moments: the suffix of the recording's name, and the
/// path.
const MOMENTS: [(&str, &str); 7] = [
    ("state", "/state"),
    ("slaves", "/slaves"),
    ("frameworks", "/frameworks"),
    ("tasks", "/tasks"),
    ("roles", "/roles"),
    ("state-summary", "/state-summary"),
    ("metrics_snapshot", "/metrics/snapshot"),
];

/// Documents that were recorded once, before any framework had subscribed.
const ONCE: &[(&str, &str)] = &[
    ("master_state", "/master/state"),
    ("master_slaves", "/master/slaves"),
    ("master_frameworks", "/master/frameworks"),
    ("master_tasks", "/master/tasks"),
    ("version", "/version"),
    ("health", "/health"),
    ("flags", "/flags"),
    ("maintenance_schedule", "/maintenance/schedule"),
    ("maintenance_status", "/maintenance/status"),
    ("quota", "/quota"),
    ("weights", "/weights"),
    ("redirect", "/redirect"),
    ("master_redirect", "/master/redirect"),
];

/// Operator calls recorded at several moments.
const CALLS: &[&str] = &[
    "GET_HEALTH",
    "GET_FLAGS",
    "GET_VERSION",
    "GET_METRICS",
    "GET_LOGGING_LEVEL",
    "GET_STATE",
    "GET_AGENTS",
    "GET_FRAMEWORKS",
    "GET_EXECUTORS",
    "GET_OPERATIONS",
    "GET_TASKS",
    "GET_ROLES",
    "GET_WEIGHTS",
    "GET_MASTER",
    "GET_MAINTENANCE_STATUS",
    "GET_MAINTENANCE_SCHEDULE",
    "GET_QUOTA",
];

/// An operator call with the arguments that it requires.
fn operator_call(kind: &str) -> Request {
    let body = match kind {
        "GET_METRICS" => {
            json!({"type": kind, "get_metrics": {"timeout": {"nanoseconds": 5_000_000_000_i64}}})
        }
        _ => json!({ "type": kind }),
    };
    Request::post("/api/v1", &body)
}

/// Compares everything that was recorded before a framework had subscribed.
pub(crate) async fn without_frameworks(run: &mut Run) {
    at_moment(run, "01-0fw", &MOMENTS.map(|(name, _)| name), CALLS).await;
    for &(name, path) in ONCE {
        run.ask(&format!("1-main/01-0fw_{name}"), &Request::get(path))
            .await;
    }
}

/// Compares the named documents and calls at a moment of the main recording.
pub(crate) async fn at_moment(run: &mut Run, moment: &str, documents: &[&str], calls: &[&str]) {
    for (name, path) in MOMENTS.iter().filter(|(name, _)| documents.contains(name)) {
        run.ask(&format!("1-main/{moment}_{name}"), &Request::get(*path))
            .await;
    }
    for kind in calls {
        run.ask(&format!("1-main/{moment}-v1-{kind}"), &operator_call(kind))
            .await;
    }
}

/// Compares all documents and calls of a moment at which all were recorded.
pub(crate) async fn all_at_moment(run: &mut Run, moment: &str) {
    at_moment(run, moment, &MOMENTS.map(|(name, _)| name), CALLS).await;
}

/// Compares unusual and invalid requests to the master.
pub(crate) async fn unusual_requests(run: &mut Run) {
    let raw = |body: &str| Request {
        body: body.as_bytes().to_vec(),
        ..Request::post("/api/v1", &Value::Null)
    };
    let health = Request::post("/api/v1", &json!({"type": "GET_HEALTH"}));
    let cases = [
        ("1-main/07-err-unknown-path", Request::get("/nope")),
        ("1-main/07-err-v1-bad-json", raw("{")),
        ("1-main/07-err-v1-unknown-type", raw(r#"{"type":"FROB"}"#)),
        ("1-main/07-err-v1-no-type", raw("{}")),
        ("1-main/07-err-v1-get", Request::get("/api/v1")),
        (
            "1-main/07-err-v1-bad-accept",
            health.clone().with("Accept", "text/html"),
        ),
        ("1-main/07-err-get-method", Request::get("/api/v1/scheduler")),
        ("1-main/07-err-state-jsonp", Request::get("/state?jsonp=cb")),
        (
            "1-main/07-err-teardown-endpoint-missing",
            Request {
                method: "POST".to_owned(),
                ..Request::get("/teardown")
            },
        ),
        ("8-http/double-slash", Request::get("//version")),
        ("8-http/trailing-slash", Request::get("/state/")),
        (
            "8-http/conn-close",
            Request::get("/version").with("Connection", "close"),
        ),
        (
            "8-http/operator-subscribe-accept-recordio",
            Request::post("/api/v1", &json!({"type": "SUBSCRIBE"}))
                .with("Accept", "application/recordio")
                .with("Message-Accept", "application/json"),
        ),
    ];
    for (recording, request) in cases {
        run.ask(recording, &request).await;
    }
}
