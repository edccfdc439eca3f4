//! `GET /v0/task/{id}/log`: the output of a job, from its sandbox.
//!
//! `?stream=stdout` (or `stderr`) with `offset` and `length` returns a chunk of one stream, with
//! the offset of the next chunk in the header `Transom-Next-Offset`; with `tail=true` the chunk is the
//! end of the stream. Without `stream` the response
//! contains the ends of both streams, one after the other. The bytes are unchanged: consecutive
//! chunks add up to the whole stream, even if a character spans two of them.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderName, header};
use tokio::time::{Instant, timeout_at};
use transom_cluster::Error;
use transom_common::{HostPort, error_chain};
use transom_web::ApiError;

use super::query::Query;
use super::{Api, job_id};
use crate::core::command::Rejection;
use crate::job_index::JobView;

/// Default bytes of each stream.
pub(super) const DEFAULT_LENGTH: u64 = 64 << 10;
pub(super) const MAX_LENGTH: u64 = 1 << 20;
/// Maximum time for the requests to an agent for one response, which is then incomplete: shorter than
/// the timeouts of clients, which would otherwise wait for an agent whose network drops packets.
const AGENT_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 200 } else { 8_000 });
/// Agents return a few pages per request; this is the maximum number of requests for one response.
const MAX_CHUNKS: usize = 64;
const NEXT_OFFSET: HeaderName = HeaderName::from_static("transom-next-offset");
const CONTENT_TYPE_TEXT: &str = "text/plain; charset=utf-8";

pub(super) async fn get(
    State(api): State<Api>,
    Path(id): Path<String>,
    query: Query,
) -> Result<Response, ApiError> {
    let id = job_id(&id)?;
    let view = api.0.index.get(&id).ok_or_else(|| Rejection::NoJob(id.clone()))?;
    let length = query.number("length", MAX_LENGTH)?.unwrap_or(DEFAULT_LENGTH);
    let offset = query.number("offset", u64::MAX)?;
    let is_tail = query.text("tail") == Some("true");
    let deadline = Instant::now() + AGENT_TIMEOUT;
    match query.text("stream") {
        Some(stream @ ("stdout" | "stderr")) => {
            let (data, next) = read(
                &api,
                &view,
                stream,
                offset.or((!is_tail).then_some(0)),
                length,
                deadline,
            )
            .await?;
            Ok((
                [
                    (header::CONTENT_TYPE, CONTENT_TYPE_TEXT.to_owned()),
                    (NEXT_OFFSET, next.to_string()),
                ],
                data,
            )
                .into_response())
        }
        Some(other) => Err(ApiError::bad_request(format!(
            "The parameter 'stream' is '{other}'; expected stdout or stderr"
        ))),
        None => {
            let (mut output, _) = read(&api, &view, "stdout", None, length, deadline).await?;
            let (stderr, _) = read(&api, &view, "stderr", None, length, deadline).await?;
            output.extend(stderr);
            Ok(([(header::CONTENT_TYPE, CONTENT_TYPE_TEXT)], output).into_response())
        }
    }
}

/// Reads a chunk of a stream; returns it with the offset of the next one. `offset`: `None` for the
/// end.
async fn read(
    api: &Api,
    view: &JobView,
    stream: &str,
    offset: Option<u64>,
    length: u64,
    deadline: Instant,
) -> Result<(Vec<u8>, u64), ApiError> {
    let Some(agent) = &view.agent else {
        return Err(ApiError::not_found(format!(
            "Job '{}' has no output: it was not launched.",
            view.id
        )));
    };
    let framework = api.lead()?.scheduler.subscription().framework_id;
    let framework = framework
        .ok_or_else(|| ApiError::unavailable("The framework is not registered yet. Try again later."))?;
    let (mut data, mut at) = (Vec::new(), offset);
    for _ in 0..MAX_CHUNKS {
        let remaining = length.saturating_sub(data.len() as u64);
        let reading = api
            .0
            .cluster
            .read(agent, &framework, &view.task, stream, at, remaining);
        let chunk = match timeout_at(deadline, reading).await {
            Err(_) if !data.is_empty() => break,
            Err(_) => return Err(silent(agent)),
            Ok(chunk) => chunk,
        };
        let chunk = match chunk {
            Ok(chunk) => chunk,
            // The task has written nothing, or the agent has removed the sandbox.
            Err(Error::Rejected { status: 404, .. }) => break,
            Err(error) => return Err(unreadable(&error)),
        };
        let next = chunk.offset + chunk.data.len() as u64;
        let is_complete = chunk.data.is_empty() || next >= chunk.size;
        data.extend(chunk.data);
        at = Some(next);
        if is_complete || data.len() as u64 >= length {
            break;
        }
    }
    Ok((data, at.unwrap_or_default()))
}

fn silent(agent: &HostPort) -> ApiError {
    ApiError::unavailable(format!(
        "The job's agent {agent} did not answer within {} s. Try again later.",
        AGENT_TIMEOUT.as_secs()
    ))
}

fn unreadable(error: &Error) -> ApiError {
    tracing::info!(error = error_chain(error), "reading a job's output failed");
    ApiError::unavailable("The job's agent is unavailable. Try again later.")
}
