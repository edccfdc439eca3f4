//! Reading the plugin directory: bounded, and without waiting for what is no file.

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

use crate::{
    admission::{AdmissionError, is_name},
    executor::run_blocking,
    limits::{MAX_MANIFEST, MAX_SIZE},
    manifest::names_source,
    origin::{Files, Origin},
    text::shown,
    trust::MAX_SIGNATURE,
};

/// Digest of a component, its manifest, and where it is from.
pub(crate) type Fingerprint = [u8; 32];

/// Components in a directory. As many instances live at once, over all plugins.
pub(super) const MAX_COMPONENTS: usize = 256;

/// What lies in the directory of one plugin.
pub(super) enum FoundFiles {
    /// A component, and what is beside it.
    Files(Files),
    /// A manifest alone.
    Manifest(String),
}

/// The plugins of a directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// Of components, and of manifests alone that say where their component is to be had.
    pub(super) plugins: BTreeSet<String>,
    /// Files of the same endings whose names are none for a plugin, as they may be shown.
    pub(super) misnamed: BTreeSet<String>,
}

/// What is in the directory, by name.
pub(super) async fn names(dir: &Path) -> io::Result<Names> {
    let mut found = Names::default();
    let mut manifests = BTreeSet::new();
    let mut entries = tokio::fs::read_dir(dir).await?;
    while let Some(entry) = entries.next_entry().await? {
        let path = PathBuf::from(entry.file_name());
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let names = match path.extension().and_then(|it| it.to_str()) {
            Some("wasm") => &mut found.plugins,
            Some("toml") => &mut manifests,
            _ => continue,
        };
        // Folders are none of ours. Whatever else is no file is refused by its name, when it is read.
        let is_folder = tokio::fs::metadata(entry.path())
            .await
            .is_ok_and(|meta| meta.is_dir());
        // A name that starts with a dot is that of a file on its way to another name.
        if name.starts_with('.') || is_folder {
            continue;
        }
        if is_name(&name) {
            names.insert(name.into_owned());
        } else if found.misnamed.len() < MAX_COMPONENTS {
            found.misnamed.insert(shown(&name).into_owned());
        }
    }
    for name in manifests {
        // One that cannot be read is looked at, and refused with the reason.
        let alone = !found.plugins.contains(&name);
        if alone
            && read_manifest(dir, &name)
                .await
                .map_or(true, |text| names_source(&text))
        {
            found.plugins.insert(name);
        }
    }
    Ok(found)
}

/// `signatures`: whether one beside the component counts.
pub(super) async fn read(dir: &Path, name: &str, signatures: bool) -> Result<FoundFiles, AdmissionError> {
    let component = dir.join(format!("{name}.wasm"));
    if !is_there(&component).await {
        return read_manifest(dir, name).await.map(FoundFiles::Manifest);
    }
    let component = read_file(&component, MAX_SIZE).await?;
    let manifest = if is_there(&dir.join(format!("{name}.toml"))).await {
        Some(read_manifest(dir, name).await?)
    } else {
        None
    };
    let signature = dir.join(format!("{name}.wasm.sig"));
    let signature = if signatures && is_there(&signature).await {
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

/// Also a link that leads nowhere: it is refused, and not taken for a file that is missing.
async fn is_there(path: &Path) -> bool {
    match tokio::fs::symlink_metadata(path).await {
        Err(error) => error.kind() != io::ErrorKind::NotFound,
        Ok(_) => true,
    }
}

async fn read_manifest(dir: &Path, name: &str) -> Result<String, AdmissionError> {
    let path = dir.join(format!("{name}.toml"));
    let bytes = read_file(&path, MAX_MANIFEST).await?;
    String::from_utf8(bytes).map_err(|_| unreadable(&path, "it is not UTF-8"))
}

/// A file in the directory, or one below it that a link leads to, as links do in the volumes of an orchestrator. What is no file is not
/// even opened: a pipe would have its reader wait.
async fn read_file(path: &Path, most: u64) -> Result<Vec<u8>, AdmissionError> {
    let failed = |error: io::Error| unreadable(path, &error.to_string());
    let place = place(path).await?;
    let open = move || {
        // The place has no links left; should one have come there meanwhile, or a pipe, it is not followed and not waited for.
        std::fs::OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(place)
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
    if found <= most {
        // It may grow meanwhile.
        tokio::fs::File::from_std(file)
            .take(most + 1)
            .read_to_end(&mut bytes)
            .await
            .map_err(failed)?;
    }
    let found = found.max(bytes.len() as u64);
    if found > most {
        return Err(unreadable(
            path,
            &format!("it has {found} bytes, at most {most} are read"),
        ));
    }
    Ok(bytes)
}

/// Where the content of a name in the directory lies: a file, with all links resolved, not outside the directory.
async fn place(path: &Path) -> Result<PathBuf, AdmissionError> {
    let failed = |error: io::Error| unreadable(path, &error.to_string());
    let linked = tokio::fs::symlink_metadata(path)
        .await
        .map_err(failed)?
        .is_symlink();
    let place = tokio::fs::canonicalize(path).await.map_err(|error| {
        if linked && error.kind() == io::ErrorKind::NotFound {
            unreadable(path, "it is a link that leads nowhere")
        } else {
            failed(error)
        }
    })?;
    let dir = path.parent().filter(|it| !it.as_os_str().is_empty());
    let dir = dir.unwrap_or(Path::new("."));
    let dir = tokio::fs::canonicalize(dir).await.map_err(failed)?;
    if !place.starts_with(&dir) {
        let place = place.display().to_string();
        let message = format!(
            "it is a link to {}, outside the plugin directory: expected a file, or a link to one in the directory or below it",
            shown(&place)
        );
        return Err(unreadable(path, &message));
    }
    let meta = tokio::fs::symlink_metadata(&place).await.map_err(failed)?;
    if !meta.is_file() {
        return Err(no_file(path, &meta));
    }
    Ok(place)
}

fn no_file(path: &Path, meta: &Metadata) -> AdmissionError {
    let kind = meta.file_type();
    let what = if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_block_device() || kind.is_char_device() {
        "a device"
    } else {
        "no file"
    };
    unreadable(path, &format!("it is {what}: expected a file"))
}

fn unreadable(path: &Path, message: &str) -> AdmissionError {
    AdmissionError::Unreadable {
        what: shown(&path.display().to_string()).into_owned(),
        message: message.to_owned(),
    }
}

pub(super) fn fingerprint(files: &Files) -> Fingerprint {
    let mut hasher = Sha256::new();
    hasher.update((files.component.len() as u64).to_le_bytes());
    hasher.update(files.component.as_slice());
    hasher.update([u8::from(files.manifest.is_some())]);
    hasher.update(files.manifest.as_deref().unwrap_or_default());
    // A signature that comes later, or another image with the same component, is looked at as well.
    if let Origin::File { signature: None } = &files.origin {
    } else {
        hasher.update([0]);
        hasher.update(serde_json::to_vec(&files.origin).unwrap_or_default());
    }
    hasher.finalize().into()
}
