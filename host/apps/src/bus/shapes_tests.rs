//! Every supported event of the fixtures has at least the fields that clients read.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

use std::sync::Arc;

use transom_common::trace::TraceContext;

use super::super::EventBodies;
use super::*;
use crate::deploy::plan::{Action, ActionKind};
use crate::deploy::{Change, SharedTexts};
use crate::testing::app;

/// Events of pods, which the tests of the API cover.
const POD_EVENTS: &[&str] = &["pod_created_event", "pod_updated_event", "pod_deleted_event"];

/// Fields that the specification adds to upstream's.
const ADDED: &[&str] = &["clientIp", "callbackUrl", "healthCheck"];

fn deployment(id: &SpecId) -> Deployment {
    let step = |kind| Step {
        actions: vec![Action {
            kind,
            id: id.clone(),
            is_pod: false,
        }],
    };
    Deployment {
        id: "d".to_owned(),
        version: Moment::now(),
        change: Arc::new(Change {
            version: Moment::now(),
            group: id.group(),
            specs: Vec::new(),
            groups: Vec::new(),
        }),
        steps: Arc::new(vec![step(ActionKind::Start), step(ActionKind::Scale)]),
        current: 1,
        deadline: None,
        canary: None,
        held_since: None,
        trace: TraceContext::default(),
        texts: SharedTexts::default(),
    }
}

/// The document of an event and the one with light plans.
fn documents(draft: &Draft) -> (Value, Value) {
    let bodies = EventBodies::of(draft).unwrap();
    let light = bodies.light.as_ref().unwrap_or(&bodies.body);
    let read = |text: &str| serde_json::from_str(text).unwrap();
    (read(&bodies.body), read(light))
}

fn draft(kind: &str) -> Draft {
    let definition = app(&json!({"id": "/foo", "cmd": "sleep 30", "healthChecks": [{"path": "/"}]}));
    let id = &definition.id;
    let check = &definition.health_checks[0];
    let instance = InstanceId::new(id);
    let facts = TaskFacts {
        app: id,
        instance: &instance,
        version: "v",
        agent: Some("a"),
        host: Some("h"),
        ports: &[31372],
    };
    let listener = Listener {
        disconnect: transom_web::Disconnect::default(),
        owner: transom_web::Owner::Full,
        client: "127.0.0.1".to_owned(),
        url: "/v2/events".to_owned(),
    };
    let form = PlanForm::Flat;
    match kind {
        "event_stream_attached" => attached(&listener),
        "event_stream_detached" => detached(&listener),
        "api_post_event" => api_post("127.0.0.1", "/v2/apps", &definition),
        "scheduler_registered_event" => registered("fw-1", Some("m:5050")),
        "scheduler_reregistered_event" => reregistered(Some("m:5050")),
        "scheduler_disconnected_event" => disconnected(),
        "status_update_event" => status_update(facts, &TaskStatus::default()),
        "instance_changed_event" => instance_changed(facts, Condition::Running),
        "unknown_instance_terminated_event" => {
            unknown_terminated(instance.as_str(), Some(id), Condition::Killed)
        }
        "framework_message_event" => framework_message("a", "e", "aGk="),
        "group_change_success" => group_changed(&id.group(), Moment::now(), None),
        "group_change_failed" => group_changed(&id.group(), Moment::now(), Some("")),
        "deployment_success" => deployment_ended(&deployment(id), form, None),
        "deployment_failed" => deployment_ended(&deployment(id), form, Some("x")),
        "deployment_info" => deployment_step("deployment_info", &deployment(id), form),
        "deployment_step_success" => deployment_step("deployment_step_success", &deployment(id), form),
        "deployment_step_failure" => deployment_step("deployment_step_failure", &deployment(id), form),
        "app_terminated_event" => app_terminated(id),
        "add_health_check_event" => health_check_added(id, check, Moment::now()),
        "remove_health_check_event" => health_check_removed(id, check),
        "failed_health_check_event" => health_check_failed(id, &instance, check),
        "health_status_changed_event" => health_status_changed(id, &instance, "v", true),
        "instance_health_changed_event" => instance_health_changed(facts, Some(true)),
        "unhealthy_instance_kill_event" => {
            let [of_instance, _] = unhealthy_kill(facts, "t", "down");
            of_instance
        }
        other => panic!("{other} is not posted"),
    }
}

