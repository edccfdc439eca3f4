//! `/datastore/backups`: backups of the datastore and their restore, on the neutral prefix only;
//! and `/backup/{digest}/{token}`, from which the cluster's fetcher downloads the backup that is being
//! restored.

use std::path::PathBuf;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use http::{StatusCode, header};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::task::spawn_blocking;
use transom_common::error_chain;
use transom_web::ApiError;

use super::error::{conflict, no_backup_directory, unprocessable};
use super::{Api, document};
use crate::backup::directory::{Directory, FileError};
use crate::backup::{self, Manifest, Operation, OperationKind, Phase};
use crate::core::command::Command;

/// The number of bytes per read when a backup is sent.
const READ_CHUNK_BYTES: usize = 64 << 10;

#[derive(JsonSchema, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are those of the document")]
pub(super) struct Backups<'a> {
    backups: Vec<Backup<'a>>,
    operation: Option<Progress<'a>>,
    last_backup: Option<Outcome<'a>>,
    last_restore: Option<Outcome<'a>>,
}

/// A backup that is complete, is being made, or has failed.
#[derive(JsonSchema, Serialize)]
pub(super) struct Backup<'a> {
    name: &'a str,
    #[schemars(extend("enum" = ["complete", "running", "failed"]))]
    state: &'static str,
    reason: Option<&'a str>,
    #[schemars(extend("enum" = ["sql", "kvstore", null]))]
    engine: Option<&'static str>,
    version: Option<&'a str>,
    created: Option<Timestamp>,
    size: Option<u64>,
    sha256: Option<&'a str>,
}

/// The backup or restore under way.
#[derive(JsonSchema, Serialize)]
pub(super) struct Progress<'a> {
    kind: OperationKind,
    backup: &'a str,
    phase: Phase,
    started: Timestamp,
    /// The deadline of the phase: it fails if it has not ended by then.
    deadline: Timestamp,
    text: String,
    reason: Option<&'a str>,
}

/// How an operation ended.
#[derive(JsonSchema, Serialize)]
struct Outcome<'a> {
    backup: &'a str,
    ended: Timestamp,
    /// Why it failed.
    reason: Option<&'a str>,
}

#[derive(JsonSchema, Serialize)]
pub(super) struct Name<'a> {
    name: &'a str,
}

impl<'a> From<&'a Operation> for Progress<'a> {
    fn from(operation: &'a Operation) -> Self {
        Self {
            kind: operation.kind,
            backup: &operation.backup,
            phase: operation.phase,
            started: operation.started,
            deadline: operation.deadline,
            text: operation.describe(),
            reason: operation.problem.as_deref(),
        }
    }
}

impl<'a> From<&'a backup::Outcome> for Outcome<'a> {
    fn from(outcome: &'a backup::Outcome) -> Self {
        Self {
            backup: &outcome.backup,
            ended: outcome.ended,
            reason: outcome.problem.as_deref(),
        }
    }
}

impl<'a> Backup<'a> {
    fn incomplete(name: &'a str, state: &'static str, reason: Option<&'a str>) -> Self {
        Self {
            name,
            state,
            reason,
            engine: None,
            version: None,
            created: None,
            size: None,
            sha256: None,
        }
    }
}

impl<'a> From<&'a Manifest> for Backup<'a> {
    fn from(manifest: &'a Manifest) -> Self {
        Self {
            engine: Some(manifest.engine.as_str()),
            version: Some(&manifest.version),
            created: Some(manifest.created),
            size: Some(manifest.size),
            sha256: Some(&manifest.sha256),
            ..Self::incomplete(&manifest.name, "complete", None)
        }
    }
}

/// `GET /datastore/backups`
pub(super) async fn list(State(api): State<Api>) -> Result<Response, ApiError> {
    let manifests = match &api.0.backups {
        Some(directory) => with_directory(directory, Directory::list).await?,
        None => Vec::new(),
    };
    let view = api.0.views.get();
    let state = &view.backup;
    Ok(document(&Backups {
        backups: entries(&manifests, state),
        operation: state.operation.as_ref().map(Progress::from),
        last_backup: state.last_backup.as_ref().map(Outcome::from),
        last_restore: state.last_restore.as_ref().map(Outcome::from),
    }))
}

/// `GET /datastore/backups/{name}`
pub(super) async fn get(State(api): State<Api>, Path(name): Path<String>) -> Result<Response, ApiError> {
    let manifests = match &api.0.backups {
        Some(directory) => with_directory(directory, Directory::list).await?,
        None => Vec::new(),
    };
    let view = api.0.views.get();
    let entries = entries(&manifests, &view.backup);
    let found = entries.iter().find(|entry| entry.name == name);
    found.map(document).ok_or_else(|| FileError::Unknown(name).into())
}

