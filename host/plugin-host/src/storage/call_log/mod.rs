//! The call log: a sample of the calls of each plugin with their answers, on disk.
//!
//! Serving versions send their calls through a bounded queue, and one task writes them on blocking
//! threads. Before a record is written, its secrets are masked and its size is checked. A record is
//! one line of JSON; each plugin has a folder, limited in size and age (`segments`). Lost records
//! are counted: those dropped at a full queue, those that are too large, and those that could not
//! be written. Reading (`reader`) waits until everything queued before is written.

mod reader;
mod record;
mod segments;

use std::{
    collections::{HashMap, hash_map::Entry},
    io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc},
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use transom_plugin_cases::RecordedCalls;

use crate::{
    config::Recording,
    documents,
    observe::metrics::{Metrics, RecordingMetrics},
    runtime::{
        executor::run_blocking,
        recording::{CallQueue, Message, Observation, RecordedVersion, Recorder, millis_now},
    },
};
pub(crate) use reader::CallSelection;
use record::{Line, line, record};
use segments::{AgentSetNumber, SegmentLimits, Segments};

/// Capacity of the queue to the writer.
const QUEUE_CAPACITY: usize = 256;
/// Pause between two batches: see [`CallQueue`].
const BATCH_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum size in bytes of an agent set.
const MAX_AGENT_SET_BYTES: usize = 4 << 20;
/// Minimum size in bytes of an agent in a record. A set that is too large by this measure is not
/// converted.
const MIN_AGENT_BYTES: usize = 32;
/// Interval of deleting old records of plugins that are not called.
const SWEEP_INTERVAL: Duration = Duration::from_mins(10);
/// Maximum time that a reader waits for the writer.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// Why recorded calls cannot be read. Display is for an operator.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    #[error("cannot read the recorded calls in {dir}: {error}")]
    Unreadable { dir: String, error: io::Error },
    #[error("the plugin host is stopping")]
    Stopped,
}

/// The log's handle. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct CallLog {
    settings: Arc<Recording>,
    queue: CallQueue,
    metrics: Metrics,
}

/// The task that writes the log.
pub(crate) struct Writer {
    settings: Arc<Recording>,
    messages: mpsc::Receiver<Message>,
    write_now: Arc<Notify>,
}

impl CallLog {
    pub(crate) fn new(settings: Recording, metrics: Metrics) -> (CallLog, Writer) {
        let settings = Arc::new(settings);
        let (queue, messages, write_now) = CallQueue::new(QUEUE_CAPACITY);
        let log = CallLog {
            settings: Arc::clone(&settings),
            queue,
            metrics,
        };
        let writer = Writer {
            settings,
            messages,
            write_now,
        };
        (log, writer)
    }

    /// Returns the recorder of a version that begins to serve.
    pub(crate) fn recorder(&self, version: &Arc<RecordedVersion>) -> Recorder {
        Recorder {
            metrics: self.metrics.recording(&version.plugin),
            version: Arc::clone(version),
            queue: self.queue.clone(),
            sample_percent: self.settings.sample_percent,
            max_record: self.settings.max_record,
            calls: AtomicU64::new(0),
        }
    }

    /// Returns the recorded calls of a plugin.
    pub(crate) async fn read(
        &self,
        plugin: &str,
        since: Duration,
        max: usize,
        version: Option<(String, String)>,
    ) -> Result<RecordedCalls, LogError> {
        self.flush().await?;
        let dir = folder(&self.settings, plugin);
        let age = u64::try_from(since.min(self.settings.max_age).as_millis()).unwrap_or(u64::MAX);
        let since = millis_now().saturating_sub(age);
        let read = run_blocking(move || {
            let version = version
                .as_ref()
                .map(|(digest, manifest)| (&**digest, &**manifest));
            let selection = CallSelection { since, max, version };
            reader::read(&dir, selection).map_err(|error| LogError::Unreadable {
                dir: dir.display().to_string(),
                error,
            })
        });
        read.await.map_err(|_| LogError::Stopped)?
    }

    async fn flush(&self) -> Result<(), LogError> {
        match timeout(FLUSH_TIMEOUT, self.queue.flush()).await {
            // After a timeout, because the disk is busy, the records written so far are read.
            Ok(Some(())) | Err(_) => Ok(()),
            Ok(None) => Err(LogError::Stopped),
        }
    }
}

fn folder(settings: &Recording, plugin: &str) -> PathBuf {
    settings.dir.join(plugin)
}

