//! Runs the cases of a file, and reports the results.

use std::time::Instant;

use serde::Serialize;
use serde_json::Value;
use transom_plugin_cases::{Answer, Cases, check};
use transom_plugin_host::trial::{CaseInstance, TrialComponent, micros};

/// The verdict of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The answer is the expected one.
    Passed,
    /// The answer differs, or the case has no expectation.
    Differs,
    /// There is no answer because of a fault of the component or an error in the case.
    Failed,
}

/// The result of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Its name, or `case` and its number.
    pub name: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// The answer, as keys of a case: `{"expect": …}` or `{"refused": true}`. `None` if there was
    /// no answer.
    pub found: Option<Answer>,
    /// The expected answer in the same form. `None` if the case has none or is invalid.
    pub expected: Option<Answer>,
    /// The reason in one line. `None` if the case passed.
    pub reason: Option<String>,
    /// The stack in the component, innermost frame first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backtrace: Vec<String>,
    /// Calls into the instance.
    pub calls: u64,
    /// Their processor time in microseconds.
    pub cpu_micros: f64,
    /// Their wall-clock time in microseconds.
    pub wall_micros: f64,
    /// Peak linear memory of the instance in bytes, including its start.
    pub memory: u64,
}

impl Report {
    fn unfinished(name: &str) -> Report {
        Report {
            name: name.to_owned(),
            verdict: Verdict::Failed,
            found: None,
            expected: None,
            reason: None,
            backtrace: Vec::new(),
            calls: 0,
            cpu_micros: 0.0,
            wall_micros: 0.0,
            memory: 0,
        }
    }
}

pub(super) async fn run(component: &TrialComponent, cases: &Cases) -> Vec<Report> {
    let mut reports = Vec::with_capacity(cases.0.len());
    for case in &cases.0 {
        let mut report = Report::unfinished(&case.name);
        if let Err(reason) = run_case(component, &case.case, &mut report).await {
            report.reason = Some(reason);
        }
        reports.push(report);
    }
    reports
}

/// Runs one case. The error is the reason of a failure.
async fn run_case(component: &TrialComponent, case: &Value, report: &mut Report) -> Result<(), String> {
    let case = component.case(case)?;
    report.expected = case.expected().cloned();
    let mut instance = component.instance().await?;
    let before = instance.usage();
    let start = Instant::now();
    let found = instance.execute(&case).await;
    // The guest resources of the case are dropped below, which also calls the component.
    drop(case);
    let dropped = match found {
        Ok(_) => instance.drop_resources().await,
        Err(_) => Ok(()),
    };
    report.wall_micros = micros(start.elapsed());
    let usage = instance.usage();
    report.calls = usage.calls - before.calls;
    report.cpu_micros = micros(usage.cpu.saturating_sub(before.cpu));
    report.memory = usage.memory;
    let verdict = judge(report, found, dropped);
    if verdict.is_err() {
        report.backtrace = backtrace(&instance);
    }
    verdict
}

fn judge(
    report: &mut Report,
    found: Result<Answer, String>,
    dropped: Result<(), String>,
) -> Result<(), String> {
    let found = found?;
    report.found = Some(found.clone());
    dropped.map_err(|error| format!("while its resources were dropped: {error}"))?;
    let checked = check(&found, report.expected.as_ref());
    report.verdict = if checked.is_ok() {
        Verdict::Passed
    } else {
        Verdict::Differs
    };
    checked
}

fn backtrace(instance: &CaseInstance) -> Vec<String> {
    instance.last_trap().map(|it| it.backtrace).unwrap_or_default()
}
