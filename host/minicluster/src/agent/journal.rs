//! `journal.jsonl` of each agent: a line for every process of a task that began, was signalled or ended.
//!
//! Tests and people read it to learn what really ran, whatever the API says, and hold it against the process table:
//! a process is alive when `/proc/<pid>/stat` is there and its 22nd field is `start`, for pids are used again. A line
//! is short and goes to the page cache, so it is written where it happens, under a plain lock, before the framework
//! is told.
//!
//! Each line is one JSON object:
//!
//! | field | |
//! |---|---|
//! | `event` | `launch`, `kill` or `exit` |
//! | `task`, `framework` | their ids |
//! | `pid` | the leader of the task's process group, and so the group's id |
//! | `start` | when it started, in clock ticks since the machine started; absent numbers read 0 |
//! | `at` | when the line was written, in seconds since the epoch |
//! | `how` | of a `kill` the signal (`SIGTERM`, `SIGKILL`); of an `exit` how the leader ended, in the words of the update |
//!
//! A line with the `event` `message` is of another kind: a message for `executor` came, with its `data` in base64.
//!
//! Every `launch` is followed by one `exit` of the same `pid` and `start`, at the latest when the cluster stops; there
//! may be any number of `kill`s between. After an `exit` nothing of the group is left. Checks and commands run inside a task are not
//! recorded: they end before their task's `exit`.

use super::process::Process;
use crate::{
    error::{Error, Result},
    state::{AgentId, TaskKey, epoch},
    wire::json as doc,
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    sync::{Mutex, PoisonError},
};

/// All agents' journals.
#[derive(Debug, Default)]
pub(crate) struct Journals(Mutex<HashMap<AgentId, File>>);

impl Journals {
    /// Opens an agent's journal for appending.
    pub(crate) fn open(&self, agent: &AgentId, work_dir: &Path) -> Result<()> {
        let path = work_dir.join("journal.jsonl");
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|source| Error::WorkDir { path, source })?;
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(agent.clone(), file);
        Ok(())
    }

    /// A process of the task began.
    pub(crate) fn launched(&self, agent: &AgentId, key: &TaskKey, process: &Process) {
        self.write(agent, "launch", key, process, None);
    }

    /// The cluster signals its group: `how` names the signal.
    pub(crate) fn killed(&self, agent: &AgentId, key: &TaskKey, process: &Process, how: &str) {
        self.write(agent, "kill", key, process, Some(how));
    }

    /// It ended, and this is how.
    pub(crate) fn exited(&self, agent: &AgentId, key: &TaskKey, process: &Process, how: &str) {
        self.write(agent, "exit", key, process, Some(how));
    }

    fn write(&self, agent: &AgentId, event: &str, key: &TaskKey, process: &Process, how: Option<&str>) {
        let mut line = doc::object(json!({
            "event": event,
            "task": key.task.as_str(),
            "framework": key.framework.as_str(),
            "pid": process.pid,
            "start": process.started,
            "at": epoch(),
        }));
        doc::put(&mut line, "how", how.map(|how| json!(how)));
        self.note(agent, &Value::Object(line));
    }

    /// Writes a line as it is.
    pub(crate) fn note(&self, agent: &AgentId, line: &Value) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let written = files
            .get_mut(agent)
            .map(|file| file.write_all(format!("{line}\n").as_bytes()));
        if let Some(Err(error)) = written {
            tracing::error!(%agent, %error, "cannot write the agent's journal");
        }
    }
}
