//! Commands inside a task's container, from the agent API: sessions whose output is streamed, and
//! plain commands.
//!
//! Here a nested container is a process group in the task's sandbox, with the task's environment.
//! If the task has an image, it is a command inside the task's container. It ends when its task
//! ends. Docker's containerizer has no nested containers.

use super::{
    check::Place,
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
const CONTAINERS: usize = 1024;
/// Maximum records of a session that its client has not read yet.
const RECORDS: usize = 64;

/// The running tasks and their nested containers.
#[derive(Debug)]
pub(crate) struct Containers {
    inner: Mutex<Inner>,
    /// Tracks the tasks that run nested containers.
    tracker: TaskTracker,
    /// Ends all nested containers.
    token: CancellationToken,
}

#[derive(Debug, Default)]
struct Inner {
    /// Running tasks by container id.
    tasks: HashMap<String, Place>,
    /// Nested containers by id.
    nested: HashMap<String, Nested>,
}

#[derive(Clone, Debug)]
struct Nested {
    parent: String,
    pid: u32,
    /// The raw wait status, once the process has ended.
    ended: watch::Receiver<Option<i32>>,
    /// Kills the process.
    kill: CancellationToken,
}

/// The reason why a call for a nested container fails.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Response 404.
    Unknown(String),
    /// Response 400.
    Bad(String),
    /// Response 500.
    Failed(String),
}

