//! `/ui/`: the files of a user interface, which is a client of this API on the same port.
//!
//! Paths here are not normalised before routing, unlike those of the API: the names of files are
//! exact.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::get;
use http::{HeaderValue, StatusCode, header};
use transom_web::{Folder, RequestMetrics};

/// The path of `index.html`, whose relative links need the final slash.
const INDEX_PATH: &str = "/ui/";

/// Adds the routes of the user interface. All other requests go to `routes`.
pub(super) fn add_routes(routes: Router, folder: Folder, metrics: RequestMetrics) -> Router {
    let home = async || (StatusCode::FOUND, [(header::LOCATION, INDEX_PATH)]);
    let files = Router::new()
        .route("/", get(home))
        .route("/ui", get(home))
        .route("/ui/", get(index))
        .route("/ui/{*path}", get(file))
        .with_state(folder);
    let files = transom_web::json_errors(transom_web::with_fallbacks(files));
    // The routes of the API count their own requests.
    metrics.around(files).fallback_service(routes)
}

async fn index(State(folder): State<Folder>, request: Request) -> Response {
    answer(&folder, "", request).await
}

async fn file(State(folder): State<Folder>, Path(path): Path<String>, request: Request) -> Response {
    answer(&folder, &path, request).await
}

/// Browsers must revalidate each file, because a new build may reuse the file names of the previous
/// one.
async fn answer(folder: &Folder, path: &str, request: Request) -> Response {
    let mut response = folder.answer(path, request).await;
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    response
}
