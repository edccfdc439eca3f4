//! The requests that components receive.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::testing::{app, record};

pub(in crate::probes) fn probe(definition: &Value, purpose: Purpose) -> Probe {
    let mut body = json!({"id": "/web", "cmd": "sleep 1", "portDefinitions": [{"name": "a"}, {"name": "b"}]});
    body.as_object_mut()
        .unwrap()
        .extend(definition.as_object().unwrap().clone());
    let app = app(&body);
    let instance = InstanceId::new(&app.id);
    let now = Timestamp::now();
    let record = TaskRecord {
        run_spec: "/web".to_owned(),
        version: app.version.to_string(),
        host_ports: vec![31_000, 31_001],
        staged_at: Some(now),
        started_at: Some(now),
        ..record(instance.task(1))
    };
    Probe {
        instance,
        incarnation: 1,
        purpose,
        spec: app.into(),
        record: Arc::new(record),
        group: Arc::default(),
    }
}

#[test]
fn request_names_port_path_and_scheme_of_the_probe() {
    let https = [("scheme", "https"), ("tls-verify", "false")];
    let whole = ("response", "whole");
    let health = |check: Value| (json!({"healthChecks": [check]}), Purpose::Health(0));
    let ready = |check: Value| (json!({"readinessChecks": [check]}), Purpose::Readiness);
    let check = |check: Value| (json!({"check": check}), Purpose::Check(0));
    for ((definition, purpose), kind, port, path, extensions) in [
        (health(json!({})), Kind::Http, Some(31_000), "/", vec![]),
        (
            health(json!({"path": "/h", "portIndex": 1})),
            Kind::Http,
            Some(31_001),
            "/h",
            vec![],
        ),
        (
            health(json!({"port": 88, "portIndex": 1})),
            Kind::Http,
            Some(88),
            "/",
            vec![],
        ),
        (
            health(json!({"protocol": "HTTPS"})),
            Kind::Http,
            Some(31_000),
            "/",
            https.to_vec(),
        ),
        (
            health(json!({"protocol": "TCP"})),
            Kind::Tcp,
            Some(31_000),
            "/",
            vec![],
        ),
        (
            ready(json!({"portName": "b", "path": "/r"})),
            Kind::Http,
            Some(31_001),
            "/r",
            vec![whole],
        ),
        (
            ready(json!({"portName": "a", "protocol": "HTTPS"})),
            Kind::Http,
            Some(31_000),
            "/",
            vec![https[0], https[1], whole],
        ),
        (check(json!({"tcp": {}})), Kind::Tcp, Some(31_000), "/", vec![]),
        (
            check(json!({"plugin": {"name": "redis"}})),
            Kind::Named("redis".to_owned()),
            None,
            "/",
            vec![],
        ),
    ] {
        let probe = probe(&definition, purpose);
        let request = probe.request(None);
        assert_eq!(probe.kind(), kind, "{definition}");
        assert_eq!(
            request.endpoint.map(|endpoint| endpoint.port),
            port,
            "{definition}"
        );
        assert_eq!(request.path, path, "{definition}");
        let extensions: Vec<_> = extensions
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        assert_eq!(request.extensions, extensions, "{definition}");
    }
}

#[test]
fn plugin_check_passes_its_settings_as_json() {
    let settings = json!({"database": 3, "tables": ["a"]});
    let probe = probe(
        &json!({"check": {"plugin": {"name": "redis", "settings": settings}}}),
        Purpose::Check(0),
    );
    let request = probe.request(None);
    assert_eq!(
        serde_json::from_str::<Value>(&request.settings).unwrap(),
        settings
    );
    assert_eq!(request.ports.len(), 2);
}

#[test]
fn probe_changes_only_with_its_own_definition() {
    let one = probe(&json!({"healthChecks": [{}]}), Purpose::Health(0));
    let labelled = probe(
        &json!({"healthChecks": [{}], "labels": {"a": "b"}}),
        Purpose::Health(0),
    );
    let other = probe(&json!({"healthChecks": [{"path": "/x"}]}), Purpose::Health(0));
    let without = probe(&json!({}), Purpose::Health(0));
    assert!(one.is_defined_by(&labelled.spec, Purpose::Health(0)));
    assert!(!one.is_defined_by(&other.spec, Purpose::Health(0)));
    assert!(!one.is_defined_by(&labelled.spec, Purpose::Check(0)));
    assert!(!without.is_defined_by(&without.spec, Purpose::Health(0)));
}

#[test]
fn arguments_are_quoted() {
    let argv = ["/bin/echo", "it's", "$HOME"].map(str::to_owned).to_vec();
    assert_eq!(shell(&CheckCommand::Argv(argv)), r"'/bin/echo' 'it'\''s' '$HOME'");
    assert_eq!(shell(&CheckCommand::Shell("a b".to_owned())), "a b");
}
