//! `PUT /v1/plugins/{name}/files`: writes a plugin's files to the plugin directory of this daemon.
//!
//! Off unless `plugins.uploads` is set, because the files contain code, and their manifest may grant it
//! whatever a manifest can grant. [`plugin_archive`] describes the body. The port rejects the content
//! types of a web page's form. The files are admitted like any others in the directory.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::put;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use transom_cli::plugin_archive::{self, ReadError};
use transom_common::error_chain;
use transom_plugin_host::{PluginFiles, Plugins, UploadError, printable};
use transom_web::ApiError;

use super::plugins::EscapedJson;

/// The maximum size of a body: the files, and the archive's overhead.
pub(crate) const MAX_BODY: usize = PluginFiles::MAX_BYTES as usize + (2 << 20);
/// The maximum number of bodies that are read concurrently; further uploads are rejected.
const MAX_CONCURRENT: usize = 2;
/// The timeout of reading a body.
const READ_TIMEOUT: Duration = Duration::from_mins(5);

#[derive(Clone)]
struct Uploads {
    plugins: Plugins,
    enabled: bool,
    permits: Arc<Semaphore>,
    read_timeout: Duration,
}

/// `enabled`: the setting.
pub(super) fn routes(plugins: Plugins, enabled: bool) -> Router {
    Router::new()
        .route("/v1/plugins/{name}/files", put(upload))
        .with_state(Uploads {
            plugins,
            enabled,
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            read_timeout: READ_TIMEOUT,
        })
}

async fn upload(
    State(uploads): State<Uploads>,
    Path(name): Path<String>,
    body: Body,
) -> Result<Response, ApiError> {
    if !uploads.enabled {
        let text = "uploads of plugin files are disabled in this daemon: set `uploads = true` in the section \
                    [plugins] of its configuration (`plugins.uploads`), or put the files into its plugin directory";
        return Err(ApiError::new(StatusCode::FORBIDDEN, text));
    }
    let _permit = uploads.permits.try_acquire().map_err(|_| {
        ApiError::unavailable(format!(
            "{MAX_CONCURRENT} uploads are in progress; try again later"
        ))
    })?;
    let plugins = &uploads.plugins;
    // Checks the name before the body is read.
    let limit = plugins.upload_limit(&name, None).await;
    limit.map_err(|error| upload_error(&error))?;
    let limit = |manifest: Option<Vec<u8>>| {
        let (plugins, name) = (plugins.clone(), name.clone());
        async move { plugins.upload_limit(&name, manifest.as_deref()).await }
    };
    let files = timeout(
        uploads.read_timeout,
        plugin_archive::read(&name, body.into_data_stream(), limit),
    );
    let files = files.await.map_err(|_| {
        let text = format!("the body did not arrive within {:?}", uploads.read_timeout);
        ApiError::new(StatusCode::REQUEST_TIMEOUT, text)
    })?;
    let files = files.map_err(|error| match error {
        ReadError::Invalid(text) => ApiError::bad_request(text),
        ReadError::Lost(text) => ApiError::bad_request(format!("the body cannot be read: {text}")),
        ReadError::Rejected(error) => upload_error(&error),
    })?;
    let uploaded = plugins
        .upload(&name, files)
        .await
        .map_err(|error| upload_error(&error))?;
    let document = json!({
        "plugin": name,
        "written": uploaded.written,
        "digest": uploaded.digest,
        "admitting": uploaded.admitting,
        "ignored": uploaded.ignored,
        "status": format!("/v1/plugins/{name}"),
        "message": format!(
            "The files are written. While `admitting` of /v1/plugins/{name} is not null, they are being checked; then \
             `digest` is the digest of the serving version, and `refusal` is the reason if these files were rejected."
        ),
    });
    Ok((StatusCode::ACCEPTED, EscapedJson(document)).into_response())
}

fn upload_error(error: &UploadError) -> ApiError {
    let status = match error {
        UploadError::Name | UploadError::Nothing(_) => StatusCode::BAD_REQUEST,
        UploadError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        UploadError::NotAFile { .. } | UploadError::TooMany(_) => StatusCode::CONFLICT,
        UploadError::Unwritable(_) => StatusCode::INTERNAL_SERVER_ERROR,
        UploadError::Stopped => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    };
    ApiError::new(status, printable(&error_chain(error)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::convert::Infallible;

    use axum::body::to_bytes;
    use bytes::Bytes;
    use futures::{StreamExt, poll, stream};
    use prometheus_client::registry::Registry;
    use tokio_util::sync::CancellationToken;
    use transom_plugin_host::Config;

    use super::*;

    /// The body of a client that stops sending.
    fn stalled_body() -> Body {
        let start = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"\0asm"))]);
        Body::from_stream(start.chain(stream::pending()))
    }

    async fn status_and_text(error: ApiError) -> (u16, String) {
        let response = error.into_response();
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn uploads_are_bounded_in_number_and_time() {
        let dir = tempfile::tempdir().unwrap();
        let token = CancellationToken::new();
        let mut registry = Registry::default();
        let started = Config::new(dir.path()).start(&mut registry, token.clone());
        let mut uploads = Uploads {
            plugins: started.await.unwrap(),
            enabled: true,
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            read_timeout: Duration::from_millis(50),
        };
        let stalled = |uploads: &Uploads| {
            let name = Path("new".to_owned());
            upload(State(uploads.clone()), name, stalled_body())
        };
        let error = stalled(&uploads).await.unwrap_err();
        let (status, text) = status_and_text(error).await;
        assert!(status == 408 && text.contains("within 50ms"), "{status} {text}");

        uploads.read_timeout = READ_TIMEOUT;
        {
            let mut first = Box::pin(stalled(&uploads));
            let mut second = Box::pin(stalled(&uploads));
            assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
            let error = stalled(&uploads).await.unwrap_err();
            let (status, text) = status_and_text(error).await;
            assert!(
                status == 503 && text.contains("2 uploads are in progress"),
                "{status} {text}"
            );
        }
        // Both requests were dropped.
        assert_eq!(uploads.permits.available_permits(), MAX_CONCURRENT);
        token.cancel();
        uploads.plugins.stopped().await;
    }
}
