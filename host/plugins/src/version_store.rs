//! The files of versions that were admitted, so that a record can be gone back to after the directory has something else.
//!
//! Components and manifests lie in the host's private directory under their digests, and are taken back only when they still have
//! them; beside them lies where a component was from and what shows who signed it, for that has to hold again when it returns. A manifest may hold secrets: it is kept there as private as the daemon's own memory, and nowhere else.

use std::{path::Path, sync::Arc};

use sha2::{Digest, Sha256};

use crate::{
    limits::{MAX_MANIFEST, MAX_SIZE},
    manifest::names_source,
    origin::{Files, Origin},
    private_dir::PrivateDir,
    text::hex,
};

/// Components, and as many manifests, that are kept over all plugins.
const MAX_FILES: usize = 64;
/// Bytes of an origin: an image manifest and signatures, as JSON.
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
    /// `private`: the host's own directory. Without one nothing is kept.
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
                    "versions to go back to are not kept: {error}"
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
        // Nothing is known of a plain file that would have to be kept.
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
            // There already, and whole: only younger now. The digest is looked at when it is taken.
            let there = dir
                .read(&name, MAX_SIZE)
                .is_ok_and(|it| it.as_deref() == Some(content));
            if there {
                continue;
            }
            if let Err(error) = dir.write(&name, &[content]) {
                tracing::warn!("a version to go back to is not kept: {error}");
            }
        }
    }

    /// The files with these digests (`sha256:…`), or why they are not to be had.
    pub(crate) fn load(&self, component: &str, manifest: &str) -> Result<Files, String> {
        let dirs = self
            .0
            .as_ref()
            .ok_or("no versions are kept: the host has no private directory that it can use")?;
        let (component_digest, manifest_digest) = (component, manifest);
        let component = find(&dirs.components, component_digest, MAX_SIZE)?;
        let manifest = find(&dirs.manifests, manifest_digest, MAX_MANIFEST)?;
        let manifest = String::from_utf8(manifest).map_err(|_| "the manifest is not UTF-8")?;
        let origin = dirs.origin(component_digest, manifest_digest)?;
        if origin.is_none() && names_source(&manifest) {
            return Err("where it was fetched from is not known any more".to_owned());
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
        let origin = serde_json::from_slice(&content).map_err(|_| {
            format!(
                "{} is not what was written there",
                self.origins.path(&name).display()
            )
        })?;
        Ok(Some(origin))
    }
}

/// Of a component with a manifest. What it holds is proof of itself: a signature holds or it does not.
fn origin_name(component: &str, manifest: &str) -> String {
    hex(&Sha256::digest(format!("{component} {manifest}")))
}

fn find(dir: &PrivateDir, digest: &str, max_bytes: u64) -> Result<Vec<u8>, String> {
    let name = digest.strip_prefix("sha256:").unwrap_or_default();
    if name.len() != 64 || !name.bytes().all(|c| c.is_ascii_hexdigit()) {
        return Err(format!("`{digest}` is no digest"));
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
        Err(format!("{} is not what was written there", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_taken_and_what_was_changed_is_not() {
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
            assert!(store.load(wrong, &manifest).err().unwrap().contains("no digest"));
        }

        let file = root.path().join("own/components").join(&component[7..]);
        std::fs::write(&file, b"another").unwrap();
        let why = store.load(&component, &manifest).err().unwrap();
        assert!(why.contains("not what was written"), "{why}");
        store.save(&files);
        assert!(
            store.load(&component, &manifest).is_ok(),
            "put again, it is whole again"
        );
        assert!(VersionStore::open(None).load(&component, &manifest).is_err());
    }
}
