//! The progress of an admission through its stages, as `transom plugin check` shows it.

use std::time::{Duration, Instant};

use serde::Serialize;
use transom_common::text::clip;

/// The stages of admission, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Stage {
    /// The manifest exists and is valid.
    Manifest,
    /// The component is not larger than `limits.size`.
    Size,
    /// Its digest equals the one that the manifest pins.
    Digest,
    /// A configured key signed it, if any keys are configured.
    Signature,
    /// It compiles.
    Compile,
    /// It exports the interfaces of its world.
    World,
    /// Its imports exist and are granted.
    Imports,
    /// It fits into the instance pool, and its initial size is within its limits.
    Resources,
    /// It links, so its functions have the right types.
    Link,
    /// An instance starts.
    Trial,
    /// It describes itself.
    Describe,
    /// The manifest's `[config]` matches its schema.
    Schema,
    /// It accepts its configuration.
    Configure,
    /// It passes the manifest's self-tests.
    SelfTests,
    /// It answers recorded calls as the serving version did (`rollout = "replay"`).
    Replay,
}

/// A stage.
#[derive(Clone, Debug)]
pub(crate) struct StageRecord {
    pub(crate) stage: Stage,
    /// A short result; may be empty.
    pub(crate) note: String,
    pub(crate) duration: Duration,
}

/// Maximum bytes of a note.
const MAX_NOTE_BYTES: usize = 2048;

/// The stages so far. The last one is in progress, or rejected the component.
#[derive(Clone, Debug, Default)]
pub(crate) struct StageLog {
    records: Vec<StageRecord>,
    stage_start: Option<Instant>,
}

impl StageLog {
    /// Starts a stage; the previous one passed.
    pub(crate) fn begin(&mut self, stage: Stage) {
        self.close();
        self.stage_start = Some(Instant::now());
        self.records.push(StageRecord {
            stage,
            note: String::new(),
            duration: Duration::ZERO,
        });
    }

    /// Sets the result of the current stage.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        if let Some(record) = self.records.last_mut() {
            let note: String = note.into();
            record.note = clip(&note, MAX_NOTE_BYTES);
        }
    }

    fn close(&mut self) {
        if let (Some(record), Some(stage_start)) = (self.records.last_mut(), self.stage_start.take()) {
            record.duration = stage_start.elapsed();
        }
    }

    pub(crate) fn into_records(mut self) -> Vec<StageRecord> {
        self.close();
        self.records
    }
}
