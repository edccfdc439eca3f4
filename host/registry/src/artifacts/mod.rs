//! [`ArtifactStore`]: the files that the host keeps in its private directory.
//!
//! Compiled components, the components and manifests of admitted versions, and fetched images are
//! kept so that a component is compiled and fetched once, a rollback finds its files, and a daemon
//! can start while a registry is unavailable. Each [`Kind`] has a folder. Components and manifests
//! are named by their SHA-256, so that a component that was both fetched and admitted is stored
//! once. Each folder keeps the files that were used last and removes the oldest.
//!
//! Files are not trusted just because they are in the directory: it has to be private, and readers
//! also verify a digest ([`ArtifactStore::load`]) or the content itself. If the directory cannot be
//! opened, a warning is logged and nothing is kept.
//!
//! All functions block: do not call them from a task of the runtime.

mod private_dir;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use sha2::{Digest, Sha256};
use transom_common::text::hex;

use crate::oci::MAX_COMPONENT_SIZE;
use private_dir::PrivateDir;

/// The kind of a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A component compiled for one engine. A component in Python has 35 MB, most others 0.1 MB.
    Compiled,
    /// A component, by its digest.
    Component,
    /// An operator's manifest, by its digest. It may contain secrets; the directory protects them.
    Manifest,
    /// The origin of an admitted component, with its signatures.
    Origin,
    /// A fetched image: its manifest and its signatures; its component is a `Component`.
    Image,
    /// The image that was admitted last from one source.
    AdmittedImage,
}

impl Kind {
    const ALL: &'static [Kind] = &[
        Kind::Compiled,
        Kind::Component,
        Kind::Manifest,
        Kind::Origin,
        Kind::Image,
        Kind::AdmittedImage,
    ];

    /// The folder in the private directory.
    fn folder(self) -> &'static str {
        match self {
            Kind::Compiled => "compiled",
            Kind::Component => "components",
            Kind::Manifest => "manifests",
            Kind::Origin => "origins",
            Kind::Image => "images",
            Kind::AdmittedImage => "admitted-images",
        }
    }

    /// Maximum number of files of this kind; the oldest are removed.
    pub fn max_files(self) -> usize {
        match self {
            Kind::Compiled => 128,
            // As many as files of `Manifest` and `Image` together, each of which refers to a
            // component.
            Kind::Component => 384,
            Kind::Manifest | Kind::Origin => 64,
            // One for each plugin, and some earlier images.
            Kind::Image | Kind::AdmittedImage => 320,
        }
    }

    fn max_bytes(self) -> u64 {
        match self {
            Kind::Compiled => 1 << 30,
            Kind::Component => MAX_COMPONENT_SIZE,
            Kind::Manifest => 1 << 20,
            Kind::Origin | Kind::Image => 16 << 20,
            Kind::AdmittedImage => 100,
        }
    }
}

/// The files of the host's private directory. Cheap to clone. The default keeps nothing.
#[derive(Clone, Debug, Default)]
pub struct ArtifactStore(Option<Arc<Folders>>);

/// The directory of each kind; `None` for a kind that is not kept.
type Folders = [Option<PrivateDir>; Kind::ALL.len()];

impl ArtifactStore {
    /// Opens the folders in `private`, the host's private directory, which is created with mode
    /// 0700. With `None` nothing is kept.
    pub fn open(private: Option<&Path>) -> ArtifactStore {
        let Some(private) = private else {
            return ArtifactStore(None);
        };
        match open_folders(private) {
            Ok(folders) => ArtifactStore(Some(Arc::new(folders))),
            Err(error) => {
                tracing::warn!(
                    dir = %private.display(),
                    "components are neither cached nor kept for rollbacks: {error}"
                );
                ArtifactStore(None)
            }
        }
    }

    /// Keeps compiled components only, of at most `max_total_bytes` together, for a user's
    /// commands.
    ///
    /// # Errors
    /// The directory cannot be created, or other users can write to it or replace it.
    pub fn compiled_only(private: &Path, max_total_bytes: u64) -> io::Result<ArtifactStore> {
        let kind = Kind::Compiled;
        let dir = private.join(kind.folder());
        let opened = PrivateDir::open_below_own(&dir, kind.max_files(), max_total_bytes)?;
        let mut folders = Folders::default();
        folders[kind as usize] = Some(opened);
        Ok(ArtifactStore(Some(Arc::new(folders))))
    }

    /// Whether files are kept.
    pub fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Reads a file and makes it the youngest; none if it does not exist.
    ///
    /// # Errors
    /// The file cannot be read, is too long, or is accessible to other users.
    pub fn read(&self, kind: Kind, name: &str) -> io::Result<Option<Vec<u8>>> {
        match self.folder(kind) {
            Some(folder) => folder.read(name, kind.max_bytes()),
            None => Ok(None),
        }
    }

    /// Writes the parts as one file, which replaces the previous one.
    pub fn write(&self, kind: Kind, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        match self.folder(kind) {
            Some(folder) => folder.write(name, parts),
            None => Ok(()),
        }
    }

