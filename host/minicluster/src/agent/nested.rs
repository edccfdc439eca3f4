//! Commands inside a task's container, from the agent API: sessions whose output is streamed, and
//! plain commands.
//!
//! Here a nested container is a process group in the task's sandbox, with the task's environment.
//! If the task has an image, it is a command inside the task's container. It ends when its task
//! ends. Docker's containerizer has no nested containers.

use super::{
    check::RunningTask,
    container::Containerizer,
    process::{self, Process, signal_group},
};
use crate::wire::recordio;
use base64::Engine;
use bytes::Bytes;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    io,
    process::Stdio,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::{mpsc, watch},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Maximum nested containers. An ended one counts until it is removed or its task ends.
const MAX_CONTAINERS: usize = 1024;
/// Maximum records of a session that its client has not read yet.
const MAX_UNREAD_RECORDS: usize = 64;

/// The running tasks and their nested containers.
#[derive(Debug)]
pub(crate) struct NestedContainers {
    inner: Mutex<NestedState>,
    /// Tracks the tasks that run nested containers.
    tracker: TaskTracker,
    /// Ends all nested containers.
    token: CancellationToken,
}

#[derive(Debug, Default)]
struct NestedState {
    /// Running tasks by container id.
    tasks: HashMap<String, RunningTask>,
    /// Nested containers by id.
    nested: HashMap<String, NestedContainer>,
}

#[derive(Clone, Debug)]
struct NestedContainer {
    parent: String,
    pid: u32,
    /// The raw wait status, once the process has ended.
    ended: watch::Receiver<Option<i32>>,
    /// Kills the process.
    kill: CancellationToken,
}

/// The reason why a call for a nested container fails.
#[derive(Debug)]
pub(crate) enum NestedError {
    /// Response 404.
    NotFound(String),
    /// Response 400.
    BadRequest(String),
    /// Response 500.
    Internal(String),
}

impl NestedContainers {
    /// An empty set. The processes are tracked by `tracker` and end with `token`.
    pub(crate) fn new(tracker: TaskTracker, token: CancellationToken) -> Self {
        Self {
            inner: Mutex::default(),
            tracker,
            token,
        }
    }

    fn lock(&self) -> MutexGuard<'_, NestedState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allows commands in this task from now on, until it ends.
    pub(crate) fn task_started(&self, task: RunningTask) {
        self.lock().tasks.insert(task.launch.container.clone(), task);
    }

    /// Kills and removes all nested containers of the task, and waits until their processes have
    /// ended.
    pub(crate) async fn task_ended(&self, container: &str) {
        let children: Vec<NestedContainer> = {
            let mut inner = self.lock();
            inner.tasks.remove(container);
            let children = inner
                .nested
                .values()
                .filter(|nested| nested.parent == container)
                .cloned()
                .collect();
            inner.nested.retain(|_, nested| nested.parent != container);
            children
        };
        for mut nested in children {
            nested.kill.cancel();
            let _ = nested.ended.wait_for(Option::is_some).await;
        }
    }

    /// Starts a command in a task and streams its output as `ProcessIO` records. The command is
    /// killed when the client disconnects.
    pub(crate) fn session(&self, id: &Value, command: &Value) -> Result<mpsc::Receiver<Bytes>, NestedError> {
        let (process, nested) = self.start(id, command, true)?;
        let (records, receiver) = mpsc::channel(MAX_UNREAD_RECORDS);
        self.tracker
            .spawn(supervise(self.token.clone(), process, nested, Some(records)));
        Ok(receiver)
    }

    /// Starts a command in a task; its output goes to the task's own files.
    pub(crate) fn launch(&self, id: &Value, command: &Value) -> Result<(), NestedError> {
        let (process, nested) = self.start(id, command, false)?;
        self.tracker
            .spawn(supervise(self.token.clone(), process, nested, None));
        Ok(())
    }

    fn start(
        &self,
        id: &Value,
        info: &Value,
        piped: bool,
    ) -> Result<(Process, ProcessChannels), NestedError> {
        let (Some(own_id), Some(parent)) = (id["value"].as_str(), id["parent"]["value"].as_str()) else {
            return Err(NestedError::BadRequest(
                "Expecting 'container_id.parent' to be present".to_owned(),
            ));
        };
        let mut inner = self.lock();
        let Some(task) = inner.tasks.get(parent).cloned() else {
            return Err(NestedError::NotFound(format!(
                "Container {parent} cannot be found"
            )));
        };
        let containerizer = task.container.as_ref().map(|container| container.containerizer());
        if containerizer == Some(Containerizer::Docker) {
            return Err(NestedError::Internal(
                "Nested containers are not supported".to_owned(),
            ));
        }
        if inner.nested.contains_key(own_id) {
            return Err(NestedError::BadRequest(format!(
                "Container {parent}.{own_id} already exists"
            )));
        }
        if inner.nested.len() >= MAX_CONTAINERS {
            return Err(NestedError::Internal(format!(
                "There are {MAX_CONTAINERS} nested containers already: remove some"
            )));
        }
        let process = spawn(info, &task, piped)
            .map_err(|error| NestedError::Internal(format!("Failed to launch container: {error}")))?;
        let (sender, ended) = watch::channel(None);
        let kill = CancellationToken::new();
        let nested = NestedContainer {
            parent: parent.to_owned(),
            pid: process.pid,
            ended,
            kill: kill.clone(),
        };
        inner.nested.insert(own_id.to_owned(), nested);
        Ok((process, ProcessChannels { ended: sender, kill }))
    }

