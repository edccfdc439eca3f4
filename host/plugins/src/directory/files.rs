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
    admission::{Files, Refused},
    limits::{MAX_MANIFEST, MAX_SIZE},
};

/// Digest of a component and its manifest.
pub(super) type Fingerprint = [u8; 32];

/// Components in a directory. As many instances live at once, over all plugins.
pub(super) const MAX_COMPONENTS: usize = 256;

/// Names of the components in a directory.
pub(super) async fn components(dir: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let mut entries = tokio::fs::read_dir(dir).await?;
    while let Some(entry) = entries.next_entry().await? {
        let path = PathBuf::from(entry.file_name());
        let name = path.file_stem().and_then(|stem| stem.to_str());
        let Some(name) = name.filter(|_| path.extension().is_some_and(|it| it == "wasm")) else {
            continue;
        };
        // What starts with a dot is on its way to another name. Links are followed, folders are none of ours.
        let is_file = tokio::fs::metadata(entry.path())
            .await
            .is_ok_and(|meta| meta.is_file());
        if !name.starts_with('.') && is_file {
            names.insert(name.to_owned());
        }
    }
    Ok(names)
}

pub(super) async fn read(dir: &Path, name: &str) -> Result<Files, Refused> {
    let component = dir.join(format!("{name}.wasm"));
    let manifest = dir.join(format!("{name}.toml"));
    let component = read_file(&component, MAX_SIZE).await?;
    let manifest = match tokio::fs::metadata(&manifest).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        _ => {
            let bytes = read_file(&manifest, MAX_MANIFEST).await?;
            let text = String::from_utf8(bytes).map_err(|_| unreadable(&manifest, "it is not UTF-8"))?;
            Some(text)
        }
    };
    Ok(Files {
        component: Arc::new(component),
        manifest,
    })
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
    hasher.finalize().into()
}