/// The complete backups, the oldest first, and one that is being made or has failed.
fn entries<'a>(manifests: &'a [Manifest], state: &'a backup::State) -> Vec<Backup<'a>> {
    let mut entries: Vec<Backup<'a>> = manifests.iter().map(Backup::from).collect();
    let last = state.last_backup.as_ref();
    let failed = last.and_then(|last| Some((last.backup.as_str(), "failed", Some(last.problem.as_deref()?))));
    let running = state
        .operation
        .as_ref()
        .filter(|it| it.kind == OperationKind::Backup);
    let running = running.map(|operation| (operation.backup.as_str(), "running", None));
    for (name, state, reason) in failed.into_iter().chain(running) {
        if entries.iter().all(|entry| entry.name != name) {
            entries.push(Backup::incomplete(name, state, reason));
        }
    }
    entries
}

/// `POST /datastore/backups`
pub(super) async fn create(State(api): State<Api>) -> Result<Response, ApiError> {
    if let Some(directory) = &api.0.backups {
        with_directory(directory, Directory::probe).await?;
    }
    let name = api.ask(|reply| Command::BackUp { reply }).await?;
    Ok(accepted(&name))
}

/// `POST /datastore/backups/{name}/restore`
pub(super) async fn restore(State(api): State<Api>, Path(name): Path<String>) -> Result<Response, ApiError> {
    let directory = api.0.backups.as_ref().ok_or_else(no_backup_directory)?;
    let wanted = name.clone();
    let manifest = with_directory(directory, move |directory| {
        let manifest = directory.find(&wanted)?;
        directory.verify(&manifest)?;
        Ok(manifest)
    })
    .await?;
    api.ask(|reply| Command::Restore { manifest, reply }).await?;
    Ok(accepted(&name))
}

/// `DELETE /datastore/backups/{name}`
pub(super) async fn delete(State(api): State<Api>, Path(name): Path<String>) -> Result<Response, ApiError> {
    let directory = api.0.backups.as_ref().ok_or_else(no_backup_directory)?;
    let view = api.0.views.get();
    let operation = view.backup.operation.as_ref();
    if let Some(operation) = operation.filter(|operation| operation.backup == name) {
        return Err(conflict(format!(
            "The backup is in use: {}.",
            operation.describe()
        )));
    }
    let deleted = name.clone();
    with_directory(directory, move |directory| directory.delete(&deleted)).await?;
    tracing::info!(backup = name, "deleted a backup");
    Ok(super::success(super::JSON, ""))
}

fn accepted(name: &str) -> Response {
    let mut response = document(&Name { name });
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// Runs blocking work on the directory in the runtime's pool for blocking tasks.
async fn with_directory<T: Send + 'static>(
    directory: &Directory,
    work: impl FnOnce(&Directory) -> Result<T, FileError> + Send + 'static,
) -> Result<T, ApiError> {
    let directory = directory.clone();
    let done = spawn_blocking(move || work(&directory)).await;
    Ok(done.map_err(|error| ApiError::internal(&error))??)
}

impl From<FileError> for ApiError {
    fn from(error: FileError) -> Self {
        let message = format!("{}.", capitalized(&error_chain(&error)));
        match error {
            FileError::Unknown(_) => Self::not_found(message),
            FileError::Data { .. } | FileError::Size { .. } | FileError::Digest { .. } => {
                unprocessable(message)
            }
            FileError::Directory { .. } => Self::new(StatusCode::INSUFFICIENT_STORAGE, message),
        }
    }
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + characters.as_str()
}

/// `GET /backup/{digest}/{token}`
pub(super) async fn deliver(
    State(api): State<Api>,
    Path((digest, token)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let file = api
        .0
        .delivery
        .get(&digest, &token)
        .ok_or_else(|| ApiError::not_found("There is no such backup, or it is not being restored."))?;
    stream(file).await.map_err(|error| {
        tracing::warn!(
            error = error_chain(&error),
            "a backup cannot be read for its restore"
        );
        ApiError::not_found("The backup cannot be read.")
    })
}

async fn stream(path: PathBuf) -> std::io::Result<Response> {
    let file = File::open(path).await?;
    let size = file.metadata().await?.len();
    let pieces = futures::stream::try_unfold(file, async |mut file| {
        let mut piece = BytesMut::with_capacity(READ_CHUNK_BYTES);
        let read = file.read_buf(&mut piece).await?;
        Ok::<_, std::io::Error>((read > 0).then(|| (piece.freeze(), file)))
    });
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, size.to_string()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}
