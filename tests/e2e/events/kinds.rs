//! The kinds of events that no other test triggers, each by its real cause.

use reqwest::Method;
use serde_json::{Value, json};
use transom_tests::events::Events;
use transom_tests::site::Site;

fn sleeper(id: &str) -> Value {
    json!({"id": id, "cmd": "exec sleep 1000", "cpus": 0.1, "mem": 16})
}

async fn send(site: &Site, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
    let mut request = site.http.request(method, site.apps(path));
    if let Some(body) = body {
        request = request.json(&body);
    }
    let answer = request.send().await.expect("an answer");
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deployments_and_groups_send_their_events() {
    let site = Site::start_with("[apps.events]\nplan_format = \"upstream\"\n").await;
    let mut events = Events::open(&site.http, &site.apps("/v2/events")).await;
    site.post_app(&sleeper("/shop/web")).await;
    let group = events.next_of("group_change_success").await.data;
    assert_eq!(group["groupId"], "/shop");
    let info = events.next_of("deployment_info").await.data;
    let id = info["plan"]["id"].clone();
    // The setting `plan_format` selects Marathon's form of the plan.
    assert_eq!(
        (&info["plan"]["original"], &info["plan"]["target"]),
        (&json!({}), &json!({}))
    );
    let action = &info["plan"]["steps"][0]["actions"][0];
    assert_eq!(
        (&action["action"], &action["app"]),
        (&json!("StartApplication"), &json!("/shop/web"))
    );
    let step = events.next_of("deployment_step_success").await.data;
    assert_eq!(step["plan"]["id"], id);
    let current = &step["currentStep"]["actions"][0];
    assert_eq!(current["type"], current["action"]);
    assert_eq!(events.next_of("deployment_success").await.data["id"], id);

    // A deployment for which no agent has enough resources, and a change that is rejected because
    // of it.
    let mut large = sleeper("/shop/large");
    large["cpus"] = json!(1000);
    let (status, _) = send(&site, Method::POST, "/v2/apps", Some(large.clone())).await;
    assert_eq!(status, 201);
    let stuck = events.next_of("deployment_info").await.data["plan"]["id"].clone();
    large["cpus"] = json!(0.1);
    let (status, _) = send(&site, Method::PUT, "/v2/apps/shop/large", Some(large.clone())).await;
    assert_eq!(status, 409);
    let failed = events.next_of("group_change_failed").await.data;
    assert_eq!(failed["groupId"], "/shop");
    assert!(
        failed["reason"].as_str().is_some_and(|reason| !reason.is_empty()),
        "{failed}"
    );

    // A forced change aborts that deployment.
    let (status, _) = send(&site, Method::PUT, "/v2/apps/shop/large?force=true", Some(large)).await;
    assert_eq!(status, 200);
    let step = events.next_of("deployment_step_failure").await.data;
    assert_eq!(step["plan"]["id"], stuck);
    let failed = events.next_of("deployment_failed").await.data;
    assert_eq!(failed["id"], stuck);
    events.next_of("deployment_success").await;

    let (status, _) = send(&site, Method::DELETE, "/v2/apps/shop/large", None).await;
    assert_eq!(status, 200);
    assert_eq!(
        events.next_of("api_post_event").await.data["appDefinition"]["id"],
        "/shop/large"
    );
    assert_eq!(
        events.next_of("app_terminated_event").await.data["appId"],
        "/shop/large"
    );

    // A second stream is opened and closed.
    let other = Events::open(&site.http, &site.apps("/v2/events?event_type=none")).await;
    let attached = events.next_of("event_stream_attached").await.data;
    drop(other);
    let detached = events.next_of("event_stream_detached").await.data;
    for event in [attached, detached] {
        assert_eq!(
            (&event["callbackUrl"], &event["clientIp"], &event["remoteAddress"]),
            (
                &json!("/v2/events?event_type=none"),
                &json!("127.0.0.1"),
                &json!("127.0.0.1")
            )
        );
    }
    site.cluster.stop();
}

/// An app is deleted while the agent of its task is unreachable; the task ends when the agent
/// returns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_of_a_deleted_app_ends_as_an_unknown_instance() {
    let site = Site::start_on(&["--agent-timeout", "1"], "").await;
    let mut events = Events::open(&site.http, &site.apps("/v2/events")).await;
    site.post_app(&sleeper("/lost")).await;
    let task = site.wait_until_running("/lost", 1).await.remove(0);
    let (id, host) = (task["id"].clone(), task["host"].clone());
    site.fault(&json!({"fault": "partition-agent", "agent": host}))
        .await;
    loop {
        let update = events.next_of("status_update_event").await.data;
        if update["taskId"] == id && update["taskStatus"] == "TASK_UNREACHABLE" {
            break;
        }
    }
    let (status, _) = send(&site, Method::DELETE, "/v2/apps/lost", None).await;
    assert_eq!(status, 200);
    // The deployment does not wait for the unreachable task.
    events.next_of("deployment_success").await;
    site.fault(&json!({"fault": "heal-agent", "agent": host})).await;
    let unknown = events.next_of("unknown_instance_terminated_event").await.data;
    assert_eq!(unknown["runSpecId"], "/lost");
    assert_eq!(unknown["condition"], "Killed");
    let instance = unknown["instanceId"].as_str().expect("an id");
    assert!(
        id.as_str().is_some_and(|id| id.starts_with(instance)),
        "{unknown}"
    );
    site.cluster.stop();
}
