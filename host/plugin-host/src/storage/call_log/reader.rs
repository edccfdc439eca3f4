//! Reads a plugin's files. Truncated records and invalid lines are counted and left out.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    sync::Arc,
};

use serde_json::Value;
use transom_plugin_cases::{CallRecord, RecordedCalls};
use transom_store::typed;

use super::{
    record::Line,
    segments::{MAX_SEGMENT, files},
};

/// Maximum size in bytes of the records in one answer.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Selects the calls to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallSelection<'a> {
    /// Milliseconds since 1970.
    pub(crate) since: u64,
    /// Maximum number of calls; the newest ones are read.
    pub(crate) max: usize,
    /// The digests of a component and of its manifest. `None`: the calls of all versions.
    pub(crate) version: Option<(&'a str, &'a str)>,
}

/// Reads the newest calls and returns them oldest first.
pub(super) fn read(dir: &Path, selection: CallSelection<'_>) -> io::Result<RecordedCalls> {
    let mut collector = CallCollector::default();
    // The newest file first, until there are enough calls.
    for path in files(dir)?.iter().rev() {
        let file = match File::open(path) {
            // The file was deleted in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        let segment = Segment::read(file, selection)?;
        let is_old = segment.is_old;
        collector.damaged += segment.damaged;
        if !collector.add(segment, selection.max) {
            break;
        }
        if is_old {
            break;
        }
    }
    Ok(collector.into_calls())
}

/// The wanted calls of one file in their order, with their sizes.
#[derive(Default)]
struct Segment {
    calls: Vec<(usize, CallRecord)>,
    agents: HashMap<u64, (usize, Arc<Value>)>,
    damaged: u64,
    /// Whether the file has calls from before the wanted time, so that earlier files have no wanted
    /// ones.
    is_old: bool,
}

impl Segment {
    fn read(file: File, selection: CallSelection<'_>) -> io::Result<Segment> {
        // The writer creates no larger file. The rest of a larger one is not read.
        let mut lines = BufReader::new(file.take(MAX_SEGMENT));
        let mut segment = Segment::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            let bytes = lines.read_until(b'\n', &mut line)?;
            if bytes == 0 {
                return Ok(segment);
            }
            if let Some(version) = typed::newer_version(&line) {
                let why = format!(
                    "a record has version {version}, and this daemon reads versions up to {}: a newer daemon wrote it; \
                     remove the directory of recorded calls to begin again",
                    typed::READS_VERSION
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            match serde_json::from_slice(&line) {
                Ok(Line::Call(call)) => segment.add(bytes, *call, selection),
                Ok(Line::Agents { set, agents }) => {
                    segment.agents.insert(set, (bytes, agents));
                }
                Err(_) => segment.damaged += 1,
            }
        }
    }

    fn add(&mut self, bytes: usize, call: CallRecord, selection: CallSelection<'_>) {
        let is_missing = |set| !self.agents.contains_key(&set);
        if call.agents.is_some_and(is_missing) {
            // The record of its agent set was truncated or changed.
            self.damaged += 1;
            return;
        }
        let is_of_version = selection
            .version
            .is_none_or(|(digest, manifest)| call.digest == digest && call.manifest == manifest);
        if call.at < selection.since {
            self.is_old = true;
        } else if is_of_version {
            self.calls.push((bytes, call));
        }
    }
}

#[derive(Default)]
struct CallCollector {
    /// The calls, newest first.
    calls: Vec<CallRecord>,
    agents: BTreeMap<u64, Arc<Value>>,
    bytes: usize,
    damaged: u64,
    more: bool,
}

impl CallCollector {
    /// Adds the calls of a file. False: there are enough calls.
    fn add(&mut self, segment: Segment, max: usize) -> bool {
        // The numbers of agent sets are only unique within one file, so they are renumbered.
        let mut numbers: HashMap<u64, u64> = HashMap::new();
        for (bytes, mut call) in segment.calls.into_iter().rev() {
            if self.calls.len() >= max || self.bytes + bytes > MAX_ANSWER_BYTES {
                self.more = true;
                return false;
            }
            if let Some((set, (size, agents))) =
                call.agents.and_then(|set| Some((set, segment.agents.get(&set)?)))
            {
                let next = self.agents.len() as u64;
                let number = *numbers.entry(set).or_insert(next);
                if number == next {
                    self.bytes += size;
                    self.agents.insert(number, Arc::clone(agents));
                }
                call.agents = Some(number);
            }
            self.bytes += bytes;
            self.calls.push(call);
        }
        true
    }

    fn into_calls(mut self) -> RecordedCalls {
        self.calls.reverse();
        RecordedCalls {
            calls: self.calls,
            agents: self.agents,
            damaged: self.damaged,
            more: self.more,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn call(at: u64, agents: Option<u64>) -> String {
        let call = json!({
            "at": at, "plugin": "p", "version": "1", "digest": "sha256:a", "manifest": "sha256:b",
            "world": "event-filter", "interface": "0.1.0", "call": "open", "case": {"expect": []},
            "agents": agents, "micros": 5, "memory": 6
        });
        call.to_string() + "\n"
    }

    fn agents(set: u64, name: &str) -> String {
        json!({"set": set, "agents": [{"hostname": name}]}).to_string() + "\n"
    }

    const ALL: CallSelection<'_> = CallSelection {
        since: 0,
        max: 100,
        version: None,
    };

    fn times(calls: &RecordedCalls) -> Vec<u64> {
        calls.calls.iter().map(|it| it.at).collect()
    }

    #[test]
    fn record_of_a_newer_daemon_is_an_error_and_not_counted_as_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let newer = call(1, None).replacen('{', "{\"record_version\":2,", 1);
        fs::write(dir.path().join("1.jsonl"), call(1, None) + &newer).unwrap();
        let error = read(dir.path(), ALL).unwrap_err().to_string();
        assert!(
            error.contains("version 2") && error.contains("a newer daemon"),
            "{error}"
        );
    }

    #[test]
    fn newest_calls_are_read_oldest_first() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(
            read(&dir.path().join("none"), ALL).unwrap(),
            RecordedCalls::default()
        );
        fs::write(dir.path().join("1.jsonl"), call(1, None) + &call(2, None)).unwrap();
        fs::write(dir.path().join("2.jsonl"), call(3, None) + &call(4, None)).unwrap();
        fs::write(dir.path().join("notes.txt"), "no records").unwrap();
        let all = read(dir.path(), ALL).unwrap();
        assert_eq!((times(&all), all.more, all.damaged), (vec![1, 2, 3, 4], false, 0));
        let newest = read(dir.path(), CallSelection { max: 3, ..ALL }).unwrap();
        assert_eq!((times(&newest), newest.more), (vec![2, 3, 4], true));
        assert_eq!(
            times(&read(dir.path(), CallSelection { since: 4, ..ALL }).unwrap()),
            [4]
        );
        let version = |digest| CallSelection {
            version: Some((digest, "sha256:b")),
            ..ALL
        };
        assert_eq!(times(&read(dir.path(), version("sha256:a")).unwrap()).len(), 4);
        assert_eq!(times(&read(dir.path(), version("sha256:c")).unwrap()).len(), 0);
    }

    #[test]
    fn truncated_and_changed_records_are_counted_and_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let cut = call(4, None);
        let lines = [
            call(1, None),
            "nonsense\n".to_owned(),
            "\u{0}\n".to_owned(),
            "{\"at\": 2}\n".to_owned(),
            call(3, Some(7)),
            cut[..cut.len() / 2].to_owned(),
        ];
        fs::write(dir.path().join("1.jsonl"), lines.concat()).unwrap();
        fs::write(dir.path().join("2.jsonl"), call(5, None)).unwrap();
        let calls = read(dir.path(), ALL).unwrap();
        assert_eq!((times(&calls), calls.damaged), (vec![1, 5], 5));
    }

    #[test]
    fn rest_of_a_huge_file_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.jsonl");
        fs::write(&path, call(1, None)).unwrap();
        // A sparse file: a terabyte that takes no space on disk.
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        let calls = read(dir.path(), ALL).unwrap();
        assert_eq!((times(&calls), calls.damaged), (vec![1], 1));
    }

    #[test]
    fn agent_sets_of_several_files_stay_with_their_calls() {
        let dir = tempfile::tempdir().unwrap();
        let first = agents(0, "a") + &call(1, Some(0)) + &agents(1, "b") + &call(2, Some(1));
        fs::write(dir.path().join("1.jsonl"), first).unwrap();
        fs::write(
            dir.path().join("2.jsonl"),
            agents(0, "c") + &call(3, Some(0)) + &call(4, Some(0)),
        )
        .unwrap();
        let calls = read(dir.path(), ALL).unwrap();
        let names = calls.calls.iter().map(|it| {
            let case = it.full_case(&calls.agents).unwrap();
            case["agents"][0]["hostname"].as_str().unwrap().to_owned()
        });
        assert_eq!(names.collect::<Vec<_>>(), ["a", "b", "c", "c"]);
        assert_eq!(calls.agents.len(), 3);
    }
}
