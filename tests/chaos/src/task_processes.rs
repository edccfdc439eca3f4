//! The running tasks as seen from outside: the process table and the agents' journals.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::spec::{APP, CHECK, REVISION, RUN};

/// A running task's process: the leader of its group.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Process {
    pub(crate) app: String,
    pub(crate) task: String,
    pub(crate) framework: String,
    pub(crate) revision: String,
    pub(crate) pid: i32,
    /// Start time in clock ticks since the machine's start.
    pub(crate) start: u64,
}

/// The processes of this run's tasks, which the variables in the definitions identify. Processes
/// that end during the scan are skipped, and so are the agents' checks, which have the same
/// variables.
pub(crate) fn processes(run: &str) -> anyhow::Result<Vec<Process>> {
    let entries = fs::read_dir("/proc").context("cannot read the process table")?;
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut found: Vec<Process> = pids.filter_map(|pid| process(run, pid)).collect();
    found.sort();
    Ok(found)
}

fn process(run: &str, pid: i32) -> Option<Process> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mark = format!("{RUN}={run}");
    if !environ
        .split(|byte| *byte == 0)
        .any(|entry| entry == mark.as_bytes())
    {
        return None;
    }
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in brackets that may contain any character.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ended = matches!(*fields.first()?, "Z" | "X");
    let leads = fields.get(2)?.parse::<i32>().ok()? == pid;
    if ended || !leads {
        return None;
    }
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    // A process that has ended since, such as a check, has no command any more.
    if command.is_empty() || command.windows(CHECK.len()).any(|part| part == CHECK.as_bytes()) {
        return None;
    }
    let environ = String::from_utf8_lossy(&environ);
    let variable = |name: &str| {
        environ
            .split('\0')
            .filter_map(|entry| entry.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.to_owned())
    };
    Some(Process {
        app: variable(APP)?,
        task: variable("MESOS_TASK_ID")?,
        framework: variable("MESOS_FRAMEWORK_ID")?,
        revision: variable(REVISION)?,
        pid,
        start: fields.get(19)?.parse().ok()?,
    })
}

/// One process of a task, from the agents' journals.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) pid: i64,
    pub(crate) start: u64,
    pub(crate) ended: bool,
}

/// All agents' journals, read incrementally.
#[derive(Debug)]
pub(crate) struct Journals {
    dir: PathBuf,
    read: BTreeMap<PathBuf, u64>,
    /// The processes by task id and framework, in the order of their starts.
    lives: BTreeMap<(String, String), Vec<Life>>,
}

impl Journals {
    /// The journals below a cluster's work directory.
    pub(crate) fn new(work_dir: &Path) -> Self {
        Self {
            dir: work_dir.join("agents"),
            read: BTreeMap::new(),
            lives: BTreeMap::new(),
        }
    }

    /// The number of processes started so far.
    pub(crate) fn launches(&self) -> usize {
        self.lives.values().map(Vec::len).sum()
    }

    /// Every task with its processes.
    pub(crate) fn lives(&self) -> impl Iterator<Item = (&str, &[Life])> {
        self.lives
            .iter()
            .map(|((task, _), lives)| (task.as_str(), lives.as_slice()))
    }

    /// Whether the journals contain the end of this process.
    pub(crate) fn has_ended(&self, process: &Process) -> bool {
        let key = (process.task.clone(), process.framework.clone());
        self.lives.get(&key).is_some_and(|lives| {
            lives
                .iter()
                .any(|life| life.pid == i64::from(process.pid) && life.start == process.start && life.ended)
        })
    }

    /// Reads the lines that were added.
    pub(crate) fn read(&mut self) -> anyhow::Result<()> {
        let Ok(agents) = fs::read_dir(&self.dir) else {
            return Ok(());
        };
        for agent in agents.flatten() {
            let path = agent.path().join("journal.jsonl");
            if path.exists() {
                self.read_one(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
            }
        }
        Ok(())
    }

    fn read_one(&mut self, path: &Path) -> anyhow::Result<()> {
        let offset = self.read.entry(path.to_owned()).or_default();
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(*offset))?;
        let mut added = String::new();
        file.read_to_string(&mut added)?;
        // An incomplete line is read next time.
        let whole = added.rfind('\n').map_or(0, |end| end + 1);
        *offset += whole as u64;
        for line in added[..whole].lines() {
            let entry: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            self.apply_entry(&entry).with_context(|| line.to_owned())?;
        }
        Ok(())
    }

    fn apply_entry(&mut self, entry: &Value) -> anyhow::Result<()> {
        let text = |name: &str| {
            let value = entry[name].as_str().with_context(|| format!("no `{name}`"))?;
            anyhow::Ok(value.to_owned())
        };
        let pid = entry["pid"].as_i64().context("no `pid`")?;
        let start = entry["start"].as_u64().unwrap_or(0);
        let lives = self.lives.entry((text("task")?, text("framework")?)).or_default();
        match text("event")?.as_str() {
            "launch" => lives.push(Life {
                pid,
                start,
                ended: false,
            }),
            "exit" => {
                let life = lives
                    .iter_mut()
                    .find(|life| life.pid == pid && life.start == start);
                match life {
                    Some(life) => life.ended = true,
                    None => bail!("an end without a beginning"),
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn journal_is_read_incrementally() {
        let dir = tempfile::tempdir().unwrap();
        let agent = dir.path().join("agents/one");
        fs::create_dir_all(&agent).unwrap();
        let mut file = File::create(agent.join("journal.jsonl")).unwrap();
        let mut journals = Journals::new(dir.path());
        journals.read().unwrap();
        assert_eq!(journals.launches(), 0);

        let line =
            |event: &str| format!(r#"{{"event":"{event}","task":"t","framework":"f","pid":7,"start":5}}"#);
        write!(file, "{}\n{}", line("launch"), &line("exit")[..20]).unwrap();
        journals.read().unwrap();
        assert_eq!(journals.launches(), 1);
        let process = Process {
            app: "/a".into(),
            task: "t".into(),
            framework: "f".into(),
            revision: "1".into(),
            pid: 7,
            start: 5,
        };
        assert!(!journals.has_ended(&process));
        writeln!(file, "{}", &line("exit")[20..]).unwrap();
        journals.read().unwrap();
        assert!(journals.has_ended(&process));
        assert!(
            !journals.has_ended(&Process { start: 6, ..process }),
            "the pid was used again"
        );
    }

    #[test]
    fn process_is_found_by_its_environment() {
        use std::os::unix::process::CommandExt;
        let run = format!("test-{}", std::process::id());
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .env(RUN, &run)
            .env(APP, "/a")
            .env(REVISION, "3")
            .env("MESOS_TASK_ID", "t")
            .env("MESOS_FRAMEWORK_ID", "f")
            .process_group(0)
            .spawn()
            .unwrap();
        // The environment of a process is readable only some time after its start.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let mut found = processes(&run).unwrap();
        while found.is_empty() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
            found = processes(&run).unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].task.as_str(), found[0].revision.as_str()), ("t", "3"));
        assert!(processes(&run).unwrap().is_empty());
    }
}
