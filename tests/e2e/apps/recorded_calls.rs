//! The calls of clients that no package brings, from their sources: `tests/fixtures/clients` lists them
//! with the file and the commit of each, and with the fields that the client reads from the response.
//!
//! `reads` has a path for each field and the type that the client expects. A part `*` stands for every
//! element of a list or object. Fields that a client has a default for are not listed.

use reqwest::Method;
use serde_json::{Value, json};
use transom_testkit::eventually;
use transom_tests::site::Site;

/// Apps that run, end in failure, fit nowhere, and are in a group of their own.
async fn start() -> Site {
    let site = Site::start().await;
    let app = |id: &str, cmd: &str, more: Value| {
        let mut app = json!({
            "id": id, "cmd": cmd, "cpus": 0.1, "mem": 16, "instances": 2, "labels": {"team": "shop"},
            "portDefinitions": [{"port": 0, "name": "http"}],
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            app[name] = value.clone();
        }
        app
    };
    for app in [
        app("/shop/web", "exec sleep 1000", json!({})),
        app("/other/web", "exec sleep 1000", json!({"instances": 1})),
        app(
            "/failing",
            "exit 1",
            json!({"instances": 1, "backoffSeconds": 600}),
        ),
        app("/large", "exec sleep 1000", json!({"cpus": 1000, "instances": 1})),
    ] {
        site.post_app(&app).await;
    }
    let empty = site
        .http
        .put(site.apps("/v2/groups"))
        .json(&json!({"id": "/empty"}));
    let empty = empty.send().await.expect("an answer");
    assert!(empty.status().is_success(), "{}", empty.status());
    site.wait_until_running("/shop/web", 2).await;
    site.wait_until_running("/other/web", 1).await;
    // Offers were matched with the large app, and the failing one waits.
    eventually("two apps are in the queue", || async {
        let queue = site.get(&site.apps("/v2/queue")).await?;
        let entries = queue["queue"].as_array().map(Vec::as_slice).unwrap_or_default();
        let offers = |entry: &Value| entry["processedOffersSummary"]["unusedOffersCount"].as_u64();
        let rejected = |entry: &Value| offers(entry) > Some(0);
        let waits = |entry: &Value| entry["delay"]["overdue"] == false;
        if entries.len() == 2 && entries.iter().any(rejected) && entries.iter().any(waits) {
            Ok(())
        } else {
            Err(queue.to_string())
        }
    })
    .await;
    site
}

/// The text with the present value of what it names.
async fn fill(site: &Site, text: &str) -> String {
    for (name, path, pointer) in [
        ("{task}", "/v2/apps/shop/web/tasks", "/tasks/0/id"),
        ("{version}", "/v2/apps/shop/web/versions", "/versions/0"),
        ("{deployment}", "/v2/apps/large", "/app/deployments/0/id"),
    ] {
        if text.contains(name) {
            let value = eventually(name, || async {
                let document = site.get(&site.apps(path)).await?;
                let value = document.pointer(pointer).and_then(Value::as_str);
                value.map(str::to_owned).ok_or_else(|| document.to_string())
            })
            .await;
            return text.replace(name, &value);
        }
    }
    text.to_owned()
}

/// What a path of `reads` finds, or the reason why it finds nothing.
fn read<'v>(value: &'v Value, path: &[&str]) -> Result<Vec<&'v Value>, String> {
    let Some((first, rest)) = path.split_first() else {
        return Ok(vec![value]);
    };
    let elements: Vec<&Value> = match (*first, value) {
        ("*", Value::Array(list)) => list.iter().collect(),
        ("*", Value::Object(map)) => map.values().collect(),
        (name, value) => vec![value.get(name).ok_or_else(|| format!("no `{name}` in {value}"))?],
    };
    let found: Result<Vec<_>, String> = elements.into_iter().map(|element| read(element, rest)).collect();
    Ok(found?.concat())
}

fn is_of_type(value: &Value, expected: &str) -> bool {
    match expected {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64(),
        "bool" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type is called `{other}`"),
    }
}

/// The differences between a response and what the client reads.
fn differences(response: &Value, reads: &Value) -> Vec<String> {
    let mut differences = Vec::new();
    for (path, expected) in reads.as_object().into_iter().flatten() {
        let parts: Vec<&str> = path.split('.').filter(|part| !part.is_empty()).collect();
        let expected = expected.as_str().expect("a type");
        match read(response, &parts) {
            Err(reason) => differences.push(format!("{path}: {reason}")),
            Ok(found) if found.is_empty() => differences.push(format!("{path}: nothing in {response}")),
            Ok(found) => {
                let others = found.into_iter().filter(|value| !is_of_type(value, expected));
                differences.extend(others.map(|value| format!("{path} is no {expected}: {value}")));
            }
        }
    }
    differences
}

/// Sends every call of a list in order.
async fn replay(list: &str) {
    let list: Value = serde_json::from_str(list).expect("JSON");
    let site = start().await;
    let mut faults = Vec::new();
    for call in list["calls"].as_array().expect("calls") {
        let (method, path) = call["call"]
            .as_str()
            .and_then(|call| call.split_once(' '))
            .expect("a call");
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let path = fill(&site, path).await;
        let mut request = site
            .http
            .request(method, site.apps(&path))
            .header("Content-Type", "application/json")
            .header("Accept", "application/json");
        if let Some(body) = call.get("body") {
            request = request.body(fill(&site, &body.to_string()).await);
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status().as_u16();
        let text = answer.text().await.expect("a body");
        if u64::from(status) != call["status"].as_u64().unwrap_or(200) {
            faults.push(format!("{call}\n  {status}: {text}"));
            continue;
        }
        let response = serde_json::from_str(&text).unwrap_or(Value::Null);
        for difference in differences(&response, &call["reads"]) {
            faults.push(format!("{}, {}\n  {difference}", call["call"], call["from"]));
        }
    }
    assert!(faults.is_empty(), "{}: {}", list["client"], faults.join("\n"));
    site.cluster.stop_after(site.daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_calls_of_marathon_ui_are_answered() {
    replay(include_str!("../../fixtures/clients/marathon-ui.json")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_calls_of_go_marathon_are_answered() {
    replay(include_str!("../../fixtures/clients/go-marathon.json")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_calls_of_datadog_are_answered() {
    replay(include_str!("../../fixtures/clients/datadog.json")).await;
}
