//! New files of a plugin: they are written to temporary files in the plugin directory and then
//! renamed over the old files.
//!
//! A reader of the directory sees each file complete, either the old or the new one. The component
//! is renamed last, because a component without its manifest is not admitted. A symbolic link is
//! replaced itself; its target is not written to.

use std::{
    fs::{self, Permissions},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use tempfile::TempPath;
use transom_registry::signatures::MAX_SIGNATURE;

use crate::manifest::limits::{MAX_COMPONENT_SIZE, MAX_MANIFEST};

/// The files of a plugin, or some of them.
#[derive(Clone, Debug, Default)]
pub struct PluginFiles {
    /// `NAME.wasm`.
    pub component: Option<Vec<u8>>,
    /// `NAME.toml`.
    pub manifest: Option<Vec<u8>>,
    /// `NAME.wasm.sig`.
    pub signature: Option<Vec<u8>>,
}

/// Temporary files that are ready to be renamed. If this is dropped before, they are deleted. All
/// methods block.
#[derive(Debug)]
pub struct StagedFiles(Vec<(TempPath, PathBuf)>);

impl PluginFiles {
    /// Maximum size in bytes of a manifest that is read.
    pub const MAX_MANIFEST: u64 = MAX_MANIFEST;
    /// Maximum size in bytes of a signature that is read.
    pub const MAX_SIGNATURE: u64 = MAX_SIGNATURE;
    /// Maximum size in bytes of all files together.
    pub const MAX_BYTES: u64 = MAX_COMPONENT_SIZE + MAX_MANIFEST + MAX_SIGNATURE;

    /// Writes the files to `dir` under temporary names, which a plugin directory ignores.
    ///
    /// # Errors
    /// The file that could not be written.
    pub fn stage(&self, dir: &Path, name: &str) -> io::Result<StagedFiles> {
        let mut staged = Vec::new();
        for (content, kind) in [
            (&self.signature, "wasm.sig"),
            (&self.manifest, "toml"),
            (&self.component, "wasm"),
        ] {
            let Some(content) = content else { continue };
            let path = dir.join(format!("{name}.{kind}"));
            let temporary = write_temporary(dir, content).map_err(|error| write_error(&path, &error))?;
            staged.push((temporary, path));
        }
        Ok(StagedFiles(staged))
    }
}

impl StagedFiles {
    /// The paths that the files are renamed to.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|(_, path)| path.as_path())
    }

    /// Renames the files; returns their names.
    ///
    /// # Errors
    /// The file that could not be renamed; those before it are in place.
    pub fn place(self) -> io::Result<Vec<String>> {
        let mut placed = Vec::new();
        for (temporary, path) in self.0 {
            temporary
                .persist(&path)
                .map_err(|error| write_error(&path, &error.error))?;
            let name = path.file_name().unwrap_or_default();
            placed.push(name.to_string_lossy().into_owned());
        }
        Ok(placed)
    }
}

fn write_temporary(dir: &Path, content: &[u8]) -> io::Result<TempPath> {
    let mut file = tempfile::Builder::new().prefix(".staged-").tempfile_in(dir)?;
    file.write_all(content)?;
    // A temporary file is readable only by its owner; the final file has to be readable by all.
    fs::set_permissions(file.path(), Permissions::from_mode(0o644))?;
    // After a power failure a renamed file then has its content and is not empty.
    file.as_file().sync_all()?;
    Ok(file.into_temp_path())
}

fn write_error(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_whole_readable_and_not_written_through_links() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (dir, victim) = (dir.path(), outside.path().join("victim"));
        fs::write(&victim, "mine").unwrap();
        std::os::unix::fs::symlink(&victim, dir.join("x.wasm")).unwrap();
        let files = PluginFiles {
            component: Some(b"component".to_vec()),
            manifest: Some(b"manifest".to_vec()),
            signature: None,
        };
        let staged = files.stage(dir, "x").unwrap();
        assert_eq!(
            fs::read(dir.join("x.wasm")).unwrap(),
            b"mine",
            "staging does not replace the file"
        );
        assert_eq!(staged.place().unwrap(), ["x.toml", "x.wasm"]);
        assert_eq!(fs::read(dir.join("x.wasm")).unwrap(), b"component");
        assert_eq!(fs::read(&victim).unwrap(), b"mine");
        let mode = fs::metadata(dir.join("x.wasm")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);

        drop(files.stage(dir, "y").unwrap());
        let entries: Vec<_> = fs::read_dir(dir).unwrap().flatten().collect();
        assert_eq!(entries.len(), 2, "{entries:?}");
        let error = files.stage(&dir.join("absent"), "x").unwrap_err();
        assert!(error.to_string().contains("absent/x.toml"), "{error}");
    }
}
