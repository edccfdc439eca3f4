//! Uploads: an operator's files are checked, written to the plugin directory, and then admitted
//! like any others.
//!
//! An upload bypasses nothing: admission reads the files from the directory and checks signature,
//! grants, rollout and quarantine. The checks here only reject files that could never be admitted,
//! so that the directory remains unchanged. The directory's task renames the files, so that no scan
//! reads a new component with an old manifest.

use std::{fs, io, path::Path, sync::Arc};

use serde::Serialize;
use sha2::{Digest, Sha256};
use transom_common::text::hex;

use super::{
    Directory, ScanMode,
    files::{Fingerprint, FoundFiles, MAX_COMPONENTS, file_exists, fingerprint, kind, read_manifest},
};
use crate::{
    config::Config,
    error::UploadError,
    manifest::{Manifest, files::ManifestFile, limits::MAX_COMPONENT_SIZE},
    name::is_name,
    runtime::executor::run_blocking,
    storage::{
        admission_record::AdmissionOutcome,
        staged_files::{PluginFiles, StagedFiles},
    },
};

/// The result of an upload: the files, and whether their admission is in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Uploaded {
    /// The names of the files.
    pub written: Vec<String>,
    /// `sha256:` and the digest of the component. `None` if the manifest names a source.
    pub digest: Option<String>,
    /// Whether the files are being admitted. False if the host has already decided about the same
    /// files, or has to fetch the component first.
    pub admitting: bool,
    /// Whether the host ignores the files, because a rollback or an abort replaced the same files.
    pub ignored: bool,
}

/// Maximum size in bytes of a component that may be uploaded with this manifest. Without a
/// manifest, the one in the directory counts, or the default limit if there is none.
pub(crate) async fn component_limit(
    config: &Config,
    name: &str,
    manifest: Option<&[u8]>,
) -> Result<u64, UploadError> {
    if !is_name(name) {
        return Err(UploadError::Name);
    }
    match manifest_of(config, name, manifest).await {
        Ok(manifest) => Ok(size_limit(&manifest)),
        // The manifest may be uploaded after the component.
        Err(UploadError::NoManifest(_) | UploadError::Present { .. }) => {
            Ok(config.limits.size.min(MAX_COMPONENT_SIZE))
        }
        Err(error) => Err(error),
    }
}

/// Checks files before they are written.
pub(crate) async fn check(config: &Config, name: &str, files: &PluginFiles) -> Result<(), UploadError> {
    let owned = || name.to_owned();
    if !is_name(name) {
        return Err(UploadError::Name);
    }
    if files.component.is_none() && files.manifest.is_none() {
        return Err(UploadError::Nothing(owned()));
    }
    let manifest = manifest_of(config, name, files.manifest.as_deref()).await?;
    let is_present = files.component.is_some() || file_exists(&config.dir.join(format!("{name}.wasm"))).await;
    match (&manifest.source, is_present) {
        (Some(_), true) => return Err(UploadError::TwoSources(owned())),
        (None, false) => return Err(UploadError::NoComponent(owned())),
        _ => {}
    }
    if let Some(component) = &files.component {
        let limit = size_limit(&manifest);
        if component.len() as u64 > limit {
            return Err(too_large(format!("{name}.wasm"), limit, "limits.size"));
        }
        let found = hex(&Sha256::digest(component));
        if let Some(pinned) = manifest.digest.clone().filter(|pinned| *pinned != found) {
            return Err(UploadError::Digest {
                name: owned(),
                found,
                pinned,
            });
        }
    }
    let signature = files.signature.as_deref().unwrap_or_default();
    if signature.len() as u64 > PluginFiles::MAX_SIGNATURE {
        let file = format!("{name}.wasm.sig");
        return Err(too_large(
            file,
            PluginFiles::MAX_SIGNATURE,
            "any signature's limit",
        ));
    }
    Ok(())
}

