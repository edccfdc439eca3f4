//! The files API: lists and reads files in sandboxes. No file outside of them is visible.

use crate::state::{AgentId, State};
use serde_json::{Value, json};
use std::{
    fs::Metadata,
    io::SeekFrom,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};
use tokio::io::{AsyncReadExt, AsyncSeekExt};

/// Maximum bytes of one read.
const MAX_READ_BYTES: u64 = 16 * 4096;
/// Maximum size of a file that is downloaded whole.
const MAX_DOWNLOAD_BYTES: u64 = 64 << 20;
/// Maximum entries of a listing.
const MAX_ENTRIES: usize = 10_000;

/// The reason why a file cannot be read.
#[derive(Debug)]
pub(crate) enum FileError {
    NotFound,
    BadRequest(String),
}

/// Resolves symbolic links in `path`. A result outside of the agent's sandboxes is an error.
pub(crate) async fn resolve(work_dir: &Path, path: &Path) -> Result<PathBuf, FileError> {
    let root = tokio::fs::canonicalize(work_dir.join("slaves"))
        .await
        .map_err(|_| FileError::NotFound)?;
    let path = tokio::fs::canonicalize(path)
        .await
        .map_err(|_| FileError::NotFound)?;
    if path.starts_with(&root) {
        Ok(path)
    } else {
        Err(FileError::NotFound)
    }
}

/// The virtual names of sandboxes and their directories: `/frameworks/F/executors/E/runs/latest`.
pub(crate) fn virtual_paths(state: &State, agent: &AgentId) -> Vec<(String, PathBuf)> {
    let name =
        |framework: &str, executor: &str| format!("/frameworks/{framework}/executors/{executor}/runs/latest");
    let mut paths = Vec::new();
    for framework in state.frameworks_of_agents().chain(&state.completed_frameworks) {
        for task in framework.completed_tasks.iter().chain(framework.tasks.values()) {
            if task.agent == *agent && !task.is_in_group() {
                paths.push((
                    name(framework.id.as_str(), task.executor_id()),
                    task.directory.clone(),
                ));
            }
        }
        for ((agent_id, id), executor) in &framework.executors {
            if agent_id == agent {
                paths.push((name(framework.id.as_str(), id), executor.directory.clone()));
            }
        }
    }
    paths
}

/// The path, with a virtual name replaced by its directory.
pub(crate) fn real_path(virtual_paths: &[(String, PathBuf)], path: &str) -> PathBuf {
    virtual_paths
        .iter()
        .rev()
        .find_map(|(name, directory)| {
            let rest = path.strip_prefix(name.as_str())?;
            (rest.is_empty() || rest.starts_with('/')).then(|| directory.join(rest.trim_start_matches('/')))
        })
        .unwrap_or_else(|| PathBuf::from(path))
}

