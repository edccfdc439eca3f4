//! Requests to a daemon that does not lead are passed on to the one that does.

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

/// How long a request waits for somebody to lead: long enough for a lease of the usual length to run out.
const ELECTION: Duration = Duration::from_secs(10);

/// Who carries a request out.
enum Leader {
    Here,
    At(String),
}

/// Lets through what is carried out here.
pub(super) async fn pass_on(State(api): State<Api>, request: Request, next: Next) -> Response {
    if api.0.lead.load().is_some() {
        return next.run(request).await;
    }
    carry_out(&api, request, next)
        .await
        .unwrap_or_else(IntoResponse::into_response)
}

async fn carry_out(api: &Api, request: Request, next: Next) -> Result<Response, ApiError> {
    let end = Instant::now() + ELECTION;
    let mut chosen = leader(api, end, None).await?;
    let (mut head, body) = request.into_parts();
    // It may have to be sent twice.
    let body: Bytes = Request::from_parts(head.clone(), body)
        .extract()
        .await
        .map_err(|refused: BytesRejection| ApiError::new(refused.status(), refused.body_text()))?;
    // Whoever was let in here is let in there: this daemon's address need not be one that is trusted.
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
            // It got nothing, so whoever leads next may be asked.
            Err(unreachable @ ForwardError::Unreachable(_)) => {
                chosen = match leader(api, end, Some(&address)).await {
                    Ok(chosen) => chosen,
                    Err(refusal) if store_away(api) => return Err(refusal),
                    Err(_) => return Err(unreachable.into()),
                };
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits for somebody who leads, other than `failed`.
async fn leader(api: &Api, end: Instant, failed: Option<&str>) -> Result<Leader, ApiError> {
    let (mut standing, mut turned) = (api.0.standing.clone(), api.0.turned.clone());
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
                changed = turned.changed() => changed,
            }
        };
        if !matches!(timeout_at(end, changed).await, Ok(Ok(()))) {
            return Err(nobody_leads(api));
        }
    }
}

/// Whether nobody can lead before the store is back.
fn store_away(api: &Api) -> bool {
    *api.0.standing.borrow() == Leadership::StoreUnavailable
}

fn nobody_leads(api: &Api) -> ApiError {
    if store_away(api) {
        let text =
            "The state store cannot be reached, and without it no daemon runs the jobs. Try again later.";
        return ApiError::new(StatusCode::SERVICE_UNAVAILABLE, text)
            .header(header::RETRY_AFTER, HeaderValue::from_static("5"));
    }
    let text = "No daemon runs the jobs at the moment. Try again later.";
    ApiError::new(StatusCode::BAD_GATEWAY, text)
}
