//! Apps whose tasks fail, as the overview and the commands explain them.

use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::site::Site;

use super::{json_of, run, text, wait_for_overview};

/// An app whose third failure follows within seconds, and the next one much later.
fn failing_app(id: &str, program: &Value) -> Value {
    let mut app = json!({
        "id": id, "cpus": 0.1, "mem": 32, "backoffSeconds": 1, "backoffFactor": 6, "maxLaunchDelaySeconds": 3600,
    });
    let fields = program.as_object().expect("an object");
    app.as_object_mut().expect("an object").extend(fields.clone());
    app
}

/// The problem of an app in the overview, once its message has this beginning.
async fn wait_for_problem(site: &Site, beginning: &str) -> String {
    let message = |found: &Value| {
        let problems = found["problems"].as_array().cloned().unwrap_or_default();
        let mut messages = problems
            .iter()
            .filter_map(|problem| problem["message"].as_str().map(str::to_owned));
        messages.find(|message| message.starts_with(beginning))
    };
    let found = wait_for_overview(site, beginning, |found| message(found).is_some()).await;
    message(&found).expect("the message")
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_failures_have_the_same_sentence_everywhere() {
    let mut site = Site::start().await;
    let cases = [
        (
            "/crashes",
            json!({"cmd": "exit 3"}),
            "/crashes: crash loop: failed 3 times since ",
            "; last: Command exited with status 3",
        ),
        (
            "/shell",
            json!({"cmd": "no-such-program --serve"}),
            "/shell: program not found: failed 3 times since ",
            "; last: Command exited with status 127",
        ),
        (
            "/argv",
            json!({"args": ["/no/such/program"]}),
            "/argv: crash loop: failed 3 times since ",
            "; last: Command exited with status 1",
        ),
        (
            "/fetch",
            json!({"cmd": "true", "fetch": [{"uri": "file:///no/such/archive.tar"}]}),
            "/fetch: cannot be launched: failed 3 times since ",
            "; last: Failed to launch container: ",
        ),
    ];
    for (id, program, ..) in &cases {
        site.post_app(&failing_app(id, program)).await;
    }
    let (dir, url, apps) = (site.plugins(), site.admin(""), site.apps(""));
    for (id, _, beginning, end) in &cases {
        let message = wait_for_problem(&site, beginning).await;
        assert!(message.contains(end), "{message}");
        let status = run(&dir, &["status", "--url", &url]).await;
        assert!(status.status.success(), "a failing app is a warning");
        let top = run(&dir, &["top", "--once", "--url", &url]).await;
        let explained = run(&dir, &["apps", "explain", id, "--url", &apps]).await;
        for printed in [&status, &top, &explained] {
            let printed = text(&printed.stdout);
            assert!(printed.contains(&message), "{message} is not in\n{printed}");
        }
        let document = run(&dir, &["apps", "explain", id, "--url", &apps, "--output", "json"]).await;
        let document = json_of(&document);
        assert_eq!(document["failing"]["message"], message);
        assert_eq!(document["failing"]["count"], 3);
    }
    // Only who asks for it gets the addition to Marathon's document.
    let app = site.get(&site.apps("/v2/apps/crashes")).await.expect("an app");
    assert_eq!(app["app"]["failing"], Value::Null);

    // The row continues after a restart.
    let before = wait_for_problem(&site, "/crashes: crash loop: failed 3 times since ").await;
    site.kill_daemon();
    site.start_daemon().await;
    let start = before.split(" 3 times ").collect::<Vec<_>>();
    let since = start[1].split(" on ").next().expect("a time").to_owned();
    eventually("the row after a restart", || async {
        let found = site.get(&site.admin("/v1/overview")).await?;
        let failing = found["services"][0]["failing"].as_array().cloned();
        let mut messages = failing.iter().flatten().filter_map(|one| one["message"].as_str());
        let is_row = |message: &&str| message.starts_with("/crashes: crash loop") && message.contains(&since);
        messages.find(is_row).map(drop).ok_or_else(|| found.to_string())
    })
    .await;

    // A corrected definition has not failed.
    let corrected = json!({"cmd": "sleep 1000"});
    let response = site
        .http
        .put(site.apps("/v2/apps/crashes?force=true"))
        .json(&corrected)
        .send()
        .await
        .expect("an answer");
    assert!(response.status().is_success(), "{response:?}");
    wait_for_overview(&site, "no problem of the corrected app", |found| {
        let failing = found["services"][0]["failing"].as_array();
        failing.is_some_and(|failing| !failing.iter().any(|one| one["name"] == "/crashes"))
    })
    .await;
}
