//! The event stream.

use serde_json::json;
use transom_cluster::v1::TaskState;
use transom_plugin_host::probe::Outcome;
use transom_scheduler::Event;

use super::sleeper;
use crate::testing::World;

#[tokio::test]
async fn event_stream_reports_api_deployment_task_and_scheduler_events() {
    let world = World::start().await;
    let mut events = world.listen("").await;
    let first = events.next().await;
    assert_eq!(
        (
            first.kind.as_str(),
            &first.data["remoteAddress"],
            &first.data["clientIp"]
        ),
        ("event_stream_attached", &json!("127.0.0.1"), &json!("127.0.0.1"))
    );
    assert_eq!(
        (first.data["callbackUrl"].as_str(), first.id),
        (Some("/v2/events"), None)
    );
    world.send("POST", "/v2/apps", sleeper("/a/web")).await;
    let posted = events.next_of("api_post_event").await;
    assert_eq!(
        (&posted["uri"], &posted["appDefinition"]["id"]),
        (&json!("/v2/apps"), &json!("/a/web"))
    );
    assert_eq!(events.next_of("group_change_success").await["groupId"], "/a");
    let info = events.next_of("deployment_info").await;
    let entry = |kind: &str| {
        let action = json!({"action": kind, "app": "/a/web"});
        json!({"action": kind, "app": "/a/web", "actions": [action]})
    };
    assert_eq!(
        info["plan"]["steps"],
        json!([entry("StartApplication"), entry("ScaleApplication")])
    );
    let action = json!({"type": "StartApplication", "action": "StartApplication", "app": "/a/web"});
    assert_eq!(info["currentStep"]["actions"], json!([action]));
    let update = events.next_of("status_update_event").await;
    assert_eq!(
        (&update["taskStatus"], &update["ports"], &update["slaveId"]),
        (&json!("TASK_RUNNING"), &json!([31000]), &json!("a-S0"))
    );
    assert_eq!(
        events.next_of("instance_changed_event").await["condition"],
        "Running"
    );
    assert_eq!(
        events.next_of("deployment_success").await["id"],
        info["plan"]["id"]
    );
    world.call("DELETE", "/v2/apps/a/web", None).await;
    assert_eq!(events.next_of("app_terminated_event").await["appId"], "/a/web");
    world.scheduler.send(Event::Disconnected);
    events.next_of("scheduler_disconnected_event").await;
    world.scheduler.send(Event::Message {
        agent: "s".into(),
        executor: "e".into(),
        data: "aGk=".to_owned(),
    });
    assert_eq!(events.next_of("framework_message_event").await["message"], "aGk=");
    let stray = transom_cluster::v1::TaskStatus {
        task_id: "b.instance-0664256e-6771-11e5-94e1-be5b2935a987._app.1".into(),
        state: TaskState::Failed,
        ..Default::default()
    };
    world.scheduler.send(Event::Unknown {
        status: Box::new(stray),
    });
    let unknown = events.next_of("unknown_instance_terminated_event").await;
    assert_eq!(
        (&unknown["runSpecId"], &unknown["condition"]),
        (&json!("/b"), &json!("Failed"))
    );
    world.stop().await;
    events.rest().await;
}

#[tokio::test]
async fn event_streams_are_filtered_and_numbered_and_invalid_ones_rejected() {
    let world = World::start().await;
    let mut light = world
        .listen("?plan-format=light&event_type=deployment_success&ids=true")
        .await;
    world.send("POST", "/v2/apps", sleeper("/web")).await;
    let success = light.next().await;
    assert_eq!(success.kind, "deployment_success", "no other event passes");
    assert_eq!(
        success.data["plan"]["steps"][0],
        json!({"actions": [{"action": "StartApplication", "app": "/web"}]})
    );
    let id = success.id.unwrap();
    let (term, sequence) = id.split_once('-').unwrap();
    assert_eq!(term, "1", "{id}");
    assert!(sequence.parse::<u64>().unwrap() > 1, "{id}");

    for accept in ["*/*", "text/event-stream, application/json"] {
        let answer = world.call_with("GET", "/v2/events", accept).await;
        assert_eq!(answer.status, 405, "{accept}");
    }
    let rejected = world
        .call_with("GET", "/v2/events?filter=bad", "text/event-stream")
        .await;
    assert_eq!(
        (rejected.status, &rejected.body["message"]),
        (400, &json!("the filter makes no sense"))
    );

    world.components.remove();
    let rest = light.rest().await;
    assert!(
        rest.contains(": no plugin `filter` serves filter"),
        "the reason is sent before an open stream ends: {rest}"
    );
    let answer = world.call_with("GET", "/v2/events", "text/event-stream").await;
    assert_eq!((answer.status, &answer.body["reason"]), (503, &json!("missing")));
    world.stop().await;
}

