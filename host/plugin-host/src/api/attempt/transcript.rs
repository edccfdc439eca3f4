//! The transcript of an attempt, for comparison and for the call log.

use std::sync::Arc;

use crate::{
    documents::ObservedCall,
    error::CallError,
    runtime::{recording::Recorder, version_context::VersionContext},
    worlds::{
        probe::Request,
        step::{Answer, Step},
    },
};

/// An attempt that is recorded.
pub(super) struct AttemptRecording<'a> {
    pub(super) recorder: &'a Recorder,
    began: std::time::Instant,
}

impl<'a> AttemptRecording<'a> {
    /// Starts a recording. `None` if the attempt is not recorded.
    pub(super) fn begin(context: &'a VersionContext) -> Option<AttemptRecording<'a>> {
        let recorder = context.recorder()?;
        let began = recorder.begin()?;
        Some(AttemptRecording { recorder, began })
    }

    pub(super) fn end(
        &self,
        request: &Arc<Request>,
        memory: u64,
        steps: Vec<(Step, Answer)>,
        end: Option<Step>,
        fault: Option<&CallError>,
    ) {
        let call = ObservedCall::Attempt {
            request: Arc::clone(request),
            steps,
            end,
        };
        self.recorder.end(self.began, call, fault, memory);
    }
}

/// Maximum size in bytes of a transcript. Longer attempts are neither compared nor recorded.
const MAX_TRANSCRIPT: usize = 256 << 10;

/// An attempt's steps with their answers, for comparison and for the call log.
#[derive(Default)]
pub(super) struct Transcript {
    pub(super) steps: Vec<(Step, Answer)>,
    bytes: usize,
}

impl Transcript {
    pub(super) fn add_step(&mut self, step: Step, answer: &Answer) {
        self.bytes += step.bytes() + answer.bytes();
        if self.is_too_large() {
            self.steps = Vec::new();
        } else {
            self.steps.push((step, answer.clone()));
        }
    }

    pub(super) fn is_too_large(&self) -> bool {
        self.bytes > MAX_TRANSCRIPT
    }
}
