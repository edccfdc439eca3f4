//! The parameter `filter` of the event stream: an expression in CEL.

use reqwest::Url;
use serde_json::{Value, json};
use transom_tests::events::Events;
use transom_tests::site::Site;

/// The URL of an event stream with encoded parameters.
fn stream(site: &Site, parameters: &[(&str, &str)]) -> String {
    let url = Url::parse_with_params(&site.apps("/v2/events"), parameters);
    url.expect("an address").to_string()
}

fn app(id: &str) -> Value {
    json!({"id": id, "cmd": "exec sleep 1000", "cpus": 0.05, "mem": 16, "portDefinitions": []})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filtered_stream_has_only_events_that_match() {
    let site = Site::start().await;
    let of_a = r#"has(event.appId) && event.appId == "/a""#;
    let mut updates = Events::open(&site.http, &stream(&site, &[("filter", of_a)])).await;
    let parameters = [
        ("event_type", "api_post_event"),
        (
            "filter",
            r#"event.appDefinition.labels.team.matches("^(ops|dev)$")"#,
        ),
    ];
    let mut posts = Events::open(&site.http, &stream(&site, &parameters)).await;

    // The app /b is running before /a is posted, so that all of its events precede those of /a.
    site.post_app(&app("/b")).await;
    site.wait_until_running("/b", 1).await;
    site.post_app(&app("/a")).await;
    site.wait_until_running("/a", 1).await;
    let mut other = app("/c");
    other["labels"] = json!({"team": "sales"});
    site.post_app(&other).await;
    let mut ops = app("/d");
    ops["labels"] = json!({"team": "ops"});
    site.post_app(&ops).await;

    loop {
        let frame = updates.next().await.expect("the stream is open");
        assert_eq!(frame.data["appId"], "/a", "{frame:?}");
        if frame.event == "status_update_event" && frame.data["taskStatus"] == "TASK_RUNNING" {
            break;
        }
    }
    let first = posts.next().await.expect("the stream remains open");
    assert_eq!(first.event, "api_post_event");
    assert_eq!(first.data["appDefinition"]["id"], "/d", "{first:?}");
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_filter_is_rejected_with_its_position() {
    let site = Site::start().await;
    for (filter, message) in [
        (
            "event.appId = '/a'",
            "filter, line 1, column 13: found `=`, expected `==`",
        ),
        (
            "kind == 'a' ||\n  appId == '/a'",
            "filter, line 2, column 3: unknown variable `appId`, expected one of: event, kind, subject",
        ),
    ] {
        let request = site.http.get(stream(&site, &[("filter", filter)]));
        let answer = request.header("Accept", "text/event-stream").send().await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), 400, "{filter}");
        let body: Value = answer.json().await.expect("JSON");
        assert_eq!(body["message"], message, "{filter}");
    }
    site.cluster.stop_after(site.daemon);
}