#[tokio::test]
async fn snapshot_is_published_before_the_events_of_the_same_change() {
    let world = World::start().await;
    let before = world.published();
    let mut definition = sleeper("/web");
    definition["instances"] = json!(0);
    // The store blocks the commit of the deployment's end; that of the definition has succeeded.
    world.store.hold_after(1);
    let (created, ()) = tokio::join!(world.send("POST", "/v2/apps", definition), async {
        world.store.wait_until_held().await;
        assert_eq!(world.call("GET", "/v2/apps/web", None).await.status, 404);
        assert_eq!(
            world.published(),
            before,
            "no event is published before the snapshot shows its change"
        );
        world.store.release();
    });
    assert_eq!(created.status, 201, "{created:?}");
    assert!(world.published() > before);
    assert_eq!(world.call("GET", "/v2/apps/web", None).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn only_requests_that_change_an_app_post_api_post_events() {
    let world = World::start().await;
    let mut events = world.listen("?event_type=api_post_event").await;
    assert_eq!(world.send("POST", "/v2/apps", sleeper("/a")).await.status, 201);
    world.settled("/a", 1).await;
    for (method, path, body) in [
        ("POST", "/v2/apps/a/restart", None),
        ("PUT", "/v2/apps/a", Some(json!({"instances": 2}).to_string())),
        ("DELETE", "/v2/apps/a/tasks?scale=true", None),
        ("DELETE", "/v2/apps/a", None),
    ] {
        let answer = world.call(method, path, body.as_deref()).await;
        assert_eq!(answer.status, 200, "{method} {path}: {answer:?}");
        if method != "DELETE" {
            world.settled("/a", if method == "PUT" { 2 } else { 1 }).await;
        }
    }
    for uri in ["/v2/apps", "/v2/apps/a", "/v2/apps/a"] {
        assert_eq!(events.next().await.data["uri"], uri);
    }
    world.stop().await;
}

#[tokio::test]
async fn check_result_of_the_daemon_posts_a_status_update_event() {
    let world = World::start().await;
    *world.components.probe.lock().unwrap() = Ok(Outcome::Http(200));
    let mut events = world
        .listen("?event_type=status_update_event&event_type=check_result_changed_event")
        .await;
    let check = json!({"http": {}, "intervalSeconds": 3600, "timeoutSeconds": 1, "delaySeconds": 0});
    let app = json!({"id": "/web", "cmd": "sleep 1", "check": check});
    assert_eq!(world.send("POST", "/v2/apps", app).await.status, 201);
    for kind in [
        "status_update_event",
        "status_update_event",
        "check_result_changed_event",
    ] {
        let event = events.next().await;
        assert_eq!(event.kind, kind);
        if kind == "status_update_event" {
            assert_eq!(event.data["taskStatus"], "TASK_RUNNING");
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn head_of_the_event_stream_opens_no_stream() {
    let world = World::start().await;
    let mut events = world.listen("").await;
    assert_eq!(events.next().await.kind, "event_stream_attached");
    let answer = world.call_with("HEAD", "/v2/events", "text/event-stream").await;
    assert_eq!(
        (answer.status, answer.headers["content-type"].as_str()),
        (200, "text/event-stream;charset=utf-8")
    );
    assert_eq!(world.call_with("HEAD", "/v2/events", "*/*").await.status, 405);
    world.send("POST", "/v2/apps", sleeper("/a")).await;
    assert_eq!(
        events.next().await.kind,
        "api_post_event",
        "the HEAD request caused no attach event"
    );
    world.stop().await;
}
