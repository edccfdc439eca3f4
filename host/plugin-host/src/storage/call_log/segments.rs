//! The files of one plugin's log. Records are appended to the newest file. When it is full or old,
//! a new file is started, and the oldest files are deleted. After a restart no record is appended
//! to an old file, because its last record may be truncated.

use std::{
    collections::{HashMap, VecDeque},
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, UNIX_EPOCH},
};

/// Number of segments that share the maximum size and age. Old records are deleted a segment at a
/// time.
const SEGMENTS: u64 = 8;
/// Maximum size in bytes of a segment, which is read into memory as a whole.
pub(super) const MAX_SEGMENT: u64 = 32 << 20;
/// The extension of a segment's file name.
const EXTENSION: &str = "jsonl";

/// The number of an agent set in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AgentSetNumber {
    pub(super) number: u64,
    /// Whether secrets in the set are masked.
    pub(super) is_masked: bool,
}

/// Limits of one plugin's log.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentLimits {
    /// Maximum size in bytes of all files.
    pub(super) max_size: u64,
    pub(super) max_age: Duration,
}

impl SegmentLimits {
    pub(super) fn segment(&self) -> u64 {
        (self.max_size / SEGMENTS).min(MAX_SEGMENT)
    }

    fn max_age_millis(&self) -> u64 {
        u64::try_from(self.max_age.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A plugin's files. All methods block. Times are milliseconds since 1970.
#[derive(Debug)]
pub(super) struct Segments {
    dir: PathBuf,
    limits: SegmentLimits,
    /// The files that are no longer written, oldest first.
    closed: VecDeque<Closed>,
    current: Option<Current>,
    /// The last number of an agent set.
    sets: u64,
}

#[derive(Debug)]
struct Closed {
    path: PathBuf,
    bytes: u64,
    /// The time of its last record.
    ended: u64,
}

#[derive(Debug)]
struct Current {
    path: PathBuf,
    file: File,
    bytes: u64,
    began: u64,
    /// The time of its last record.
    last: u64,
    /// Whether its last record may be truncated. No record is appended to it then.
    is_broken: bool,
    /// The agent sets that it contains, by their keys.
    agents: HashMap<(u64, u64), AgentSetNumber>,
}

impl Segments {
    /// Opens the folder of a plugin, and creates it if it is missing.
    pub(super) fn open(dir: &Path, limits: SegmentLimits) -> io::Result<Segments> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let mut closed = Vec::new();
        for path in files(dir)? {
            let metadata = fs::metadata(&path)?;
            let ended = metadata
                .modified()?
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            closed.push(Closed {
                path,
                bytes: metadata.len(),
                ended: u64::try_from(ended.as_millis()).unwrap_or(u64::MAX),
            });
        }
        Ok(Segments {
            dir: dir.to_owned(),
            limits,
            closed: closed.into(),
            current: None,
            sets: 0,
        })
    }

    /// Appends lines, to a new file if the current one is full or old.
    pub(super) fn append(&mut self, lines: &[u8], now: u64) -> io::Result<()> {
        self.make_room(lines.len() as u64, now);
        if self.current.is_none() {
            self.delete_old(now);
            self.current = Some(Current::create(&self.dir, now)?);
        }
        let Some(current) = &mut self.current else {
            return Err(io::ErrorKind::NotFound.into());
        };
        current
            .file
            .write_all(lines)
            .inspect_err(|_| current.is_broken = true)?;
        current.bytes += lines.len() as u64;
        current.last = now;
        Ok(())
    }

    /// Appends the record of an agent set together with the lines that follow it.
    pub(super) fn append_agents(
        &mut self,
        lines: &[u8],
        key: (u64, u64),
        set: AgentSetNumber,
        now: u64,
    ) -> io::Result<()> {
        self.append(lines, now)?;
        if let Some(current) = &mut self.current {
            current.agents.insert(key, set);
        }
        Ok(())
    }

    /// Closes the current file, and so its agent sets, if it has no room for this number of bytes.
    pub(super) fn make_room(&mut self, bytes: u64, now: u64) {
        let (segment, age) = (self.limits.segment(), self.limits.max_age_millis() / SEGMENTS);
        let is_over =
            |it: &Current| it.is_broken || it.bytes + bytes > segment || now >= it.began.saturating_add(age);
        if self.current.as_ref().is_some_and(is_over) {
            self.close();
        }
    }

    /// Returns the number of an agent set, if the current file contains it.
    pub(super) fn agents(&self, key: (u64, u64)) -> Option<AgentSetNumber> {
        self.current.as_ref()?.agents.get(&key).copied()
    }

    /// Returns a new number for an agent set.
    pub(super) fn next_set(&mut self) -> u64 {
        self.sets += 1;
        self.sets
    }

    fn close(&mut self) {
        if let Some(Current {
            path, bytes, last, ..
        }) = self.current.take()
        {
            self.closed.push_back(Closed {
                path,
                bytes,
                ended: last,
            });
        }
    }

    /// Deletes files that are too old, and then the oldest ones until there is room for a new one.
    pub(super) fn delete_old(&mut self, now: u64) {
        let oldest = now.saturating_sub(self.limits.max_age_millis());
        if self.current.as_ref().is_some_and(|it| it.began < oldest) {
            self.close();
        }
        let size: u64 = self.closed.iter().map(|it| it.bytes).sum();
        let mut excess = size.saturating_sub(self.limits.max_size - self.limits.segment());
        while let Some(first) = self.closed.front().filter(|it| excess > 0 || it.ended < oldest) {
            // The file may have been deleted already.
            if let Err(error) = fs::remove_file(&first.path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(
                    "cannot delete recorded calls in {}: {error}",
                    first.path.display()
                );
            }
            excess = excess.saturating_sub(first.bytes);
            self.closed.pop_front();
        }
    }
}

impl Current {
    fn create(dir: &Path, now: u64) -> io::Result<Current> {
        for number in 0..u16::MAX {
            let path = dir.join(format!("{now:015}-{number:05}.{EXTENSION}"));
            let file = OpenOptions::new()
                .append(true)
                .create_new(true)
                .mode(0o600)
                .open(&path);
            match file {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                file => {
                    return Ok(Current {
                        path,
                        file: file?,
                        bytes: 0,
                        began: now,
                        last: now,
                        is_broken: false,
                        agents: HashMap::new(),
                    });
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// The files of a plugin, oldest first. Empty if it has no folder.
pub(super) fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == EXTENSION) {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: SegmentLimits = SegmentLimits {
        max_size: 8000,
        max_age: Duration::from_secs(8),
    };

    fn sizes(dir: &Path) -> Vec<u64> {
        let files = files(dir).unwrap();
        files.iter().map(|it| fs::metadata(it).unwrap().len()).collect()
    }

    #[test]
    fn oldest_records_are_deleted_when_the_log_is_full() {
        let dir = tempfile::tempdir().unwrap();
        let mut segments = Segments::open(dir.path(), LIMITS).unwrap();
        let line = [b'x'; 300];
        for _ in 0..100 {
            segments.append(&line, 5).unwrap();
            let sizes = sizes(dir.path());
            assert!(sizes.iter().sum::<u64>() <= 8000, "{sizes:?}");
            assert!(sizes.iter().all(|it| *it <= 1000), "{sizes:?}");
        }
        assert_eq!(sizes(dir.path()).len(), 8);
        // After a restart a new file is started, and the limit applies to the old and new files
        // together.
        let mut segments = Segments::open(dir.path(), LIMITS).unwrap();
        segments.append(&line, 6).unwrap();
        let found = files(dir.path()).unwrap();
        assert!(
            found.last().unwrap().ends_with("000000000000006-00000.jsonl"),
            "{found:?}"
        );
        assert!(sizes(dir.path()).iter().sum::<u64>() <= 8000);
    }

    #[test]
    fn records_are_deleted_when_they_are_old() {
        let dir = tempfile::tempdir().unwrap();
        let mut segments = Segments::open(dir.path(), LIMITS).unwrap();
        for now in [0, 500, 1000, 1999, 5000] {
            segments.append(b"x\n", now).unwrap();
        }
        // A file contains the records of an eighth of the maximum age.
        assert_eq!(sizes(dir.path()), [4, 4, 2]);
        segments.delete_old(9500);
        assert_eq!(sizes(dir.path()), [4, 2]);
        segments.delete_old(20_000);
        assert_eq!(sizes(dir.path()), [0_u64; 0]);
        segments.append(b"x\n", 20_000).unwrap();
        assert_eq!(sizes(dir.path()), [2]);
    }

    #[test]
    fn agents_are_written_again_into_each_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut segments = Segments::open(dir.path(), LIMITS).unwrap();
        let set = AgentSetNumber {
            number: segments.next_set(),
            is_masked: true,
        };
        segments.append_agents(&[b'x'; 800], (1, 1), set, 0).unwrap();
        segments.make_room(200, 0);
        assert_eq!(
            (segments.agents((1, 1)), segments.agents((1, 2))),
            (Some(set), None)
        );
        segments.make_room(201, 0);
        assert_eq!(segments.agents((1, 1)), None);
        assert_ne!(segments.next_set(), set.number);
    }

    #[test]
    fn truncated_record_is_the_last_of_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut segments = Segments::open(dir.path(), LIMITS).unwrap();
        segments.append(b"x\n", 0).unwrap();
        // Writing fails, because this file is open for reading only.
        let path = files(dir.path()).unwrap().remove(0);
        segments.current.as_mut().unwrap().file = File::open(path).unwrap();
        assert!(segments.append(b"y\n", 0).is_err());
        segments.append(b"z\n", 0).unwrap();
        assert_eq!(sizes(dir.path()), [2, 2]);
    }
}
