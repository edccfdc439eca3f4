//! Replay: repeats the recorded calls of one version on another one, and compares the answers.
//!
//! A recorded call has the form of a case and runs like a self-test: on separate instances, under
//! the limits of the manifest, without input or output. After a fault the next call gets a new
//! instance. Where the record has a mask, any value is equal.

mod report;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use transom_common::text::{clip, one_line};
use transom_plugin_cases::{Answer, CallRecord, Masks as AnswerMasks, RecordedCalls, compare, question};

use crate::{
    manifest::masks::Masks,
    observe::version_metrics::{Times, VersionMetrics},
    runtime::{engine::Engine, version_context::VersionContext},
    self_test::{CaseAgents, PreparedCase, TestInstance, Testable},
    worlds::WorldName,
};
pub use report::{DifferenceExample, DifferenceGroup, ReplayReport, Sides, Skipped};

/// Number of faults after which the replay stops, because each costs a new instance and a log line.
const MAX_FAULTS: u64 = 100;
/// Maximum number of bytes of an error that is shown.
const MAX_TEXT_BYTES: usize = 200;

/// The version on which calls are replayed.
pub(crate) struct ReplayTarget<'a, W: Testable> {
    pub(crate) engine: &'a Engine,
    pub(crate) pre: &'a W::Pre,
    /// The context of the replay's instances, with separate metrics.
    pub(crate) context: Arc<VersionContext>,
    pub(crate) world: WorldName,
    pub(crate) masks: &'a Masks,
}

/// Replays all calls that can be repeated, until the deadline.
pub(crate) async fn replay<W: Testable>(
    target: ReplayTarget<'_, W>,
    recorded: &RecordedCalls,
    deadline: Option<Instant>,
) -> ReplayReport {
    let mut replay = Replay {
        target,
        test_instance: None,
        agents: ParsedAgents::default(),
        report: ReplayReport::default(),
        times: (Times::default(), Times::default()),
        cpu: Duration::ZERO,
        call_count: 0,
    };
    for record in &recorded.calls {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            replay.report.skipped.late += 1;
            continue;
        }
        if replay.report.failed + replay.report.still_failing >= MAX_FAULTS {
            replay.report.skipped.given_up += 1;
            continue;
        }
        replay.replay_call(record, &recorded.agents).await;
        // Without this, a thousand short calls would be one long poll.
        tokio::task::yield_now().await;
    }
    replay.into_report()
}

struct Replay<'a, W: Testable> {
    target: ReplayTarget<'a, W>,
    test_instance: Option<TestInstance<W>>,
    agents: ParsedAgents,
    report: ReplayReport,
    /// Durations of the recorded calls, and of the candidate's.
    times: (Times, Times),
    cpu: Duration,
    call_count: u32,
}

/// The agents of the last call. Many calls in a row share a set, which is parsed once.
#[derive(Default)]
struct ParsedAgents(Option<(u64, Result<Arc<CaseAgents>, String>)>);

impl ParsedAgents {
    /// The agents of a call. `None` if the call has no agent set.
    fn of(
        &mut self,
        record: &CallRecord,
        sets: &BTreeMap<u64, Arc<Value>>,
    ) -> Result<Option<Arc<CaseAgents>>, String> {
        let Some(number) = record.agents else {
            return Ok(None);
        };
        let parsed = match self.0.take() {
            Some((cached_number, parsed)) if cached_number == number => parsed,
            _ => match sets.get(&number) {
                Some(set) => CaseAgents::read(set).map(Arc::new),
                None => Err("its agents are missing".to_owned()),
            },
        };
        self.0 = Some((number, parsed.clone()));
        parsed.map(Some)
    }
}

/// Why there is no answer.
enum NoAnswer {
    /// A fault of the component: its label in metrics, and its text.
    Fault(&'static str, String),
    /// The component requests other steps than the recorded ones, so that the recorded answers do
    /// not fit.
    OtherSteps(String),
    /// The engine's pool had no free slot for an instance.
    NoInstance,
}

impl<W: Testable> Replay<'_, W> {
    async fn replay_call(&mut self, record: &CallRecord, agents: &BTreeMap<u64, Arc<Value>>) {
        let skipped = &mut self.report.skipped;
        if record.world != self.target.world.short() {
            skipped.other_world += 1;
            return;
        }
        if record.interface != self.target.world.interface_version() {
            skipped.other_interface += 1;
            return;
        }
        if record.masked_call {
            skipped.masked += 1;
            return;
        }
        let prepared = self
            .agents
            .of(record, agents)
            .and_then(|agents| PreparedCase::<W>::recorded(&record.case, agents.as_ref()));
        let prepared = match prepared {
            Ok(prepared) if prepared.expected.is_some() || record.fault.is_some() => prepared,
            other => {
                let reason = other.err().unwrap_or_else(|| "it has no answer".to_owned());
                let reason = || {
                    format!(
                        "{} at {}: {}",
                        record.call,
                        record.at,
                        clip(&one_line(&reason), MAX_TEXT_BYTES)
                    )
                };
                skipped.invalid += 1;
                skipped.invalid_reason.get_or_insert_with(reason);
                return;
            }
        };
        let expected = prepared.expected.clone();
        let found = self.ask(record, prepared).await;
        match (&record.fault, found) {
            (_, Err(NoAnswer::NoInstance)) => self.report.skipped.late += 1,
            (Some(_), Ok(_)) => self.report.recovered += 1,
            (Some(_), Err(_)) => self.report.still_failing += 1,
            (None, Ok(found)) => self.compare(record, &expected.unwrap_or_default(), &found),
            (None, Err(NoAnswer::Fault(outcome, error))) => {
                self.report.failed += 1;
                self.add(
                    record,
                    format!("{}: {outcome}", record.call),
                    question(&record.call, &record.case),
                    any_answer(),
                    &error,
                );
            }
            (None, Err(NoAnswer::OtherSteps(error))) => {
                self.report.different += 1;
                let kind = format!("{}: other steps", record.call);
                self.add(
                    record,
                    kind,
                    question(&record.call, &record.case),
                    any_answer(),
                    &error,
                );
            }
        }
        self.report.compared = self.report.same + self.report.different + self.report.failed;
    }

