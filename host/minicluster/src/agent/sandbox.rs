//! Sandboxes: the directory of one run of a task, its fetched files and its output files.

use super::process::user_to_switch_to;
use crate::{state::Launch, wire::json as doc};
use futures::StreamExt;
use serde_json::Value;
use std::{
    fs::{File, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::io::AsyncWriteExt;

/// Maximum size of a file that is fetched over HTTP.
const MAX_FETCH_BYTES: u64 = 1 << 30;
/// Timeout for fetching one URI, including extraction.
const FETCH_TIMEOUT: Duration = Duration::from_mins(1);

/// The reason why a sandbox cannot be used.
#[derive(Debug)]
pub(crate) enum SandboxError {
    /// The task's user does not exist.
    Directory(String),
    /// Fetching a URI failed.
    Fetch(String),
}

/// Creates the sandbox and fetches the URIs of the command.
pub(crate) async fn prepare(client: &reqwest::Client, launch: &Launch) -> Result<(), SandboxError> {
    create(launch).await?;
    for uri in doc::list(&launch.info, &["command", "uris"]) {
        let fetched = tokio::time::timeout(FETCH_TIMEOUT, fetch(client, launch, uri)).await;
        if let Err(error) = fetched.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut))) {
            let uri = doc::text(uri, &["value"]).unwrap_or_default();
            // The real fetcher also writes to the sandbox's stderr.
            let _ = append_to_stderr(&launch.directory, &format!("Failed to fetch '{uri}': {error}\n")).await;
            return Err(SandboxError::Fetch(format!(
                "Failed to fetch all URIs for container '{}': exited with status 1",
                launch.container
            )));
        }
    }
    Ok(())
}

async fn create(launch: &Launch) -> Result<(), SandboxError> {
    let directory_text = launch.directory.display();
    let to_error = |why: String| {
        SandboxError::Directory(format!(
            "Failed to create executor directory '{directory_text}': {why}"
        ))
    };
    let is_unknown_user = nix::unistd::geteuid().is_root()
        && !launch.user.is_empty()
        && nix::unistd::User::from_name(&launch.user).is_ok_and(|user| user.is_none());
    if is_unknown_user {
        let user = &launch.user;
        return Err(to_error(format!(
            "Failed to chown directory to '{user}': No such user '{user}'"
        )));
    }
    tokio::fs::create_dir_all(&launch.directory)
        .await
        .map_err(|error| to_error(error.to_string()))?;
    if let Some(user) = user_to_switch_to(&launch.user) {
        std::os::unix::fs::chown(
            &launch.directory,
            Some(user.uid.as_raw()),
            Some(user.gid.as_raw()),
        )
        .map_err(|error| to_error(format!("Failed to chown directory to '{}': {error}", launch.user)))?;
    }
    for (volume, name) in &launch.volumes {
        let linked = link_volume(launch, volume, name).await;
        linked.map_err(|error| to_error(format!("Failed to mount '{}': {error}", name.display())))?;
    }
    if let Some(group) = &launch.group {
        link_by_task_id(launch, &group.directory)
            .await
            .map_err(|error| to_error(error.to_string()))?;
        for (volume, name) in &group.volumes {
            let linked = link_directory(launch, volume, &group.directory.join(name)).await;
            linked.map_err(|error| to_error(format!("Failed to mount '{}': {error}", name.display())))?;
        }
        if !super::container::has_image(&launch.info) {
            link_shared_volumes(launch, &group.directory)
                .await
                .map_err(|error| to_error(format!("Failed to mount a volume of the executor: {error}")))?;
        }
    }
    Ok(())
}

/// Links `tasks/TASK` in the executor's sandbox to the task's sandbox, as the default executor
/// does, so that a client of the files API does not need the container's id.
async fn link_by_task_id(launch: &Launch, executor: &Path) -> io::Result<()> {
    let tasks = executor.join("tasks");
    tokio::fs::create_dir_all(&tasks).await?;
    let target = Path::new("../containers").join(&launch.container);
    let linked = tokio::fs::symlink(target, tasks.join(launch.key.task.as_str())).await;
    // The sandbox is prepared again after a restart of the agent.
    linked.or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Ok(()),
        _ => Err(error),
    })
}

/// Links those paths of the executor's sandbox that a process in a group shares.
async fn link_shared_volumes(launch: &Launch, executor: &Path) -> io::Result<()> {
    for volume in doc::list(&launch.info, &["container", "volumes"]) {
        let path = &volume["source"]["sandbox_path"];
        let inside = doc::text(volume, &["container_path"]).unwrap_or_default();
        let (Some("PARENT"), Some(shared)) = (doc::text(path, &["type"]), doc::text(path, &["path"])) else {
            continue;
        };
        let is_relative_inside = |path: &str| {
            let mut parts = Path::new(path).components();
            parts.all(|part| matches!(part, std::path::Component::Normal(_)))
        };
        if is_relative_inside(inside) && is_relative_inside(shared) {
            let shared = executor.join(shared);
            link_directory(launch, &shared, &launch.directory.join(inside)).await?;
        }
    }
    Ok(())
}

