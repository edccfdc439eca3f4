//! The audit log, on a leader and on a standby that forwards.

use std::io;
use std::sync::{Arc, Mutex};

use axum::extract::Request;
use axum::routing::any;
use axum::{Extension, Router};
use http::{StatusCode, Uri, header};
use serde_json::{Value, json};
use tracing_subscriber::fmt::MakeWriter;
use transom_web::{AccessRules, Caller, DaemonKey, LoopbackTrust, PortConfig};

use super::{Port, standby, user};

/// The log of a test, JSON lines.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    fn start() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt().json().flatten_event(true);
        let subscriber = subscriber.with_writer(log.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// The events since the last call.
    fn events(&self) -> Vec<Value> {
        let text = String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap();
        let events = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.collect()
    }

    /// The audit events since the last call.
    fn audited(&self) -> Vec<Value> {
        let mut events = self.events();
        events.retain(|event| event["target"] == "transom::audit");
        events
    }
}

/// Responds with the caller that the handler receives.
fn callers() -> Router {
    let answer = async |Extension(caller): Extension<Caller>| {
        let client = caller.client.map(|client| client.to_string());
        let text = json!({"client": client, "user": caller.user}).to_string();
        (StatusCode::ACCEPTED, [("x-deployment", "d-1")], text)
    };
    Router::new().fallback(any(answer))
}

fn rules() -> AccessRules {
    AccessRules {
        audited_header: Some("x-deployment"),
        ..AccessRules::default()
    }
}

fn config() -> PortConfig {
    PortConfig {
        credentials: Some(user("full")),
        reader: Some(user("reader")),
        loopback_trust: LoopbackTrust::UnlessCredentials,
        daemon_key: Some(DaemonKey::new(&[7; 32])),
        ..PortConfig::new("apps", 0)
    }
}

