//! Explains one attempt of a probe by its transcript.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use serde_json::Value;

use super::{CanaryAnswer, CanaryVersion, masked, masked_text};
use crate::{
    api::{
        attempt,
        attempt_log::{AttemptLog, LoggedStep},
        extension_points::ExtensionPoints,
    },
    documents::probe::{expected, given_answer, given_step},
    error::CallError,
    runtime::{engine::worlds::probe::Probe, pool::Version},
    worlds::probe::{Failure, Kind, Outcome, Request, Runner},
};

/// One attempt of a probe, step by step. Secrets are masked as in the call log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProbeTranscript {
    /// The plugin.
    pub plugin: String,
    /// Its own version. `None` if no version serves.
    pub version: Option<String>,
    /// The steps in order.
    pub steps: Vec<TranscriptStep>,
    /// Number of steps that are not listed, because there are too many or their bodies are too
    /// large.
    pub omitted_steps: u32,
    /// Number of runs. The attempt starts again if its instance is lost.
    pub runs: u32,
    /// The result in the form of a self-test: `{"http": 200}`. `None` if there is no result.
    pub outcome: Option<Value>,
    /// Why there is no result.
    pub failure: Option<Failure>,
    /// The result for the caller.
    #[serde(skip)]
    pub result: Result<Outcome, Failure>,
    /// Duration of the whole attempt in microseconds, including the start of the component.
    pub took_micros: u64,
    /// Processor time of the component in microseconds.
    pub cpu_micros: u64,
    /// Peak linear memory of the component in bytes.
    pub memory: u64,
    /// An attempt of the canary, made after this one, if the task is in its share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanaryAnswer<ProbeTranscript>>,
}

/// A step that the component has requested, and the host's answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TranscriptStep {
    /// The run of the attempt, from 1.
    pub run: u32,
    /// Start of the step: microseconds since the beginning of the attempt.
    pub at_micros: u64,
    /// Duration of the step in the host: microseconds.
    pub took_micros: u64,
    /// The step in the form of recorded calls: `{"connect": {"to": "10.0.0.1:80"}}`.
    pub step: Value,
    /// The answer in the same form: `{"connected": 3}`, `{"error": "refused"}`.
    pub answer: Value,
    /// Why the host denied the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied: Option<String>,
}

pub(crate) async fn explain(
    extension_points: &ExtensionPoints,
    kind: &Kind,
    request: Request,
    runner: Option<Arc<dyn Runner>>,
) -> ProbeTranscript {
    let active = match extension_points.prober(kind) {
        Ok(active) => active,
        // No version serves: this failure is the explanation.
        Err(error) => return ProbeTranscript::unanswered(extension_points.bound_prober(kind).1, &error),
    };
    let canary = active.canary(|key| key.part(&request.task));
    let serving_arguments = (request.clone(), runner.clone());
    let mut transcript = attempt_on(
        extension_points,
        active.primary(),
        serving_arguments.0,
        serving_arguments.1,
    )
    .await;
    if let Some(canary) = canary {
        let answer = attempt_on(extension_points, &canary.version, request, runner).await;
        transcript.canary = Some(CanaryAnswer {
            versions: vec![CanaryVersion::of(canary)],
            answer: Box::new(answer),
        });
    }
    transcript
}

/// A part of a case as a document. It can always be converted to JSON.
fn form(part: impl Serialize) -> Value {
    serde_json::to_value(part).unwrap_or_default()
}

/// Makes one attempt on a separate instance.
async fn attempt_on(
    extension_points: &ExtensionPoints,
    version: &Version<Probe>,
    request: Request,
    runner: Option<Arc<dyn Runner>>,
) -> ProbeTranscript {
    let version = version.detached_per_call();
    let log = AttemptLog::new();
    let result = attempt::run_logged(
        &version,
        request,
        runner,
        &extension_points.config.reserved,
        &extension_points.token,
        &log,
    )
    .await;
    let (logged, duration) = log.finish();
    let masks = version.masks.with_credentials();
    let metrics = &version.context.metrics;
    let text = |text: String| masked_text(text, &[&masks]);
    let step = |it: LoggedStep| TranscriptStep {
        run: it.run,
        at_micros: micros(it.at),
        took_micros: micros(it.duration),
        step: masked(form(given_step(&it.step)), &[&masks]),
        answer: masked(form(given_answer(&it.answer)), &[&masks]),
        denied: it.denial.map(text),
    };
    let steps = logged.steps.into_iter().map(step).collect();
    let outcome = result.as_ref().ok();
    let failure = result.as_ref().err().map(|failure| Failure {
        reason: failure.reason,
        message: text(failure.message.clone()),
    });
    ProbeTranscript {
        plugin: version.context.name.clone(),
        version: Some(version.info.version.clone()),
        steps,
        omitted_steps: logged.omitted,
        runs: logged.runs,
        outcome: outcome.map(|outcome| masked(form(expected(outcome)), &[&masks])),
        failure,
        result,
        took_micros: micros(duration),
        cpu_micros: micros(metrics.cpu()),
        memory: metrics.memory_peak(),
        canary: None,
    }
}

impl ProbeTranscript {
    /// The transcript if no version serves.
    fn unanswered(plugin: &str, error: &CallError) -> ProbeTranscript {
        let failure = attempt::failure(error);
        ProbeTranscript {
            plugin: plugin.to_owned(),
            version: None,
            steps: Vec::new(),
            omitted_steps: 0,
            runs: 0,
            outcome: None,
            failure: Some(failure.clone()),
            result: Err(failure),
            took_micros: 0,
            cpu_micros: 0,
            memory: 0,
            canary: None,
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
