//! Files of admitted versions, so that an operator can roll back after the directory has changed.
//!
//! Components and manifests are stored in the host's private directory under their digests, and are
//! loaded only if they still match them. The origin and the signatures of a component are stored
//! with it, because they are verified again at a rollback. A manifest may contain secrets; the
//! private directory protects them.

use std::{path::Path, sync::Arc};

use sha2::{Digest, Sha256};

use crate::{
    limits::{MAX_MANIFEST, MAX_SIZE},
    manifest::names_source,
    origin::{Files, Origin},
    private_dir::PrivateDir,
    text::hex,
};

/// Maximum number of components, and of manifests, over all plugins.
const MAX_FILES: usize = 64;
/// Maximum bytes of an origin: an image manifest and signatures, as JSON.
const MAX_ORIGIN: u64 = 16 << 20;

/// Cheap to clone. All of it blocks.
#[derive(Clone, Debug)]
pub(crate) struct VersionStore(Option<Arc<VersionDirs>>);

#[derive(Debug)]
struct VersionDirs {
    components: PrivateDir,
    manifests: PrivateDir,
    origins: PrivateDir,
}

impl VersionStore {
    /// `private`: the host's private directory. Without it nothing is stored.
    pub(crate) fn open(private: Option<&Path>) -> VersionStore {
        let Some(private) = private else {
            return VersionStore(None);
        };
        let opened = PrivateDir::open(&private.join("components"), MAX_FILES).and_then(|components| {
            let manifests = PrivateDir::open(&private.join("manifests"), MAX_FILES)?;
            let origins = PrivateDir::open(&private.join("origins"), MAX_FILES)?;
            Ok(VersionDirs {
                components,
                manifests,
                origins,
            })
        });
        match opened {
            Ok(dirs) => VersionStore(Some(Arc::new(dirs))),
            Err(error) => {
                tracing::warn!(
                    dir = %private.display(),
                    "versions are not kept for rollbacks: {error}"
                );
                VersionStore(None)
            }
        }
    }

    pub(crate) fn save(&self, files: &Files) {
        let (Some(dirs), Some(manifest)) = (&self.0, &files.manifest) else {
            return;
        };
        let digest = |content: &[u8]| hex(&Sha256::digest(content));
        let (component, text) = (digest(&files.component), digest(manifest.as_bytes()));
        // A plain file without signature has no origin to store.
        let origin = match &files.origin {
            Origin::File { signature: None } => None,
            origin => serde_json::to_vec(origin).ok(),
        };
        for (dir, name, content) in [
            Some((&dirs.components, component.clone(), files.component.as_slice())),
            Some((&dirs.manifests, text.clone(), manifest.as_bytes())),
            origin
                .as_deref()
                .map(|it| (&dirs.origins, origin_name(&component, &text), it)),
        ]
        .into_iter()
        .flatten()
        {
            // Already stored; reading made it the youngest. `load` verifies the digest.
            let there = dir
                .read(&name, MAX_SIZE)
                .is_ok_and(|it| it.as_deref() == Some(content));
            if there {
                continue;
            }
            if let Err(error) = dir.write(&name, &[content]) {
                tracing::warn!("cannot keep a version for rollbacks: {error}");
            }
        }
    }

    /// Loads the files with these digests (`sha256:…`).
    pub(crate) fn load(&self, component: &str, manifest: &str) -> Result<Files, String> {
        let dirs = self
            .0
            .as_ref()
            .ok_or("versions are not kept for rollbacks: the host has no private directory")?;
        let (component_digest, manifest_digest) = (component, manifest);
        let component = find(&dirs.components, component_digest, MAX_SIZE)?;
        let manifest = find(&dirs.manifests, manifest_digest, MAX_MANIFEST)?;
        let manifest = String::from_utf8(manifest).map_err(|_| "the manifest is not UTF-8")?;
        let origin = dirs.origin(component_digest, manifest_digest)?;
        if origin.is_none() && names_source(&manifest) {
            return Err("the source that it was fetched from is unknown".to_owned());
        }
        Ok(Files {
            component: Arc::new(component),
            manifest: Some(manifest),
            origin: origin.unwrap_or(Origin::File { signature: None }),
        })
    }
}

impl VersionDirs {
    fn origin(&self, component: &str, manifest: &str) -> Result<Option<Origin>, String> {
        let plain = |digest: &str| digest.trim_start_matches("sha256:").to_owned();
        let name = origin_name(&plain(component), &plain(manifest));
        let content = self.origins.read(&name, MAX_ORIGIN);
        let Some(content) = content.map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let origin = serde_json::from_slice(&content)
            .map_err(|_| format!("{} is corrupt", self.origins.path(&name).display()))?;
        Ok(Some(origin))
    }
}

/// The file name of an origin. Its content needs no digest: signatures are verified again.
fn origin_name(component: &str, manifest: &str) -> String {
    hex(&Sha256::digest(format!("{component} {manifest}")))
}

fn find(dir: &PrivateDir, digest: &str, max_bytes: u64) -> Result<Vec<u8>, String> {
    let name = digest.strip_prefix("sha256:").unwrap_or_default();
    if name.len() != 64 || !name.bytes().all(|c| c.is_ascii_hexdigit()) {
        return Err(format!("`{digest}` is not a digest"));
    }
    let content = dir
        .read(name, max_bytes)
        .map_err(|error| error.to_string())?
        .ok_or_else(|| {
            format!(
                "{} is gone: the {MAX_FILES} newest are kept",
                dir.path(name).display()
            )
        })?;
    if hex(&Sha256::digest(&content)) == name {
        Ok(content)
    } else {
        let path = dir.path(name);
        Err(format!("{} is corrupt", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_store_loads_saved_files_and_rejects_changed_ones() {
        let root = tempfile::tempdir().unwrap();
        let store = VersionStore::open(Some(root.path().join("own").as_path()));
        let files = Files {
            component: Arc::new(b"component".to_vec()),
            manifest: Some("world = 1".to_owned()),
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
                .contains("is gone")
        );
        store.save(&files);
        let found = store.load(&component, &manifest).unwrap();
        assert_eq!(found.component, files.component);
        assert_eq!(found.manifest, files.manifest);
        assert_eq!(found.origin, files.origin);
        for wrong in ["", "sha256:../../x", "sha256:"] {
            assert!(
                store
                    .load(wrong, &manifest)
                    .err()
                    .unwrap()
                    .contains("not a digest")
            );
        }

        let file = root.path().join("own/components").join(&component[7..]);
        std::fs::write(&file, b"another").unwrap();
        let why = store.load(&component, &manifest).err().unwrap();
        assert!(why.contains("is corrupt"), "{why}");
        store.save(&files);
        assert!(
            store.load(&component, &manifest).is_ok(),
            "put again, it is whole again"
        );
        assert!(VersionStore::open(None).load(&component, &manifest).is_err());
    }
}
