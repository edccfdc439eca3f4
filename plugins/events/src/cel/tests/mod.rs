//! Expressions and events in tables.

mod bounds;
mod evaluation;
mod rejections;

use super::{Input, Program, Rejection};

/// An event as the daemon publishes it.
const BODY: &str = r#"{
    "eventType": "status_update_event", "timestamp": "2026-01-02T03:04:05.678Z",
    "appId": "/shop/web", "taskStatus": "TASK_FAILED", "message": "exit \"1\" \u00fc",
    "host": "10.0.0.7", "ports": [31000, 31001], "healthy": null, "up": true,
    "big": 18446744073709551615, "low": -7, "ratio": 0.5, "whole": 2.0,
    "labels": {"tier": "front", "com.example/owner": "ops", "while": "x"},
    "instances": [{"id": "a", "cpus": 1}, {"id": "b", "cpus": 0.1, "mem": 64}], "none": {}, "empty": []
}"#;

const INPUT: Input<'static> = Input {
    kind: "status_update_event",
    subject: Some("/shop/web"),
    body: BODY,
};

fn compile(expression: &str) -> Program {
    Program::compile(expression).unwrap_or_else(|rejection| panic!("{expression}: {rejection}"))
}

fn rejection(expression: &str) -> Rejection {
    match Program::compile(expression) {
        Ok(_) => panic!("taken: {expression}"),
        Err(rejection) => rejection,
    }
}

fn matches(expression: &str) -> bool {
    compile(expression).matches(INPUT)
}
