//! Parses and runs recorded cases, and reports the results.

use std::time::Instant;

use serde::Serialize;
use serde_json::{Map, Value};
use transom_plugin_host::trial::{
    CaseInstance, TrialComponent, describe_difference, format_answer, micros, split_name, toml_to_json,
};

/// Maximum number of cases in one file.
const MAX_CASES: usize = 1000;

/// The cases of a file, in its order. The world parses them when they run.
#[derive(Clone, Debug, PartialEq)]
pub struct Cases(pub(super) Vec<NamedCase>);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct NamedCase {
    pub(super) name: String,
    pub(super) case: Value,
}

/// Why a file has no valid cases. Display names the place and the expectation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CasesError {
    /// The file is neither TOML nor JSON.
    #[error("{0}")]
    Syntax(String),
    /// The file has another structure.
    #[error("expected {expected}, found {found}")]
    Shape {
        /// The found value.
        found: String,
        /// The expected value.
        expected: &'static str,
    },
    /// The file has no cases, or too many.
    #[error("{0} cases; expected 1 to {MAX_CASES}")]
    Number(usize),
}

impl Cases {
    /// Parses TOML: `[[case]]` tables, each with the keys of a `[[self-test]]` and an optional
    /// `name`.
    pub fn from_toml(document: &str) -> Result<Cases, CasesError> {
        let table: toml::Table = document
            .parse()
            .map_err(|error: toml::de::Error| CasesError::Syntax(error.to_string()))?;
        let value = toml_to_json(table).map_err(CasesError::Syntax)?;
        let expected = "[[case]] tables and nothing else";
        let Value::Object(mut members) = value else {
            return Err(shape_error("something else", expected));
        };
        let cases = members.remove("case");
        if !members.is_empty() {
            let keys: Vec<String> = members.keys().map(|key| format!("`{key}`")).collect();
            return Err(shape_error(keys.join(", "), expected));
        }
        match cases {
            Some(Value::Array(cases)) => Cases::of(&cases),
            Some(_) | None => Err(shape_error("none of them", expected)),
        }
    }

    /// Parses JSON: a list of objects, each with the same keys.
    pub fn from_json(document: &str) -> Result<Cases, CasesError> {
        match serde_json::from_str(document) {
            Ok(Value::Array(cases)) => Cases::of(&cases),
            Ok(_) => Err(shape_error("another document", "a list of objects")),
            Err(error) => Err(CasesError::Syntax(error.to_string())),
        }
    }

    fn of(cases: &[Value]) -> Result<Cases, CasesError> {
        if cases.is_empty() || cases.len() > MAX_CASES {
            return Err(CasesError::Number(cases.len()));
        }
        if let Some(other) = cases.iter().find(|it| !it.is_object()) {
            return Err(shape_error(other.to_string(), "an object for each case"));
        }
        let named = cases.iter().zip(1..).map(|(case, number)| {
            let (name, case) = split_name(case);
            let name = name.unwrap_or_else(|| format!("case {number}"));
            NamedCase { name, case }
        });
        Ok(Cases(named.collect()))
    }
}

fn shape_error(found: impl Into<String>, expected: &'static str) -> CasesError {
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
    pub found: Option<Map<String, Value>>,
    /// The expected answer in the same form. `None` if the case has none or is invalid.
    pub expected: Option<Map<String, Value>>,
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
    found: Result<Map<String, Value>, String>,
    dropped: Result<(), String>,
) -> Result<(), String> {
    let found = found?;
    report.found = Some(found.clone());
    dropped.map_err(|error| format!("while its resources were dropped: {error}"))?;
    match &report.expected {
        Some(expected) if found == *expected => {
            report.verdict = Verdict::Passed;
            Ok(())
        }
        Some(expected) => {
            report.verdict = Verdict::Differs;
            Err(describe_difference(&found, expected))
        }
        None => {
            report.verdict = Verdict::Differs;
            Err(format!(
                "found {}, but the case has no expectation",
                format_answer(&found)
            ))
        }
    }
}

fn backtrace(instance: &CaseInstance) -> Vec<String> {
    instance.last_trap().map(|it| it.backtrace).unwrap_or_default()
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
        let too_many = format!("[{}]", vec!["{}"; MAX_CASES + 1].join(","));
        for (found, expected) in [
            (Cases::from_toml("x ="), "line 1"),
            (Cases::from_toml(""), "expected [[case]] tables"),
            (Cases::from_toml("case = 1"), "expected [[case]] tables"),
            (Cases::from_toml("[[case]]\n[[self-test]]\n"), "found `self-test`"),
            (Cases::from_toml("case = []"), "0 cases"),
            (Cases::from_json("{}"), "expected a list"),
            (Cases::from_json("[1]"), "an object for each case, found 1"),
            (Cases::from_json("["), "line 1"),
            (Cases::from_json(&too_many), "1001 cases; expected 1 to 1000"),
        ] {
            let error = found.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