impl Containers {
    /// An empty set. The processes are tracked by `tracker` and end with `token`.
    pub(crate) fn new(tracker: TaskTracker, token: CancellationToken) -> Self {
        Self {
            inner: Mutex::default(),
            tracker,
            token,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allows commands in this task from now on, until it ends.
    pub(crate) fn task_began(&self, place: Place) {
        self.lock().tasks.insert(place.launch.container.clone(), place);
    }

    /// Kills and removes all nested containers of the task, and waits until their processes have
    /// ended.
    pub(crate) async fn task_ended(&self, container: &str) {
        let inside: Vec<Nested> = {
            let mut inner = self.lock();
            inner.tasks.remove(container);
            let inside = inner
                .nested
                .values()
                .filter(|nested| nested.parent == container)
                .cloned()
                .collect();
            inner.nested.retain(|_, nested| nested.parent != container);
            inside
        };
        for mut nested in inside {
            nested.kill.cancel();
            let _ = nested.ended.wait_for(Option::is_some).await;
        }
    }

    /// Starts a command in a task and streams its output as `ProcessIO` records. The command is
    /// killed when the client disconnects.
    pub(crate) fn session(&self, id: &Value, command: &Value) -> Result<mpsc::Receiver<Bytes>, Failure> {
        let (process, nested) = self.start(id, command, true)?;
        let (records, receiver) = mpsc::channel(RECORDS);
        self.tracker
            .spawn(attend(self.token.clone(), process, nested, Some(records)));
        Ok(receiver)
    }

    /// Starts a command in a task; its output goes to the task's own files.
    pub(crate) fn launch(&self, id: &Value, command: &Value) -> Result<(), Failure> {
        let (process, nested) = self.start(id, command, false)?;
        self.tracker
            .spawn(attend(self.token.clone(), process, nested, None));
        Ok(())
    }

    fn start(&self, id: &Value, info: &Value, piped: bool) -> Result<(Process, Running), Failure> {
        let (Some(own), Some(parent)) = (id["value"].as_str(), id["parent"]["value"].as_str()) else {
            return Err(Failure::Bad(
                "Expecting 'container_id.parent' to be present".to_owned(),
            ));
        };
        let mut inner = self.lock();
        let Some(place) = inner.tasks.get(parent).cloned() else {
            return Err(Failure::Unknown(format!("Container {parent} cannot be found")));
        };
        let containerizer = place
            .container
            .as_ref()
            .map(|container| container.containerizer());
        if containerizer == Some(Containerizer::Docker) {
            return Err(Failure::Failed("Nested containers are not supported".to_owned()));
        }
        if inner.nested.contains_key(own) {
            return Err(Failure::Bad(format!("Container {parent}.{own} already exists")));
        }
        if inner.nested.len() >= CONTAINERS {
            return Err(Failure::Failed(format!(
                "There are {CONTAINERS} nested containers already: remove some"
            )));
        }
        let process = spawn(info, &place, piped)
            .map_err(|error| Failure::Failed(format!("Failed to launch container: {error}")))?;
        let (sender, ended) = watch::channel(None);
        let kill = CancellationToken::new();
        let nested = Nested {
            parent: parent.to_owned(),
            pid: process.pid,
            ended,
            kill: kill.clone(),
        };
        inner.nested.insert(own.to_owned(), nested);
        Ok((process, Running { ended: sender, kill }))
    }

    fn find(&self, id: &Value) -> Result<Nested, Failure> {
        let own = id["value"].as_str().unwrap_or_default();
        self.lock()
            .nested
            .get(own)
            .cloned()
            .ok_or_else(|| Failure::Unknown(format!("Container {own} cannot be found")))
    }

    /// Waits for the end of the process and returns the raw wait status.
    pub(crate) async fn wait(&self, id: &Value) -> Result<i32, Failure> {
        let mut nested = self.find(id)?;
        let ended = nested.ended.wait_for(Option::is_some).await.map(|status| *status);
        ended
            .ok()
            .flatten()
            .ok_or_else(|| Failure::Failed("The container ended with the cluster".to_owned()))
    }

    /// Signals the process; without a signal, kills it.
    pub(crate) fn kill(&self, id: &Value, signal: Option<i64>) -> Result<(), Failure> {
        let nested = self.find(id)?;
        let signal = signal.map_or(Ok(Signal::SIGKILL), |n| {
            i32::try_from(n)
                .map_err(|_| n)
                .and_then(|n| Signal::try_from(n).map_err(|_| n.into()))
        });
        match signal {
            Err(number) => Err(Failure::Bad(format!("{number} is not a signal"))),
            Ok(_) if nested.ended.borrow().is_some() => Ok(()),
            Ok(signal) => {
                signal_group(nested.pid, signal);
                Ok(())
            }
        }
    }

    /// Removes an ended container.
    pub(crate) fn remove(&self, id: &Value) -> Result<(), Failure> {
        let nested = self.find(id)?;
        if nested.ended.borrow().is_none() {
            return Err(Failure::Bad("Nested container has not terminated yet".to_owned()));
        }
        self.lock()
            .nested
            .remove(id["value"].as_str().unwrap_or_default());
        Ok(())
    }
}

/// The sending ends of a nested container's channels, owned by the task that runs it.
struct Running {
    ended: watch::Sender<Option<i32>>,
    kill: CancellationToken,
}

fn spawn(info: &Value, place: &Place, piped: bool) -> io::Result<Process> {
    let mut command = place
        .command(info)
        .ok_or_else(|| io::Error::other("the command has no value"))?;
    if piped {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    } else {
        let (stdout, stderr) = super::sandbox::output(&place.launch.directory)?;
        command.stdout(stdout).stderr(stderr);
    }
    Process::spawn(command)
}

/// Waits until the command has ended and its output has been sent.
async fn attend(
    token: CancellationToken,
    mut process: Process,
    nested: Running,
    records: Option<mpsc::Sender<Bytes>>,
) {
    let (stdout, stderr) = (process.child.stdout.take(), process.child.stderr.take());
    let gone = async {
        match &records {
            Some(records) => records.closed().await,
            None => std::future::pending().await,
        }
    };
    let waited = async {
        tokio::select! {
            ended = process.wait() => ended,
            () = nested.kill.cancelled() => process.destroy().await,
            () = token.cancelled() => process.destroy().await,
            () = gone => process.destroy().await,
        }
    };
    let (ended, (), ()) = tokio::join!(
        waited,
        copy(stdout, "STDOUT", records.as_ref()),
        copy(stderr, "STDERR", records.as_ref())
    );
    nested.ended.send_replace(Some(ended.map_or(-1, process::raw)));
}

/// Sends the output as DATA records, until its end or until the client disconnects.
async fn copy(from: Option<impl AsyncRead + Unpin>, kind: &str, records: Option<&mpsc::Sender<Bytes>>) {
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