#[test]
fn event_bodies_have_the_fields_of_the_fixtures() {
    let suite: Value = serde_json::from_str(include_str!("../../tests/fixtures/events.json")).unwrap();
    let mut replayed = 0;
    for case in suite["cases"].as_array().unwrap() {
        let kind = case["event"].as_str().unwrap();
        if POD_EVENTS.contains(&kind) {
            continue;
        }
        let draft = draft(kind);
        let (document, _) = documents(&draft);
        let names = |list: &Value| -> Vec<String> { serde_json::from_value(list.clone()).unwrap() };
        let (required, optional) = (
            names(&case["expect"]["required"]),
            names(&case["expect"]["optional"]),
        );
        for field in &required {
            assert!(document.get(field).is_some(), "{kind} lacks {field}: {document}");
        }
        for field in document.as_object().unwrap().keys() {
            let known =
                required.contains(field) || optional.contains(field) || ADDED.contains(&field.as_str());
            assert!(known, "{kind} has the unknown field {field}");
        }
        assert_eq!((draft.kind, &document["eventType"]), (kind, &json!(kind)));
        replayed += 1;
    }
    assert_eq!(replayed, 24);
}

/// The fixtures contain only upstream's events.
#[test]
fn specified_event_of_a_kill_has_its_fields() {
    let definition = app(&json!({"id": "/foo", "cmd": "sleep 30"}));
    let instance = InstanceId::new(&definition.id);
    let facts = TaskFacts {
        app: &definition.id,
        instance: &instance,
        version: "v",
        agent: Some("a"),
        host: Some("h"),
        ports: &[],
    };
    let [of_instance, of_task] = unhealthy_kill(facts, "t", "503 Service Unavailable");
    assert_eq!(of_instance.body["instanceId"], json!(instance));
    let mut body = of_task.body;
    assert!(body.as_object_mut().unwrap().remove("timestamp").is_some());
    let expected = json!({
        "eventType": "unhealthy_task_kill_event", "appId": "/foo", "taskId": "t", "version": "v",
        "reason": "503 Service Unavailable", "host": "h", "slaveId": "a",
    });
    assert_eq!(body, expected);
}

#[test]
fn deployment_events_have_specified_light_and_upstream_plans() {
    let id = SpecId::parse("/foo").unwrap();
    let action = |kind: &str| json!({"action": kind, "app": "/foo"});
    let (start, scale) = (action("StartApplication"), action("ScaleApplication"));
    let steps = json!([{"actions": [start]}, {"actions": [scale]}]);
    let (specified, light) = documents(&deployment_ended(&deployment(&id), PlanForm::Flat, None));
    assert_eq!(specified["plan"]["steps"], json!([start, scale]));
    let (both, _) = documents(&deployment_ended(&deployment(&id), PlanForm::default(), None));
    let entry = |kind: &str| json!({"action": kind, "app": "/foo", "actions": [action(kind)]});
    assert_eq!(
        both["plan"]["steps"],
        json!([entry("StartApplication"), entry("ScaleApplication")])
    );
    assert_eq!(
        (&light["plan"]["steps"], light["plan"].get("original")),
        (&steps, None)
    );
    assert_eq!(light["timestamp"], specified["timestamp"]);
    let (upstream, _) = documents(&deployment_ended(&deployment(&id), PlanForm::Upstream, None));
    assert_eq!(
        (&upstream["plan"]["steps"], &upstream["plan"]["original"]),
        (&steps, &json!({}))
    );
    let info = deployment_step("deployment_info", &deployment(&id), PlanForm::Upstream);
    let (info, _) = documents(&info);
    assert_eq!(
        info["currentStep"]["actions"][0]["type"],
        info["currentStep"]["actions"][0]["action"]
    );
}

/// Without this, the work of a deployment of many steps grows with their square.
#[test]
fn events_of_a_deployment_share_the_text_of_its_plan() {
    let first = deployment(&SpecId::parse("/foo").unwrap());
    let next = Deployment {
        current: 2,
        ..first.clone()
    };
    let plan = |deployment: &Deployment, form| deployment_step("deployment_info", deployment, form).plan;
    let texts = plan(&first, PlanForm::Both).unwrap();
    assert!(Arc::ptr_eq(&texts, &plan(&next, PlanForm::Both).unwrap()));
    let flat = plan(&first, PlanForm::Flat).unwrap();
    assert_ne!(flat.body, texts.body, "another form has another text");
}

#[test]
fn app_definitions_in_events_have_all_the_specified_fields() {
    let body = api_post(
        "127.0.0.1",
        "/v2/apps",
        &app(&json!({"id": "/foo", "args": ["a"]})),
    )
    .body;
    for field in [
        "args",
        "backoffFactor",
        "backoffSeconds",
        "cmd",
        "constraints",
        "container",
        "cpus",
        "dependencies",
        "disk",
        "env",
        "executor",
        "healthChecks",
        "id",
        "instances",
        "mem",
        "ports",
        "requirePorts",
        "upgradeStrategy",
        "fetch",
        "user",
        "version",
    ] {
        assert!(body["appDefinition"].get(field).is_some(), "{field}");
    }
}
