//! `/v1/plugins/explain`: what plugins decide, and why.
//!
//! An explanation asks components, so only a few are made at a time.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::{Semaphore, SemaphorePermit};
use transom_apps::Explainer;
use transom_plugin_host::shown;
use transom_web::ApiError;

use super::plugins::{EscapedJson, duration};

/// Explanations that are made at a time; further ones are refused.
const MAX_CONCURRENT: usize = 4;

/// What explains, and the places for requests.
#[derive(Clone)]
struct Explain {
    /// None: the service is switched off.
    explainer: Option<Explainer>,
    places: Arc<Semaphore>,
}

pub(super) fn routes(explainer: Option<Explainer>) -> Router {
    Router::new()
        .route("/v1/plugins/explain/matcher", get(matcher))
        .route("/v1/plugins/explain/filter", get(filter))
        .route("/v1/plugins/explain/probe", post(probe))
        .with_state(Explain {
            explainer,
            places: Arc::new(Semaphore::new(MAX_CONCURRENT)),
        })
}

impl Explain {
    /// What explains, and a place to be held meanwhile.
    fn begin(&self) -> Result<(&Explainer, SemaphorePermit<'_>), ApiError> {
        let explainer = self.explainer.as_ref().ok_or_else(|| {
            ApiError::not_found(
                "the apps service is switched off in this daemon (section [apps] of its configuration), and only \
                 its apps, events and tasks are explained",
            )
        })?;
        let place = self.places.try_acquire().map_err(|_| {
            ApiError::unavailable(format!(
                "{MAX_CONCURRENT} explanations are being made; try again when one of them is done"
            ))
        })?;
        Ok((explainer, place))
    }
}

fn invalid_query(error: &QueryRejection, example: &str) -> ApiError {
    let error = error.body_text();
    ApiError::bad_request(format!("expected for example {example}: {}", shown(&error)))
}

/// Which app.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Placement {
    /// The id of the app or pod.
    app: String,
}

async fn matcher(
    State(explain): State<Explain>,
    query: Result<Query<Placement>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(Placement { app }) = query.map_err(|error| invalid_query(&error, "?app=/shop/web"))?;
    let (explainer, _place) = explain.begin()?;
    Ok(EscapedJson(explainer.placement(&app).await?).into_response())
}

/// Which events.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Events {
    /// The query as a subscriber gives it, percent-encoded.
    query: String,
    /// The age of the oldest event.
    #[serde(default = "an_hour")]
    since: String,
}

fn an_hour() -> String {
    "1h".to_owned()
}

async fn filter(
    State(explain): State<Explain>,
    query: Result<Query<Events>, QueryRejection>,
) -> Result<Response, ApiError> {
    let example = "?query=event_type%3Dstatus_update_event&since=1h";
    let Query(Events { query, since }) = query.map_err(|error| invalid_query(&error, example))?;
    let since = duration(&since)?;
    let (explainer, _place) = explain.begin()?;
    Ok(EscapedJson(explainer.events(&query, since).await?).into_response())
}

/// Which probe.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Attempt {
    task: String,
    /// Its place in the list of the task's probes; without one the first that this daemon makes.
    check: Option<usize>,
}

async fn probe(State(explain): State<Explain>, body: Bytes) -> Result<Response, ApiError> {
    let Attempt { task, check } = serde_json::from_slice(&body).map_err(|error| {
        ApiError::bad_request(format!(
            "invalid body, expected for example {{\"task\": \"web.instance-….1\", \"check\": 0}}: {}",
            shown(&error.to_string())
        ))
    })?;
    let (explainer, _place) = explain.begin()?;
    Ok(EscapedJson(explainer.probe(&task, check).await?).into_response())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use axum::http::StatusCode;

    use super::*;

    fn off() -> State<Explain> {
        State(Explain {
            explainer: None,
            places: Arc::new(Semaphore::new(1)),
        })
    }

    /// The answer of a daemon without the service: status and text.
    async fn answer(path: &str, body: &str) -> (StatusCode, String) {
        let uri = format!("http://admin/{path}").parse().unwrap();
        let answer = match path.split('?').next() {
            Some("matcher") => matcher(off(), Query::try_from_uri(&uri)).await,
            Some("filter") => filter(off(), Query::try_from_uri(&uri)).await,
            _ => probe(off(), Bytes::from(body.to_owned())).await,
        };
        let response = answer.into_response();
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        (status, String::from_utf8_lossy(&bytes).into_owned())
    }

    #[tokio::test]
    async fn wrong_requests_are_answered_with_an_example() {
        for (path, body, part) in [
            ("matcher", "", "?app=/shop/web"),
            ("matcher?app=/x&pod=/y", "", "unknown field"),
            ("filter", "", "?query=event_type%3D"),
            ("filter?query=&since=yesterday", "", "30m"),
            ("probe", "", "web.instance"),
            ("probe", r#"{"task": 1}"#, "invalid type"),
            ("probe", r#"{"task": "t", "check": -1}"#, "invalid value"),
        ] {
            let (status, text) = answer(path, body).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{path} {body}: {text}");
            assert!(text.contains(part), "{path} {body}: {text}");
        }
    }

    #[tokio::test]
    async fn service_that_is_switched_off_is_named() {
        for (path, body) in [
            ("matcher?app=/x", ""),
            ("filter?query=event_type%3Da", ""),
            ("probe", r#"{"task": "t"}"#),
        ] {
            let (status, text) = answer(path, body).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{path}: {text}");
            assert!(text.contains("[apps]"), "{path}: {text}");
        }
    }
}
