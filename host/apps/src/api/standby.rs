//! Requests to a standby: it redirects event streams and forwards most other requests to the
//! leader. The store contains no results of checks, so a standby answers reads from it only while
//! no leader answers.

use http::Method;
use tokio::sync::{mpsc, oneshot};
use transom_framework::Route;

use crate::core::mirror::CatchUp;

/// Selects how a standby handles a request: forwarded, redirected or answered here.
pub(super) fn route(method: &Method, path: &str) -> Route {
    let readable_locally = ["/v2/apps", "/v2/groups", "/v2/tasks", "/v2/deployments"];
    let is_readable_locally = |path: &str| {
        let below = |rest: &str| rest.is_empty() || rest.starts_with('/');
        readable_locally
            .iter()
            .any(|readable_locally| path.strip_prefix(readable_locally).is_some_and(below))
    };
    let reads = matches!(*method, Method::GET | Method::HEAD);
    match path.strip_prefix("/v2/") {
        None | Some("info" | "openapi.json") => Route::Local,
        Some("leader") if reads => Route::Local,
        // The client connects to the leader, which publishes the events.
        Some("events") => Route::Redirect,
        // Each daemon shows its own components.
        Some(below) if below == "plugins" || below.starts_with("plugins/") => Route::Local,
        Some(_) if reads && is_readable_locally(path) => Route::ForwardOrLocal,
        Some(_) => Route::Forward,
    }
}

/// Waits until everything stored before is visible here, so that clients read what they wrote.
pub(super) async fn catch_up(syncs: mpsc::Sender<CatchUp>) {
    let (sync, done) = oneshot::channel();
    if syncs.send(sync).await.is_ok() {
        let _ = done.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_prefers_the_leader_for_reads_forwards_writes_redirects_events() {
        for (method, path, expected) in [
            (Method::GET, "/ping", Route::Local),
            (Method::GET, "/v2/info", Route::Local),
            (Method::GET, "/v2/openapi.json", Route::Local),
            (Method::GET, "/v2/leader", Route::Local),
            (Method::GET, "/v2/apps", Route::ForwardOrLocal),
            (Method::HEAD, "/v2/apps", Route::ForwardOrLocal),
            (Method::GET, "/v2/apps/a/versions", Route::ForwardOrLocal),
            (Method::GET, "/v2/tasks", Route::ForwardOrLocal),
            (Method::GET, "/v2/deployments", Route::ForwardOrLocal),
            (Method::DELETE, "/v2/leader", Route::Forward),
            (Method::GET, "/v2/plugins", Route::Local),
            (Method::POST, "/v2/plugins/p/x", Route::Local),
            (Method::GET, "/v2/pluginsx", Route::Forward),
            (Method::GET, "/metrics", Route::Local),
            (Method::GET, "/v2/queue", Route::Forward),
            (Method::GET, "/v2/events", Route::Redirect),
            (Method::GET, "/v2/appsx", Route::Forward),
            (Method::POST, "/v2/apps", Route::Forward),
            (Method::PUT, "/v2/apps/a", Route::Forward),
            (Method::PATCH, "/v2/apps/a", Route::Forward),
            (Method::DELETE, "/v2/deployments/d", Route::Forward),
            (Method::POST, "/v2/tasks/delete", Route::Forward),
            (Method::POST, "/elsewhere", Route::Local),
        ] {
            assert_eq!(route(&method, path), expected, "{method} {path}");
        }
    }
}
