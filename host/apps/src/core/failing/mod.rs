//! Why the instances of an app or pod fail: one sentence for each, with the words of its source and
//! the next step. The overview, the dashboard and the commands show the same. Pure.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

mod checks;
pub(crate) mod launch;
pub(crate) mod stderr;
mod unreachable;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::core::ends::exit_code;
use crate::core::failures::{Cause, Failures};
use crate::core::spec_view::SpecView;
use crate::model::Spec;
use crate::time::Moment;

/// A row of failures is a problem from this length on. Two failures may be the two instances that one
/// restart of an agent ended; the third one follows within seconds if a program cannot run, because
/// the delay of launches begins small.
const MIN_FAILURES: u32 = 3;
/// The kinds of failing tasks and checks.
pub(crate) const KINDS: &[&str] = &[
    "crash-loop",
    "finished",
    "program-not-found",
    "out-of-memory",
    "launch-failed",
    "rejected",
    "killed-unhealthy",
    "failed",
    "unreachable",
    "unhealthy",
    "check-without-result",
    "not-ready",
];
/// The exit codes of a shell, and of a container runtime, for a program that cannot be executed or
/// does not exist.
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;
/// How an agent names the end by SIGKILL.
const KILLED: &str = "terminated with signal Killed";

/// An app or pod whose tasks or checks fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Failing {
    /// The app or pod.
    pub name: String,
    /// `crash-loop`, `finished`, `program-not-found`, `out-of-memory`, `launch-failed`, `rejected`,
    /// `killed-unhealthy` or `failed`; `unreachable`; `unhealthy`, `check-without-result` or `not-ready` if only its
    /// checks fail; `too-large`, `port-absent`, `constraint`, `port-taken` or `volume-agent-away` if no
    /// agent can run an instance.
    pub kind: &'static str,
    /// Failures in a row, 0 if the agent makes the check, which reports only changes; the instances that
    /// no agent can run.
    pub count: u32,
    /// The time of the first of them.
    #[schemars(with = "Moment")]
    pub since: Timestamp,
    /// Host names of agents, at most three.
    pub agents: Vec<String>,
    /// The cause in one sentence, beginning with the name.
    pub message: String,
    /// What an operator can do about it.
    pub advice: String,
    /// The last lines that the last failed task wrote to stderr, while its sandbox exists; only in the
    /// document of one app or pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stderr: Vec<String>,
}

/// The row of failures that is a problem now.
pub(crate) fn row(view: &SpecView, now: Moment) -> Option<&Failures> {
    let row = view.record.failures.as_ref();
    row.filter(|row| row.count >= MIN_FAILURES && now <= row.until)
}

/// What fails of each app and pod, if that is wanted.
pub(crate) fn if_wanted(wanted: bool) -> impl Fn(&SpecView) -> Option<Failing> + Send + 'static {
    move |view| wanted.then(|| Failing::of(view, Moment::now())).flatten()
}

/// Whether [`Failing::of`] may return something for an app or pod, now or later.
pub(crate) fn is_candidate(view: &SpecView) -> bool {
    let row = view.record.failures.as_ref();
    row.is_some_and(|row| row.count >= MIN_FAILURES)
        || view.counts.unhealthy > 0
        || view.counts.unchecked > 0
        || unreachable::count(&view.counts) > 0
}

impl Failing {
    /// What fails of an app or pod. The failures of tasks come first, and unreachable agents before
    /// checks, because they are the causes of the others.
    pub(crate) fn of(view: &SpecView, now: Moment) -> Option<Self> {
        match row(view, now) {
            Some(row) => Some(Self::of_row(&view.record.spec, row)),
            None => unreachable::failing(view).or_else(|| checks::failing(view)),
        }
    }

