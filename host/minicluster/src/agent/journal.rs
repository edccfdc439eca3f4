//! `journal.jsonl` of each agent: a line for every process of a task that began or ended.
//!
//! Tests and people read it to learn what really ran, whatever the API says. A line is short and goes to the page
//! cache, so it is written where it happens, under a plain lock.

use crate::{
    error::{Error, Result},
    state::{AgentId, TaskKey, epoch},
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
    pub(crate) fn launched(&self, agent: &AgentId, key: &TaskKey, pid: u32) {
        self.write(agent, &json!({
            "event": "launch", "task": key.task.as_str(), "framework": key.framework.as_str(), "pid": pid, "at": epoch(),
        }));
    }

    /// It ended, and this is how.
    pub(crate) fn exited(&self, agent: &AgentId, key: &TaskKey, pid: u32, how: &str) {
        self.write(agent, &json!({
            "event": "exit", "task": key.task.as_str(), "framework": key.framework.as_str(), "pid": pid, "how": how, "at": epoch(),
        }));
    }

    fn write(&self, agent: &AgentId, line: &Value) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let written = files
            .get_mut(agent)
            .map(|file| file.write_all(format!("{line}\n").as_bytes()));
        if let Some(Err(error)) = written {
            tracing::error!(%agent, %error, "cannot write the agent's journal");
        }
    }
}
