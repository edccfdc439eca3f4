//! The files of a package as a value: sorted by path, with modes and owners that do not depend on
//! the machine.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The source of a file's bytes.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Bytes(Vec<u8>),
    File(PathBuf),
}

impl Content {
    pub(super) fn read(&self) -> anyhow::Result<Vec<u8>> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.clone()),
            Self::File(path) => fs::read(path).with_context(|| format!("reading {}", path.display())),
        }
    }
}

#[derive(Clone, Debug)]
enum Kind {
    Directory,
    File(Content),
}

#[derive(Clone, Debug)]
struct Node {
    mode: u32,
    /// The number of user and group.
    owner: u64,
    kind: Kind,
}

/// Paths are relative and contain no `.` or `..`. The parent folders of a file are added with it.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree(BTreeMap<String, Node>);

impl Tree {
    /// Adds a file that every user may read.
    pub(super) fn add_file(&mut self, path: &str, content: Content) {
        self.insert(path, 0o644, 0, Kind::File(content));
    }

    /// Adds a text that every user may read.
    pub(super) fn add_text(&mut self, path: &str, text: &str) {
        self.add_file(path, Content::Bytes(text.as_bytes().to_vec()));
    }

    /// Adds a program.
    pub(super) fn add_program(&mut self, path: &str, content: Content) {
        self.insert(path, 0o755, 0, Kind::File(content));
    }

    pub(super) fn add_file_with_mode(&mut self, path: &str, mode: u32, content: Content) {
        self.insert(path, mode, 0, Kind::File(content));
    }

    pub(super) fn add_directory(&mut self, path: &str, mode: u32, owner: u64) {
        self.insert(path, mode, owner, Kind::Directory);
    }

    /// Adds all files of `other` below the folder `path`.
    pub(super) fn add_tree(&mut self, path: &str, other: &Self) {
        for (name, node) in &other.0 {
            self.insert(
                &format!("{path}/{name}"),
                node.mode,
                node.owner,
                node.kind.clone(),
            );
        }
    }

    /// The paths of all files, without folders.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        let files = self
            .0
            .iter()
            .filter(|(_, node)| matches!(node.kind, Kind::File(_)));
        files.map(|(path, _)| path.as_str())
    }

    /// The bytes of a file.
    pub(super) fn content(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        match self.0.get(path).map(|node| &node.kind) {
            Some(Kind::File(content)) => content.read(),
            _ => anyhow::bail!("there is no file {path}"),
        }
    }

    fn insert(&mut self, path: &str, mode: u32, owner: u64, kind: Kind) {
        let mut above = path;
        while let Some((folder, _)) = above.rsplit_once('/') {
            self.0.entry(folder.to_owned()).or_insert(Node {
                mode: 0o755,
                owner: 0,
                kind: Kind::Directory,
            });
            above = folder;
        }
        self.0.insert(path.to_owned(), Node { mode, owner, kind });
    }

    /// Writes everything as a tar archive, below the folder `prefix` if there is one.
    pub(super) fn write_tar(&self, to: impl Write, prefix: &str, epoch: u64) -> anyhow::Result<()> {
        let mut archive = tar::Builder::new(to);
        for (path, node) in &self.0 {
            let name = format!("{prefix}{path}");
            let mut header = tar::Header::new_gnu();
            header.set_mode(node.mode);
            header.set_mtime(epoch);
            header.set_uid(node.owner);
            header.set_gid(node.owner);
            let added = match &node.kind {
                Kind::Directory => {
                    header.set_entry_type(tar::EntryType::Directory);
                    header.set_size(0);
                    archive.append_data(&mut header, format!("{name}/"), std::io::empty())
                }
                Kind::File(content) => {
                    let bytes = content.read()?;
                    header.set_entry_type(tar::EntryType::Regular);
                    header.set_size(bytes.len() as u64);
                    archive.append_data(&mut header, &name, bytes.as_slice())
                }
            };
            added.with_context(|| format!("adding {name} to an archive"))?;
        }
        archive.finish().context("writing an archive")
    }

    /// Writes everything below `dir`, owned by the caller. The modes, also that of `dir`, do not
    /// depend on the caller's umask.
    pub(super) fn write_to(&self, dir: &Path) -> anyhow::Result<()> {
        let create = || {
            fs::create_dir_all(dir)?;
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755))
        };
        create().with_context(|| format!("creating {}", dir.display()))?;
        for (name, node) in &self.0 {
            let path = dir.join(name);
            let write = || -> anyhow::Result<()> {
                match &node.kind {
                    Kind::Directory => fs::create_dir_all(&path)?,
                    Kind::File(Content::Bytes(bytes)) => fs::write(&path, bytes)?,
                    Kind::File(Content::File(from)) => drop(fs::copy(from, &path)?),
                }
                fs::set_permissions(&path, fs::Permissions::from_mode(node.mode))?;
                Ok(())
            };
            write().with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_have_folders_first_and_fixed_times_and_owners() {
        let mut tree = Tree::default();
        tree.add_program("usr/bin/a", Content::Bytes(b"x".to_vec()));
        tree.add_directory("var/lib/a", 0o750, 65532);
        let mut bytes = Vec::new();
        tree.write_tar(&mut bytes, "", 77).expect("written");
        let mut archive = tar::Archive::new(bytes.as_slice());
        let entries = archive.entries().expect("entries").map(|entry| {
            let entry = entry.expect("an entry");
            let header = entry.header();
            assert_eq!(header.mtime().expect("a time"), 77);
            let path = entry.path().expect("a path").display().to_string();
            (
                path,
                header.mode().expect("a mode"),
                header.uid().expect("a user"),
            )
        });
        let expected = [
            ("usr/", 0o755, 0),
            ("usr/bin/", 0o755, 0),
            ("usr/bin/a", 0o755, 0),
            ("var/", 0o755, 0),
            ("var/lib/", 0o755, 0),
            ("var/lib/a/", 0o750, 65532),
        ];
        let expected = expected.map(|(path, mode, owner)| (path.to_owned(), mode, owner));
        assert_eq!(entries.collect::<Vec<_>>(), expected);
    }
}
