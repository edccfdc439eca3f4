//! Reads the plugin directory, with limits, and without blocking on pipes or devices.

use std::{
    collections::BTreeSet,
    fs::Metadata,
    io,
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use nix::fcntl::OFlag;
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;
use transom_common::text::printable;
use transom_registry::{Origin, signatures::MAX_SIGNATURE};

use crate::{
    config::Config,
    lifecycle::admission::AdmissionError,
    manifest::{
        files::{Files, ManifestFile},
        limits::{MAX_COMPONENT_SIZE, MAX_MANIFEST},
    },
    name::is_name,
    runtime::executor::run_blocking,
};

/// Digest of a component, its manifest and its origin.
pub(crate) type Fingerprint = [u8; 32];

/// Maximum number of components in a directory, equal to the number of instances.
pub(super) const MAX_COMPONENTS: usize = 256;

/// The files of one plugin in the directory.
pub(super) enum FoundFiles {
    /// A component with its manifest and signature.
    Files(Files),
    /// Only a manifest.
    Manifest(ManifestFile),
}

/// The names found in a directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// Names with a `.wasm` file.
    pub(super) components: BTreeSet<String>,
    /// Names with only a manifest. It is a plugin if it names a `source`.
    pub(super) manifests: BTreeSet<String>,
    /// `.wasm` and `.toml` files with invalid names, escaped.
    pub(super) misnamed: BTreeSet<String>,
}

/// Lists the plugins of a directory without reading any file.
pub(super) async fn names(dir: &Path) -> io::Result<Names> {
    let mut found = Names::default();
    let mut entries = tokio::fs::read_dir(dir).await?;
    while let Some(entry) = entries.next_entry().await? {
        let path = PathBuf::from(entry.file_name());
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let names = match path.extension().and_then(|it| it.to_str()) {
            Some("wasm") => &mut found.components,
            Some("toml") => &mut found.manifests,
            _ => continue,
        };
        // Directories are ignored. Other special files are rejected when they are read.
        let is_folder = tokio::fs::metadata(entry.path())
            .await
            .is_ok_and(|meta| meta.is_dir());
        // Temporary files start with a dot.
        if name.starts_with('.') || is_folder {
            continue;
        }
        if is_name(&name) {
            names.insert(name.into_owned());
        } else if found.misnamed.len() < MAX_COMPONENTS {
            found.misnamed.insert(printable(&name).into_owned());
        }
    }
    found.manifests.retain(|name| !found.components.contains(name));
    Ok(found)
}

/// Reads the files of a plugin. `signatures`: whether to read `NAME.wasm.sig`.
pub(super) async fn read(
    config: &Config,
    name: &str,
    signatures: bool,
) -> Result<FoundFiles, AdmissionError> {
    let dir = &config.dir;
    let component = dir.join(format!("{name}.wasm"));
    if !file_exists(&component).await {
        return read_manifest(config, name).await.map(FoundFiles::Manifest);
    }
    let component = read_file(&component, MAX_COMPONENT_SIZE).await?;
    let manifest = if file_exists(&dir.join(format!("{name}.toml"))).await {
        Some(read_manifest(config, name).await?)
    } else {
        None
    };
    let signature = dir.join(format!("{name}.wasm.sig"));
    let signature = if signatures && file_exists(&signature).await {
        Some(read_file(&signature, MAX_SIGNATURE).await?)
    } else {
        None
    };
    Ok(FoundFiles::Files(Files {
        component: Arc::new(component),
        manifest,
        origin: Origin::File { signature },
    }))
}

/// Whether the name exists. True for a dangling link, which has to be rejected and not treated as a
/// missing file.
pub(super) async fn file_exists(path: &Path) -> bool {
    match tokio::fs::symlink_metadata(path).await {
        Err(error) => error.kind() != io::ErrorKind::NotFound,
        Ok(_) => true,
    }
}

