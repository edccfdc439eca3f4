//! The files of a folder, such as a built user interface.

use std::io;
use std::path::{Component, Path, PathBuf};

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use tower::ServiceExt;
use tower_http::services::ServeFile;

use crate::{ApiError, Error, Result};

/// The file of the empty path.
const INDEX: &str = "index.html";

/// A folder whose files are served as they are at each request. Folders in it are not listed, and a
/// symbolic link that leads out of it is not followed. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Without symbolic links.
    root: PathBuf,
}

impl Folder {
    /// Finds the folder, which must have an `index.html`.
    ///
    /// # Errors
    /// [`Error::Folder`] if it cannot be read or has none.
    pub async fn open(path: &Path) -> Result<Self> {
        let failed = |what| {
            let path = path.to_owned();
            move |source| Error::Folder { path, what, source }
        };
        let root = tokio::fs::canonicalize(path).await;
        let root = root.map_err(failed("cannot be read"))?;
        let folder = Self { root };
        let readable = async {
            let index = folder.file(INDEX).await?;
            tokio::fs::File::open(index).await
        };
        let readable = readable.await;
        readable.map_err(failed("has no index.html that can be read"))?;
        Ok(folder)
    }

    /// Answers a `GET` or `HEAD` request with the file at `path`, which is relative to the folder
    /// and decoded; the empty path is `index.html`. Conditional requests and ranges are answered by
    /// the file's time of modification. Everything but a file in the folder is 404.
    pub async fn answer(&self, path: &str, request: Request) -> Response {
        let Ok(file) = self.file(if path.is_empty() { INDEX } else { path }).await else {
            return ApiError::not_found(format!("Not found: {}", request.uri().path())).into_response();
        };
        let Ok(response) = ServeFile::new(file).oneshot(request).await;
        let mut response = response.map(Body::new);
        // The name of the file determines its type; browsers must not guess it from the content.
        response.headers_mut().insert(
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        );
        response
    }

    /// Finds the regular file at a path. Opening anything else, such as a FIFO, could block.
    async fn file(&self, path: &str) -> io::Result<PathBuf> {
        let path = Path::new(path);
        let plain = |part| matches!(part, Component::Normal(_));
        if !path.components().all(plain) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let found = tokio::fs::canonicalize(self.root.join(path)).await?;
        let is_file = tokio::fs::metadata(&found).await?.is_file();
        if is_file && found.starts_with(&self.root) {
            Ok(found)
        } else {
            Err(io::Error::other("not a file in the folder"))
        }
    }
}
