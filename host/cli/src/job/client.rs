//! Client of the workflow port.

use std::time::Duration;

use anyhow::Context;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use reqwest::{Method, RequestBuilder, StatusCode, Url};
use serde_json::Value;

use crate::completion;
use crate::exit::Misconfigured;
use crate::http::{self, Client, Endpoint, Failure, PortName};
use crate::task_output::{Piece, ReadError, Stream};

/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a log per request.
const LOG_CHUNK: u64 = 256 << 10;

const PORT: PortName = PortName {
    service: "workflow",
    setting: "workflow.port",
    options: "--url or TRANSOM_WORKFLOW_OPERATOR_API_URL",
};
/// The most jobs in one page of the feed.
const PAGE: usize = 10_000;

/// The options for the daemon's address and its credentials.
#[derive(Debug, Args)]
pub(super) struct Daemon {
    /// URL of the daemon's workflow port.
    #[arg(
        long,
        env = "TRANSOM_WORKFLOW_OPERATOR_API_URL",
        default_value = "http://localhost:11000"
    )]
    url: String,
    /// `api_username` of the daemon, if it requires credentials.
    #[arg(long, env = "TRANSOM_WORKFLOW_API_USERNAME")]
    username: Option<String>,
    /// `api_password` of the daemon. Prefer the environment variable: other users can read command
    /// lines.
    #[arg(long, env = "TRANSOM_WORKFLOW_API_PASSWORD", hide_env_values = true)]
    password: Option<String>,
}

impl Daemon {
    /// The client for this daemon.
    pub(super) fn api(&self) -> anyhow::Result<Api> {
        let credentials = match (&self.username, &self.password) {
            (Some(username), Some(password)) => Some((username.clone(), password.clone())),
            (None, None) => None,
            _ => return Err(anyhow::anyhow!("--username and --password go together").context(Misconfigured)),
        };
        Api::new(&self.url, credentials).context(Misconfigured)
    }
}

/// Whether a job in this state has ended.
pub(super) fn is_final(state: &str) -> bool {
    !matches!(
        state,
        "" | "TASK_STAGING" | "TASK_STARTING" | "TASK_RUNNING" | "TASK_UNREACHABLE"
    )
}

/// The options that select the daemon, for completion.
#[derive(Debug, clap::Parser)]
struct Options {
    #[command(flatten)]
    daemon: Daemon,
}

/// Completes the ids of jobs.
pub(super) fn complete_jobs() -> ArgValueCompleter {
    completion::completer(async || {
        let api = completion::parsed::<Options>()?.daemon.api()?;
        let jobs = api.jobs().await.map_err(|failure| api.error(failure))?;
        Ok(completion::listed(&Value::from(jobs), "task_id", "state"))
    })
}

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

    /// Every job with its last state, as the feed of changes lists them.
    pub(super) async fn jobs(&self) -> Result<Vec<Value>, Failure> {
        let (mut jobs, mut since) = (Vec::new(), 0);
        loop {
            let query = [("since", since), ("wait", 0), ("limit", PAGE as u64)];
            let mut page = self
                .json(self.request(Method::GET, &["events"]).query(&query))
                .await?;
            let Value::Array(events) = page["events"].take() else {
                return Err(Failure::Rejected("the response has no `events`".to_owned()));
            };
            let next = page["next"].as_u64().unwrap_or_default();
            let is_last = events.len() < PAGE || next <= since;
            jobs.extend(events);
            if is_last {
                return Ok(jobs);
            }
            since = next;
        }
    }

    /// Pending jobs with their reasons: all, or this one.
    pub(super) async fn queue_entries(&self, id: Option<&str>) -> Result<Vec<Value>, Failure> {
        let mut query = vec![("limit", "100000")];
        query.extend(id.map(|id| ("task_id", id)));
        let request = self.request(Method::GET, &["queue"]).query(&query);
        match self.json(request).await?["queue"].take() {
            Value::Array(list) => Ok(list),
            _ => Ok(Vec::new()),
        }
    }

    async fn json(&self, request: RequestBuilder) -> Result<Value, Failure> {
        serde_json::from_str(&self.text(request).await?)
            .map_err(|error| Failure::Rejected(format!("the response is not JSON: {error}")))
    }

    /// The error of a command, with the address.
    pub(super) fn error(&self, failure: Failure) -> anyhow::Error {
        PORT.no_answer(self.0.base_url(), failure)
    }

    /// The status of a job; `null` for an unknown one.
    pub(super) async fn status(&self, id: &str) -> Result<Value, Failure> {
        self.json(self.request(Method::GET, &["task", id])).await
    }

    /// The status of a job that exists.
    pub(super) async fn existing(&self, id: &str) -> anyhow::Result<Value> {
        let status = self.status(id).await.map_err(|failure| self.error(failure))?;
        anyhow::ensure!(
            !status.is_null(),
            "no job is called {id}; `transom job list` lists all"
        );
        Ok(status)
    }

    pub(super) async fn kill(&self, id: &str) -> Result<(), Failure> {
        self.text(self.request(Method::DELETE, &["task", id]))
            .await
            .map(drop)
    }

    /// Why a job is pending, if the daemon reports it.
    pub(super) async fn reason(&self, id: &str) -> Option<String> {
        let entries = self.queue_entries(Some(id)).await.ok()?;
        let message = entries.first()?.pointer("/reason/message")?.as_str()?;
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

    /// As [`Source::read`], of a job.
    pub(super) async fn read(
        &self,
        id: &str,
        stream: Stream,
        offset: Option<u64>,
        length: u64,
    ) -> Result<Piece, ReadError> {
        let mut query = vec![
            ("stream", stream.name().to_owned()),
            ("length", length.to_string()),
        ];
        query.push(match offset {
            Some(offset) => ("offset", offset.to_string()),
            None => ("tail", "true".to_owned()),
        });
        let request = self.request(Method::GET, &["task", id, "log"]).query(&query);
        let failed = |failure| ReadError::Failed(self.error(failure));
        let response = self.0.send(request).await.map_err(failed)?;
        let is_missing = response.status() == StatusCode::NOT_FOUND;
        let next = response.headers().get("transom-next-offset");
        let next = next.and_then(|next| next.to_str().ok()?.parse().ok());
        if is_missing || !response.status().is_success() {
            let text = http::success_text(response).await;
            let failure = text
                .err()
                .unwrap_or_else(|| Failure::Rejected("no output".to_owned()));
            return Err(match failure {
                Failure::Rejected(reason) if is_missing => ReadError::Missing(reason),
                failure => failed(failure),
            });
        }
        let data = http::body_bytes(response).await.map_err(failed)?;
        let no_offset = || ReadError::Failed(anyhow::anyhow!("the response has no offset"));
        Ok(Piece {
            data,
            next: next.ok_or_else(no_offset)?,
        })
    }

    async fn text(&self, request: RequestBuilder) -> Result<String, Failure> {
        http::success_text(self.0.send(request).await?).await
    }

    fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let path = ["v0"].iter().chain(path).copied();
        self.0.request(method, path)
    }
}
