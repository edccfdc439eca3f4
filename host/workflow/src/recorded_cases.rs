//! Replays cases that were recorded with the replaced program: requests with the expected
//! responses.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use transom_cluster::v1::TaskState;

use crate::testing::Site;
use crate::{Settings, model};

#[derive(Debug, Deserialize)]
struct Case {
    id: String,
    kind: String,
    given: Value,
    input: Value,
    expect: Value,
}

fn cases(kind: &str) -> Vec<Case> {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/workflow");
    let mut cases: Vec<Case> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            serde_json::from_str(&text).unwrap()
        })
        .collect();
    cases.retain(|case: &Case| case.kind == kind);
    cases.sort_by(|a, b| a.id.cmp(&b.id));
    cases
}

#[test]
fn memory_amounts_match_the_recordings() {
    let cases = cases("memory");
    for case in &cases {
        // The recording writes a number as `2048(int)`.
        let input = match &case.input["mem_limit"] {
            Value::String(text) => match text.strip_suffix("(int)") {
                Some(number) => json!(number.parse::<i64>().unwrap()),
                None => json!(text),
            },
            other => other.clone(),
        };
        let amount = model::megabytes(&input).ok();
        assert_eq!(amount, case.expect["mb"].as_f64(), "{}", case.id);
    }
    assert_eq!(cases.len(), 6);
}

#[tokio::test]
async fn responses_match_the_recordings() {
    let cases = cases("http");
    for case in &cases {
        // The recording has no grace period for unreachable agents.
        let config = Settings {
            unreachable_grace_seconds: 0,
            api_username: Some("user".to_owned()),
            api_password: Some("password".into()),
            ..Settings::default()
        };
        let site = Site::start_with(config).await;
        if let Some(updates) = case.given["updates"].as_array() {
            let path = case.input["path"].as_str().unwrap();
            follow(&site, path.rsplit('/').next().unwrap(), updates).await;
        }
        replay(&site, case).await;
    }
    assert_eq!(cases.len(), 7);
}

/// Queues a job and sends the recorded task states.
async fn follow(site: &Site, id: &str, updates: &[Value]) {
    site.queue(json!({"airflow_task_id": id, "command": ["true"]}))
        .await;
    site.scheduler.launch(id).await;
    for update in updates {
        let state = update.as_str().unwrap();
        site.scheduler.update(id, TaskState::from(state), None);
        site.wait_for_state(id, state).await;
    }
}

async fn replay(site: &Site, case: &Case) {
    let (input, expect, id) = (&case.input, &case.expect, &case.id);
    let method: Method = input["method"].as_str().unwrap().parse().unwrap();
    let body = input.get("body").filter(|body| !body.is_null()).cloned();
    let authorization = input["basic_auth"].as_array().map(|pair| {
        use base64::Engine as _;
        let text = format!("{}:{}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
        format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text))
    });
    let path = input["path"].as_str().unwrap();
    let answer = site
        .ask_from([127, 0, 0, 1], method, path, body, authorization.as_deref())
        .await;
    assert_eq!(
        answer.status.as_u16(),
        expect["status"].as_u64().unwrap() as u16,
        "{id}"
    );
    let expected = expect["body"].as_str().unwrap();
    if expect["compare"] == "json" {
        let expected: Value = serde_json::from_str(expected).unwrap();
        assert_eq!(answer.json(), expected, "{id}");
    } else {
        assert_eq!(answer.text, expected, "{id}");
    }
    assert_eq!(
        answer.header("content-type"),
        expect["content_type"].as_str(),
        "{id}"
    );
    for (name, value) in expect["headers"].as_object().into_iter().flatten() {
        assert_eq!(answer.header(name), value.as_str(), "{id}: {name}");
    }
}
