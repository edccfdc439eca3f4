//! Files of admitted versions, so that an operator can roll back after the directory has changed.
//!
//! Components and manifests are stored under their digests, and a file is only loaded if it still
//! has its digest. The origin and the signatures of a component are stored with it, because a
//! rollback verifies them again.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use transom_common::text::hex;
use transom_registry::{
    Origin,
    artifacts::{ArtifactStore, Kind},
};

use crate::manifest::files::Files;

/// Cheap to clone. All methods block.
#[derive(Clone, Debug)]
pub(crate) struct VersionStore(ArtifactStore);

/// The stored files of a version.
#[derive(Debug)]
pub(crate) struct StoredFiles {
    pub(crate) component: Arc<Vec<u8>>,
    /// The text of the manifest.
    pub(crate) manifest: String,
    /// `None` for a file of the directory without a signature.
    pub(crate) origin: Option<Origin>,
}

impl VersionStore {
    pub(crate) fn new(artifacts: ArtifactStore) -> VersionStore {
        VersionStore(artifacts)
    }

    pub(crate) fn save(&self, files: &Files) {
        let Some(manifest) = &files.manifest else {
            return;
        };
        let saved = self
            .0
            .save(Kind::Component, &files.component)
            .and_then(|()| self.0.save(Kind::Manifest, manifest.text().as_bytes()))
            .and_then(|()| {
                // A plain file without signature has no origin to store.
                if matches!(files.origin, Origin::File { signature: None }) {
                    return Ok(());
                }
                let digest = |content: &[u8]| hex(&Sha256::digest(content));
                let name = origin_name(&digest(&files.component), &digest(manifest.text().as_bytes()));
                let origin = serde_json::to_vec(&files.origin)?;
                self.0.save_as(Kind::Origin, &name, &origin)
            });
        if let Err(error) = saved {
            tracing::warn!("cannot keep a version for rollbacks: {error}");
        }
    }

    /// Loads the files with these digests (`sha256:…`).
    pub(crate) fn load(&self, component: &str, manifest: &str) -> Result<StoredFiles, String> {
        if !self.0.is_open() {
            return Err("versions are not kept for rollbacks: the host has no private directory".to_owned());
        }
        let (component_digest, manifest_digest) = (digest_hex(component)?, digest_hex(manifest)?);
        let component = self.find(Kind::Component, component_digest)?;
        let manifest = self.find(Kind::Manifest, manifest_digest)?;
        Ok(StoredFiles {
            component: Arc::new(component),
            manifest: String::from_utf8(manifest).map_err(|_| "the manifest is not UTF-8")?,
            origin: self.origin(component_digest, manifest_digest)?,
        })
    }

    fn find(&self, kind: Kind, digest: &str) -> Result<Vec<u8>, String> {
        let found = self.0.load(kind, digest).map_err(|error| error.to_string())?;
        found.ok_or_else(|| {
            format!(
                "{} no longer exists: only the {} newest are kept",
                self.0.path(kind, digest).display(),
                kind.max_files()
            )
        })
    }

    fn origin(&self, component: &str, manifest: &str) -> Result<Option<Origin>, String> {
        let name = origin_name(component, manifest);
        let content = self.0.read(Kind::Origin, &name);
        let Some(content) = content.map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let origin = serde_json::from_slice(&content)
            .map_err(|_| format!("{} is corrupt", self.0.path(Kind::Origin, &name).display()))?;
        Ok(Some(origin))
    }
}

/// The file name of an origin. Its content needs no digest: signatures are verified again.
fn origin_name(component: &str, manifest: &str) -> String {
    hex(&Sha256::digest(format!("{component} {manifest}")))
}

/// The hexadecimal part of `sha256:…`.
fn digest_hex(digest: &str) -> Result<&str, String> {
    let name = digest.strip_prefix("sha256:").unwrap_or_default();
    if name.len() == 64 && name.bytes().all(|c| c.is_ascii_hexdigit()) {
        Ok(name)
    } else {
        Err(format!("`{digest}` is not a digest"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        manifest::probation::Probation,
        manifest::{files::ManifestFile, limits::Limits},
    };

    #[test]
    fn version_store_loads_saved_files_and_rejects_changed_ones() {
        let root = tempfile::tempdir().unwrap();
        let private = root.path().join("own");
        let store = VersionStore::new(ArtifactStore::open(Some(&private)));
        let text = "world = 1".to_owned();
        let files = Files {
            component: Arc::new(b"component".to_vec()),
            manifest: Some(ManifestFile::parse(
                text,
                &Limits::default(),
                Probation::default(),
            )),
            origin: Origin::File {
                signature: Some(b"signature".to_vec()),
            },
        };
        let digest = |content: &[u8]| format!("sha256:{}", hex(&Sha256::digest(content)));
        let (component, manifest) = (digest(b"component"), digest(b"world = 1"));
        assert!(
            store
                .load(&component, &manifest)
                .err()
                .unwrap()
                .contains("no longer exists")
        );
        store.save(&files);
        let found = store.load(&component, &manifest).unwrap();
        assert_eq!(found.component, files.component);
        assert_eq!(found.manifest, "world = 1");
        assert_eq!(found.origin, Some(files.origin.clone()));
        for wrong in ["", "sha256:../../x", "sha256:"] {
            assert!(
                store
                    .load(wrong, &manifest)
                    .err()
                    .unwrap()
                    .contains("not a digest")
            );
        }

        let file = private.join("components").join(&component[7..]);
        std::fs::write(&file, b"another").unwrap();
        let why = store.load(&component, &manifest).err().unwrap();
        assert!(why.contains("is corrupt"), "{why}");
        store.save(&files);
        assert!(
            store.load(&component, &manifest).is_ok(),
            "saving the files again repairs them"
        );
        let nowhere = VersionStore::new(ArtifactStore::open(None));
        assert!(nowhere.load(&component, &manifest).is_err());
    }
}
