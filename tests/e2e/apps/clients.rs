//! Sequences of requests that programs for Marathon send, and the parts of the responses that they
//! read: marathon-lb with its deployment script, traefik 1.x, go-marathon and marathon-ui. And programs
//! that are in packages, unmodified: shpkpr and marathon-event-bus-client.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::process::Command;
use transom_testkit::eventually;
use transom_tests::events::Events;
use transom_tests::site::Site;
use transom_tests::{installed, set_proxies};

use crate::events::clients::{Client, script};

fn web_app() -> Value {
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

async fn wait_until_no_deployment(site: &Site) {
    eventually("no deployment is left", || async {
        let left = site.get(&site.apps("/v2/deployments")).await?;
        if left == json!([]) {
            Ok(())
        } else {
            Err(left.to_string())
        }
    })
    .await;
}

/// marathon-lb reads all apps after each event of some kinds. Its `zdd.py` scales down the old app
/// of a blue-green deployment by killing its tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marathon_lb_finds_the_backends_and_removes_old_ones() {
    let site = Site::start().await;
    let query = "plan-format=light&event_type=api_post_event&event_type=health_status_changed_event\
                 &event_type=status_update_event";
    let mut events = Events::open(&site.http, &site.apps(&format!("/v2/events?{query}"))).await;
    site.post_app(&web_app()).await;
    assert_eq!(
        events.next_of("api_post_event").await.data["appDefinition"]["id"],
        "/web"
    );
    assert_eq!(events.next_of("status_update_event").await.data["appId"], "/web");
    let tasks = site.wait_until_running("/web", 2).await;
    let all = site
        .get(&site.apps("/v2/apps?embed=apps.tasks"))
        .await
        .expect("the apps");
    let app = &all["apps"][0];
    // marathon-lb fails on apps without labels or tasks.
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
    let left = site.wait_until_running("/web", 1).await;
    assert_eq!(left[0]["id"], tasks[1]["id"]);
    site.cluster.stop_after(site.daemon);
}

/// traefik reads all apps, with three embedded parts, after any event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traefik_reads_apps_with_deployments_and_readiness() {
    let site = Site::start().await;
    let mut events = Events::open(&site.http, &site.apps("/v2/events")).await;
    site.post_app(&web_app()).await;
    site.wait_until_running("/web", 2).await;
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

/// go-marathon distinguishes a locked app from an existing one by the list of deployments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_marathon_distinguishes_conflicts_and_uses_pods() {
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
    site.post_app(&web_app()).await;
    site.wait_until_running("/web", 2).await;
    let (status, body) = send(&site, Method::POST, "/v2/apps", &web_app()).await;
    assert_eq!((status.as_u16(), &body["deployments"]), (409, &Value::Null));
    // No offer fits, so the deployment does not end and the app stays locked.
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
    site.wait_until_running("/web", 2).await;
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
    let example = include_str!("../../../examples/groups/shop.json");
    let group: Value = serde_json::from_str(example).expect("JSON");
    let (status, body) = send(&site, Method::PUT, "/v2/groups", &group).await;
    assert!(status.is_success(), "{status} {body}");
    for (app, count) in [("/shop/db/store", 1), ("/shop/web/api", 2), ("/shop/web/ui", 1)] {
        site.wait_until_running(app, count).await;
    }
    wait_until_no_deployment(&site).await;
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

