//! `/ui/`: the dashboard, whose built files are part of the program.
//!
//! Only the paths of the files are served: pages of the dashboard are fragments (`#`) of one address.
//! The files are the same for all users and contain nothing about the daemon; the dashboard requests
//! its data from the port's API.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};
use transom_web::ApiError;

/// The page; the relative addresses in it need the slash.
const HOME: &str = "/ui/";
const INDEX: &str = "index.html";

/// Allows scripts, styles and requests of this port only: text in a name or a log cannot load or run
/// anything, and no other site can embed the dashboard in a frame.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                                       connect-src 'self'; base-uri 'none'; form-action 'none'; \
                                       frame-ancestors 'none'; require-trusted-types-for 'script'";

macro_rules! built {
    ($($name:literal: $kind:literal,)*) => {
        /// The built files, from `dashboard/dist`: name, content type, content.
        const FILES: &[(&str, &str, &[u8])] = &[
            $(($name, $kind, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../dashboard/dist/", $name))),)*
        ];
    };
}

built! {
    "index.html": "text/html; charset=utf-8",
    "dashboard.js": "text/javascript; charset=utf-8",
    "dashboard.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}

/// The entity tags of the files.
static ETAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let tag = |content: &[u8]| {
        let digest = Sha256::digest(content);
        let digits = digest.iter().take(16).map(|byte| format!("{byte:02x}"));
        // A weak tag, because the same file is sent compressed and uncompressed.
        format!("W/\"{}\"", digits.collect::<String>())
    };
    FILES.iter().map(|(_, _, content)| tag(content)).collect()
});

pub(super) fn routes() -> Router {
    let redirect_home = async || (StatusCode::FOUND, [(header::LOCATION, HOME)]);
    Router::new()
        .route("/", get(redirect_home))
        .route("/ui", get(redirect_home))
        .route("/ui/", get(async |headers: HeaderMap| answer(INDEX, &headers)))
        .route(
            "/ui/{*path}",
            get(async |Path(path): Path<String>, headers: HeaderMap| answer(&path, &headers)),
        )
}

fn answer(name: &str, headers: &HeaderMap) -> Response {
    let files = FILES.iter().zip(ETAGS.iter());
    let Some(((_, kind, content), tag)) = files.into_iter().find(|((file_name, ..), _)| *file_name == name)
    else {
        let names: Vec<&str> = FILES.iter().map(|(name, ..)| *name).collect();
        let text = format!("Not found: the dashboard has the files {}", names.join(", "));
        return ApiError::not_found(text).into_response();
    };
    let etags = headers.get_all(header::IF_NONE_MATCH).iter();
    let etags = etags.filter_map(|value| value.to_str().ok());
    let unchanged = etags
        .flat_map(|value| value.split(','))
        .any(|value| value.trim() == tag);
    let mut response = if unchanged {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, *kind)], *content).into_response()
    };
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(header::ETAG, tag);
    }
    for (name, value) in [
        // File names stay the same when the daemon is upgraded, so browsers must revalidate each time.
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_built_file_is_served() {
        let dist = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dashboard/dist");
        let built = std::fs::read_dir(dist).unwrap();
        let built: BTreeSet<String> = built
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let served: BTreeSet<String> = FILES.iter().map(|(name, ..)| (*name).to_owned()).collect();
        assert_eq!(built, served);
    }

    #[test]
    fn browser_with_the_same_file_gets_no_body() {
        let first = answer(INDEX, &HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        let tag = first.headers()[header::ETAG].clone();
        for (if_none_match, expected) in [
            (tag.to_str().unwrap().to_owned(), StatusCode::NOT_MODIFIED),
            (
                format!("\"a\", {}", tag.to_str().unwrap()),
                StatusCode::NOT_MODIFIED,
            ),
            ("\"a\"".to_owned(), StatusCode::OK),
        ] {
            let headers = HeaderMap::from_iter([(header::IF_NONE_MATCH, if_none_match.parse().unwrap())]);
            let response = answer(INDEX, &headers);
            assert_eq!(response.status(), expected, "{if_none_match}");
            assert_eq!(response.headers()[header::ETAG], tag);
            assert_eq!(response.headers()[header::X_FRAME_OPTIONS], "DENY");
            assert!(response.headers().contains_key(header::CONTENT_SECURITY_POLICY));
        }
    }

    #[test]
    fn unknown_file_is_not_found() {
        for name in ["x", "../index.html", "index.html/", "INDEX.HTML", ""] {
            assert_eq!(
                answer(name, &HeaderMap::new()).status(),
                StatusCode::NOT_FOUND,
                "{name}"
            );
        }
    }
}
