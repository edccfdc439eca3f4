//! Client of the workflow port.

use std::time::Duration;

use anyhow::Context;
use reqwest::{Method, RequestBuilder, StatusCode, Url};
use serde_json::Value;

/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a log per request.
const LOG_CHUNK: u64 = 256 << 10;

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The daemon cannot be reached; a retry may help.
    Unreachable(String),
    /// The daemon refused the request; a retry does not help.
    Refused(String),
}

/// See the module.
pub(super) struct Api {
    http: reqwest::Client,
    base: Url,
    credentials: Option<(String, String)>,
}

impl Api {
    pub(super) fn new(url: &str, credentials: Option<(String, String)>) -> anyhow::Result<Self> {
        let base = Url::parse(url).with_context(|| format!("--url {url}"))?;
        anyhow::ensure!(
            matches!(base.scheme(), "http" | "https"),
            "--url {url}: expected an address such as http://localhost:11000"
        );
        let builder = reqwest::Client::builder().timeout(REQUEST_TIMEOUT).no_proxy();
        let builder = if base.scheme() == "http" {
            builder.tls_certs_only([])
        } else {
            builder
        };
        Ok(Self {
            http: builder.build().context("the HTTP client")?,
            base,
            credentials,
        })
    }

    /// Queues a job. A conflict means that an earlier attempt, whose response was lost, queued it.
    pub(super) async fn queue(&self, body: &Value) -> Result<(), Failure> {
        let request = self.request(Method::POST, &["queue_command"])?.json(body);
        let answer = request.send().await.map_err(|error| unreachable(&error))?;
        if answer.status() == StatusCode::CONFLICT {
            return Ok(());
        }
        checked(answer).await.map(drop)
    }

    /// `null` for an unknown job.
    pub(super) async fn status(&self, id: &str) -> Result<Value, Failure> {
        let text = self.text(self.request(Method::GET, &["task", id])?).await?;
        serde_json::from_str(&text)
            .map_err(|error| Failure::Refused(format!("the response is not JSON: {error}")))
    }

    pub(super) async fn kill(&self, id: &str) -> Result<(), Failure> {
        self.text(self.request(Method::DELETE, &["task", id])?)
            .await
            .map(drop)
    }

    /// Why a job is pending, if the daemon reports it.
    pub(super) async fn reason(&self, id: &str) -> Option<String> {
        let request = self
            .request(Method::GET, &["queue"])
            .ok()?
            .query(&[("task_id", id)]);
        let queue: Value = serde_json::from_str(&self.text(request).await.ok()?).ok()?;
        let message = queue.pointer("/queue/0/reason/message")?.as_str()?;
        Some(message.to_owned())
    }

    /// The bytes of a stream from `offset`, and the next offset. `None`: the log is not available
    /// now.
    pub(super) async fn log(&self, id: &str, stream: &str, offset: u64) -> Option<(Vec<u8>, u64)> {
        let request = self.request(Method::GET, &["task", id, "log"]).ok()?;
        let (offset, length) = (offset.to_string(), LOG_CHUNK.to_string());
        let query = [("stream", stream), ("offset", &offset), ("length", &length)];
        let answer = request.query(&query).send().await.ok()?;
        if !answer.status().is_success() {
            return None;
        }
        let next = answer.headers().get("transom-next-offset")?;
        let next = next.to_str().ok()?.parse().ok()?;
        Some((answer.bytes().await.ok()?.to_vec(), next))
    }

    async fn text(&self, request: RequestBuilder) -> Result<String, Failure> {
        let answer = request.send().await.map_err(|error| unreachable(&error))?;
        checked(answer).await
    }

    fn request(&self, method: Method, path: &[&str]) -> Result<RequestBuilder, Failure> {
        let mut url = self.base.clone();
        url.path_segments_mut()
            .map_err(|()| Failure::Refused(format!("{} has no path", self.base)))?
            .pop_if_empty()
            .push("v0")
            .extend(path);
        let request = self.http.request(method, url);
        Ok(match &self.credentials {
            Some((username, password)) => request.basic_auth(username, Some(password)),
            None => request,
        })
    }
}

/// The body of a successful response.
async fn checked(answer: reqwest::Response) -> Result<String, Failure> {
    let status = answer.status();
    let text = answer.text().await.map_err(|error| unreachable(&error))?;
    match status {
        status if status.is_success() => Ok(text),
        // The daemon, or a proxy before it, is starting.
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => {
            Err(Failure::Unreachable(format!("{status}: {text}")))
        }
        status => Err(Failure::Refused(format!("{status}: {text}"))),
    }
}

/// An error with its whole chain.
fn unreachable(error: &reqwest::Error) -> Failure {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    Failure::Unreachable(text)
}