    fn find(&self, id: &Value) -> Result<NestedContainer, NestedError> {
        let own_id = id["value"].as_str().unwrap_or_default();
        self.lock()
            .nested
            .get(own_id)
            .cloned()
            .ok_or_else(|| NestedError::NotFound(format!("Container {own_id} cannot be found")))
    }

    /// Waits for the end of the process and returns the raw wait status.
    pub(crate) async fn wait(&self, id: &Value) -> Result<i32, NestedError> {
        let mut nested = self.find(id)?;
        let ended = nested.ended.wait_for(Option::is_some).await.map(|status| *status);
        ended
            .ok()
            .flatten()
            .ok_or_else(|| NestedError::Internal("The container ended with the cluster".to_owned()))
    }

    /// Signals the process; without a signal, kills it.
    pub(crate) fn kill(&self, id: &Value, signal: Option<i64>) -> Result<(), NestedError> {
        let nested = self.find(id)?;
        let signal = signal.map_or(Ok(Signal::SIGKILL), |n| {
            i32::try_from(n)
                .map_err(|_| n)
                .and_then(|n| Signal::try_from(n).map_err(|_| n.into()))
        });
        match signal {
            Err(number) => Err(NestedError::BadRequest(format!("{number} is not a signal"))),
            Ok(_) if nested.ended.borrow().is_some() => Ok(()),
            Ok(signal) => {
                signal_group(nested.pid, signal);
                Ok(())
            }
        }
    }

    /// Removes an ended container.
    pub(crate) fn remove(&self, id: &Value) -> Result<(), NestedError> {
        let nested = self.find(id)?;
        if nested.ended.borrow().is_none() {
            return Err(NestedError::BadRequest(
                "Nested container has not terminated yet".to_owned(),
            ));
        }
        self.lock()
            .nested
            .remove(id["value"].as_str().unwrap_or_default());
        Ok(())
    }
}

/// The sending ends of a nested container's channels, owned by the task that runs it.
struct ProcessChannels {
    ended: watch::Sender<Option<i32>>,
    kill: CancellationToken,
}

fn spawn(info: &Value, task: &RunningTask, piped: bool) -> io::Result<Process> {
    let mut command = task
        .command(info)
        .ok_or_else(|| io::Error::other("the command has no value"))?;
    if piped {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    } else {
        let (stdout, stderr) = super::sandbox::open_output_files(&task.launch.directory)?;
        command.stdout(stdout).stderr(stderr);
    }
    Process::spawn(command)
}

/// Waits until the command has ended and its output has been sent.
async fn supervise(
    token: CancellationToken,
    mut process: Process,
    nested: ProcessChannels,
    records: Option<mpsc::Sender<Bytes>>,
) {
    let (stdout, stderr) = (process.child.stdout.take(), process.child.stderr.take());
    let client_disconnected = async {
        match &records {
            Some(records) => records.closed().await,
            None => std::future::pending().await,
        }
    };
    let process_exit = async {
        tokio::select! {
            ended = process.wait() => ended,
            () = nested.kill.cancelled() => process.destroy().await,
            () = token.cancelled() => process.destroy().await,
            () = client_disconnected => process.destroy().await,
        }
    };
    let (ended, (), ()) = tokio::join!(
        process_exit,
        stream_output(stdout, "STDOUT", records.as_ref()),
        stream_output(stderr, "STDERR", records.as_ref())
    );
    nested
        .ended
        .send_replace(Some(ended.map_or(-1, process::raw_status)));
}

/// Sends the output as DATA records, until its end or until the client disconnects.
async fn stream_output(
    from: Option<impl AsyncRead + Unpin>,
    kind: &str,
    records: Option<&mpsc::Sender<Bytes>>,
) {
    let (Some(mut from), Some(records)) = (from, records) else {
        return;
    };
    let mut buffer = vec![0; 8192];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let data = base64::engine::general_purpose::STANDARD.encode(&buffer[..read]);
        let record = recordio::record(&json!({"type": "DATA", "data": {"type": kind, "data": data}}));
        if records.send(record).await.is_err() {
            return;
        }
    }
}