/// The entries of a directory, ordered by name.
pub(crate) async fn list(directory: &Path) -> Result<Vec<(PathBuf, Metadata)>, FileError> {
    let mut reader = tokio::fs::read_dir(directory)
        .await
        .map_err(|_| FileError::NotFound)?;
    let mut entries = Vec::new();
    while let Ok(Some(entry)) = reader.next_entry().await {
        // A file that was deleted meanwhile is not listed.
        if let Ok(metadata) = entry.metadata().await {
            entries.push((entry.path(), metadata));
        }
        if entries.len() >= MAX_ENTRIES {
            break;
        }
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(entries)
}

/// Reads a part of a file and its size. Without a `length`, reads as much as one response may contain.
pub(crate) async fn read(path: &Path, offset: u64, length: Option<u64>) -> Result<(Vec<u8>, u64), FileError> {
    let mut file = tokio::fs::File::open(path)
        .await
        .map_err(|_| FileError::NotFound)?;
    let metadata = file.metadata().await.map_err(|_| FileError::NotFound)?;
    if !metadata.is_file() {
        return Err(FileError::BadRequest("Cannot read from a directory".to_owned()));
    }
    let mut data = Vec::new();
    if offset < metadata.len() {
        let to_error =
            |error: std::io::Error| FileError::BadRequest(format!("Failed to read the file: {error}"));
        file.seek(SeekFrom::Start(offset)).await.map_err(to_error)?;
        file.take(length.unwrap_or(MAX_READ_BYTES).min(MAX_READ_BYTES))
            .read_to_end(&mut data)
            .await
            .map_err(to_error)?;
    }
    Ok((data, metadata.len()))
}

/// A whole file.
pub(crate) async fn download(path: &Path) -> Result<Vec<u8>, FileError> {
    let metadata = tokio::fs::metadata(path).await.map_err(|_| FileError::NotFound)?;
    if !metadata.is_file() {
        return Err(FileError::BadRequest("Cannot download a directory".to_owned()));
    }
    if metadata.len() > MAX_DOWNLOAD_BYTES {
        return Err(FileError::BadRequest(format!(
            "The file is larger than {MAX_DOWNLOAD_BYTES} bytes: read it in parts"
        )));
    }
    tokio::fs::read(path).await.map_err(|_| FileError::NotFound)
}

/// An entry in the form of `/files/browse`.
pub(crate) fn browse_entry(path: &Path, metadata: &Metadata) -> Value {
    json!({
        "path": path.display().to_string(),
        "nlink": metadata.nlink(),
        "size": metadata.len(),
        "mtime": modified_seconds(metadata) as f64,
        "mode": mode_text(metadata.mode()),
        "uid": user_name(metadata.uid()),
        "gid": group_name(metadata.gid()),
    })
}

/// An entry in the form of `LIST_FILES`.
pub(crate) fn file_info(path: &Path, metadata: &Metadata) -> Value {
    json!({
        "path": path.display().to_string(),
        "nlink": metadata.nlink(),
        "size": metadata.len(),
        "mtime": {"nanoseconds": modified_seconds(metadata) * 1_000_000_000},
        "mode": metadata.mode(),
        "uid": user_name(metadata.uid()),
        "gid": group_name(metadata.gid()),
    })
}

fn modified_seconds(metadata: &Metadata) -> u64 {
    metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
        .map_or(0, |since| since.as_secs())
}

fn user_name(uid: u32) -> String {
    nix::unistd::User::from_uid(uid.into())
        .ok()
        .flatten()
        .map_or_else(|| uid.to_string(), |user| user.name)
}

fn group_name(gid: u32) -> String {
    nix::unistd::Group::from_gid(gid.into())
        .ok()
        .flatten()
        .map_or_else(|| gid.to_string(), |group| group.name)
}

/// The mode in the form of `ls -l`.
fn mode_text(mode: u32) -> String {
    let kind = match mode & 0o170_000 {
        0o040_000 => 'd',
        0o120_000 => 'l',
        _ => '-',
    };
    let bits = (0..9).map(|bit| {
        if mode & (0o400 >> bit) == 0 {
            '-'
        } else {
            ['r', 'w', 'x'][bit % 3]
        }
    });
    std::iter::once(kind).chain(bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_modes_are_shown_as_by_ls() {
        assert_eq!(mode_text(0o100_644), "-rw-r--r--");
        assert_eq!(mode_text(0o040_755), "drwxr-xr-x");
    }

    #[test]
    fn virtual_paths_resolve_to_the_latest_run() {
        let paths = [(
            "/frameworks/f/executors/e/runs/latest".to_owned(),
            PathBuf::from("/w/run1"),
        )];
        assert_eq!(
            real_path(&paths, "/frameworks/f/executors/e/runs/latest/stdout"),
            PathBuf::from("/w/run1/stdout")
        );
        assert_eq!(
            real_path(&paths, "/frameworks/f/executors/e/runs/latest2"),
            PathBuf::from("/frameworks/f/executors/e/runs/latest2")
        );
    }
}
