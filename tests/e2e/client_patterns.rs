//! The requests of programs around Marathon, in their own order, and what they read of the
//! responses: marathon-lb with its deployment script, traefik 1.x, go-marathon and marathon-ui.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::events::Events;
use transom_tests::site::Site;

fn web() -> Value {
    json!({
        "id": "/web", "cmd": "exec sleep 1000", "cpus": 0.1, "mem": 16, "instances": 2,
        "labels": {"HAPROXY_GROUP": "external", "traefik.enable": "true"},
        "portDefinitions": [{"port": 10_200, "name": "http"}],
    })
}

async fn send(site: &Site, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
    let request = site.http.request(method, site.apps(path)).json(body);
    let answer = request.send().await.expect("an answer");
    let status = answer.status();
    let text = answer.text().await.expect("a body");
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

/// marathon-lb reads all apps at each event of some kinds, and its `zdd.py` scales the old app of a
/// blue-green deployment down by its tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marathon_lb_finds_the_backends_and_removes_old_ones() {
    let site = Site::start().await;
    let query = "plan-format=light&event_type=api_post_event&event_type=health_status_changed_event\
                 &event_type=status_update_event";
    let mut events = Events::open(&site.http, &site.apps(&format!("/v2/events?{query}"))).await;
    site.post_app(&web()).await;
    assert_eq!(
        events.next_of("api_post_event").await.data["appDefinition"]["id"],
        "/web"
    );
    assert_eq!(events.next_of("status_update_event").await.data["appId"], "/web");
    let tasks = site.running("/web", 2).await;
    let all = site
        .get(&site.apps("/v2/apps?embed=apps.tasks"))
        .await
        .expect("the apps");
    let app = &all["apps"][0];
    // It fails on apps without labels or tasks.
    assert_eq!(app["labels"]["HAPROXY_GROUP"], "external");
    assert_eq!(app["portDefinitions"][0]["port"], 10_200);
    for task in app["tasks"].as_array().expect("tasks") {
        assert_eq!(task["state"], "TASK_RUNNING");
        assert!(task["host"].is_string() && task["id"].is_string(), "{task}");
        assert_eq!(task["servicePorts"], json!([10_200]));
        assert_eq!(task["ports"].as_array().map(Vec::len), Some(1));
        assert!(
            task["ipAddresses"].is_array() && task["healthCheckResults"].is_array(),
            "{task}"
        );
    }
    let old = json!({"ids": [tasks[0]["id"]]});
    let (status, body) = send(&site, Method::POST, "/v2/tasks/delete?scale=true", &old).await;
    assert_eq!(status, 200, "{body}");
    assert!(body["deploymentId"].is_string(), "{body}");
    let left = site.running("/web", 1).await;
    assert_eq!(left[0]["id"], tasks[1]["id"]);
    site.cluster.stop_after(site.daemon);
}

/// traefik reads all apps with three embedded parts after any event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traefik_reads_apps_with_deployments_and_readiness() {
    let site = Site::start().await;
    let mut events = Events::open(&site.http, &site.apps("/v2/events")).await;
    site.post_app(&web()).await;
    site.running("/web", 2).await;
    events.next_of("deployment_success").await;
    let path = "/v2/apps?embed=apps.tasks&embed=apps.deployments&embed=apps.readiness";
    let all = site.get(&site.apps(path)).await.expect("the apps");
    let app = &all["apps"][0];
    assert_eq!(app["labels"]["traefik.enable"], "true");
    assert_eq!(
        (&app["deployments"], &app["readinessCheckResults"]),
        (&json!([]), &json!([]))
    );
    assert_eq!(app["tasks"].as_array().map(Vec::len), Some(2));
    site.cluster.stop_after(site.daemon);
}

