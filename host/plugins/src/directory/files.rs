//! Reading the plugin directory: bounded, and without waiting for what is no file.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;

use crate::{
    admission::Refused,
    limits::{MAX_MANIFEST, MAX_SIZE},
    manifest::names_source,
    origin::{Files, Origin},
    trust::MAX_SIGNATURE,
};

/// Digest of a component, its manifest, and where it is from.
pub(super) type Fingerprint = [u8; 32];

/// Components in a directory. As many instances live at once, over all plugins.
pub(super) const MAX_COMPONENTS: usize = 256;

/// What lies in the directory of one plugin.
pub(super) enum Found {
    /// A component, and what is beside it.
    Files(Files),
    /// A manifest alone.
    Manifest(String),
}

/// Names of the components in a directory, and of those that their manifests alone are there of, with where they are to be had.
pub(super) async fn components(dir: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let mut manifests = BTreeSet::new();
    let mut entries = tokio::fs::read_dir(dir).await?;
    while let Some(entry) = entries.next_entry().await? {
        let path = PathBuf::from(entry.file_name());
        let name = path.file_stem().and_then(|stem| stem.to_str());
        let names = match path.extension().and_then(|it| it.to_str()) {
            Some("wasm") => &mut names,
            Some("toml") => &mut manifests,
            _ => continue,
        };
        let Some(name) = name else { continue };
        // What starts with a dot is on its way to another name. Links are followed, folders are none of ours.
        let is_file = tokio::fs::metadata(entry.path())
            .await
            .is_ok_and(|meta| meta.is_file());
        if !name.starts_with('.') && is_file {
            names.insert(name.to_owned());
        }
    }
    for name in manifests {
        // One that cannot be read is looked at, and refused with the reason.
        let alone = !names.contains(&name);
        if alone
            && read_manifest(dir, &name)
                .await
                .map_or(true, |text| names_source(&text))
        {
            names.insert(name);
        }
    }
    Ok(names)
}

/// `signatures`: whether one beside the component counts.
pub(super) async fn read(dir: &Path, name: &str, signatures: bool) -> Result<Found, Refused> {
    let component = dir.join(format!("{name}.wasm"));
    if !is_there(&component).await {
        return read_manifest(dir, name).await.map(Found::Manifest);
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
    Ok(Found::Files(Files {
        component: Arc::new(component),
        manifest,
        origin: Origin::File { signature },
    }))
}

async fn is_there(path: &Path) -> bool {
    match tokio::fs::metadata(path).await {
        Err(error) => error.kind() != io::ErrorKind::NotFound,
        Ok(_) => true,
    }
}

async fn read_manifest(dir: &Path, name: &str) -> Result<String, Refused> {
    let path = dir.join(format!("{name}.toml"));
    let bytes = read_file(&path, MAX_MANIFEST).await?;
    String::from_utf8(bytes).map_err(|_| unreadable(&path, "it is not UTF-8"))
}

async fn read_file(path: &Path, most: u64) -> Result<Vec<u8>, Refused> {
    let failed = |error: io::Error| unreadable(path, &error.to_string());
    // Opening a pipe would wait for its other end.
    if !tokio::fs::metadata(path).await.map_err(failed)?.is_file() {
        return Err(unreadable(path, "it is no file"));
    }
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let found = file.metadata().await.map_err(failed)?.len();
    let mut bytes = Vec::new();
    if found <= most {
        // It may grow meanwhile.
        file.take(most + 1)
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

fn unreadable(path: &Path, message: &str) -> Refused {
    Refused::Unreadable {
        what: path.display().to_string(),
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
