//! Every recorded message can be parsed and written again: no value may change, and only the keys in
//! [`NOT_MODELLED`] and [`NOT_IN_STATE`] may be missing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod support;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use support::{document, files};
use transom_cluster::v1::{Offer, Operation, TaskState};
use transom_cluster::{operator, scheduler, state};

/// Keys of scheduler events, offers and calls that are not modelled: none.
const ALL: &[&str] = &[];

/// Keys of operator messages that are deliberately not modelled, at any depth.
const NOT_MODELLED: &[&str] = &["heartbeat_interval_seconds", "offer_constraints"];

/// Keys of the state document that are deliberately not modelled, at any depth.
const NOT_IN_STATE: &[&str] = &[
    "build_date",
    "build_time",
    "build_user",
    "capabilities",
    "executors",
    "offer_constraints",
    "offers",
    "reserved_resources",
    "unreserved_resources",
];

/// Collects the paths at which `after` lacks a value of `before` or has another one.
fn collect_lost(before: &Value, after: &Value, path: &str, found: &mut BTreeSet<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in before {
                let path = format!("{path}.{key}");
                match after.get(key) {
                    Some(after) => collect_lost(value, after, &path, found),
                    // An empty list means the same as none.
                    None if value.as_array().is_some_and(Vec::is_empty) => {}
                    None => {
                        found.insert(path);
                    }
                }
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (before, after) in before.iter().zip(after) {
                collect_lost(before, after, &format!("{path}[]"), found);
            }
        }
        (Value::Number(before), Value::Number(after)) if before.as_f64() == after.as_f64() => {}
        (before, after) if before == after => {}
        (before, after) => {
            found.insert(format!("{path} (was {before}, is {after})"));
        }
    }
}

/// Checks one document and returns the keys of `allowed` that are missing.
fn check(path: &Path, before: &Value, after: &Value, allowed: &[&'static str]) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    collect_lost(before, after, "", &mut found);
    let key = |path: &String| {
        allowed
            .iter()
            .find(|key| path.rsplit_once('.').is_some_and(|(_, last)| last == **key))
            .copied()
    };
    let missing = found.iter().filter_map(key).collect();
    found.retain(|path| key(path).is_none());
    assert!(found.is_empty(), "{}: {found:#?}", path.display());
    missing
}

/// Writes an event in the form of a master.
fn scheduler_event(event: &scheduler::Event) -> Value {
    use scheduler::Event;
    match event {
        Event::Subscribed(subscribed) => json!({"type": "SUBSCRIBED", "subscribed": {
            "framework_id": subscribed.framework_id,
            "heartbeat_interval_seconds": subscribed.heartbeat_interval_seconds,
            "master_info": subscribed.master_info,
        }}),
        Event::Offers(offers) => json!({"type": "OFFERS", "offers": {"offers": offers}}),
        Event::InverseOffers(offers) => {
            json!({"type": "INVERSE_OFFERS", "inverse_offers": {"inverse_offers": offers}})
        }
        Event::Rescind(offer) => json!({"type": "RESCIND", "rescind": {"offer_id": offer}}),
        Event::RescindInverseOffer(offer) => {
            json!({"type": "RESCIND_INVERSE_OFFER", "rescind_inverse_offer": {"inverse_offer_id": offer}})
        }
        Event::Update(status) => json!({"type": "UPDATE", "update": {"status": status}}),
        Event::UpdateOperationStatus(status) => {
            json!({"type": "UPDATE_OPERATION_STATUS", "update_operation_status": {"status": status}})
        }
        Event::Message(message) => json!({"type": "MESSAGE", "message": {
            "agent_id": message.agent_id, "executor_id": message.executor_id, "data": message.data,
        }}),
        Event::Failure(failure) => json!({"type": "FAILURE", "failure": {
            "agent_id": failure.agent_id, "executor_id": failure.executor_id, "status": failure.status,
        }}),
        Event::Error(message) => json!({"type": "ERROR", "error": {"message": message}}),
        Event::Heartbeat => json!({"type": "HEARTBEAT"}),
        Event::Unknown(kind) => panic!("a recorded event of the unknown type {kind}"),
    }
}

fn operator_event(event: &operator::Event) -> Value {
    use operator::Event;
    match event {
        Event::Subscribed(state) => json!({"type": "SUBSCRIBED", "subscribed": {"get_state": state}}),
        Event::TaskAdded(task) => json!({"type": "TASK_ADDED", "task_added": {"task": task}}),
        Event::TaskUpdated(update) => json!({"type": "TASK_UPDATED", "task_updated": update}),
        Event::FrameworkAdded(framework) => {
            json!({"type": "FRAMEWORK_ADDED", "framework_added": {"framework": framework}})
        }
        Event::FrameworkUpdated(framework) => {
            json!({"type": "FRAMEWORK_UPDATED", "framework_updated": {"framework": framework}})
        }
        Event::FrameworkRemoved(info) => {
            json!({"type": "FRAMEWORK_REMOVED", "framework_removed": {"framework_info": info}})
        }
        Event::AgentAdded(agent) => json!({"type": "AGENT_ADDED", "agent_added": {"agent": agent}}),
        Event::AgentRemoved(agent) => json!({"type": "AGENT_REMOVED", "agent_removed": {"agent_id": agent}}),
        Event::Heartbeat => json!({"type": "HEARTBEAT"}),
        Event::Unknown(kind) => panic!("a recorded event of the unknown type {kind}"),
    }
}

/// Every object in a document, however deep, that looks like an event: a type and a field named
/// like it.
fn events_in(value: &Value, found: &mut Vec<Value>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| events_in(value, found)),
        Value::Object(object) => {
            let kind = object.get("type").and_then(Value::as_str).unwrap_or_default();
            if kind == "HEARTBEAT" || object.contains_key(&kind.to_lowercase()) {
                found.push(value.clone());
            } else {
                object.values().for_each(|value| events_in(value, found));
            }
        }
        _ => {}
    }
}