    fn compare(&mut self, record: &CallRecord, expected: &Answer, found: &Answer) {
        let Some(difference) = compare(expected, found, AnswerMasks::Possible) else {
            self.report.same += 1;
            return;
        };
        self.report.different += 1;
        let kind = format!("{}: {}", record.call, difference.change);
        let question = difference.question(&record.call, &record.case);
        self.add(record, kind, question, difference.first, &difference.second);
    }

    fn add(
        &mut self,
        record: &CallRecord,
        kind: String,
        question: String,
        recorded: String,
        candidate: &str,
    ) {
        let mut candidate = Value::from(candidate);
        // The candidate's own secrets are masked, too.
        self.target.masks.apply(&mut candidate);
        let candidate = candidate.as_str().map(|it| clip(&one_line(it), MAX_TEXT_BYTES));
        let example = DifferenceExample {
            at: record.at,
            version: record.version.clone(),
            question,
            recorded,
            candidate: candidate.unwrap_or_default(),
        };
        self.report.add(kind, example);
    }

    async fn ask(&mut self, record: &CallRecord, prepared: PreparedCase<W>) -> Result<Answer, NoAnswer> {
        let metrics = self.target.context.metrics.clone();
        let faults = Faults::of(&metrics);
        let mut test_instance = if let Some(test_instance) = self.test_instance.take() {
            test_instance
        } else {
            let started = self.start().await;
            started.map_err(|error| match faults.no_answer(&metrics, error) {
                NoAnswer::OtherSteps(_) => NoAnswer::NoInstance,
                fault => fault,
            })?
        };
        let cpu = test_instance.instance.usage().1;
        let start_time = Instant::now();
        let found = prepared
            .execute(&mut test_instance.instance, &test_instance.shared)
            .await;
        let duration = start_time.elapsed();
        self.call_count += 1;
        self.cpu += test_instance.instance.usage().1.saturating_sub(cpu);
        self.times.0.add(Duration::from_micros(record.micros));
        self.times.1.add(duration);
        self.report.memory.recorded = self.report.memory.recorded.max(record.memory);
        // The guest resources of this call are dropped before the next call.
        drop(prepared);
        let found = found.map_err(|error| faults.no_answer(&metrics, error));
        let is_intact = !matches!(found, Err(NoAnswer::Fault(..)));
        if is_intact
            && test_instance.drop_resources().await.is_ok()
            && !test_instance.instance.should_recycle()
        {
            self.test_instance = Some(test_instance);
        }
        found
    }

    async fn start(&mut self) -> Result<TestInstance<W>, String> {
        let target = &self.target;
        TestInstance::new(target.engine, target.pre, &target.context).await
    }

    fn into_report(self) -> ReplayReport {
        let micros = |times: &Times, per_mille| {
            let time = times.at(per_mille)?;
            u64::try_from(time.as_micros()).ok()
        };
        let sides = |per_mille| Sides {
            recorded: micros(&self.times.0, per_mille),
            candidate: micros(&self.times.1, per_mille),
        };
        let mut report = ReplayReport {
            p50_micros: sides(500),
            p99_micros: sides(990),
            cpu_micros_per_call: self.cpu.as_secs_f64() * 1e6 / f64::from(self.call_count.max(1)),
            ..self.report
        };
        report.memory.candidate = self.target.context.metrics.memory_peak();
        report.sort();
        report
    }
}

fn any_answer() -> String {
    "an answer".to_owned()
}

/// The number of faults of a version, to detect whether a call added one.
struct Faults {
    traps: u64,
    timeouts: u64,
}

impl Faults {
    fn of(metrics: &VersionMetrics) -> Faults {
        Faults {
            traps: metrics.traps(),
            timeouts: metrics.timeouts(),
        }
    }

    fn no_answer(&self, metrics: &VersionMetrics, error: String) -> NoAnswer {
        if metrics.traps() > self.traps {
            NoAnswer::Fault("trap", error)
        } else if metrics.timeouts() > self.timeouts {
            NoAnswer::Fault("timeout", error)
        } else {
            NoAnswer::OtherSteps(error)
        }
    }
}