    fn of_row(spec: &Spec, row: &Failures) -> Self {
        let id = spec.id();
        let code = exit_code(&row.last.message);
        let (kind, what, verb) = match (row.last.cause, code) {
            (Cause::Ended, Some(0)) => ("finished", "runs to its end", "ended"),
            (Cause::Ended, Some(NOT_FOUND)) => ("program-not-found", "program not found", "failed"),
            (Cause::Ended, Some(NOT_EXECUTABLE)) => {
                ("program-not-found", "program cannot be executed", "failed")
            }
            (Cause::Ended, _) => ("crash-loop", "crash loop", "failed"),
            (Cause::Memory, _) => ("out-of-memory", "out of memory", "ended"),
            (Cause::Launch, _) => ("launch-failed", "cannot be launched", "failed"),
            (Cause::Rejected, _) => ("rejected", "rejected by the cluster manager", "failed"),
            (Cause::Unhealthy, _) => ("killed-unhealthy", "unhealthy", "killed"),
            (Cause::Other, _) => ("failed", "its tasks fail", "failed"),
        };
        Self {
            kind,
            count: row.count,
            since: row.first.timestamp(),
            agents: row.agents.clone(),
            message: format!(
                "{id}: {what}: {verb} {} times since {} on {}; last: {}",
                row.count,
                to_seconds(row.first),
                row.agents.join(", "),
                row.last.message
            ),
            advice: advice(spec, row, code),
            stderr: Vec::new(),
            name: id.to_string(),
        }
    }
}

/// The time to the second, as sentences show it.
fn to_seconds(moment: Moment) -> impl std::fmt::Display {
    moment.timestamp().strftime("%Y-%m-%dT%H:%M:%SZ")
}

/// What to do about a row of failures.
fn advice(spec: &Spec, row: &Failures, code: Option<i32>) -> String {
    let id = spec.id();
    let app = spec.app();
    match (row.last.cause, code) {
        (Cause::Ended, Some(0)) => {
            "A task that ends is started again: let the program run on, or run it as a job.".to_owned()
        }
        (Cause::Ended, Some(NOT_FOUND | NOT_EXECUTABLE)) => format!(
            "Check the program's name and path{}; the task's stderr names it.",
            if app.is_some() { " in `cmd` or `args`" } else { "" }
        ),
        (Cause::Ended, Some(1)) if app.is_some_and(|app| app.cmd.is_none() && !app.args.is_empty()) => {
            "Read the task's stderr. A program in `args` that does not exist ends with status 1 too: check its \
             path."
                .to_owned()
        }
        (Cause::Ended, _) if row.last.message.contains(KILLED) => format!(
            "Transom has not killed it; the kernel may have, for lack of memory. Check the agent's kernel log, and {}",
            raise_memory(spec)
        ),
        (Cause::Ended | Cause::Other, _) => format!(
            "Read the task's stderr on the agent; `transom apps versions {id}` lists the definitions that ran before."
        ),
        (Cause::Memory, _) => format!("Let the program use less, or {}", raise_memory(spec)),
        (Cause::Launch, _) => match image(spec) {
            Some(image) => format!(
                "Check that the agents can pull {image}: its name and tag, the registry and its credentials; and the \
                 URIs that it fetches."
            ),
            None => "Check the URIs that it fetches, its user and its volumes.".to_owned(),
        },
        (Cause::Rejected, _) => format!("Correct the definition with `transom apps update {id}`."),
        (Cause::Unhealthy, _) => check_advice(spec),
    }
}

fn raise_memory(spec: &Spec) -> String {
    let id = spec.id();
    match spec.app() {
        Some(app) => format!(
            "raise its limit of {} MB: `transom apps update {id} --set mem=…`.",
            app.mem
        ),
        None => format!("raise the `mem` of its containers: `transom apps update {id}`."),
    }
}

/// The first image of an app or pod.
fn image(spec: &Spec) -> Option<&str> {
    match spec {
        Spec::App(app) => Some(&app.container.as_ref()?.docker.as_ref()?.image),
        Spec::Pod(pod) => {
            let mut images = pod.containers.iter().filter_map(|one| one.image.as_ref());
            images.next().map(|image| image.id.as_str())
        }
    }
}

