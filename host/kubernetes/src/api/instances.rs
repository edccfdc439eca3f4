//! Several frameworks on one port, each below its own path: `/NAME/api/fw/v0/…`.
//!
//! The routes of a framework do not contain its path, so this module and the access rules remove it
//! from requests. A standby forwards the path as the client sent it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::Uri;
use tower::ServiceExt;
use transom_framework::RequestedUri;
use transom_web::{AccessRules, ApiError};

use super::{auth, redirect, without_body};

/// The routes of all frameworks, by their paths (`/NAME`).
pub(crate) fn router(instances: BTreeMap<String, Router>) -> Router {
    let instances = Arc::new(instances);
    Router::new().fallback(move |request: Request| {
        let instances = Arc::clone(&instances);
        async move { dispatch(&instances, request).await }
    })
}

/// The routes of the framework at `instance` (`/NAME`), without this path. If `instance` is empty, all
/// routes of the port.
pub(crate) fn below(port: Router, instance: &str) -> Router {
    if instance.is_empty() {
        return port;
    }
    let instance: Arc<str> = instance.into();
    Router::new().fallback(move |mut request: Request| {
        let (port, instance) = (port.clone(), Arc::clone(&instance));
        async move {
            let path = format!("{instance}{}", request.uri().path());
            // A valid path remains valid with a prefix, so this never fails.
            if let Some(uri) = with_path(request.uri(), &path) {
                *request.uri_mut() = uri;
            }
            let Ok(response) = port.oneshot(request).await;
            response
        }
    })
}

/// The access rules of the port: those of a framework's own port, applied to the path without the
/// instance.
pub(crate) fn access_rules() -> AccessRules {
    AccessRules {
        requirement: |method, path| auth::requirement(method, split(path).1),
        rejection: |policy, denial, path| auth::rejection(policy, denial, split(path).1),
        changes: |method, path| auth::changes(method, split(path).1),
        ..AccessRules::DEFAULT
    }
}

async fn dispatch(instances: &BTreeMap<String, Router>, mut request: Request) -> Response {
    if request.uri().path().contains("//") {
        return redirect(request.uri());
    }
    let (instance, path) = split(request.uri().path());
    let Some((router, uri)) = instances.get(instance).zip(with_path(request.uri(), path)) else {
        let known = instances.keys().map(String::as_str).collect::<Vec<_>>();
        let text = format!(
            "Not found: {}. The instances on this port are at {}",
            request.uri().path(),
            known.join(", ")
        );
        return without_body(path, ApiError::not_found(text).into_response());
    };
    let requested = RequestedUri(std::mem::replace(request.uri_mut(), uri));
    request.extensions_mut().insert(requested);
    let Ok(response) = router.clone().oneshot(request).await;
    response
}

/// Splits a path into its first segment, with the slash, and the rest, which is a path again.
fn split(path: &str) -> (&str, &str) {
    let end = path.strip_prefix('/').and_then(|rest| rest.find('/'));
    match end {
        Some(at) => path.split_at(at + 1),
        None => (path, "/"),
    }
}

/// The URI with another path and the same query.
fn with_path(uri: &Uri, path: &str) -> Option<Uri> {
    match uri.query() {
        Some(query) => format!("{path}?{query}").parse().ok(),
        None => path.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_separates_the_first_segment() {
        for (path, expected) in [
            ("/a/api/fw/v0/x", ("/a", "/api/fw/v0/x")),
            ("/a/", ("/a", "/")),
            ("/a", ("/a", "/")),
            ("/", ("/", "/")),
            ("", ("", "/")),
            ("*", ("*", "/")),
        ] {
            assert_eq!(split(path), expected, "{path}");
        }
    }
}