    /// Reads the file with this digest (hexadecimal SHA-256), which its content has to match.
    ///
    /// # Errors
    /// As for [`ArtifactStore::read`], and for another content.
    pub fn load(&self, kind: Kind, digest: &str) -> io::Result<Option<Vec<u8>>> {
        let Some(content) = self.read(kind, digest)? else {
            return Ok(None);
        };
        if hex(&Sha256::digest(&content)) == digest {
            return Ok(Some(content));
        }
        let message = format!("{} is corrupt", self.path(kind, digest).display());
        Err(io::Error::new(io::ErrorKind::InvalidData, message))
    }

    /// Writes a file named by the digest of its content. A file that exists already becomes the
    /// youngest.
    pub fn save(&self, kind: Kind, content: &[u8]) -> io::Result<()> {
        self.save_as(kind, &hex(&Sha256::digest(content)), content)
    }

    /// Like [`save`](Self::save), but with the given name.
    pub fn save_as(&self, kind: Kind, name: &str, content: &[u8]) -> io::Result<()> {
        // Reading makes it the youngest.
        let same = self
            .read(kind, name)
            .is_ok_and(|it| it.as_deref() == Some(content));
        if same {
            Ok(())
        } else {
            self.write(kind, name, &[content])
        }
    }

    /// The path of a file, for messages.
    pub fn path(&self, kind: Kind, name: &str) -> PathBuf {
        self.folder(kind)
            .map_or_else(|| PathBuf::from(name), |folder| folder.path(name))
    }

    fn folder(&self, kind: Kind) -> Option<&PrivateDir> {
        self.0
            .as_ref()
            .and_then(|folders| folders[kind as usize].as_ref())
    }
}

/// Opens the folders of all kinds or none: if others can write to one folder, the directory is not
/// used at all.
fn open_folders(private: &Path) -> io::Result<Folders> {
    let mut folders = Folders::default();
    for &kind in Kind::ALL {
        let dir = private.join(kind.folder());
        folders[kind as usize] = Some(PrivateDir::open(&dir, kind.max_files(), u64::MAX)?);
    }
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn digest(content: &[u8]) -> String {
        hex(&Sha256::digest(content))
    }

    #[test]
    fn artifact_store_loads_saved_content_and_rejects_changed_content() {
        let root = tempfile::tempdir().unwrap();
        let private = root.path().join("own");
        let store = ArtifactStore::open(Some(&private));
        for &kind in Kind::ALL {
            let content = format!("{kind:?}").into_bytes();
            let name = digest(&content);
            assert_eq!(store.load(kind, &name).unwrap(), None);
            store.save(kind, &content).unwrap();
            assert_eq!(store.load(kind, &name).unwrap(), Some(content.clone()));
            fs::write(store.path(kind, &name), b"another").unwrap();
            let why = store.load(kind, &name).unwrap_err().to_string();
            assert!(why.ends_with("is corrupt"), "{why}");
            store.save(kind, &content).unwrap();
            assert_eq!(store.load(kind, &name).unwrap(), Some(content), "written again");
        }
        let reopened = ArtifactStore::open(Some(&private));
        let name = digest(b"Component");
        assert!(reopened.load(Kind::Component, &name).unwrap().is_some());
        assert!(reopened.load(Kind::Manifest, &name).unwrap().is_none());
    }

    #[test]
    fn artifact_store_is_not_used_if_others_can_write_to_it() {
        let root = tempfile::tempdir().unwrap();
        let private = root.path().join("own");
        assert!(ArtifactStore::open(Some(&private)).is_open());
        fs::set_permissions(private.join("images"), fs::Permissions::from_mode(0o777)).unwrap();
        let store = ArtifactStore::open(Some(&private));
        assert!(!store.is_open());
        store.save(Kind::Component, b"x").unwrap();
        assert_eq!(store.load(Kind::Component, &digest(b"x")).unwrap(), None);
        assert!(!ArtifactStore::open(None).is_open());
    }
    #[test]
    fn compiled_only_keeps_compiled_components_in_a_private_directory() {
        let root = tempfile::tempdir().unwrap();
        let private = root.path().join("own");
        let store = ArtifactStore::compiled_only(&private, 100).unwrap();
        store.write(Kind::Compiled, "x", &[b"code"]).unwrap();
        assert_eq!(store.read(Kind::Compiled, "x").unwrap().unwrap(), b"code");
        store.save(Kind::Component, b"x").unwrap();
        assert_eq!(store.load(Kind::Component, &digest(b"x")).unwrap(), None);
        // A daemon with this private directory finds the same files.
        let daemon = ArtifactStore::open(Some(&private));
        assert_eq!(daemon.read(Kind::Compiled, "x").unwrap().unwrap(), b"code");
        fs::set_permissions(&private, fs::Permissions::from_mode(0o777)).unwrap();
        let error = ArtifactStore::compiled_only(&private, 100)
            .unwrap_err()
            .to_string();
        assert!(error.contains("mode 777; run chmod go="), "{error}");
    }
}