fn check_advice(spec: &Spec) -> String {
    format!(
        "`transom apps tasks {}` lists the tasks with their results; if the program only starts slowly, raise \
         `gracePeriodSeconds`.",
        spec.id()
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use serde_json::json;

    use super::*;
    use crate::core::failures::Failure;
    use crate::testing::app;

    /// `/a` with this row of failures.
    fn view(count: u32, cause: Cause, message: &str, args: &[&str]) -> SpecView {
        let mut body =
            json!({"id": "/a", "mem": 32, "container": {"type": "MESOS", "docker": {"image": "i:1"}}});
        if args.is_empty() {
            body["cmd"] = json!("run");
        } else {
            body["args"] = json!(args);
        }
        let mut view = SpecView::of(app(&body).into());
        let first = "2026-12-01T10:00:00.123Z".parse().unwrap();
        let last = "2026-12-01T10:00:05Z".parse().unwrap();
        std::sync::Arc::make_mut(&mut view.record).failures = Some(Failures {
            count,
            first,
            until: "2026-12-01T10:05:06Z".parse().unwrap(),
            last: Failure::new(cause, last, message, None),
            agents: vec!["n1".to_owned(), "n2".to_owned()],
        });
        view
    }

    #[test]
    fn sentence_has_cause_count_time_agents_and_the_words_of_the_source() {
        let now = "2026-12-01T10:00:06Z".parse().unwrap();
        for (cause, message, kind, what, advice) in [
            (
                Cause::Ended,
                "Command exited with status 3",
                "crash-loop",
                "crash loop: failed",
                "stderr",
            ),
            (
                Cause::Ended,
                "Command terminated with signal Killed",
                "crash-loop",
                "crash loop: failed",
                "raise its limit of 32 MB",
            ),
            (
                Cause::Ended,
                "Container exited with status 127",
                "program-not-found",
                "program not found: failed",
                "`cmd`",
            ),
            (
                Cause::Ended,
                "Command exited with status 126",
                "program-not-found",
                "program cannot be executed: failed",
                "`cmd`",
            ),
            (
                Cause::Ended,
                "Command exited with status 0",
                "finished",
                "runs to its end: ended",
                "as a job",
            ),
            (
                Cause::Memory,
                "Memory limit exceeded: Requested: 32MB",
                "out-of-memory",
                "out of memory: ended",
                "--set mem=",
            ),
            (
                Cause::Launch,
                "Failed to launch container: manifest unknown",
                "launch-failed",
                "cannot be launched: failed",
                "pull i:1",
            ),
            (
                Cause::Unhealthy,
                "503 Service Unavailable",
                "killed-unhealthy",
                "unhealthy: killed",
                "gracePeriodSeconds",
            ),
            (
                Cause::Rejected,
                "Task uses more",
                "rejected",
                "rejected by the cluster manager: failed",
                "Correct",
            ),
            (
                Cause::Other,
                "Executor terminated",
                "failed",
                "its tasks fail: failed",
                "stderr",
            ),
        ] {
            let failing = Failing::of(&view(4, cause, message, &[]), now).unwrap();
            let expected =
                format!("/a: {what} 4 times since 2026-12-01T10:00:00Z on n1, n2; last: {message}");
            assert!(KINDS.contains(&failing.kind), "{kind}");
            assert_eq!((failing.kind, failing.message), (kind, expected));
            assert!(failing.advice.contains(advice), "{}", failing.advice);
        }
        let missing = view(4, Cause::Ended, "Command exited with status 1", &["/nowhere/run"]);
        let advice = Failing::of(&missing, now).unwrap().advice;
        assert!(advice.contains("does not exist ends with status 1"), "{advice}");
    }

    #[test]
    fn row_is_a_problem_from_the_third_failure_until_it_ends() {
        let of = |count, now: &str| {
            let view = view(count, Cause::Ended, "Command exited with status 3", &[]);
            Failing::of(&view, now.parse().unwrap()).map(|failing| failing.count)
        };
        assert_eq!(of(2, "2026-12-01T10:00:06Z"), None);
        assert_eq!(of(3, "2026-12-01T10:00:06Z"), Some(3));
        assert_eq!(of(3, "2026-12-01T10:05:06Z"), Some(3));
        assert_eq!(of(3, "2026-12-01T10:05:07Z"), None);
    }
}
