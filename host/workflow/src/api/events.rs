//! `GET /v0/events?since=N&wait=S&limit=N`: changes of jobs' states, as they come.
//!
//! Each job is told of once, with its last state: who asks rarely misses states in between and never the last one. `next`
//! is where to go on; it stays good when the daemon is started again. `reset` says that it is not (the store is another
//! one), and that everything is told from the beginning. `since=last` tells nothing but where to begin.

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use transom_web::{ApiError, Json};

use super::Api;
use super::query::Query;
use crate::ids::ChangeSeq;
use crate::job_index::{Page, View};

/// Seconds that an answer waits for a change, unless the client says otherwise.
const WAIT: u64 = 20;
/// Less than daemons that pass requests on wait for an answer.
const MAX_WAIT: u64 = 50;
const LIMIT: u64 = 1_000;
const MAX_LIMIT: u64 = 10_000;

pub(super) async fn get(State(api): State<Api>, query: Query) -> Result<Response, ApiError> {
    if query.text("since") == Some("last") {
        let page = api.0.index.since(*api.0.index.watch().borrow(), 1);
        return Ok(shown(&page));
    }
    let since = ChangeSeq(query.number("since", u64::MAX)?.unwrap_or_default());
    let wait = query.number("wait", MAX_WAIT)?.unwrap_or(WAIT);
    let limit = query.number("limit", MAX_LIMIT)?.unwrap_or(LIMIT).max(1);
    let deadline = Instant::now() + Duration::from_secs(wait);
    let mut changes = api.0.index.watch();
    loop {
        // What comes after this is told by the next turn of the watch.
        changes.borrow_and_update();
        let page = api.0.index.since(since, limit as usize);
        if !page.changes.is_empty() || page.reset {
            return Ok(shown(&page));
        }
        let told = api
            .0
            .stopping
            .run_until_cancelled(timeout_at(deadline, changes.changed()));
        if !matches!(told.await, Some(Ok(Ok(())))) {
            return Ok(shown(&page));
        }
    }
}

fn shown(page: &Page) -> Response {
    let events: Vec<Value> = page.changes.iter().map(|view| event(view)).collect();
    Json(json!({"events": events, "next": page.next, "reset": page.reset})).into_response()
}

fn event(view: &View) -> Value {
    json!({
        "task_id": view.id,
        "state": view.state,
        "message": view.message.as_deref().unwrap_or_default(),
        "at": view.at,
    })
}