fn size_limit(manifest: &Manifest) -> u64 {
    manifest.limits.size.min(MAX_COMPONENT_SIZE)
}

fn too_large(file: String, limit: u64, setting: &'static str) -> UploadError {
    UploadError::TooLarge { file, limit, setting }
}

/// Returns the manifest of the upload, or the one in the directory.
async fn manifest_of(
    config: &Config,
    name: &str,
    uploaded: Option<&[u8]>,
) -> Result<Arc<Manifest>, UploadError> {
    let owned = || name.to_owned();
    let invalid = |message: String| UploadError::Manifest {
        name: owned(),
        message,
    };
    let Some(bytes) = uploaded else {
        if !file_exists(&config.dir.join(format!("{name}.toml"))).await {
            return Err(UploadError::NoManifest(owned()));
        }
        let present = |message: String| UploadError::Present {
            name: owned(),
            message,
        };
        let file = read_manifest(config, name).await;
        let file = file.map_err(|error| present(error.to_string()))?;
        return file
            .manifest()
            .cloned()
            .map_err(|error| present(error.to_string()));
    };
    if bytes.len() as u64 > PluginFiles::MAX_MANIFEST {
        let file = format!("{name}.toml");
        return Err(too_large(file, PluginFiles::MAX_MANIFEST, "any manifest's limit"));
    }
    let text = String::from_utf8(bytes.to_vec()).map_err(|_| invalid("it is not UTF-8".to_owned()))?;
    let file = ManifestFile::parse(text, &config.limits, config.probation);
    file.manifest()
        .cloned()
        .map_err(|error| invalid(error.to_string()))
}

impl Directory {
    /// Renames the files, and starts their admission.
    pub(super) async fn upload(&mut self, name: &str, files: StagedFiles) -> Result<Uploaded, UploadError> {
        if !self.plugins.contains_key(name) && self.plugins.len() >= MAX_COMPONENTS {
            return Err(UploadError::TooMany(MAX_COMPONENTS));
        }
        let rename_files = move || {
            files.targets().try_for_each(replaceable)?;
            files.place().map_err(UploadError::Unwritable)
        };
        let written = run_blocking(rename_files)
            .await
            .map_err(|_| UploadError::Stopped)??;
        if let Some(plugin) = self.plugins.get_mut(name)
            && plugin.retry.take().is_some()
        {
            // The same files were rejected for a temporary reason, so they are admitted again.
            plugin.fingerprint = None;
        }
        let found = self.read(name).await;
        let mut digest = None;
        let mut uploaded = None;
        if let Ok(FoundFiles::Files(files)) = &found {
            digest = Some(format!(
                "sha256:{}",
                hex(&Sha256::digest(files.component.as_slice()))
            ));
            uploaded = Some(fingerprint(files));
            self.plugins.entry(name.to_owned()).or_default().uploaded = uploaded;
        }
        self.check_plugin(name, found, ScanMode::Immediate).await;
        let admitting = self.is_pending(name);
        Ok(Uploaded {
            written,
            digest,
            admitting,
            ignored: !admitting && uploaded.is_some_and(|files| self.is_replaced(name, files)),
        })
    }

    /// Whether a rollback or an abort replaced these files.
    fn is_replaced(&self, name: &str, files: Fingerprint) -> bool {
        let files = Some(format!("sha256:{}", hex(&files)));
        let records = self.history.records(name);
        let newest = records.iter().find(|record| record.files == files);
        newest.is_some_and(|record| {
            matches!(
                record.outcome,
                AdmissionOutcome::RolledBack | AdmissionOutcome::Aborted
            )
        })
    }
}

/// Rejects a link: the program that created it, such as an orchestrator that mounts a volume, would
/// not notice the change.
fn replaceable(path: &Path) -> Result<(), UploadError> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(meta) => Err(UploadError::NotAFile {
            file: path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            kind: kind(&meta),
        }),
        Err(error) => Err(UploadError::Unwritable(error)),
    }
}
