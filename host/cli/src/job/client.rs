//! Client of the workflow port.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, StatusCode, Url};
use serde_json::Value;

use crate::http::{self, Client, Endpoint, Failure};

/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a log per request.
const LOG_CHUNK: u64 = 256 << 10;

/// A client of the workflow port.
pub(super) struct Api(Client);

impl Api {
    pub(super) fn new(url: &str, credentials: Option<(String, String)>) -> anyhow::Result<Self> {
        let endpoint = Endpoint {
            url: http::url("--url", url, "http://localhost:11000")?,
            credentials,
            certificates: None,
        };
        Client::new(endpoint, REQUEST_TIMEOUT).map(Self)
    }

    /// The URL of a job's status, without the credentials in the daemon's URL.
    pub(super) fn task_url(&self, id: &str) -> Url {
        let mut url = self.0.base_url().clone();
        // A URL with a host can have credentials and a path.
        let _ = url.set_username("").and(url.set_password(None));
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["v0", "task", id]);
        }
        url
    }

    /// Queues a job. A conflict is a success: an earlier attempt, whose response was lost, queued the
    /// job.
    pub(super) async fn queue(&self, body: &Value) -> Result<(), Failure> {
        let request = self.request(Method::POST, &["queue_command"]).json(body);
        let response = self.0.send(request).await?;
        if response.status() == StatusCode::CONFLICT {
            return Ok(());
        }
        http::success_text(response).await.map(drop)
    }

    /// The status of a job; `null` for an unknown one.
    pub(super) async fn status(&self, id: &str) -> Result<Value, Failure> {
        let text = self.text(self.request(Method::GET, &["task", id])).await?;
        serde_json::from_str(&text)
            .map_err(|error| Failure::Rejected(format!("the response is not JSON: {error}")))
    }

    pub(super) async fn kill(&self, id: &str) -> Result<(), Failure> {
        self.text(self.request(Method::DELETE, &["task", id]))
            .await
            .map(drop)
    }

    /// Why a job is pending, if the daemon reports it.
    pub(super) async fn reason(&self, id: &str) -> Option<String> {
        let request = self.request(Method::GET, &["queue"]).query(&[("task_id", id)]);
        let queue: Value = serde_json::from_str(&self.text(request).await.ok()?).ok()?;
        let message = queue.pointer("/queue/0/reason/message")?.as_str()?;
        Some(message.to_owned())
    }

    /// Reads a piece of a stream from `offset`; returns it with the next offset. `None`: the log is not
    /// available at the moment.
    pub(super) async fn log(&self, id: &str, stream: &str, offset: u64) -> Option<(Vec<u8>, u64)> {
        let request = self.request(Method::GET, &["task", id, "log"]);
        let (offset, length) = (offset.to_string(), LOG_CHUNK.to_string());
        let query = [("stream", stream), ("offset", &offset), ("length", &length)];
        let response = self.0.send(request.query(&query)).await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        let next = response.headers().get("transom-next-offset")?;
        let next = next.to_str().ok()?.parse().ok()?;
        Some((response.bytes().await.ok()?.to_vec(), next))
    }

    async fn text(&self, request: RequestBuilder) -> Result<String, Failure> {
        http::success_text(self.0.send(request).await?).await
    }

    fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let path = ["v0"].iter().chain(path).copied();
        self.0.request(method, path)
    }
}
