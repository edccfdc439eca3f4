//! `POST /api/v1/executor` of an agent: the calls of custom executors and the streams of their
//! events. It requires no credentials, because real agents do not authenticate executors by
//! default.

use crate::{
    http::{Answer, check_accept, empty, queue, read_call, refusal, reply, streamed},
    shared::Shared,
    state::{AgentId, executor_validate},
    wire::{json as doc, messages},
};
use http::{HeaderMap, Method, StatusCode};
use hyper::body::Incoming;
use serde_json::Value;
use std::{sync::Arc, time::Instant};

/// Answers one call.
pub(super) async fn call(
    shared: &Arc<Shared>,
    agent: &AgentId,
    method: &Method,
    headers: &HeaderMap,
    body: Incoming,
) -> Answer {
    let call = read_call(&messages::EXECUTOR_CALL, method, headers, body).await?;
    executor_validate(&call).map_err(|why| refusal(StatusCode::BAD_REQUEST, why))?;
    match doc::text(&call, &["type"]) {
        Some("SUBSCRIBE") => {
            check_accept(headers)?;
            subscribe(shared, agent, &call)
        }
        // Real agents ignore the rest of the call.
        Some("HEARTBEAT") => Ok(empty(StatusCode::ACCEPTED)),
        _ => {
            let answer = shared.with(|state| state.executor_call(agent, &call, Instant::now()));
            Ok(reply(&answer))
        }
    }
}

fn subscribe(shared: &Arc<Shared>, agent: &AgentId, call: &Value) -> Answer {
    let subscribed = shared.with(|state| state.subscribe_executor(agent, call, Instant::now()));
    let subscribed = subscribed.map_err(|refused| reply(&refused))?;
    let owner = Arc::clone(shared);
    let (container, stream_id) = (subscribed.container, subscribed.stream_id);
    let chunks = queue(subscribed.events, move || {
        owner.with(|state| state.executor_stream_closed(&container, &stream_id));
    });
    Ok(streamed("application/json", chunks, shared))
}
