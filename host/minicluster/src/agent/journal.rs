//! `journal.jsonl` of each agent: a line for every start, signal and end of a task's process.
//!
//! Tests and users read it to learn which processes actually ran, independently of the API, and
//! compare it with the process table. Pids are reused: a process is alive when `/proc/<pid>/stat`
//! exists and its 22nd field is `start`. A line is short and goes to the page cache, so it is
//! written synchronously, under a plain lock, before the framework is notified.
//!
//! Each line is one JSON object:
//!
//! | field | |
//! |---|---|
//! | `event` | `launch`, `kill` or `exit` |
//! | `task`, `framework` | their ids; a custom executor's own process has `executor` instead of `task` |
//! | `pid` | the leader of the task's process group, and so the group's id |
//! | `start` | when it started, in clock ticks since the machine started; absent numbers read 0 |
//! | `at` | when the line was written, in seconds since the epoch |
//! | `how` | of a `kill` the signal (`SIGTERM`, `SIGKILL`); of an `exit` how the leader ended, in the words of the update |
//!
//! A line with the `event` `message` is different: it records a message of `framework` for
//! `executor`, with its `data` in base64.
//!
//! An agent that registers under a new id, after the maintenance of its machine, keeps its journal.
//!
//! Every `launch` is followed by one `exit` with the same `pid` and `start`, at the latest when the
//! cluster stops, with any number of `kill`s between them. After an `exit` no process of the group
//! is left. Checks and commands inside a task are not recorded: they end before their task's
//! `exit`.

use super::process::Process;
use crate::{
    error::{Error, Result},
    state::{AgentId, Launch, epoch},
    wire::json as doc,
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

/// All agents' journals.
#[derive(Debug, Default)]
pub(crate) struct Journals(Mutex<HashMap<AgentId, Arc<File>>>);

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
            .insert(agent.clone(), Arc::new(file));
        Ok(())
    }

    /// Continues the journal of an agent that registered under a new id.
    pub(crate) fn continue_as(&self, previous: &AgentId, current: &AgentId) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(previous).cloned() {
            files.insert(current.clone(), file);
        }
    }

    /// Records the start of a process.
    pub(crate) fn record_launch(&self, launch: &Launch, process: &Process) {
        self.record("launch", launch, process, None);
    }

    /// Records a signal to the group; `how` is the name of the signal.
    pub(crate) fn record_kill(&self, launch: &Launch, process: &Process, how: &str) {
        self.record("kill", launch, process, Some(how));
    }

    /// Records the end of a process; `how` describes it.
    pub(crate) fn record_exit(&self, launch: &Launch, process: &Process, how: &str) {
        self.record("exit", launch, process, Some(how));
    }

    fn record(&self, event: &str, launch: &Launch, process: &Process, how: Option<&str>) {
        let mut line = doc::object(json!({
            "event": event,
            "framework": launch.key.framework.as_str(),
            "pid": process.pid,
            "start": process.started,
            "at": epoch(),
        }));
        let id_key = if launch.is_executor { "executor" } else { "task" };
        line.insert(id_key.to_owned(), json!(launch.key.task.as_str()));
        doc::put(&mut line, "how", how.map(|how| json!(how)));
        self.write_line(&launch.agent, &Value::Object(line));
    }

    /// Writes one line without adding fields.
    pub(crate) fn write_line(&self, agent: &AgentId, line: &Value) {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let write_result = files
            .get(agent)
            .map(|file| file.as_ref().write_all(format!("{line}\n").as_bytes()));
        if let Some(Err(error)) = write_result {
            tracing::error!(%agent, %error, "cannot write the agent's journal");
        }
    }
}