impl Writer {
    /// Writes records until the host stops, and then those in the queue.
    pub(crate) async fn run(mut self, token: CancellationToken) {
        let mut files = LogFiles {
            settings: self.settings,
            plugins: HashMap::new(),
            last_write_failed: false,
        };
        let mut sweep = interval(SWEEP_INTERVAL);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let mut batch = Vec::new();
            let mut is_sweep_due = false;
            tokio::select! {
                biased;
                () = token.cancelled(), if !self.messages.is_closed() => {
                    self.messages.close();
                    continue;
                }
                _ = sweep.tick() => is_sweep_due = true,
                read = self.messages.recv_many(&mut batch, QUEUE_CAPACITY) => if read == 0 {
                    return;
                },
            }
            let written = run_blocking(move || {
                files.write(batch);
                if is_sweep_due {
                    files.delete_old(millis_now());
                }
                files
            });
            files = match written.await {
                Ok(files) => files,
                Err(error) => {
                    tracing::error!("calls are no longer recorded: {error}");
                    return;
                }
            };
            tokio::select! {
                () = token.cancelled() => {}
                () = self.write_now.notified() => {}
                () = sleep(BATCH_INTERVAL) => {}
            }
        }
    }
}

/// The files of all plugins. All methods block.
struct LogFiles {
    settings: Arc<Recording>,
    plugins: HashMap<String, Segments>,
    /// Whether the last write failed. Repeated failures are logged once.
    last_write_failed: bool,
}

/// Why a call is not in the log.
enum WriteError {
    TooLarge,
    Failed(io::Error),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> WriteError {
        WriteError::Failed(error)
    }
}

impl LogFiles {
    fn write(&mut self, batch: Vec<Message>) {
        for message in batch {
            match message {
                // The reader may have stopped waiting.
                Message::Flush(done) => drop(done.send(())),
                Message::Call(call) => {
                    let written = self.write_call(&call);
                    self.count(written, &call.metrics);
                }
            }
        }
    }

    fn count(&mut self, written: Result<(), WriteError>, metrics: &RecordingMetrics) {
        match written {
            Ok(()) => {
                metrics.recorded.inc();
                self.last_write_failed = false;
            }
            Err(WriteError::TooLarge) => drop(metrics.too_large.inc()),
            Err(WriteError::Failed(error)) => {
                metrics.failed.inc();
                if !std::mem::replace(&mut self.last_write_failed, true) {
                    let dir = self.settings.dir.display();
                    tracing::warn!("cannot record calls of plugins in {dir}: {error}");
                }
            }
        }
    }

    fn write_call(&mut self, call: &Observation) -> Result<(), WriteError> {
        let half_segment = self.limits().segment() / 2;
        let half_segment = usize::try_from(half_segment).unwrap_or(usize::MAX);
        let max_record = self.settings.max_record.min(half_segment);
        let segments = self.segments(&call.version.plugin)?;
        let Some(agents) = call.call.agents() else {
            let record = line(&record(call, None), max_record).ok_or(WriteError::TooLarge)?;
            return Ok(segments.append(&record, call.at)?);
        };
        // This may start a new file. It precedes the lookup of the agent set, which has to be in
        // the same file as the call.
        segments.make_room(max_record as u64, call.at);
        if let Some(set) = segments.agents(agents.key()) {
            let record = line(&record(call, Some(set)), max_record).ok_or(WriteError::TooLarge)?;
            return Ok(segments.append(&record, call.at)?);
        }
        if agents.len() > MAX_AGENT_SET_BYTES / MIN_AGENT_BYTES {
            return Err(WriteError::TooLarge);
        }
        let mut value = documents::matcher::agents(agents);
        let set = AgentSetNumber {
            number: segments.next_set(),
            is_masked: call.version.masks.apply(&mut value),
        };
        let record = line(&record(call, Some(set)), max_record).ok_or(WriteError::TooLarge)?;
        let value = Line::Agents {
            set: set.number,
            agents: Arc::new(value),
        };
        let mut lines = line(&value, MAX_AGENT_SET_BYTES.min(half_segment)).ok_or(WriteError::TooLarge)?;
        lines.extend_from_slice(&record);
        segments.append_agents(&lines, agents.key(), set, call.at)?;
        Ok(())
    }

    fn limits(&self) -> SegmentLimits {
        SegmentLimits {
            max_size: self.settings.max_size.max(Recording::MIN_SIZE),
            max_age: self.settings.max_age,
        }
    }

    fn segments(&mut self, plugin: &str) -> io::Result<&mut Segments> {
        let limits = self.limits();
        Ok(match self.plugins.entry(plugin.to_owned()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Segments::open(&folder(&self.settings, plugin), limits)?),
        })
    }

    /// Deletes the old records of all plugins, including removed ones.
    fn delete_old(&mut self, now: u64) {
        for plugin in folders(&self.settings.dir) {
            match self.segments(&plugin) {
                Ok(segments) => segments.delete_old(now),
                Err(error) => tracing::warn!("cannot delete old recorded calls of {plugin}: {error}"),
            }
        }
    }
}

/// Lists the plugins that have a folder.
fn folders(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let folders = entries.flatten().filter(|it| it.path().is_dir());
    folders
        .filter_map(|it| it.file_name().into_string().ok())
        .collect()
}