const SCHEDULER_EVENTS: &[&str] = &[
    "OFFERS",
    "INVERSE_OFFERS",
    "RESCIND",
    "UPDATE",
    "UPDATE_OPERATION_STATUS",
    "MESSAGE",
    "FAILURE",
    "ERROR",
    "HEARTBEAT",
];
const OPERATOR_EVENTS: &[&str] = &[
    "TASK_ADDED",
    "TASK_UPDATED",
    "FRAMEWORK_ADDED",
    "FRAMEWORK_UPDATED",
    "FRAMEWORK_REMOVED",
    "AGENT_ADDED",
    "AGENT_REMOVED",
];

#[test]
fn recorded_events_round_trip() {
    let (mut kinds, mut missing) = (BTreeSet::new(), BTreeSet::new());
    let mut count = 0;
    for path in files(".json") {
        let mut events = Vec::new();
        events_in(&document(&path), &mut events);
        for event in events {
            let kind = event["type"].as_str().unwrap();
            let bytes = event.to_string().into_bytes();
            let name = path.display();
            if OPERATOR_EVENTS.contains(&kind) || event.pointer("/subscribed/get_state").is_some() {
                let typed =
                    operator::Event::decode(&bytes).unwrap_or_else(|error| panic!("{name}: {error:?}"));
                missing.extend(check(&path, &event, &operator_event(&typed), NOT_MODELLED));
            } else if SCHEDULER_EVENTS.contains(&kind) || kind == "SUBSCRIBED" {
                let typed =
                    scheduler::Event::decode(&bytes).unwrap_or_else(|error| panic!("{name}: {error:?}"));
                check(&path, &event, &scheduler_event(&typed), ALL);
            } else {
                continue;
            }
            kinds.insert(kind.to_owned());
            count += 1;
        }
    }
    assert!(count > 500, "only {count} events were found");
    assert_eq!(
        missing,
        NOT_MODELLED.iter().copied().collect(),
        "a key of the list is never missing"
    );
    // MESSAGE was never recorded.
    for kind in SCHEDULER_EVENTS
        .iter()
        .chain(OPERATOR_EVENTS)
        .filter(|kind| **kind != "MESSAGE")
    {
        assert!(kinds.contains(*kind), "no {kind} was found");
    }
}

#[test]
fn recorded_operator_responses_round_trip() {
    let mut count = 0;
    for path in files(".json") {
        let answer = document(&path);
        let kind = answer.get("type").and_then(Value::as_str).unwrap_or_default();
        // Agents have calls of the same names with other answers.
        if path.to_str().unwrap().contains("agent-v1") {
            continue;
        }
        let round_trip = match kind {
            "GET_STATE" => round_trip::<operator::GetState>(&answer["get_state"]),
            "GET_TASKS" => round_trip::<operator::GetTasks>(&answer["get_tasks"]),
            "GET_AGENTS" => round_trip::<operator::GetAgents>(&answer["get_agents"]),
            _ => continue,
        };
        check(&path, &answer[kind.to_lowercase()], &round_trip, NOT_MODELLED);
        count += 1;
    }
    assert!(count >= 15, "only {count} answers were found");
}

#[test]
fn recorded_offers_round_trip() {
    for name in [
        "1-main/02-offer",
        "1-main/05-offer-legacy",
        "1-main/10-offer-reserved",
        "5-misc/offer-unavailability",
    ] {
        let path = support::recordings().join(format!("{name}.json"));
        let offer = document(&path);
        check(&path, &offer, &round_trip::<Offer>(&offer), ALL);
    }
}

#[test]
fn recorded_accept_operations_round_trip() {
    let mut count = 0;
    for path in files(".request.json") {
        let call = document(&path);
        let operations = &call["accept"]["operations"];
        if operations.is_array() {
            check(&path, operations, &round_trip::<Vec<Operation>>(operations), ALL);
            count += 1;
        }
    }
    assert!(count >= 5, "only {count} calls were found");
}

