//! Pods and apps with persistent volumes on a cluster: real processes, files and agents.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::events::Events;
use transom_tests::site::Site;

/// Waits until the pod has `count` instances and all of them are stable; returns its status.
async fn wait_until_stable(site: &Site, id: &str, count: usize) -> Value {
    let url = site.apps(&format!("/v2/pods{id}::status"));
    eventually(&format!("{count} stable instances of {id}"), || async {
        let status = site.get(&url).await?;
        let instances = status["instances"].as_array().cloned().unwrap_or_default();
        if status["status"] == "STABLE" && instances.len() == count {
            Ok(status)
        } else {
            Err(format!("{status:#}"))
        }
    })
    .await
}

async fn send(site: &Site, method: reqwest::Method, path: &str, body: Option<&Value>) -> Value {
    let mut request = site.http.request(method.clone(), site.apps(path));
    if let Some(body) = body {
        request = request.json(body);
    }
    let answer = request.send().await.expect("an answer");
    let (status, text) = (answer.status(), answer.text().await.expect("a body"));
    assert!(status.is_success(), "{method} {path}: {status} {text}");
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

fn container<'a>(instance: &'a Value, name: &str) -> &'a Value {
    let containers = instance["containers"].as_array().expect("containers");
    let found = containers.iter().find(|container| container["name"] == name);
    found.unwrap_or_else(|| panic!("no container {name}: {instance:#}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn example_pod_runs_with_its_checks_and_survives_faults() {
    let mut site = Site::start().await;
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/pods/web-with-helper.json");
    let pod: Value = serde_json::from_str(&fs::read_to_string(example).expect("a file")).expect("JSON");
    let id = pod["id"].as_str().expect("an id").to_owned();
    let kinds = "?event_type=pod_created_event&event_type=pod_updated_event&event_type=pod_deleted_event&event_type=status_update_event";
    let mut events = Events::open(&site.http, &site.apps(&format!("/v2/events{kinds}"))).await;
    send(&site, reqwest::Method::POST, "/v2/pods", Some(&pod)).await;
    assert_eq!(events.next_of("pod_created_event").await.data["uri"], "/v2/pods");
    let status_update = events.next_of("status_update_event").await.data;
    assert_eq!(status_update["appId"], id.as_str());
    wait_until_stable(&site, &id, 2).await;
    // The check of the container reaches it at the port of its endpoint.
    let url = site.apps(&format!("/v2/pods{id}::status"));
    let status = eventually("the results of the checks", || async {
        let status = site.get(&url).await?;
        let instances = status["instances"].as_array().cloned().unwrap_or_default();
        let found = |one: &Value| container(one, "web")["checkResult"]["http"]["statusCode"] == 200;
        if instances.iter().all(found) {
            Ok(status)
        } else {
            Err(format!("{status:#}"))
        }
    })
    .await;
    let web = container(&status["instances"][0], "web");
    let port = &web["endpoints"][0]["allocatedHostPort"];
    let host = status["instances"][0]["agentHostname"].as_str().expect("a host");
    let page = site.http.get(format!("http://{host}:{port}/index.html"));
    let page = page
        .send()
        .await
        .expect("an answer")
        .text()
        .await
        .expect("a page");
    assert!(!page.is_empty(), "the helper's file");

    // If a container ends, its instance is replaced; the other instance is not affected.
    let other = container(&status["instances"][1], "web")["containerId"].clone();
    let helper = container(&status["instances"][0], "helper")["containerId"].clone();
    let helper = helper.as_str().expect("a task").to_owned();
    site.cluster.kill_process(&helper);
    let next = helper.replace(".helper.1", ".helper.2");
    assert_ne!(next, helper);
    let status = eventually("the next tasks of the instance", || async {
        let status = wait_until_stable(&site, &id, 2).await;
        let instances = status["instances"].as_array().expect("instances").clone();
        let replaced = instances
            .iter()
            .any(|one| container(one, "helper")["containerId"] == next.as_str());
        replaced
            .then_some(status.clone())
            .ok_or_else(|| format!("{status:#}"))
    })
    .await;
    let webs: Vec<&Value> = status["instances"]
        .as_array()
        .expect("instances")
        .iter()
        .map(|one| &container(one, "web")["containerId"])
        .collect();
    assert!(webs.contains(&&other), "{webs:?}");

    // After SIGKILL and a restart the daemon takes over the same tasks.
    let launches = site.cluster.launches();
    site.kill_daemon();
    site.start_daemon().await;
    let after = wait_until_stable(&site, &id, 2).await;
    assert_eq!(site.cluster.launches(), launches, "nothing was launched again");
    let mut ids: Vec<&Value> = vec![&after["instances"][0]["id"], &after["instances"][1]["id"]];
    let mut before: Vec<&Value> = vec![&status["instances"][0]["id"], &status["instances"][1]["id"]];
    ids.sort_by_key(ToString::to_string);
    before.sort_by_key(ToString::to_string);
    assert_eq!(ids, before);

    send(&site, reqwest::Method::DELETE, &format!("/v2/pods{id}"), None).await;
    eventually("the pod is gone", || async {
        let remaining = site.get(&site.apps("/v2/pods")).await?;
        let deployments = site.get(&site.apps("/v2/deployments")).await?;
        if remaining == json!([]) && deployments == json!([]) {
            Ok(())
        } else {
            Err(format!("{remaining} {deployments}"))
        }
    })
    .await;
    site.cluster.stop_after(site.daemon);
}

/// Waits until the file to which a task appends a line at each start has these lines.
async fn wait_for_starts(path: &Path, expected: &[&str]) {
    eventually(&format!("the starts {expected:?}"), || async {
        let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
        let lines: Vec<&str> = text.lines().collect();
        if lines == expected { Ok(()) } else { Err(text) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_of_a_resident_app_is_kept_until_it_is_wiped() {
    let mut site = Site::start_in_role("ops").await;
    let scratch = tempfile::tempdir().expect("a directory");
    let seen = scratch.path().join("seen");
    let copy = seen.display();
    let cmd = |word: &str| {
        format!(
            "echo {word} >> data/starts && cp data/starts '{copy}.new' && mv '{copy}.new' '{copy}' && exec sleep 1000"
        )
    };
    let volume = json!({"containerPath": "data", "mode": "RW", "persistent": {"size": 10}});
    site.post_app(&json!({
        "id": "/db", "cmd": cmd("first"), "cpus": 0.1, "mem": 32, "backoffSeconds": 0,
        "container": {"type": "MESOS", "volumes": [volume]},
    }))
    .await;
    let first = site.wait_until_running("/db", 1).await.remove(0);
    wait_for_starts(&seen, &["first"]).await;
    let volume = &first["localVolumes"][0];
    assert_eq!(volume["containerPath"], "data");
    assert!(
        volume["persistenceId"]
            .as_str()
            .is_some_and(|id| id.contains("#data#")),
        "{volume}"
    );

    // With a new definition, the instance, its agent and its data stay the same.
    let changed = json!({"cmd": cmd("second")});
    send(&site, reqwest::Method::PUT, "/v2/apps/db", Some(&changed)).await;
    wait_for_starts(&seen, &["first", "second"]).await;
    let second = site.wait_until_running("/db", 1).await.remove(0);
    assert_eq!(second["slaveId"], first["slaveId"]);
    assert_eq!(second["localVolumes"], first["localVolumes"]);

    // A killed task and a restarted daemon keep the data, too.
    send(&site, reqwest::Method::DELETE, "/v2/apps/db/tasks", None).await;
    wait_for_starts(&seen, &["first", "second", "second"]).await;
    site.kill_daemon();
    site.start_daemon().await;
    let third = site.wait_until_running("/db", 1).await.remove(0);
    assert_eq!(third["localVolumes"], first["localVolumes"]);

    // After a wipe there is another instance with an empty volume, and nothing is reserved for the
    // first one any more.
    send(
        &site,
        reqwest::Method::DELETE,
        "/v2/apps/db/tasks?wipe=true",
        None,
    )
    .await;
    wait_for_starts(&seen, &["second"]).await;
    let other = site.wait_until_running("/db", 1).await.remove(0);
    assert_ne!(other["localVolumes"], first["localVolumes"]);
    send(&site, reqwest::Method::DELETE, "/v2/apps/db", None).await;
    let agents = format!("http://{}/slaves", site.cluster.master);
    eventually("nothing is reserved", || async {
        let agents = site.get(&agents).await?;
        let all = agents["slaves"].as_array().cloned().unwrap_or_default();
        let reserved: Vec<&Value> = all.iter().map(|agent| &agent["reserved_resources"]).collect();
        if reserved.iter().all(|one| **one == json!({})) {
            Ok(())
        } else {
            Err(format!("{reserved:?}"))
        }
    })
    .await;
    site.cluster.stop_after(site.daemon);
}
