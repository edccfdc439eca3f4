//! Tables of findings of checks.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use serde_json::{Value, json};
use transom_plugin_host::probe::{Failure, Reason};

use super::*;
use crate::health::HealthState;
use crate::instance::Readiness;
use crate::testing::{app, record};

fn at(second: u32) -> Moment {
    format!("2026-12-01T10:00:{second:02}Z").parse().unwrap()
}

fn row(count: u32, reason: Reason, message: &str) -> NoResult {
    NoResult {
        count,
        since: at(5),
        last: Failure {
            reason,
            message: message.to_owned(),
        },
    }
}

fn sick(count: u32, since: u32, cause: &str, last_success: Option<Moment>) -> HealthState {
    HealthState {
        last_success,
        last_failure: Some(at(40)),
        last_failure_cause: Some(cause.into()),
        consecutive_failures: count,
        failing_since: Some(at(since)),
        ..HealthState::default()
    }
}

/// `/a` with these checks and running instances.
fn view(checks: &Value, changes: &[&dyn Fn(&mut Instance)]) -> SpecView {
    let mut body = json!({"id": "/a", "cmd": "run", "portDefinitions": [{"name": "http"}]});
    body.as_object_mut()
        .unwrap()
        .extend(checks.as_object().unwrap().clone());
    let mut view = SpecView::of(app(&body).into());
    for change in changes {
        let spec = &view.record.spec;
        let mut instance = Instance::new(spec.id(), spec.version(), Moment::now());
        instance.replica.condition = Condition::Running;
        instance.set_record(&Arc::new(record(instance.task())));
        change(&mut instance);
        view.counts.add(&instance);
        view.instances.insert(instance.id.clone(), Arc::new(instance));
    }
    view
}

fn shown(view: &SpecView) -> Option<(&'static str, u32, String)> {
    let found = Failing::of(view, at(50));
    assert!(found.is_none() || super::super::is_candidate(view), "{found:?}");
    found.map(|found| {
        assert!(super::super::KINDS.contains(&found.kind), "{found:?}");
        (found.kind, found.count, found.message)
    })
}

#[test]
fn failing_health_check_has_request_answer_count_and_last_success() {
    let http = json!({"healthChecks": [{"protocol": "HTTP", "path": "/health"}]});
    let healthy = |instance: &mut Instance| {
        instance.health = vec![HealthState {
            last_success: Some(at(1)),
            ..HealthState::default()
        }];
    };
    let sicker =
        |instance: &mut Instance| instance.health = vec![sick(5, 10, "503 Service Unavailable", Some(at(9)))];
    let sick_too = |instance: &mut Instance| instance.health = vec![sick(2, 20, "404 Not Found", None)];
    let host = record("t".into()).agent.hostname.clone();
    assert_eq!(shown(&view(&http, &[&healthy])), None);
    assert_eq!(
        shown(&view(&http, &[&healthy, &sick_too, &sicker])),
        Some((
            "unhealthy",
            5,
            format!(
                "/a: unhealthy: GET /health failed 5 times since 2026-12-01T10:00:10Z on {host} (2 of 3 running); last: \
                 503 Service Unavailable; last success 2026-12-01T10:00:09Z"
            )
        ))
    );
    let command = json!({"healthChecks": [{"protocol": "COMMAND", "command": {"value": "test -e up"}}]});
    let by_agent = |instance: &mut Instance| instance.health = vec![sick(1, 10, "", None)];
    assert_eq!(
        shown(&view(&command, &[&by_agent])),
        Some((
            "unhealthy",
            1,
            format!(
                "/a: unhealthy: `test -e up` failed once since 2026-12-01T10:00:10Z on {host} (1 of 1 running); last: the \
                 agent gives no reason; it has not succeeded yet"
            )
        ))
    );
}

#[test]
fn check_without_a_result_is_a_problem_at_once_if_its_plugin_is_the_cause() {
    let health = json!({"healthChecks": [{"protocol": "TCP"}]});
    let check = json!({"check": {"http": {"portIndex": 0, "path": "/up"}}});
    let message = |view: &SpecView| shown(view).map(|(kind, _, message)| (kind, message));
    for (count, reason, problem) in [
        (1, Reason::Plugin, true),
        (1, Reason::Denied, true),
        (2, Reason::Unreachable, false),
        (3, Reason::TimedOut, true),
    ] {
        let of_health = |instance: &mut Instance| {
            instance.health = vec![HealthState {
                last_success: Some(at(1)),
                no_result: Some(Arc::new(row(count, reason, "no answer"))),
                ..HealthState::default()
            }];
        };
        let of_check = |instance: &mut Instance| {
            instance.tasks[0].check_failure = Some(row(count, reason, "no answer"));
        };
        for (found, request) in [
            (
                message(&view(&health, &[&of_health])),
                "the health check connection",
            ),
            (message(&view(&check, &[&of_check])), "the check GET /up"),
        ] {
            let beginning = format!("/a: check without a result: {request} could not be made ");
            let found = found.map(|(kind, message)| {
                kind == "check-without-result"
                    && message.starts_with(&beginning)
                    && message.ends_with("; last: no answer")
            });
            assert_eq!(found, problem.then_some(true), "{reason:?} {request}");
        }
    }
}

#[test]
fn readiness_check_is_a_problem_from_the_third_failure_and_after_other_causes() {
    let both = json!({
        "readinessChecks": [{"name": "up", "portName": "http", "path": "/ready"}],
        "healthChecks": [{"protocol": "HTTP"}],
    });
    let not_ready = |count: u32| {
        move |instance: &mut Instance| {
            instance.readiness = Some(Arc::new(Readiness {
                name: "up".to_owned(),
                ready: false,
                response: None,
                failures: Some(row(count, Reason::Invalid, "503 Service Unavailable")),
            }));
        }
    };
    let (twice, often) = (not_ready(2), not_ready(3));
    assert_eq!(shown(&view(&both, &[&twice])), None);
    let (kind, count, message) = shown(&view(&both, &[&often, &twice])).unwrap();
    assert_eq!((kind, count), ("not-ready", 3));
    assert!(
        message.starts_with("/a: not ready: up: GET /ready failed 3 times since "),
        "{message}"
    );
    assert!(
        message.ends_with("(1 of 2 running); last: 503 Service Unavailable"),
        "{message}"
    );
    let sick = |instance: &mut Instance| instance.health = vec![sick(1, 9, "no", None)];
    assert_eq!(shown(&view(&both, &[&often, &sick])).unwrap().0, "unhealthy");
}
