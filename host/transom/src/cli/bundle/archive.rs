//! The archive: bounded files under one folder, readable by its owner only.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

/// The largest file in an archive, in bytes.
const MAX_MEMBER: usize = 4 << 20;
/// The maximum size of all files together, in bytes.
const MAX_TOTAL: usize = 48 << 20;

/// A file of the archive.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) content: String,
    /// A description for the list of contents.
    pub(super) about: &'static str,
}

impl Member {
    /// Content beyond the limit is cut off; the last line reports it.
    pub(super) fn new(name: impl Into<String>, about: &'static str, content: impl Into<String>) -> Self {
        let mut content = content.into();
        if content.len() > MAX_MEMBER {
            let all = content.len();
            let end = (0..=MAX_MEMBER)
                .rev()
                .find(|index| content.is_char_boundary(*index));
            content.truncate(end.unwrap_or_default());
            let _ = writeln!(content, "\n[truncated: {all} bytes in total]");
        }
        Self {
            name: name.into(),
            content,
            about,
        }
    }
}

/// Keeps members until the sum of their sizes exceeds the limit, and drops the rest.
pub(super) fn bounded(mut members: Vec<Member>) -> Vec<Member> {
    let mut sum = 0;
    members.retain(|member| {
        sum += member.content.len();
        sum <= MAX_TOTAL
    });
    members
}

/// Writes the archive to a new file; returns its size in bytes.
pub(super) fn write(file: &Path, folder: &str, members: &[Member]) -> io::Result<u64> {
    let out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?;
    let mut archive = tar::Builder::new(GzEncoder::new(&out, Compression::default()));
    let modified = jiff::Timestamp::now().as_second();
    for member in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(member.content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(modified).unwrap_or_default());
        let path = format!("{folder}/{}", member.name);
        archive.append_data(&mut header, path, member.content.as_bytes())?;
    }
    let mut encoder = archive.into_inner()?;
    encoder.flush()?;
    encoder.finish()?;
    Ok(out.metadata()?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_cut_off_and_many_are_dropped() {
        let long = Member::new("a", "", "é".repeat(MAX_MEMBER));
        assert!(long.content.len() < MAX_MEMBER + 100);
        assert!(long.content.ends_with("bytes in total]\n"));
        let members = (0..100)
            .map(|_| Member::new("a", "", "x".repeat(MAX_MEMBER)))
            .collect();
        assert_eq!(bounded(members).len(), MAX_TOTAL / MAX_MEMBER);
    }

    #[test]
    fn existing_file_is_not_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("x.tar.gz");
        let members = [Member::new("a/b.txt", "", "text")];
        let size = write(&file, "folder", &members).expect("written");
        assert_eq!(std::fs::metadata(&file).expect("there").len(), size);
        let error = write(&file, "folder", &members).expect_err("it exists");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }
}
