//! The requests of the benchmark to the workflow port.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use serde_json::Value;

/// Maximum of concurrent requests.
const MAX_CONCURRENT: usize = 32;

/// The current time in seconds since 1970.
pub(crate) fn unix_seconds() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a time").as_secs_f64()
}

/// A client.
pub(crate) struct Jobs {
    http: reqwest::Client,
    base: String,
}

impl Jobs {
    pub(crate) fn new(base: String) -> Self {
        let http = transom_tests::http();
        Self { http, base }
    }

    pub(crate) async fn queue(&self, body: &Value) {
        let request = self
            .http
            .post(format!("{}/v0/queue_command", self.base))
            .json(body);
        let answer = request.send().await.expect("an answer");
        let status = answer.status();
        assert!(
            status.is_success(),
            "{status}: {}",
            answer.text().await.unwrap_or_default()
        );
    }

    pub(crate) async fn queue_all(&self, bodies: impl Iterator<Item = Value>) {
        futures::stream::iter(bodies)
            .for_each_concurrent(MAX_CONCURRENT, |body| async move { self.queue(&body).await })
            .await;
    }

    /// The position after the last event.
    pub(crate) async fn last(&self) -> u64 {
        let page = self.get("/v0/events?since=last").await;
        page["next"].as_u64().expect("a number")
    }

    /// Waits until `count` jobs have ended. Returns their states and the times when this client
    /// received them, in seconds since 1970.
    pub(crate) async fn wait_until_ended(
        &self,
        mut since: u64,
        count: usize,
    ) -> BTreeMap<String, (String, f64)> {
        let mut ended = BTreeMap::new();
        while ended.len() < count {
            let page = self.get(&format!("/v0/events?since={since}&wait=20")).await;
            let now = unix_seconds();
            since = page["next"].as_u64().expect("a number");
            for event in page["events"].as_array().into_iter().flatten() {
                let (id, state) = (&event["task_id"], event["state"].as_str().unwrap_or_default());
                if !matches!(state, "TASK_STAGING" | "TASK_STARTING" | "TASK_RUNNING") {
                    let id = id.as_str().unwrap_or_default().to_owned();
                    ended.insert(id, (state.to_owned(), now));
                }
            }
        }
        ended
    }

    pub(crate) async fn state(&self, id: &str) -> Value {
        self.get(&format!("/v0/task/{id}")).await
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.http.get(format!("{}{path}", self.base)).send().await;
        answer.expect("an answer").json().await.expect("JSON")
    }
}
