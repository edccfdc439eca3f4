//! Forwards requests to the leader.

use std::time::Duration;

use axum::RequestExt;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use tokio::time::{Instant, timeout_at};
use transom_store::Leadership;
use transom_web::{ApiError, ForwardError};

use super::Api;

/// How long a request waits for a leader: long enough for a lease of the usual length to expire.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// The leader.
enum Leader {
    Here,
    At(String),
}

/// Serves the request here if this daemon is the leader, and forwards it otherwise.
pub(super) async fn forward_to_leader(State(api): State<Api>, request: Request, next: Next) -> Response {
    if api.0.lead.load().is_some() {
        return next.run(request).await;
    }
    forward(&api, request, next)
        .await
        .unwrap_or_else(IntoResponse::into_response)
}

async fn forward(api: &Api, request: Request, next: Next) -> Result<Response, ApiError> {
    let end = Instant::now() + ELECTION_TIMEOUT;
    let mut chosen = leader(api, end, None).await?;
    let (mut head, body) = request.into_parts();
    // The body may have to be sent twice.
    let body: Bytes = Request::from_parts(head.clone(), body)
        .extract()
        .await
        .map_err(|refused: BytesRejection| ApiError::new(refused.status(), refused.body_text()))?;
    // The leader must accept what was accepted here, even if this daemon's address is not trusted.
    if let Some(credentials) = &api.0.config.credentials
        && let Ok(value) = HeaderValue::from_str(&credentials.authorization())
    {
        head.headers.insert(header::AUTHORIZATION, value);
    }
    loop {
        let Leader::At(address) = chosen else {
            return Ok(next.run(Request::from_parts(head, body.into())).await);
        };
        match api.0.forwarder.forward(&address, &head, body.clone()).await {
            Ok(response) => return Ok(response),
            // Nothing was sent, so the next leader may get the request.
            Err(unreachable @ ForwardError::Unreachable(_)) => {
                chosen = match leader(api, end, Some(&address)).await {
                    Ok(chosen) => chosen,
                    Err(refusal) if is_store_unavailable(api) => return Err(refusal),
                    Err(_) => return Err(unreachable.into()),
                };
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits for a leader other than `failed`.
async fn leader(api: &Api, end: Instant, failed: Option<&str>) -> Result<Leader, ApiError> {
    let (mut standing, mut leader_watch) = (api.0.standing.clone(), api.0.leader_watch.clone());
    loop {
        if api.0.lead.load().is_some() {
            return Ok(Leader::Here);
        }
        let known = standing.borrow_and_update().clone();
        if let Leadership::Follower(address) = known
            && failed != Some(address.as_str())
        {
            return Ok(Leader::At(address));
        }
        let changed = async {
            tokio::select! {
                changed = standing.changed() => changed,
                changed = leader_watch.changed() => changed,
            }
        };
        if !matches!(timeout_at(end, changed).await, Ok(Ok(()))) {
            return Err(no_leader_error(api));
        }
    }
}

/// Whether no election is possible before the store is back.
fn is_store_unavailable(api: &Api) -> bool {
    *api.0.standing.borrow() == Leadership::StoreUnavailable
}

fn no_leader_error(api: &Api) -> ApiError {
    if is_store_unavailable(api) {
        let text = "The state store is unavailable, so no daemon can lead. Try again later.";
        return ApiError::new(StatusCode::SERVICE_UNAVAILABLE, text)
            .header(header::RETRY_AFTER, HeaderValue::from_static("5"));
    }
    let text = "No leader is elected. Try again later.";
    ApiError::new(StatusCode::BAD_GATEWAY, text)
}
