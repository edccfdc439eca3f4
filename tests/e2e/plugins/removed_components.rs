//! Probes, the matcher and filters have no native fallback. Without its component a function stops,
//! with a reason that names the component; it continues when the component is installed again.

use std::time::Duration;

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::events::Events;
use transom_tests::plugin::{Plugin, remove};
use transom_tests::site::Site;

/// Removes the plugin `name`; the daemon has unloaded it when this returns.
async fn remove_plugin(site: &Site, name: &str) {
    remove(&site.plugins(), name);
    site.rescan().await;
}

async fn restore_plugin(site: &Site, name: &str) {
    Plugin::first_party(name).install(&site.plugins(), name);
    site.rescan().await;
}

/// Waits until the app's only task shows a check failure that names the plugin.
async fn check_failure(site: &Site, app: &str, plugin: &str) {
    let url = site.apps(&format!("/v2/apps{app}/tasks?embed=checkFailure"));
    eventually(&format!("the check of {app} to name {plugin}"), || async {
        let document = site.get(&url).await?;
        let failure = document["tasks"][0]["checkFailure"].clone();
        let failure_message = failure["message"]
            .as_str()
            .is_some_and(|message| message.contains(plugin));
        if failure_message {
            Ok(())
        } else {
            Err(document.to_string())
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_stop_without_their_component() {
    let site = Site::start_with("[apps.checks]\nexec_from = \"daemon\"\n").await;
    for (example, app, plugin, kind) in [
        ("http.json", "/http", "check-http", "http"),
        ("tcp.json", "/tcp", "check-tcp", "tcp"),
        ("exec.json", "/exec", "check-command", "command"),
    ] {
        remove_plugin(&site, plugin).await;
        site.post_example(example).await;
        site.wait_until_running(app, 1).await;
        check_failure(&site, app, plugin).await;
        let tasks = site.wait_until_running(app, 1).await;
        assert_eq!(
            tasks[0]["checkResult"],
            Value::Null,
            "a result without the component that makes it"
        );
        restore_plugin(&site, plugin).await;
        site.tasks_when(app, &format!("a result of {app}"), |tasks| {
            !tasks[0]["checkResult"][kind].is_null()
        })
        .await;
    }
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_are_not_placed_without_the_matcher() {
    let site = Site::start().await;
    remove_plugin(&site, "attributes").await;
    // Without the matcher a definition with constraints cannot be validated, so it is rejected.
    let constrained = json!({"id": "/c", "cmd": "sleep 600", "constraints": [["rack", "IS", "r1"]]});
    let answer = site
        .http
        .post(site.apps("/v2/apps"))
        .json(&constrained)
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status().as_u16(), 503);
    let body: Value = answer.json().await.expect("JSON");
    assert!(
        body["message"]
            .as_str()
            .expect("a message")
            .contains("attributes"),
        "{body}"
    );

    site.post_app(&json!({"id": "/plain", "cmd": "sleep 600", "cpus": 0.1, "mem": 32}))
        .await;
    eventually("the queue to say why", || async {
        let queue = site.get(&site.apps("/v2/queue?embed=reasons")).await?;
        if queue.to_string().contains("attributes") {
            Ok(())
        } else {
            Err(queue.to_string())
        }
    })
    .await;
    assert!(
        site.cluster.launches().is_empty(),
        "a task was placed without the matcher"
    );
    restore_plugin(&site, "attributes").await;
    site.wait_until_running("/plain", 1).await;
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_not_sent_without_the_filter() {
    let site = Site::start().await;
    let url = site.apps("/v2/events");
    let mut open = Events::open(&site.http, &url).await;
    open.next_of("event_stream_attached").await;
    remove_plugin(&site, "events").await;
    site.post_app(&json!({"id": "/plain", "cmd": "sleep 600", "instances": 0}))
        .await;
    while let Some(frame) = open.next().await {
        assert_ne!(
            frame.event, "api_post_event",
            "an event went out without the filter"
        );
    }
    let answer = site
        .http
        .get(&url)
        .header("Accept", "text/event-stream")
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status().as_u16(), 503);
    let body: Value = answer.json().await.expect("JSON");
    assert!(
        body["message"].as_str().expect("a message").contains("events"),
        "{body}"
    );

    restore_plugin(&site, "events").await;
    let mut reopened = Events::open(&site.http, &url).await;
    assert!(reopened.next_within(Duration::from_secs(30)).await.is_some());
    site.cluster.stop_after(site.daemon);
}
