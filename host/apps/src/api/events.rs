//! `GET /v2/events`: the event stream.

use std::collections::BTreeSet;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use transom_plugin_host::events::{OpenError, Query as EventQuery};
use transom_web::{ApiError, Disconnect, Owner};

use super::query::Query;
use super::{Api, error};
use crate::bus::{AttachError, Listener, StreamKey};
use crate::core::command::Origin;

const EVENT_STREAM: &str = "text/event-stream";

/// The header with the id of the last event that a client has received.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Opens a stream. The events component decides which events it carries. With `Last-Event-ID` it
/// begins after that event.
pub(super) async fn stream(
    State(api): State<Api>,
    method: Method,
    query: Query,
    origin: Origin,
    disconnect: Option<Extension<Disconnect>>,
    owner: Owner,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    // The header must be exactly this type: upstream's clients rely on a rejection otherwise.
    if headers
        .get(header::ACCEPT)
        .is_none_or(|accept| accept.as_bytes() != EVENT_STREAM.as_bytes())
    {
        let text =
            format!("The event stream requires the header Accept: {EVENT_STREAM}, without other types");
        return Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, text));
    }
    let content_type = HeaderValue::from_static("text/event-stream;charset=utf-8");
    if method == Method::HEAD {
        // A HEAD opens no stream, so no attach event is published.
        return Ok([(header::CONTENT_TYPE, content_type)].into_response());
    }
    // Some clients send an empty header with their first request.
    let last = headers.get(&LAST_EVENT_ID).filter(|last| !last.is_empty());
    let last = last.map(|last| String::from_utf8_lossy(last.as_bytes()));
    let mut key = stream_key(&query, &api.0.config.settings.events.parameters);
    key.ids |= last.is_some();
    let listener = Listener {
        disconnect: disconnect.map(|Extension(it)| it).unwrap_or_default(),
        owner,
        client: origin.client,
        url: origin.uri,
    };
    let subscription = api
        .lead()?
        .bus
        .attach(key, listener, last.as_deref())
        .await
        .map_err(|rejected| match rejected {
            AttachError::Open(OpenError::Rejected(text)) => ApiError::bad_request(text),
            AttachError::Open(OpenError::Call(error)) => error::unanswered(&error),
            AttachError::TooManyQueries => ApiError::unavailable(rejected.to_string()),
        })?;
    let mut response = Body::from_stream(subscription).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    Ok(response)
}

/// The query parameters of a stream. The configured ones are accepted in addition, and no others.
pub(crate) const PARAMETERS: &[&str] = &["event_type", "filter", "plan-format", "ids"];

/// The options of a stream with these parameters. `configured`: the parameters that are passed to
/// the component.
pub(crate) fn stream_key(query: &Query, configured: &BTreeSet<String>) -> StreamKey {
    let kinds: BTreeSet<&str> = query.all("event_type").collect();
    StreamKey {
        query: EventQuery {
            event_types: kinds.into_iter().map(str::to_owned).collect(),
            expression: query.get("filter").map(str::to_owned),
            principal: None,
            extensions: query.selected(configured),
        },
        light: query
            .get("plan-format")
            .is_some_and(|format| format.eq_ignore_ascii_case("light")),
        ids: query.flag("ids", false),
    }
}