#[tokio::test]
async fn each_change_leaves_one_event_without_body_and_secrets() {
    let (log, _guard) = Log::start();
    let port = Port::serve(config().bind().await.unwrap(), callers(), rules());
    let path = "/v2/apps/a%20b?force=true&token=hunter2";
    let change = port
        .ask("PUT", path)
        .header(header::AUTHORIZATION, user("full").authorization());
    let change = change
        .header("content-type", "application/json")
        .body(r#"{"env": "hunter3"}"#);
    assert_eq!(change.send().await.unwrap().status().as_u16(), 202);
    let events = log.audited();
    let [event] = events.as_slice() else {
        panic!("{events:?}");
    };
    for (key, expected) in [
        ("port", json!("apps")),
        ("user", json!("full")),
        ("client", json!("127.0.0.1")),
        ("method", json!("PUT")),
        ("path", json!("/v2/apps/a%20b")),
        ("query", json!("force=true&token=********")),
        ("status", json!(202)),
        ("deployment", json!("d-1")),
    ] {
        assert_eq!(event[key], expected, "{event}");
    }
    assert!(event["milliseconds"].is_u64(), "{event}");
    assert!(!event.to_string().contains("hunter"), "{event}");

    for (method, name, status) in [
        ("GET", "full", 202),
        ("HEAD", "reader", 202),
        ("DELETE", "reader", 403),
        ("DELETE", "other", 401),
    ] {
        let request = port
            .ask(method, "/x")
            .header(header::AUTHORIZATION, user(name).authorization());
        assert_eq!(
            request.send().await.unwrap().status().as_u16(),
            status,
            "{method} {name}"
        );
        assert_eq!(log.audited(), Vec::<Value>::new(), "{method} {name}");
    }
    port.stop().await;
}

#[tokio::test]
async fn log_of_a_rejected_request_has_only_the_beginning_of_its_path() {
    let (log, _guard) = Log::start();
    let port = Port::serve(config().bind().await.unwrap(), callers(), rules());
    for (beginning, status) in [("/", "401"), (r"/a\", "400")] {
        let path = format!("{beginning}{}", "x".repeat(10_000));
        let answer = port.send_line(&format!("GET {path} HTTP/1.1")).await;
        assert_eq!(answer.split(' ').nth(1), Some(status), "{answer}");
        let events = log.events();
        let rejected = events.iter().find(|event| event["message"] == "request rejected");
        let rejected = rejected.unwrap();
        assert_eq!(rejected["path"], path[..1024], "{events:?}");
        assert!(rejected["peer"].is_string(), "{events:?}");
    }
    port.stop().await;
}

#[tokio::test]
async fn change_whose_client_disconnects_is_audited_without_status() {
    let (log, _guard) = Log::start();
    let (began, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let router = Router::new().fallback(any(move || {
        let began = began.clone();
        async move {
            began.send(()).unwrap();
            std::future::pending::<()>().await;
        }
    }));
    let port = Port::start(PortConfig::new("apps", 0), router).await;
    let request = tokio::spawn(port.ask("DELETE", "/x").send());
    starts.recv().await.unwrap();
    request.abort();
    let deadline = tokio::time::Instant::now() + super::WAIT_TIMEOUT;
    let events = loop {
        let events = log.audited();
        if !events.is_empty() {
            break events;
        }
        assert!(tokio::time::Instant::now() < deadline, "no event");
        tokio::task::yield_now().await;
    };
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(
        (&events[0]["method"], &events[0]["status"]),
        (&json!("DELETE"), &Value::Null)
    );
    port.stop().await;
}

#[tokio::test]
async fn leader_audits_a_forwarded_change_with_the_original_client() {
    let (log, _guard) = Log::start();
    let leader = Port::serve(config().bind().await.unwrap(), callers(), rules());
    let standby = standby(config(), leader.addr).await;
    // Only a daemon can prove this header, so it is ignored and not forwarded.
    let change = standby
        .ask("POST", "/v2/apps")
        .header("x-transom-user", "mallory");
    let change = change.header(header::AUTHORIZATION, user("full").authorization());
    let answer = change.send().await.unwrap();
    let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(answer, json!({"client": "127.0.0.1", "user": "full"}));
    let events = log.audited();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(
        (&events[0]["status"], &events[0]["user"]),
        (&json!(202), &json!("full"))
    );

    // A change that reaches no leader is audited by the standby.
    leader.stop().await;
    let change = standby
        .ask("POST", "/v2/apps")
        .header(header::AUTHORIZATION, user("full").authorization());
    assert_eq!(change.send().await.unwrap().status().as_u16(), 502);
    let events = log.audited();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["status"], 502);
    standby.stop().await;
}

/// The standby is another process on this machine for the leader, so without its proof the leader
/// would see a client on loopback without credentials.
#[tokio::test]
async fn leader_sees_client_user_and_rights_that_a_daemon_proves() {
    let leader = Port::serve(config().bind().await.unwrap(), callers(), rules());
    let standby = standby(config(), leader.addr).await;
    for (name, method, status) in [
        ("full", "POST", 202),
        ("reader", "GET", 202),
        ("reader", "POST", 403),
    ] {
        let request = standby.ask(method, "/x").header("x-transom-rights", "full");
        let request = request.header(header::AUTHORIZATION, user(name).authorization());
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{name} {method}");
        if status == 202 {
            let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
            assert_eq!(answer, json!({"client": "127.0.0.1", "user": name}));
        }
    }
    standby.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn headers_that_no_daemon_proves_reach_nothing() {
    let headers = async |request: Request| {
        let names = request.headers().keys().map(|name| name.as_str().to_owned());
        let names: Vec<String> = names.filter(|name| name.starts_with("x-transom")).collect();
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
        json!({"headers": names, "client": caller.client.map(|it| it.to_string()), "user": caller.user})
            .to_string()
    };
    for (with, authorization, seen) in [
        (false, None, None),
        (true, Some("full"), Some("full")),
        (true, Some("reader"), Some("reader")),
    ] {
        let config = if with {
            config()
        } else {
            PortConfig::new("apps", 0)
        };
        let port = Port::start(config, Router::new().fallback(any(headers))).await;
        let mut request = port.ask("GET", "/x");
        for (name, value) in [
            ("x-transom-client", "203.0.113.7"),
            ("x-transom-user", "mallory"),
            ("x-transom-rights", "full"),
            ("x-transom-proof", "1.AAAA"),
            ("x-transom-anything", "1"),
            ("x-transom-apps-via", "a:1"),
        ] {
            request = request.header(name, value);
        }
        if let Some(name) = authorization {
            request = request.header(header::AUTHORIZATION, user(name).authorization());
        }
        let answer = request.send().await.unwrap().text().await.unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let expected = json!({"headers": ["x-transom-apps-via"], "client": "127.0.0.1", "user": seen});
        assert_eq!(answer, expected, "{with} {authorization:?}");
        port.stop().await;
    }
}

#[tokio::test]
async fn a_get_that_changes_something_is_audited_and_rejected_for_the_reader() {
    let (log, _guard) = Log::start();
    let rules = AccessRules {
        changes: |_, path| path == "/scale/3",
        ..AccessRules::default()
    };
    let port = Port::serve(config().bind().await.unwrap(), callers(), rules);
    for (path, name, status, audited) in [
        ("/scale/3", "full", 202, 1),
        ("/scale/3", "reader", 403, 0),
        ("/scale", "full", 202, 0),
        ("/scale", "reader", 202, 0),
    ] {
        let request = port
            .ask("GET", path)
            .header(header::AUTHORIZATION, user(name).authorization());
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{path} {name}");
        assert_eq!(log.audited().len(), audited, "{path} {name}");
    }
}

/// One request must not fill the log: each text of the client is cut, whichever it is.
#[tokio::test]
async fn every_field_of_an_event_is_cut() {
    let (log, _guard) = Log::start();
    let started = async |uri: Uri| {
        (
            StatusCode::OK,
            [("x-deployment", uri.query().unwrap_or("-").to_owned())],
        )
    };
    let port = Port::serve(
        config().bind().await.unwrap(),
        Router::new().fallback(any(started)),
        rules(),
    );
    let oversized = "x".repeat(60_000);
    for (field, method, path) in [
        ("method", oversized.as_str(), "/".to_owned()),
        ("path", "PUT", format!("/{oversized}")),
        ("query", "PUT", format!("/?{oversized}")),
        ("deployment", "PUT", format!("/?{oversized}")),
    ] {
        let request = port
            .ask(method, &path)
            .header(header::AUTHORIZATION, user("full").authorization());
        assert_eq!(request.send().await.unwrap().status().as_u16(), 200, "{field}");
        let events = log.audited();
        let [event] = events.as_slice() else {
            panic!("{field}: {} events", events.len());
        };
        let text = event[field].as_str().unwrap();
        assert!((1000..=1024).contains(&text.len()), "{field}: {}", text.len());
        assert!(
            event.to_string().len() < 4096,
            "{field}: {}",
            event.to_string().len()
        );
    }
    port.stop().await;
}
