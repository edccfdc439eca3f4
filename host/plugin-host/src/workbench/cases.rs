//! Recorded cases: parses, runs and reports them.

use std::{sync::Arc, time::Instant};

use serde::Serialize;
use serde_json::{Map, Value};

use super::micros;
use crate::{
    admission::TrialInstance,
    engine::{Engine, Instance},
    manifest::to_json,
    selftest::{PreparedCase, Testable, differs, named, text},
    version_context::VersionContext,
};

/// Maximum cases of one file.
const MOST: usize = 1000;

/// The cases of a file, in its order. The world parses them when they run.
#[derive(Clone, Debug, PartialEq)]
pub struct Cases(pub(super) Vec<Named>);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) case: Value,
}

/// Why a file has no valid cases. Display names the place and the expectation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CasesError {
    /// Neither TOML nor JSON.
    #[error("{0}")]
    Syntax(String),
    /// It has another structure.
    #[error("expected {expected}, found {found}")]
    Shape {
        /// The found value.
        found: String,
        /// The expected value.
        expected: &'static str,
    },
    /// None, or too many.
    #[error("{0} cases; expected 1 to {MOST}")]
    Number(usize),
}

impl Cases {
    /// TOML: `[[case]]` tables, each with the keys of a `[[self-test]]`, and perhaps a `name`.
    pub fn from_toml(document: &str) -> Result<Cases, CasesError> {
        let table: toml::Table = document
            .parse()
            .map_err(|error: toml::de::Error| CasesError::Syntax(error.to_string()))?;
        let value =
            to_json("", toml::Value::Table(table)).map_err(|error| CasesError::Syntax(error.to_string()))?;
        let expected = "[[case]] tables and nothing else";
        let Value::Object(mut members) = value else {
            return Err(shape("something else", expected));
        };
        let cases = members.remove("case");
        if !members.is_empty() {
            let keys: Vec<String> = members.keys().map(|key| format!("`{key}`")).collect();
            return Err(shape(keys.join(", "), expected));
        }
        match cases {
            Some(Value::Array(cases)) => Cases::of(&cases),
            Some(_) | None => Err(shape("none of them", expected)),
        }
    }

    /// JSON: a list of objects, each with the same keys.
    pub fn from_json(document: &str) -> Result<Cases, CasesError> {
        match serde_json::from_str(document) {
            Ok(Value::Array(cases)) => Cases::of(&cases),
            Ok(_) => Err(shape("another document", "a list of objects")),
            Err(error) => Err(CasesError::Syntax(error.to_string())),
        }
    }

    fn of(cases: &[Value]) -> Result<Cases, CasesError> {
        if cases.is_empty() || cases.len() > MOST {
            return Err(CasesError::Number(cases.len()));
        }
        if let Some(other) = cases.iter().find(|it| !it.is_object()) {
            return Err(shape(other.to_string(), "an object for each case"));
        }
        let named = cases.iter().zip(1..).map(|(case, number)| {
            let (name, case) = named(case);
            let name = name.unwrap_or_else(|| format!("case {number}"));
            Named { name, case }
        });
        Ok(Cases(named.collect()))
    }
}

fn shape(found: impl Into<String>, expected: &'static str) -> CasesError {
    let found = found.into();
    CasesError::Shape { found, expected }
}

/// The verdict of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The answer is the expected one.
    Passed,
    /// The answer differs, or the case has no expectation.
    Differs,
    /// There is no answer: a fault of the component, or an error in the case.
    Failed,
}

/// The result of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Its name, or `case` and its number.
    pub name: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// The answer, as keys of a case: `{"expect": …}` or `{"refused": true}`. None: there was no
    /// answer.
    pub found: Option<Map<String, Value>>,
    /// The expected answer, likewise. None: the case has none, or is invalid.
    pub expected: Option<Map<String, Value>>,
    /// One line for people; none if it passed.
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
    /// Peak linear memory of the instance in bytes, its start included.
    pub memory: u64,
}