/// Sends a request as a browser does for a page of the daemon's own port.
async fn send_from_page(site: &Site, method: Method, path: &str, body: &Value) -> Value {
    let origin = site.apps("");
    let mut request = site
        .http
        .request(method.clone(), site.apps(path))
        .header("Origin", &origin)
        .header("Sec-Fetch-Site", "same-origin")
        .header("Sec-Fetch-Mode", "cors");
    if !body.is_null() {
        request = request.json(body);
    }
    let answer = request.send().await.expect("an answer");
    let status = answer.status();
    let text = answer.text().await.expect("a body");
    assert!(status.is_success(), "{method} {path}: {status} {text}");
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

/// The page of the user interface loads its script; pages of other sites may not load it.
async fn loads_page_and_script(site: &Site) {
    let page = site.http.get(site.apps("/")).send().await.expect("a page");
    assert_eq!(page.url().as_str(), site.apps("/ui/"));
    assert_eq!(page.headers()["content-type"], "text/html");
    let script = page.url().join("main.js").expect("a URL");
    let script = site.http.get(script).send().await.expect("a script");
    assert_eq!(script.headers()["content-type"], "text/javascript");
    assert_eq!(script.text().await.expect("a text"), "run()");
    let elsewhere = site
        .http
        .get(site.apps("/ui/main.js"))
        .header("Sec-Fetch-Site", "cross-site");
    assert_eq!(elsewhere.send().await.expect("an answer").status(), 403);
}

/// A built marathon-ui is served on the port of the API, and changes apps through that port.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn marathon_ui_is_served_and_changes_apps_through_the_same_port() {
    let built = tempfile::tempdir().expect("a directory");
    for (name, text) in [
        ("index.html", "<script src=main.js></script>"),
        ("main.js", "run()"),
    ] {
        fs::write(built.path().join(name), text).expect("written");
    }
    let site = Site::start_with_apps(&format!("ui_dir = {:?}\n", built.path())).await;
    loads_page_and_script(&site).await;
    let post = async |path: &str, body: Value| send_from_page(&site, Method::POST, path, &body).await;
    let put = async |path: &str, body: Value| send_from_page(&site, Method::PUT, path, &body).await;
    let get = async |path: &str| send_from_page(&site, Method::GET, path, &Value::Null).await;
    let delete = async |path: &str| send_from_page(&site, Method::DELETE, path, &Value::Null).await;

    // Create, scale, edit, restart.
    post("/v2/apps", web_app()).await;
    let first = site.wait_until_running("/web", 2).await;
    wait_until_no_deployment(&site).await;
    put("/v2/apps//web", json!({"instances": 3})).await;
    let scaled = site.wait_until_running("/web", 3).await;
    assert!(
        first
            .iter()
            .all(|task| scaled.iter().any(|one| one["id"] == task["id"]))
    );
    wait_until_no_deployment(&site).await;
    put(
        "/v2/apps//web",
        json!({"id": "/web", "cmd": "exec sleep 2000", "instances": 1}),
    )
    .await;
    wait_until_no_deployment(&site).await;
    let edited = site.wait_until_running("/web", 1).await;
    assert!(
        scaled.iter().all(|task| task["id"] != edited[0]["id"]),
        "{edited:?}"
    );
    let versions = get("/v2/apps//web/versions").await;
    let versions = versions["versions"].as_array().expect("versions");
    assert_eq!(versions.len(), 3);
    let oldest = versions[2].as_str().expect("a version");
    let oldest = get(&format!("/v2/apps//web/versions/{oldest}")).await;
    assert_eq!(oldest["cmd"], "exec sleep 1000");
    post("/v2/apps//web/restart", json!({"force": false})).await;
    wait_until_no_deployment(&site).await;
    let restarted = site.wait_until_running("/web", 1).await;
    assert_ne!(restarted[0]["id"], edited[0]["id"]);
    // A killed task is replaced.
    post("/v2/tasks/delete", json!({"ids": [restarted[0]["id"]]})).await;
    site.tasks_when("/web", "another task", |tasks| {
        matches!(tasks, [task] if task["state"] == "TASK_RUNNING" && task["id"] != restarted[0]["id"])
    })
    .await;

    // Deployments that cannot finish are cancelled and rolled back.
    for (force, instances) in [("?force=true", 2), ("", 1)] {
        put("/v2/apps//web", json!({"cpus": 1000, "instances": 2})).await;
        let deployments = get("/v2/deployments").await;
        assert_eq!(deployments[0]["affectedApps"], json!(["/web"]));
        assert!(deployments[0]["currentActions"].is_array(), "{deployments}");
        let id = deployments[0]["id"].as_str().expect("an id");
        delete(&format!("/v2/deployments/{id}{force}")).await;
        let shown = get("/v2/apps//web?embed=app.taskStats").await;
        assert_eq!(shown["app"]["instances"], instances, "{force}: {shown}");
        put("/v2/apps//web?force=true", json!({"cpus": 0.1, "instances": 1})).await;
        wait_until_no_deployment(&site).await;
    }

    // The queue contains an app that waits for its backoff delay.
    let failing = json!({"id": "/failing", "cmd": "exit 1", "cpus": 0.1, "mem": 16, "backoffSeconds": 600});
    post("/v2/apps", failing).await;
    eventually("the app waits", || async {
        let queue = site.get(&site.apps("/v2/queue")).await?;
        let waiting = &queue["queue"][0];
        if waiting["app"]["id"] == "/failing" && waiting["delay"]["overdue"] == false {
            Ok(())
        } else {
            Err(queue.to_string())
        }
    })
    .await;
    delete("/v2/queue//failing/delay").await;
    let info = get("/v2/info").await;
    assert!(
        info["version"].is_string() && info["marathon_config"].is_object(),
        "{info}"
    );
    assert!(get("/v2/plugins").await["plugins"].is_array());
    for app in ["/web", "/failing"] {
        delete(&format!("/v2/apps/{app}?force=true")).await;
    }
    eventually("no app is left", || async {
        let root = site
            .get(&site.apps("/v2/groups?embed=group.groups&embed=group.apps"))
            .await?;
        if root["apps"] == json!([]) {
            Ok(())
        } else {
            Err(root.to_string())
        }
    })
    .await;
    site.cluster.stop_after(site.daemon);
}

