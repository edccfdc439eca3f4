//! Calls that read.

use http::StatusCode;
use serde_json::{Value, json};

use super::site::{PREFIXES, Site, autoscale, running};
use crate::kind::Kind;
use crate::view::{View, Waiting};

#[tokio::test]
async fn versions_returns_the_prefix_of_its_path() {
    let site = Site::start();
    for prefix in ["/api/fw", "/api/m3s"] {
        let answer = site.get(&format!("{prefix}/versions")).await;
        assert_eq!(
            (answer.status, answer.text),
            (StatusCode::OK, format!("{prefix}/v0"))
        );
        assert_eq!(answer.headers["api-service"], "-");
        assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    }
}

#[tokio::test]
async fn scale_shows_the_wanted_and_the_running_tasks() {
    let site = Site::start();
    site.views.publish(running());
    for prefix in PREFIXES {
        for (kind, expected) in [
            ("agent", r#"{"Scale":2,"Running":1}"#),
            ("server", r#"{"Scale":1,"Running":1}"#),
            ("kvstore", r#"{"Scale":1,"Running":1}"#),
            ("datastore", r#"{"Scale":1,"Running":1}"#),
            ("etcd", r#"{"Scale":1,"Running":1}"#),
            ("ds", r#"{"Scale":1,"Running":1}"#),
        ] {
            let answer = site.get(&format!("{prefix}/{kind}/scale")).await;
            answer.is("application/json", expected);
        }
    }
}

#[tokio::test]
async fn missing_config_is_reported_in_the_format_of_each_prefix() {
    let site = Site::start();
    site.views.publish(View {
        waiting: vec![Waiting {
            kind: Kind::Server,
            reason: "server 0 waits for memory.".to_owned(),
        }],
        ..View::default()
    });
    let neutral = site.get("/api/fw/v0/server/config").await;
    neutral.is_error("/api/fw/v0/server/config", 503);
    assert!(neutral.headers.contains_key("retry-after"));
    assert!(neutral.text.contains("server 0 waits for memory."), "{neutral:?}");
    let alias = site.get("/api/m3s/v0/server/config").await;
    assert_eq!((alias.status, alias.text.as_str()), (StatusCode::OK, ""));
    assert!(!alias.headers.contains_key("api-service"));

    site.views.publish(running());
    for prefix in PREFIXES {
        let answer = site.get(&format!("{prefix}/server/config")).await;
        answer.is("text/plain", "server: https://h1:31000\n");
    }
}

#[tokio::test]
async fn version_has_the_format_of_its_prefix() {
    let site = Site::start();
    let own = env!("CARGO_PKG_VERSION");
    for (view, version, nodes) in [
        (View::default(), Value::Null, Value::Null),
        (
            running(),
            json!("v1.31.5+k3s1"),
            json!([{"NodeName": "server0.local", "NodeInfo": {"machineID": "m", "kubeletVersion": "v1.31.5+k3s1"}}]),
        ),
    ] {
        site.views.publish(view);
        let neutral = site.get("/api/fw/v0/server/version").await;
        assert_eq!(neutral.json(), json!({"Version": version, "Framework": own}));
        let alias = site.get("/api/m3s/v0/server/version").await;
        let expected = json!({"gitVersion": "v0.6.0", "buildDate": ""});
        assert_eq!(alias.json(), json!({"M3SVersion": expected, "K3SVersion": nodes}));
        alias.is("application/json", &alias.text);
    }
}

#[tokio::test]
async fn status_has_the_format_of_its_last_path_segment() {
    let site = Site::start();
    for prefix in PREFIXES {
        site.views.publish(View::default());
        let flat = site.get(&format!("{prefix}/status/fw")).await;
        flat.is(
            "application/json",
            r#"{"Server":"","Agent":"","API":"nok","Kvstore":""}"#,
        );
        let maps = site.get(&format!("{prefix}/status/m3s")).await;
        maps.is(
            "application/json",
            r#"{"Server":{},"Agent":{},"API":"","Datastore":{}}"#,
        );
        site.views.publish(running());
        let flat = site.get(&format!("{prefix}/status/fw")).await;
        flat.is(
            "application/json",
            r#"{"Server":"TASK_RUNNING","Agent":"TASK_STAGING","API":"ok","Kvstore":"TASK_RUNNING"}"#,
        );
        let maps = site.get(&format!("{prefix}/status/m3s")).await;
        assert_eq!(
            maps.json(),
            json!({
                "Server": {"server-0": {"Status": "TASK_RUNNING", "K3sNodeName": "server0.local"}},
                "Agent": {
                    "agent-0": {"Status": "TASK_RUNNING", "K3sNodeName": "agent0.local"},
                    "agent-1": {"Status": "__NEW", "K3sNodeName": ""},
                },
                "API": "",
                "Datastore": {"datastore-0": "TASK_RUNNING"},
            })
        );
    }
}

#[tokio::test]
async fn orchestrator_is_ok_when_all_nodes_are_ready() {
    let site = Site::start();
    for (view, expected) in [(View::default(), "nok"), (running(), "ok")] {
        site.views.publish(view);
        for prefix in PREFIXES {
            for name in ["orch", "k8s", "k3s"] {
                let answer = site.get(&format!("{prefix}/status/{name}")).await;
                answer.is("application/json", expected);
            }
        }
    }
}

#[tokio::test]
async fn explain_shows_tasks_and_why_they_wait_on_the_neutral_prefix() {
    let site = Site::start();
    let mut view = running();
    view.waiting = vec![Waiting {
        kind: Kind::Agent,
        reason: "agent 1 waits for an offer.".to_owned(),
    }];
    site.views.publish(view);
    let answer = site.get("/api/fw/v0/explain").await;
    answer.is("application/json", &answer.text);
    let found = answer.json();
    assert_eq!(
        found["waiting"],
        json!([{"kind": "agent", "reason": "agent 1 waits for an offer."}])
    );
    let launched = json!({"number": 0, "id": "agent-0", "state": "TASK_RUNNING", "host": "h1", "ports": [31000],
        "node": "agent0.local"});
    let waits = json!({"number": 1, "id": "agent-1", "state": null, "host": null, "ports": [], "node": null});
    assert_eq!(found["tasks"]["agent"], json!([launched, waits]));
    assert_eq!(found["autoscale"], Value::Null);
    let mut view = running();
    view.autoscale = Some(autoscale());
    site.views.publish(view);
    let expected = json!({
        "min": 1, "max": 4, "unschedulable_pods": 2, "idle_agents": 0, "notes": ["the count is `max`, 4"],
        "last": {"at": "2026-04-07T10:00:00Z", "from": 3, "to": 4, "reason": "pods unschedulable for 30s: d/a"},
    });
    assert_eq!(site.get("/api/fw/v0/explain").await.json()["autoscale"], expected);
    for path in ["/api/m3s/v0/explain", "/api/m3s/v0/openapi.json"] {
        site.get(path).await.is_error(path, 404);
    }
}

#[tokio::test]
async fn capabilities_lists_upstreams_calls_on_the_alias() {
    let site = Site::start();
    let recorded: Value = serde_json::from_str(include_str!("capabilities.json")).unwrap();
    let answer = site.get("/api/m3s/v0/capabilities").await;
    assert_eq!(answer.json(), recorded);
    answer.is("application/json", &answer.text);
    // Every call in both lists exists.
    for prefix in PREFIXES {
        let texts = site.get(&format!("{prefix}/capabilities")).await.json();
        let texts = texts.as_array().unwrap();
        assert!(texts.len() >= 33);
        for text in texts {
            let [_, path, method] = text.as_str().unwrap().split(", ").collect::<Vec<_>>()[..] else {
                panic!("{text}");
            };
            assert!(path.starts_with(prefix), "{text}");
            let path = match path.split_once('{') {
                Some((path, _)) => format!("{path}1"),
                None => path.to_owned(),
            };
            let answer = site.ask(method.parse().unwrap(), &path).await;
            assert!(answer.status == 200 || answer.status == 503, "{text}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn script_is_served_until_its_task_runs() {
    let site = Site::start();
    let path = site.scripts.add("a", b"#!/bin/sh\n".as_slice().into()).unwrap();
    for _ in 0..2 {
        let answer = site.get(&path).await;
        assert_eq!(
            (answer.status, answer.text.as_str()),
            (StatusCode::OK, "#!/bin/sh\n")
        );
        assert_eq!(answer.headers["content-type"], "text/x-shellscript");
        assert_eq!(answer.headers["cache-control"], "no-store");
    }
    site.scripts.remove("a");
    site.get(&path).await.is_error(&path, 404);
    site.get("/bootstrap/x/y").await.is_error("/bootstrap/x/y", 404);
}