/// Reads and parses a manifest.
pub(super) async fn read_manifest(config: &Config, name: &str) -> Result<ManifestFile, AdmissionError> {
    let path = config.dir.join(format!("{name}.toml"));
    let bytes = read_file(&path, MAX_MANIFEST).await?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable(&path, "it is not UTF-8"))?;
    Ok(ManifestFile::parse(text, &config.limits, config.probation))
}

/// Reads a file in the directory. The name may be a link to a file below the directory, as in an
/// orchestrator's volumes. Special files are not opened, because opening a pipe would block.
async fn read_file(path: &Path, max_bytes: u64) -> Result<Vec<u8>, AdmissionError> {
    let failed = |error: io::Error| unreadable(path, &error.to_string());
    let resolved = resolve_path(path).await?;
    let open = move || {
        // All links in the path are resolved. If the file has been replaced by a link or a pipe
        // since, `open` does not follow the link or block.
        std::fs::OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(resolved)
    };
    let file = run_blocking(open)
        .await
        .map_err(AdmissionError::BlockingTaskError)?
        .map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err(no_file(path, &meta));
    }
    let found = meta.len();
    let mut bytes = Vec::new();
    if found <= max_bytes {
        // The file may grow while it is read.
        tokio::fs::File::from_std(file)
            .take(max_bytes + 1)
            .read_to_end(&mut bytes)
            .await
            .map_err(failed)?;
    }
    let found = found.max(bytes.len() as u64);
    if found > max_bytes {
        return Err(unreadable(
            path,
            &format!("it has {found} bytes, at most {max_bytes} are read"),
        ));
    }
    Ok(bytes)
}

/// Resolves all links of a path. The result has to be inside the directory.
async fn resolve_path(path: &Path) -> Result<PathBuf, AdmissionError> {
    let failed = |error: io::Error| unreadable(path, &error.to_string());
    let linked = tokio::fs::symlink_metadata(path)
        .await
        .map_err(failed)?
        .is_symlink();
    let resolved = tokio::fs::canonicalize(path).await.map_err(|error| {
        if linked && error.kind() == io::ErrorKind::NotFound {
            unreadable(path, "it is a dangling link")
        } else {
            failed(error)
        }
    })?;
    let dir = path.parent().filter(|it| !it.as_os_str().is_empty());
    let dir = dir.unwrap_or(Path::new("."));
    let dir = tokio::fs::canonicalize(dir).await.map_err(failed)?;
    if !resolved.starts_with(&dir) {
        let resolved = resolved.display().to_string();
        let message = format!(
            "it is a link to {}, outside the plugin directory: expected a file, or a link to one in the directory or below it",
            printable(&resolved)
        );
        return Err(unreadable(path, &message));
    }
    let meta = tokio::fs::symlink_metadata(&resolved).await.map_err(failed)?;
    if !meta.is_file() {
        return Err(no_file(path, &meta));
    }
    Ok(resolved)
}

fn no_file(path: &Path, meta: &Metadata) -> AdmissionError {
    unreadable(path, &format!("it is {}: expected a file", kind(meta)))
}

/// Describes what exists in place of a regular file.
pub(super) fn kind(meta: &Metadata) -> &'static str {
    let kind = meta.file_type();
    if kind.is_symlink() {
        "a link"
    } else if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_block_device() || kind.is_char_device() {
        "a device"
    } else {
        "no file"
    }
}

fn unreadable(path: &Path, message: &str) -> AdmissionError {
    AdmissionError::Unreadable {
        what: printable(&path.display().to_string()).into_owned(),
        message: message.to_owned(),
    }
}

pub(super) fn fingerprint(files: &Files) -> Fingerprint {
    let mut hasher = Sha256::new();
    hasher.update((files.component.len() as u64).to_le_bytes());
    hasher.update(files.component.as_slice());
    hasher.update([u8::from(files.manifest.is_some())]);
    hasher.update(files.manifest.as_ref().map_or("", |it| it.text()));
    // A new signature, or another image with the same component, also changes the fingerprint.
    if let Origin::File { signature: None } = &files.origin {
    } else {
        hasher.update([0]);
        hasher.update(serde_json::to_vec(&files.origin).unwrap_or_default());
    }
    hasher.finalize().into()
}