impl Report {
    fn begun(name: &str) -> Report {
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

pub(super) async fn run<W: Testable>(engine: &Engine, trial: TrialInstance<W>, cases: &Cases) -> Vec<Report> {
    let mut reports = Vec::with_capacity(cases.0.len());
    for case in &cases.0 {
        let context = trial.new_context();
        let mut report = Report::begun(&case.name);
        if let Err(reason) = one(engine, &trial, &context, &case.case, &mut report).await {
            report.reason = Some(reason);
            report.backtrace = context
                .stats
                .last_trap()
                .map(|it| it.backtrace)
                .unwrap_or_default();
        }
        report.memory = context.stats.memory.load(std::sync::atomic::Ordering::Relaxed);
        reports.push(report);
    }
    reports
}

/// The error is the reason of a failure.
async fn one<W: Testable>(
    engine: &Engine,
    trial: &TrialInstance<W>,
    context: &Arc<VersionContext>,
    case: &Value,
    report: &mut Report,
) -> Result<(), String> {
    let prepared = PreparedCase::<W>::read(case)?;
    report.expected.clone_from(&prepared.expected);
    let mut instance = configured(engine, trial, context).await?;
    let shared = Arc::default();
    let (calls, cpu) = instance.usage();
    let begun = Instant::now();
    let found = prepared.execute(&mut instance, &shared).await;
    let PreparedCase { question, expected } = prepared;
    // Dropping its resources also calls the component.
    drop(question);
    let given_back = match found {
        Ok(_) => W::drop_orphans(&mut instance, &shared).await,
        Err(_) => Ok(()),
    };
    report.wall_micros = micros(begun.elapsed());
    let usage = instance.usage();
    report.calls = usage.0 - calls;
    report.cpu_micros = micros(usage.1.saturating_sub(cpu));
    let found = found?;
    report.found = Some(found.clone());
    given_back.map_err(|fault| {
        format!(
            "while its resources were dropped: {}",
            fault.to_error(&context.name)
        )
    })?;
    match expected {
        Some(expected) if found == expected => {
            report.verdict = Verdict::Passed;
            Ok(())
        }
        Some(expected) => {
            report.verdict = Verdict::Differs;
            Err(differs(&found, &expected))
        }
        None => {
            report.verdict = Verdict::Differs;
            Err(format!("found {}, but the case has no expectation", text(&found)))
        }
    }
}

/// A new configured instance.
pub(super) async fn configured<W: Testable>(
    engine: &Engine,
    trial: &TrialInstance<W>,
    context: &Arc<VersionContext>,
) -> Result<Instance<W>, String> {
    let mut instance = Instance::<W>::instantiate(engine, &trial.pre, context, 0)
        .await
        .map_err(|error| error.to_string())?;
    let taken = instance.configure().await;
    match taken.map_err(|error| error.to_string())? {
        Ok(()) => Ok(instance),
        Err(errors) => Err(format!(
            "it rejects the configuration that it accepted before: {}",
            crate::types::about::ConfigError::list(&errors)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_parse_from_toml_and_json() {
        let cases =
            Cases::from_toml("[[case]]\nname = \"one\"\nexpect = { http = 200 }\n[[case]]\npath = \"/\"\n")
                .unwrap();
        let names: Vec<&str> = cases.0.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["one", "case 2"]);
        assert!(cases.0[0].case.get("name").is_none());
        let json = r#"[{"name": "one", "expect": {"http": 200}}, {"path": "/"}]"#;
        assert_eq!(Cases::from_json(json).unwrap(), cases);
    }

    #[test]
    fn cases_reject_invalid_files() {
        let many = format!("[{}]", vec!["{}"; MOST + 1].join(","));
        for (found, expected) in [
            (Cases::from_toml("x ="), "line 1"),
            (Cases::from_toml(""), "expected [[case]] tables"),
            (Cases::from_toml("case = 1"), "expected [[case]] tables"),
            (Cases::from_toml("[[case]]\n[[self-test]]\n"), "found `self-test`"),
            (Cases::from_toml("case = []"), "0 cases"),
            (Cases::from_json("{}"), "expected a list"),
            (Cases::from_json("[1]"), "an object for each case, found 1"),
            (Cases::from_json("["), "line 1"),
            (Cases::from_json(&many), "1001 cases; expected 1 to 1000"),
        ] {
            let error = found.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
