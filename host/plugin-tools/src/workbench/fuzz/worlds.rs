//! Generates calls of each world as cases. They stay within what a host may pass: indices are
//! within their lists, bodies of events are JSON objects, and no more bytes are received than
//! requested.

use serde_json::{Map, Value, json};
use transom_plugin_host::trial::RequestedStep;

use super::values::Values;

type Case = Map<String, Value>;

/// Generates a call of this world. A call of a probe has no answers yet.
pub(super) fn case(world: &str, values: &mut Values) -> Case {
    match world {
        "check-probe" => probe(values),
        "attribute-matcher" => matcher(values),
        "event-filter" => filter(values),
        _ => bootstrap(values),
    }
}

fn put(case: &mut Case, key: &str, value: impl Into<Value>) {
    case.insert(key.to_owned(), value.into());
}

/// Adds a key in one of two cases.
fn put_maybe(case: &mut Case, values: &mut Values, key: &str, make: impl FnOnce(&mut Values) -> Value) {
    if values.random.one_in(2) {
        let value = make(values);
        put(case, key, value);
    }
}

fn endpoint(values: &mut Values) -> Value {
    let host = *values
        .random
        .pick(&["10.0.0.1", "[::1]", "localhost", "a", "xn--e1afmkfd.example"]);
    let port = values.integer(1, 65_535);
    format!("{host}:{port}").into()
}

fn probe(values: &mut Values) -> Case {
    let mut case = Case::new();
    for key in ["run-spec", "task", "agent", "command", "path"] {
        put_maybe(&mut case, values, key, |values| values.text().into());
    }
    put_maybe(&mut case, values, "labels", |values| json!(values.pairs(3)));
    if !values.random.one_in(8) {
        let endpoint = endpoint(values);
        put(&mut case, "endpoint", endpoint);
    }
    put_maybe(&mut case, values, "ports", |values| {
        let number = values.random.below(3);
        let port = |values: &mut Values| {
            let protocol = *values.random.pick(&["tcp", "udp", "udp,tcp"]);
            json!({ "name": values.text(), "protocol": protocol, "endpoint": endpoint(values) })
        };
        (0..number).map(|_| port(values)).collect()
    });
    put_maybe(&mut case, values, "settings", |values| {
        Value::Object(values.members(2))
    });
    put_maybe(&mut case, values, "previous", |values| {
        match values.random.below(4) {
            0 => json!({ "http": values.integer(100, 599) }),
            1 => json!({ "tcp": values.random.one_in(2) }),
            2 => json!({ "command": values.integer(0, 255) }),
            _ => json!({ "custom": values.members(1) }),
        }
    });
    put_maybe(&mut case, values, "timeout-millis", |values| {
        values.integer(1, u32::MAX.into()).into()
    });
    put_maybe(&mut case, values, "extensions", |values| {
        let well_known = [
            ("scheme", "https"),
            ("tls-verify", "false"),
            ("response", "whole"),
        ];
        let mut pairs = values.pairs(2);
        let (name, value) = *values.random.pick(&well_known);
        pairs.push((name.to_owned(), value.to_owned()));
        json!(pairs)
    });
    put(&mut case, "answers", Vec::<Value>::new());
    case
}

const ERRORS: &[&str] = &[
    "denied",
    "unresolved",
    "refused",
    "unreachable",
    "timed-out",
    "closed",
    "tls",
    "protocol",
    "unavailable",
];

/// Generates an answer to the step that an attempt requests.
pub(super) fn answer(step: RequestedStep, values: &mut Values) -> Value {
    if values.random.one_in(5) {
        let kind = *values.random.pick(ERRORS);
        return json!({ "error": { "kind": kind, "message": values.text() } });
    }
    let max_bytes = step.max_bytes as usize;
    match step.key {
        "http" => {
            let mut headers = values.pairs(2);
            for (name, _) in &mut headers {
                *name = name.to_lowercase();
            }
            let status = values.integer(100, 599);
            let elapsed = values.integer(0, u32::MAX.into());
            let body = values.bytes(max_bytes);
            json!({ "http": { "status": status, "headers": headers, "body": body, "elapsed-millis": elapsed } })
        }
        "connected" => json!({ "connected": values.integer(0, u32::MAX.into()) }),
        "sent" => json!({ "sent": true }),
        "received" => match values.bytes(max_bytes.max(1)) {
            // A host passes at least one byte.
            Value::String(text) if text.is_empty() => json!({ "received": { "hex": "00" } }),
            bytes => json!({ "received": bytes }),
        },
        _ => {
            let code = values.integer(0, 255);
            json!({ "ran": { "exit-code": code, "stdout": values.bytes(4096), "stderr": values.bytes(4096) } })
        }
    }
}

fn attribute(values: &mut Values) -> Value {
    match values.random.below(5) {
        0 | 1 => values.text().into(),
        2 => json!(values.number()),
        3 => {
            let number = values.random.below(3);
            let range = |values: &mut Values| {
                let first = values.integer(0, u64::MAX);
                json!([first, values.integer(first, u64::MAX)])
            };
            (0..number).map(|_| range(values)).collect()
        }
        _ => match values.texts(3) {
            none if none.is_empty() => json!({ "set": [] }),
            some => json!(some),
        },
    }
}

const OPERATORS: &[&str] = &[
    "IS", "IN", "LIKE", "UNLIKE", "CLUSTER", "GROUP_BY", "MAX_PER", "UNIQUE", "OTHER",
];