/// Runs shpkpr, which must succeed or fail as stated; returns what it wrote.
async fn shpkpr(site: &Site, succeeds: bool, arguments: &[&str]) -> String {
    let mut command = Command::new(installed("python/shpkpr/bin/shpkpr"));
    set_proxies(command.as_std_mut());
    let output = command
        .args(arguments)
        .args(["--marathon-url", &site.apps("")])
        // Its command line library does not run in the locale of C.
        .envs([("LC_ALL", "C.UTF-8"), ("PYTHONDONTWRITEBYTECODE", "1")])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .expect("shpkpr");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (written, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.success(), succeeds, "{written}{errors}");
    written + &errors
}

/// Deploys the template with these values and options.
async fn deploy(site: &Site, templates: &Path, succeeds: bool, values: &[&str]) -> String {
    let folder = templates.to_str().expect("a path");
    let options = ["apps", "deploy", "-t", "web.json", "--template-dir", folder];
    shpkpr(site, succeeds, &[&options[..], values].concat()).await
}

/// The next event of a kind whose data are accepted.
async fn next_event(bus: &mut Client, kind: &str, accept: impl Fn(&Value) -> bool) -> Value {
    loop {
        let event = bus.next().await;
        if event["event"] == kind && accept(&event["data"]) {
            return event["data"].clone();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shpkpr_deploys_apps_and_the_event_bus_client_sees_it() {
    let folder = tempfile::tempdir().expect("a directory");
    let template = r#"{
        "id": "/web", "cmd": "exec sleep 1000", "cpus": {{ CPUS }}, "mem": 16,
        "instances": {{ INSTANCES }}, "portDefinitions": []
    }"#;
    fs::write(folder.path().join("web.json"), template).expect("written");
    let site = Site::start().await;
    let mut node = Command::new("node");
    let package = "node/marathon-event-bus-client/node_modules/marathon-event-bus-client";
    node.arg(script("event_bus.js")).arg(installed(package));
    let mut bus = Client::start(node, &site.apps("/v2/events")).await;

    let first = deploy(&site, folder.path(), true, &["INSTANCES=1", "CPUS=0.1"]).await;
    assert!(first.contains("Marathon deployment complete"), "{first}");
    let started = next_event(&mut bus, "deployment_info", |_| true).await;
    assert_eq!(started["currentStep"]["actions"][0]["app"], "/web");
    let running = next_event(&mut bus, "status_update_event", |data| {
        data["taskStatus"] == "TASK_RUNNING"
    })
    .await;
    assert_eq!(running["appId"], "/web");
    let done = next_event(&mut bus, "deployment_success", |_| true).await;
    assert_eq!(done["id"], started["plan"]["id"]);
    assert!(first.contains(done["id"].as_str().expect("an id")), "{first}");

    deploy(&site, folder.path(), true, &["INSTANCES=2", "CPUS=0.1"]).await;
    let tasks = site.wait_until_running("/web", 2).await;
    assert!(
        tasks.iter().any(|task| task["id"] == running["taskId"]),
        "{tasks:?}"
    );
    let done = next_event(&mut bus, "deployment_success", |_| true).await;
    assert!(done["plan"]["steps"].is_array(), "{done}");
    let shown = shpkpr(&site, true, &["apps", "show", "-a", "/web"]).await;
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(
        (&shown["tasksRunning"], &shown["deployments"]),
        (&json!(2), &json!([]))
    );

    // Nothing has so many processors, so the app stays locked.
    let (status, large) = send(&site, Method::PUT, "/v2/apps/web", &json!({"cpus": 1000})).await;
    assert_eq!(status, 200, "{large}");
    let locked = deploy(&site, folder.path(), false, &["INSTANCES=1", "CPUS=0.1"]).await;
    let expected = format!(
        "App(s) locked by one or more deployments: {}",
        large["deploymentId"].as_str().expect("an id")
    );
    assert!(locked.contains(&expected), "{locked}");
    drop(bus);
    site.cluster.stop_after(site.daemon);
}