#[test]
fn every_recorded_state_document_is_read() {
    let (mut count, mut tasks, mut slaves) = (0, 0, 0);
    let mut missing = BTreeSet::new();
    for path in files(".json") {
        let before = document(&path);
        if before.get("slaves").is_none() || before.get("leader").is_none() {
            continue;
        }
        let typed: state::State = serde_json::from_value(before.clone())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let after = serde_json::to_value(&typed).unwrap();
        missing.extend(check(&path, &before, &after, NOT_IN_STATE));
        count += 1;
        tasks += typed
            .frameworks
            .iter()
            .map(|framework| framework.tasks.len())
            .sum::<usize>();
        slaves += typed.slaves.len();
        for task in typed.frameworks.iter().flat_map(|framework| &framework.tasks) {
            assert!(
                !matches!(task.state, TaskState::Other(_)),
                "{}: {:?}",
                path.display(),
                task.state
            );
        }
    }
    assert!(
        count >= 20 && tasks > 20 && slaves > 20,
        "{count} documents, {tasks} tasks, {slaves} agents"
    );
}

/// Reads and writes a value.
fn round_trip<T: serde::de::DeserializeOwned + serde::Serialize>(value: &Value) -> Value {
    let typed: T = serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"));
    serde_json::to_value(typed).unwrap()
}

#[test]
fn unknown_event_types_fields_and_task_states_are_accepted() {
    let event = br#"{"type":"TASK_PAUSED","task_paused":{"x":1}}"#;
    assert_eq!(
        scheduler::Event::decode(event).unwrap(),
        scheduler::Event::Unknown("TASK_PAUSED".into())
    );
    assert_eq!(
        operator::Event::decode(event).unwrap(),
        operator::Event::Unknown("TASK_PAUSED".into())
    );
    let update =
        br#"{"type":"UPDATE","update":{"status":{"task_id":{"value":"t"},"state":"TASK_PAUSED","new":[1]}}}"#;
    let scheduler::Event::Update(status) = scheduler::Event::decode(update).unwrap() else {
        panic!("not an update")
    };
    assert_eq!(status.state, TaskState::Other("TASK_PAUSED".into()));
    assert_eq!(status.state.as_str(), "TASK_PAUSED");
    assert!(!status.state.is_terminal());
}

#[test]
fn decode_reports_missing_fields_and_invalid_events() {
    for (event, expected) in [
        (
            r#"{"type":"UPDATE"}"#,
            "the scheduler event UPDATE lacks the field named like its type",
        ),
        (
            r#"{"type":"OFFERS","offers":{"offers":[{"id":{}}]}}"#,
            "a scheduler event is invalid",
        ),
        ("{", "a scheduler event is invalid"),
    ] {
        assert_eq!(
            scheduler::Event::decode(event.as_bytes())
                .unwrap_err()
                .to_string(),
            expected
        );
    }
}

#[test]
fn invalid_entries_of_a_state_document_do_not_hide_others() {
    let mut document = document(&support::recordings().join("1-main/05-2fw_state.json"));
    let count = |state: &state::State| {
        let tasks: usize = state
            .frameworks
            .iter()
            .map(|framework| framework.tasks.len())
            .sum();
        (state.slaves.len(), state.frameworks.len(), tasks)
    };
    let complete = state::State::decode(document.to_string().as_bytes()).unwrap();
    assert_eq!(complete.invalid_entries, 0);
    document["slaves"]
        .as_array_mut()
        .unwrap()
        .push(json!({"hostname": "nameless"}));
    document["frameworks"].as_array_mut().unwrap().push(json!("odd"));
    document["frameworks"][0]["tasks"]
        .as_array_mut()
        .unwrap()
        .push(json!({"id": 7, "state": "TASK_RUNNING"}));
    let pruned = state::State::decode(document.to_string().as_bytes()).unwrap();
    assert_eq!((count(&pruned), pruned.invalid_entries), (count(&complete), 3));
    document["frameworks"] = json!(7);
    assert!(state::State::decode(document.to_string().as_bytes()).is_err());
    assert!(state::State::decode(b"{").is_err());
}

#[test]
fn invalid_entries_of_a_subscription_do_not_hide_others() {
    let mut state =
        document(&support::recordings().join("1-main/05-2fw-v1-GET_STATE.json"))["get_state"].take();
    state["get_tasks"]["tasks"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "odd"}));
    state["get_agents"]["agents"]
        .as_array_mut()
        .unwrap()
        .push(json!({"agent_info": {"hostname": ["odd"]}}));
    let event = json!({"type": "SUBSCRIBED", "subscribed": {"get_state": state}});
    let operator::Event::Subscribed(read) = operator::Event::decode(event.to_string().as_bytes()).unwrap()
    else {
        panic!("not subscribed")
    };
    assert_eq!(read.invalid_entries, 2);
    assert_eq!(read.get_agents.unwrap().agents.len(), 1);
    let tasks = state["get_tasks"]["tasks"].as_array().unwrap().len();
    assert_eq!(read.get_tasks.unwrap().tasks.len(), tasks - 1);
}