/// Creates a missing directory and links it at `link_path`, unless a link exists already.
async fn link_directory(launch: &Launch, directory: &Path, link_path: &Path) -> io::Result<()> {
    tokio::fs::create_dir_all(directory).await?;
    if let Some(user) = user_to_switch_to(&launch.user) {
        std::os::unix::fs::chown(directory, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    }
    if let Some(parent) = link_path.parent() {
        tokio::fs::create_dir_all(parent).await?;
    }
    match tokio::fs::symlink(directory, link_path).await {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

/// Links a persistent volume into the sandbox. For a container it creates an empty directory
/// instead, over which the volume is mounted.
async fn link_volume(launch: &Launch, volume: &Path, name: &Path) -> io::Result<()> {
    tokio::fs::create_dir_all(volume).await?;
    if let Some(user) = user_to_switch_to(&launch.user) {
        std::os::unix::fs::chown(volume, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    }
    let link_path = launch.directory.join(name);
    if let Some(parent) = link_path.parent() {
        tokio::fs::create_dir_all(parent).await?;
    }
    if super::container::has_image(&launch.info) {
        return tokio::fs::create_dir_all(&link_path).await;
    }
    tokio::fs::symlink(volume, &link_path).await
}

/// The files for standard output and error, created or opened for appending.
pub(crate) fn open_output_files(directory: &Path) -> io::Result<(File, File)> {
    let open = |name: &str| {
        File::options()
            .create(true)
            .append(true)
            .open(directory.join(name))
    };
    Ok((open("stdout")?, open("stderr")?))
}

/// Appends a line to the sandbox's stderr.
pub(crate) async fn append_to_stderr(directory: &Path, line: &str) -> io::Result<()> {
    let mut file = tokio::fs::File::options()
        .create(true)
        .append(true)
        .open(directory.join("stderr"))
        .await?;
    file.write_all(line.as_bytes()).await?;
    file.flush().await
}

async fn fetch(client: &reqwest::Client, launch: &Launch, uri: &Value) -> io::Result<()> {
    let source = doc::text(uri, &["value"]).unwrap_or_default();
    let name = match doc::text(uri, &["output_file"]) {
        Some(name) => name,
        None => base_name(source),
    };
    let inside = !name.is_empty()
        && Path::new(name)
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
    if !inside {
        return Err(io::Error::other(format!(
            "'{name}' is not a file name inside the sandbox"
        )));
    }
    let target = launch.directory.join(name);
    if let Some(parent) = target.parent() {
        tokio::fs::create_dir_all(parent).await?;
    }
    if source.starts_with("http://") || source.starts_with("https://") {
        download(client, source, &target).await?;
    } else {
        let path = source.strip_prefix("file://").unwrap_or(source);
        if !path.starts_with('/') {
            return Err(io::Error::other(
                "only file://, http:// and https:// URIs and absolute paths can be fetched",
            ));
        }
        tokio::fs::copy(path, &target).await?;
    }
    if uri["executable"] == true {
        return tokio::fs::set_permissions(&target, Permissions::from_mode(0o755)).await;
    }
    match unpack_command(name).filter(|_| uri["extract"] != false) {
        Some(command) => unpack(command, &target, &launch.directory).await,
        None => Ok(()),
    }
}

/// The last segment of a URI's path.
fn base_name(source: &str) -> &str {
    let path = source.split(['?', '#']).next().unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default()
}

async fn download(client: &reqwest::Client, url: &str, target: &PathBuf) -> io::Result<()> {
    let response = client
        .get(url)
        .send()
        .await
        .and_then(reqwest::Response::error_for_status)
        .map_err(io::Error::other)?;
    let mut file = tokio::fs::File::create(target).await?;
    let mut chunks = response.bytes_stream();
    let mut size = 0;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(io::Error::other)?;
        size += chunk.len() as u64;
        if size > MAX_FETCH_BYTES {
            return Err(io::Error::other(format!(
                "it is larger than {MAX_FETCH_BYTES} bytes"
            )));
        }
        file.write_all(&chunk).await?;
    }
    file.flush().await
}

/// The commands that extract a file. Archives are recognised by name, as in the real fetcher.
fn unpack_command(name: &str) -> Option<&'static [&'static str]> {
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    if ends(&[".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz"]) {
        Some(&["tar", "-xf"])
    } else if ends(&[".zip"]) {
        Some(&["unzip", "-o", "-q"])
    } else if ends(&[".gz"]) {
        Some(&["gzip", "-dfk"])
    } else {
        None
    }
}

async fn unpack(command: &[&str], archive: &Path, directory: &Path) -> io::Result<()> {
    let Some((program, arguments)) = command.split_first() else {
        return Ok(());
    };
    let status = tokio::process::Command::new(program)
        .args(arguments)
        .arg(archive)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("{program} failed: {status}")))
    }
}
