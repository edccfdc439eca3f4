//! [`AttemptLog`]: the steps of one attempt with their times, for an operator.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::worlds::step::{Answer, Step};

/// Maximum number of steps that are kept over all runs of an attempt.
const MAX_STEPS: usize = 256;
/// Maximum size in bytes of the steps and answers that are kept.
const MAX_BYTES: usize = 512 << 10;

/// Collects the steps of one attempt. Steps over the limits are only counted.
#[derive(Debug)]
pub(crate) struct AttemptLog {
    began: Instant,
    steps: Mutex<LoggedSteps>,
}

/// The steps of an attempt.
#[derive(Debug, Default)]
pub(crate) struct LoggedSteps {
    pub(crate) steps: Vec<LoggedStep>,
    /// Number of steps that were left out.
    pub(crate) omitted: u32,
    /// Number of runs. The attempt starts again if its instance is lost.
    pub(crate) runs: u32,
    bytes: usize,
    /// Why the step in progress was denied.
    denial: Option<String>,
}

/// A step that the host has performed.
#[derive(Debug)]
pub(crate) struct LoggedStep {
    /// The run of the attempt, from 1.
    pub(crate) run: u32,
    /// Start of the step, since the beginning of the attempt.
    pub(crate) at: Duration,
    pub(crate) duration: Duration,
    pub(crate) step: Step,
    pub(crate) answer: Answer,
    /// Why the host denied the step.
    pub(crate) denial: Option<String>,
}

impl AttemptLog {
    /// Starts the log at the beginning of the attempt.
    pub(crate) fn new() -> AttemptLog {
        AttemptLog {
            began: Instant::now(),
            steps: Mutex::default(),
        }
    }

    pub(crate) fn begin_run(&self) {
        self.lock().runs += 1;
    }

    /// Records that the step in progress is denied.
    pub(crate) fn set_denial(&self, why: &str) {
        self.lock().denial = Some(why.to_owned());
    }

    /// Records a step that began at `began` and has been answered.
    pub(crate) fn log_step(&self, began: Instant, step: Step, answer: &Answer) {
        let mut log = self.lock();
        let denial = log.denial.take();
        log.bytes += step.bytes() + answer.bytes();
        if log.steps.len() >= MAX_STEPS || log.bytes > MAX_BYTES {
            log.omitted += 1;
            return;
        }
        let run = log.runs;
        log.steps.push(LoggedStep {
            run,
            at: began.duration_since(self.began),
            duration: began.elapsed(),
            step,
            answer: answer.clone(),
            denial,
        });
    }

    /// Returns the collected steps, and the time since the beginning.
    pub(crate) fn finish(self) -> (LoggedSteps, Duration) {
        let duration = self.began.elapsed();
        let steps = self.steps.into_inner().unwrap_or_else(PoisonError::into_inner);
        (steps, duration)
    }

    fn lock(&self) -> MutexGuard<'_, LoggedSteps> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_over_the_limits_are_counted_and_omitted() {
        let step = |bytes: usize| Step::Send(vec![b'x'; bytes]);
        let sent = Answer::Sent(Ok(()));
        let log = AttemptLog::new();
        log.begin_run();
        for _ in 0..MAX_STEPS + 3 {
            log.log_step(Instant::now(), step(1), &sent);
        }
        let (logged, _) = log.finish();
        assert_eq!((logged.steps.len(), logged.omitted), (MAX_STEPS, 3));

        let log = AttemptLog::new();
        log.begin_run();
        log.log_step(Instant::now(), step(MAX_BYTES), &sent);
        log.log_step(Instant::now(), step(1), &sent);
        let (logged, _) = log.finish();
        assert_eq!((logged.steps.len(), logged.omitted), (1, 1));
    }

    #[test]
    fn denial_belongs_to_its_step() {
        let log = AttemptLog::new();
        log.begin_run();
        log.set_denial("grants.command is missing");
        log.log_step(Instant::now(), Step::Receive(1), &Answer::Sent(Ok(())));
        log.begin_run();
        log.log_step(Instant::now(), Step::Receive(1), &Answer::Sent(Ok(())));
        let (logged, _) = log.finish();
        let found: Vec<_> = logged
            .steps
            .iter()
            .map(|it| (it.run, it.denial.as_deref()))
            .collect();
        assert_eq!(found, [(1, Some("grants.command is missing")), (2, None)]);
    }
}