/// go-marathon tells a locked app from one that exists by the list of deployments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_marathon_tells_conflicts_apart_and_uses_pods() {
    let site = Site::start().await;
    assert_eq!(
        site.http
            .get(site.apps("/ping"))
            .send()
            .await
            .expect("an answer")
            .status(),
        200
    );
    site.post_app(&web()).await;
    site.running("/web", 2).await;
    let (status, body) = send(&site, Method::POST, "/v2/apps", &web()).await;
    assert_eq!((status.as_u16(), &body["deployments"]), (409, &Value::Null));
    // Nothing fits: the deployment stays open, and the app locked.
    let large = json!({"cpus": 1000});
    let (status, body) = send(&site, Method::PUT, "/v2/apps/web", &large).await;
    assert_eq!(status, 200, "{body}");
    let (status, locked) = send(&site, Method::PUT, "/v2/apps/web", &json!({"mem": 32})).await;
    assert_eq!(
        (status.as_u16(), &locked["deployments"]),
        (409, &json!([{"id": body["deploymentId"]}]))
    );
    let queue = site.apps("/v2/queue");
    eventually("the app is in the queue", || async {
        let queue = site.get(&queue).await?;
        if queue["queue"][0]["app"]["id"] == "/web" {
            Ok(())
        } else {
            Err(queue.to_string())
        }
    })
    .await;
    let (status, _) = send(&site, Method::DELETE, "/v2/queue//web/delay", &Value::Null).await;
    assert_eq!(status, 204);
    let deployment = body["deploymentId"].as_str().expect("an id");
    let path = format!("/v2/deployments/{deployment}");
    let (status, reverted) = send(&site, Method::DELETE, &path, &Value::Null).await;
    assert_eq!(status, 200, "{reverted}");
    site.running("/web", 2).await;
    let capable = site
        .http
        .head(site.apps("/v2/pods"))
        .send()
        .await
        .expect("an answer");
    assert_eq!(capable.status(), 200);
    let pod = json!({
        "id": "/pod", "scaling": {"kind": "fixed", "instances": 1},
        "containers": [{
            "name": "one", "exec": {"command": {"shell": "exec sleep 1000"}}, "resources": {"cpus": 0.1, "mem": 16},
        }],
    });
    let (status, created) = send(&site, Method::POST, "/v2/pods", &pod).await;
    assert_eq!(status, 201, "{created}");
    let status = site.apps("/v2/pods/pod::status");
    eventually("the pod is stable", || async {
        let status = site.get(&status).await?;
        if status["status"] == "STABLE" {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })
    .await;
    let (status, _) = send(&site, Method::DELETE, "/v2/pods/pod?force=true", &Value::Null).await;
    assert_eq!(status, 202);
    site.cluster.stop_after(site.daemon);
}

/// The pages of marathon-ui: the tree of groups with counts, an app with the statistics of its tasks,
/// the queue, and the plugins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marathon_ui_shows_groups_apps_and_the_queue() {
    let site = Site::start().await;
    let example = include_str!("../../examples/groups/shop.json");
    let group: Value = serde_json::from_str(example).expect("JSON");
    let (status, body) = send(&site, Method::PUT, "/v2/groups", &group).await;
    assert!(status.is_success(), "{status} {body}");
    for (app, count) in [("/shop/db/store", 1), ("/shop/web/api", 2), ("/shop/web/ui", 1)] {
        site.running(app, count).await;
    }
    eventually("no deployment is left", || async {
        let left = site.get(&site.apps("/v2/deployments")).await?;
        if left == json!([]) {
            Ok(())
        } else {
            Err(left.to_string())
        }
    })
    .await;
    let path =
        "/v2/groups?embed=group.groups&embed=group.apps&embed=group.apps.deployments&embed=group.apps.counts";
    let root = site.get(&site.apps(path)).await.expect("the groups");
    let web = &root["groups"][0]["groups"][1];
    assert_eq!(web["id"], "/shop/web");
    assert_eq!(web["dependencies"], json!(["/shop/db"]));
    let api = &web["apps"][0];
    assert_eq!(
        (&api["id"], &api["tasksRunning"]),
        (&json!("/shop/web/api"), &json!(2))
    );
    assert_eq!(api["deployments"], json!([]));
    let app = site
        .get(&site.apps("/v2/apps//shop/web/api?embed=app.taskStats"))
        .await
        .expect("the app");
    assert_eq!(
        app["app"]["tasksStats"]["totalSummary"]["stats"]["counts"]["running"],
        2
    );
    assert_eq!(app["app"]["dependencies"], json!(["/shop/db/store"]));
    for path in [
        "/v2/queue",
        "/v2/deployments",
        "/v2/info",
        "/v2/plugins",
        "/v2/leader",
    ] {
        site.get(&site.apps(path)).await.expect(path);
    }
    site.cluster.stop_after(site.daemon);
}
