//! `GET /v0/events?since=N&wait=S&limit=N`: the feed of state changes.
//!
//! Each job is listed once, with its last state: slow readers miss intermediate states but never
//! the last one. `next` is the value of `since` for the next request; it stays valid across
//! restarts. `reset` means that `since` was not valid (it came from another store) and that the
//! feed starts from the beginning. `since=last` returns only the current position.

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};
use transom_web::{ApiError, Json};

use super::Api;
use super::query::Query;
use crate::ids::ChangeSeq;
use crate::job_index::Page;
use crate::job_state::JobState;

/// Default seconds to wait for a change.
pub(super) const DEFAULT_WAIT_SECONDS: u64 = 20;
/// Maximum seconds to wait; shorter than the timeout of forwarded requests.
pub(super) const MAX_WAIT_SECONDS: u64 = 50;
pub(super) const DEFAULT_LIMIT: u64 = 1_000;
pub(super) const MAX_LIMIT: u64 = 10_000;

pub(super) async fn get(State(api): State<Api>, query: Query) -> Result<Response, ApiError> {
    if query.text("since") == Some("last") {
        let page = api.0.index.since(*api.0.index.watch().borrow(), 1);
        return Ok(page_json(&page));
    }
    let since = ChangeSeq(query.number("since", u64::MAX)?.unwrap_or_default());
    let wait = query
        .number("wait", MAX_WAIT_SECONDS)?
        .unwrap_or(DEFAULT_WAIT_SECONDS);
    let limit = query.number("limit", MAX_LIMIT)?.unwrap_or(DEFAULT_LIMIT).max(1);
    let deadline = Instant::now() + Duration::from_secs(wait);
    let mut changes = api.0.index.watch();
    loop {
        // Changes after this point wake the wait below.
        changes.borrow_and_update();
        let page = api.0.index.since(since, limit as usize);
        if !page.changes.is_empty() || page.reset {
            return Ok(page_json(&page));
        }
        let notified = api
            .0
            .stopping
            .run_until_cancelled(timeout_at(deadline, changes.changed()));
        if !matches!(notified.await, Some(Ok(Ok(())))) {
            return Ok(page_json(&page));
        }
    }
}

/// Changes of states.
#[derive(JsonSchema, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are those of the document")]
pub(super) struct Events<'a> {
    events: Vec<Event<'a>>,
    /// Where to continue.
    next: u64,
    /// `since` belongs to another store; the feed starts from the beginning.
    reset: bool,
}

/// A job's last state.
#[derive(JsonSchema, Serialize)]
struct Event<'a> {
    task_id: &'a str,
    state: JobState,
    message: &'a str,
    /// The cluster manager's reason; `MaxWait` if the job was never launched within `max_wait`.
    reason: Option<&'a str>,
    at: Timestamp,
}

fn page_json(page: &Page) -> Response {
    let events = page.changes.iter().map(|view| Event {
        task_id: view.id.as_str(),
        state: view.state,
        message: view.message.as_deref().unwrap_or_default(),
        reason: view.reason.as_deref(),
        at: view.at,
    });
    let events = Events {
        events: events.collect(),
        next: page.next.0,
        reset: page.reset,
    };
    Json(events).into_response()
}