fn constraint(values: &mut Values) -> Value {
    if values.random.one_in(4) {
        let expression = ["gpu:true", "gpu:true?:cpu:true", ":", "a:b?:"];
        return if values.random.one_in(2) {
            (*values.random.pick(&expression)).into()
        } else {
            values.text().into()
        };
    }
    let field = if values.random.one_in(3) {
        "@hostname".to_owned()
    } else {
        values.text()
    };
    let operator = *values.random.pick(OPERATORS);
    match values.maybe_text() {
        Some(operand) => json!([field, operator, operand]),
        None => json!([field, operator]),
    }
}

fn matcher(values: &mut Values) -> Case {
    let mut case = Case::new();
    let ids: Vec<String> = (0..values.random.below(6)).map(|it| format!("S{it}")).collect();
    let agents = ids.iter().map(|id| {
        let number = values.random.below(4);
        let attributes: Vec<Value> = (0..number)
            .map(|_| json!([values.text(), attribute(values)]))
            .collect();
        let mut agent = Case::new();
        put(&mut agent, "id", id.as_str());
        put(&mut agent, "hostname", values.text());
        put(&mut agent, "attributes", attributes);
        for key in ["region", "zone"] {
            put_maybe(&mut agent, values, key, |values| values.text().into());
        }
        Value::Object(agent)
    });
    let agents: Vec<Value> = agents.collect();
    put(&mut case, "agents", agents);
    for key in ["home-region", "run-spec"] {
        put_maybe(&mut case, values, key, |values| values.text().into());
    }
    let number = values.random.below(4);
    let constraints: Vec<Value> = (0..number).map(|_| constraint(values)).collect();
    put(&mut case, "constraints", constraints);
    if values.random.one_in(5) {
        put(&mut case, "validate", true);
        return case;
    }
    let mut placed = Vec::new();
    if !ids.is_empty() {
        let number = values.random.below(6);
        placed.extend((0..number).map(|_| values.random.pick(&ids).clone()));
        let candidates = ids.iter().filter_map(|id| {
            let capacity = values.integer(1, u32::MAX.into());
            (!values.random.one_in(4)).then(|| json!({ "agent": id, "capacity": capacity }))
        });
        let candidates: Vec<Value> = candidates.collect();
        put(&mut case, "candidates", candidates);
    }
    if !placed.is_empty() {
        let ending = placed[values.random.below(placed.len())].clone();
        put_maybe(&mut case, values, "ending", |_| json!([ending]));
    }
    match values.random.below(3) {
        0 if !placed.is_empty() => {
            let kill = 1 + values.random.below(placed.len());
            put(&mut case, "kill", kill);
        }
        // The maximum that a host requests in one call.
        1 => put(&mut case, "place", values.integer(1, 1000)),
        _ => {}
    }
    put(&mut case, "placed", placed);
    put_maybe(&mut case, values, "instances", |values| {
        values.integer(1, u32::MAX.into()).into()
    });
    case
}

const KINDS: &[&str] = &[
    "status_update_event",
    "app_terminated_event",
    "api_post_event",
    "deployment_info",
    "plugin_admitted_event",
];

fn kind(values: &mut Values) -> String {
    if values.random.one_in(2) {
        (*values.random.pick(KINDS)).to_owned()
    } else {
        values.text()
    }
}

fn filter(values: &mut Values) -> Case {
    let mut case = Case::new();
    let number = values.random.below(3);
    let types: Vec<String> = (0..number).map(|_| kind(values)).collect();
    put(&mut case, "event-types", types);
    if values.random.one_in(4) {
        put(&mut case, "filter", values.text());
    }
    put_maybe(&mut case, values, "principal", |values| values.text().into());
    put_maybe(&mut case, values, "extensions", |values| json!(values.pairs(2)));
    let number = values.random.below(6);
    let events = (0..number).map(|_| {
        let mut event = Case::new();
        put(&mut event, "kind", kind(values));
        put_maybe(&mut event, values, "subject", |values| values.text().into());
        put_maybe(&mut event, values, "sequence", |values| {
            values.integer(0, u64::MAX).into()
        });
        put(&mut event, "body", Value::Object(values.members(3)));
        Value::Object(event)
    });
    let events: Vec<Value> = events.collect();
    put(&mut case, "events", events);
    case
}

fn bootstrap(values: &mut Values) -> Case {
    let mut case = Case::new();
    let role = *values.random.pick(&["server", "agent", "datastore"]);
    put(&mut case, "role", role);
    for key in ["framework", "task", "host", "image", "source"] {
        put_maybe(&mut case, values, key, |values| values.text().into());
    }
    put_maybe(&mut case, values, "number", |values| {
        values.integer(0, u32::MAX.into()).into()
    });
    put_maybe(&mut case, values, "ports", |values| {
        json!([[0, values.integer(0, 65_535)], [values.integer(0, 65_535), 1]])
    });
    for key in ["environment", "attributes", "extensions"] {
        put_maybe(&mut case, values, key, |values| json!(values.pairs(4)));
    }
    put_maybe(&mut case, values, "arguments", |values| json!(values.texts(4)));
    let script = match values.random.below(3) {
        0 => format!("#!/bin/sh\n{}", values.text()).into(),
        _ => values.bytes(4096),
    };
    put(&mut case, "script", script);
    case
}
