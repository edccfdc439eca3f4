//! Requests to a standby: it answers reads, redirects event streams and forwards the rest to the
//! leader.

use std::time::Duration;

use axum::RequestExt;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{Method, StatusCode, Uri, header};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};
use transom_store::Leadership;
use transom_web::{ApiError, ForwardError};

use super::{Api, Original, error};

/// How long a request waits for a leader: long enough for a lease of the usual length to expire.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a response to a forwarded write waits until the change is visible here.
const SYNC: Duration = Duration::from_secs(2);

/// Where a request is handled.
enum Leader {
    Here,
    At(String),
}

/// Handles requests that a standby can answer and passes on the others.
pub(super) async fn pass_on(State(api): State<Api>, request: Request, next: Next) -> Response {
    if api.shared.lead.load().is_some() || answered_here(request.method(), request.uri().path()) {
        return next.run(request).await;
    }
    let outcome = if request.uri().path() == "/v2/events" {
        redirect(&api, request, next).await
    } else {
        carry_out(&api, request, next).await
    };
    outcome.unwrap_or_else(IntoResponse::into_response)
}

/// Whether a request needs no leader.
fn answered_here(method: &Method, path: &str) -> bool {
    let shown = ["/v2/apps", "/v2/tasks", "/v2/deployments"];
    match path.strip_prefix("/v2/") {
        None | Some("info" | "leader") => true,
        Some(_) => {
            (method == Method::GET || method == Method::HEAD)
                && shown.iter().any(|shown| {
                    path.strip_prefix(shown)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                })
        }
    }
}

/// Event streams stay at the daemon that publishes the events.
async fn redirect(api: &Api, request: Request, next: Next) -> Result<Response, ApiError> {
    let leader = match leader(api, Instant::now() + ELECTION_TIMEOUT, None).await? {
        Leader::Here => return Ok(next.run(request).await),
        Leader::At(leader) => leader,
    };
    let location = format!("http://{leader}{}", asked_for(&request));
    Ok((StatusCode::FOUND, [(header::LOCATION, location)]).into_response())
}

async fn carry_out(api: &Api, request: Request, next: Next) -> Result<Response, ApiError> {
    let end = Instant::now() + ELECTION_TIMEOUT;
    let reads = request.method() == Method::GET || request.method() == Method::HEAD;
    let mut next_leader = leader(api, end, None).await?;
    if let Leader::Here = next_leader {
        return Ok(next.run(request).await);
    }
    let (head, body) = request.into_parts();
    // The request may have to be sent twice.
    let body: Bytes = Request::from_parts(head.clone(), body)
        .extract()
        .await
        .map_err(|refused: BytesRejection| ApiError::new(refused.status(), refused.body_text()))?;
    let mut outward = head.clone();
    if let Some(Original(uri)) = head.extensions.get::<Original>() {
        outward.uri = uri.clone();
    }
    loop {
        let Leader::At(leader_at) = next_leader else {
            // This daemon was elected meanwhile.
            return Ok(next.run(Request::from_parts(head, body.into())).await);
        };
        match api
            .shared
            .forwarder
            .forward(&leader_at, &outward, body.clone())
            .await
        {
            Ok(response) => {
                if !reads && response.status().is_success() {
                    shown(api).await;
                }
                return Ok(response);
            }
            // The request did not arrive, so it can be sent to the next leader.
            Err(unreachable @ ForwardError::Unreachable(_)) => {
                next_leader = match leader(api, end, Some(&leader_at)).await {
                    Ok(next_leader) => next_leader,
                    Err(refusal) if store_away(api) => return Err(refusal),
                    Err(_) => return Err(unreachable.into()),
                };
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits for a leader other than `failed`.
async fn leader(api: &Api, end: Instant, failed: Option<&str>) -> Result<Leader, ApiError> {
    let (mut standing, mut leader_watch) = (api.shared.standing.clone(), api.shared.leader_watch.clone());
    loop {
        if api.shared.lead.load().is_some() {
            return Ok(Leader::Here);
        }
        let known = standing.borrow_and_update().clone();
        match known {
            Leadership::Follower(address) if failed != Some(address.as_str()) => {
                return Ok(Leader::At(address));
            }
            _ => {}
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

/// Whether no daemon can lead because the store is unavailable.
fn store_away(api: &Api) -> bool {
    *api.shared.standing.borrow() == Leadership::StoreUnavailable
}

fn no_leader_error(api: &Api) -> ApiError {
    if store_away(api) {
        let text = "The state store cannot be reached, and without it nobody leads. Nothing was changed. Try again later.";
        return error::later(text.to_owned());
    }
    let text = "Could not determine the current leader. Try again later.";
    ApiError::new(StatusCode::BAD_GATEWAY, text)
}

/// Waits until everything stored before is visible here, so that clients read what they wrote, or
/// until a timeout.
async fn shown(api: &Api) {
    let sync = async {
        let (sync, done) = oneshot::channel();
        if api.shared.syncs.send(sync).await.is_ok() {
            let _ = done.await;
        }
    };
    if timeout(SYNC, sync).await.is_err() {
        tracing::info!("a change forwarded to the leader is not visible here yet");
    }
}

/// The requested path and query.
fn asked_for(request: &Request) -> String {
    let original = request.extensions().get::<Original>().map(|original| &original.0);
    let uri: &Uri = original.unwrap_or_else(|| request.uri());
    uri.path_and_query().map_or("/", |path| path.as_str()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_answered_here_and_nothing_else() {
        for (method, path, here) in [
            (Method::GET, "/ping", true),
            (Method::GET, "/v2/info", true),
            (Method::GET, "/v2/leader", true),
            (Method::GET, "/v2/apps", true),
            (Method::HEAD, "/v2/apps", true),
            (Method::GET, "/v2/apps/a/versions", true),
            (Method::GET, "/v2/tasks", true),
            (Method::GET, "/v2/deployments", true),
            (Method::GET, "/v2/queue", false),
            (Method::GET, "/v2/events", false),
            (Method::GET, "/v2/appsx", false),
            (Method::POST, "/v2/apps", false),
            (Method::PUT, "/v2/apps/a", false),
            (Method::PATCH, "/v2/apps/a", false),
            (Method::DELETE, "/v2/deployments/d", false),
            (Method::POST, "/v2/tasks/delete", false),
            (Method::POST, "/elsewhere", true),
        ] {
            assert_eq!(answered_here(&method, path), here, "{method} {path}");
        }
    }
}
