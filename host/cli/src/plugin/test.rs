//! `transom plugin test`: runs test cases on a component with the host's linker and limits.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::{Map, Value, json};
use transom_plugin_host::{printable, printable_json};
use transom_plugin_tools::workbench::{ANSWER_KEYS, Report, Verdict};

use super::input::{CasesFormat, ComponentUnderTest, bytes, micros, read_cases};
use crate::output::{self, Output, print_note};

/// Run test cases against a component, under the limits of its manifest, and compare its
/// answers with the expected ones.
///
/// The file has a `[[case]]` table per case (or is a JSON list of objects) with the keys of a
/// manifest's `[[self-test]]` and an optional `name`. Each case gets a new instance. Exit code 1
/// means that a case failed.
#[derive(Debug, Args)]
pub(crate) struct Test {
    #[command(flatten)]
    subject: ComponentUnderTest,
    /// File of cases: NAME.toml or NAME.json.
    cases: PathBuf,
    /// Write the actual answers into the file as the expected ones.
    #[arg(long)]
    update: bool,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Test {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let (cases, text, format) = read_cases(&self.cases)?;
        let mut reports = self.subject.admit().await?.test(&cases).await;
        if self.update {
            update(&self.cases, &text, format, &mut reports)
                .with_context(|| format!("cannot update {}", self.cases.display()))?;
        }
        output::print(self.output, &reports, COLUMNS, reports.iter().map(row))?;
        if self.output == Output::Table {
            for report in reports.iter().filter(|it| it.verdict != Verdict::Passed) {
                print_failure(report);
            }
        }
        match reports.iter().filter(|it| it.verdict != Verdict::Passed).count() {
            0 => Ok(()),
            failures => bail!("{failures} of {} cases failed", reports.len()),
        }
    }
}

const COLUMNS: &[&str] = &["case", "verdict", "calls", "cpu", "wall", "memory"];

fn row(report: &Report) -> Vec<String> {
    vec![
        report.name.clone(),
        match report.verdict {
            Verdict::Passed => "passed",
            Verdict::Differs => "differs",
            Verdict::Failed => "failed",
        }
        .to_owned(),
        report.calls.to_string(),
        micros(report.cpu_micros),
        micros(report.wall_micros),
        bytes(report.memory),
    ]
}

/// Prints why a case failed.
pub(super) fn print_failure(report: &Report) {
    print_note(format_args!("\n{}:", printable(&report.name)));
    let line = |heading: &str, keys: &Option<Map<String, Value>>| {
        if let Some(keys) = keys {
            print_note(format_args!(
                "  {heading}  {}",
                printable_json(&Value::Object(keys.clone()).to_string())
            ));
        }
    };
    match report.verdict {
        Verdict::Passed => {}
        Verdict::Differs => {
            line("found   ", &report.found);
            line("expected", &report.expected);
            if report.expected.is_none() {
                print_note("  the case has no expectation; --update writes the answer found");
            }
        }
        Verdict::Failed => {
            print_note(format_args!(
                "  {}",
                printable(report.reason.as_deref().unwrap_or("no answer"))
            ));
            for frame in &report.backtrace {
                print_note(format_args!("    {}", printable(frame)));
            }
        }
    }
}

/// Makes the actual answers the expected ones, in the file and in the reports.
fn update(path: &Path, text: &str, format: CasesFormat, reports: &mut [Report]) -> anyhow::Result<()> {
    let answers: Vec<Option<&Map<String, Value>>> = reports.iter().map(|it| it.found.as_ref()).collect();
    let updated = match format {
        CasesFormat::Toml => updated_toml(text, &answers)?,
        CasesFormat::Json => updated_json(text, &answers)?,
    };
    if updated != text {
        replace(path, &updated)?;
    }
    for report in reports.iter_mut().filter(|it| it.verdict == Verdict::Differs) {
        report.expected.clone_from(&report.found);
        report.verdict = Verdict::Passed;
        report.reason = None;
    }
    Ok(())
}

/// Replaces the file through a temporary file in the same folder, so that no case is lost if it fails.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let dir = path.parent().filter(|it| !it.as_os_str().is_empty());
    let temp_file = tempfile::NamedTempFile::new_in(dir.unwrap_or(Path::new(".")))?;
    fs::write(&temp_file, text)?;
    // A temporary file is readable by its owner only.
    fs::set_permissions(&temp_file, fs::metadata(path)?.permissions())?;
    temp_file.persist(path)?;
    Ok(())
}

/// Updates the expected answers in TOML. Comments and the order of keys are kept.
fn updated_toml(text: &str, answers: &[Option<&Map<String, Value>>]) -> anyhow::Result<String> {
    let mut document: toml_edit::DocumentMut = text.parse()?;
    let cases = document.get_mut("case").context("no [[case]]")?;
    for (index, answer) in answers.iter().enumerate() {
        let Some(answer) = answer else { continue };
        let case = match cases {
            toml_edit::Item::ArrayOfTables(tables) => tables
                .get_mut(index)
                .map(|it| it as &mut dyn toml_edit::TableLike),
            toml_edit::Item::Value(toml_edit::Value::Array(tables)) => tables
                .get_mut(index)
                .and_then(|it| it.as_inline_table_mut())
                .map(|it| it as &mut dyn toml_edit::TableLike),
            _ => None,
        };
        let case = case.with_context(|| format!("case {} is not a table", index + 1))?;
        for key in ANSWER_KEYS.iter().filter(|key| !answer.contains_key(**key)) {
            case.remove(key);
        }
        for (key, value) in *answer {
            let present = case.get(key).and_then(toml_edit::Item::as_value);
            if present.is_some_and(|it| to_json(it) == *value) {
                continue;
            }
            let mut new = to_toml(value)
                .with_context(|| format!("cannot write the answer of case {} as TOML", index + 1))?;
            if let Some(present) = present {
                *new.decor_mut() = present.decor().clone();
            }
            case.insert(key, toml_edit::Item::Value(new));
        }
    }
    Ok(document.to_string())
}

/// Converts a value; `None` for a value with a null, which TOML cannot express.
pub(super) fn to_toml(value: &Value) -> Option<toml_edit::Value> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(it) => (*it).into(),
        Value::Number(it) => match it.as_i64() {
            Some(it) => it.into(),
            None => it.as_f64()?.into(),
        },
        Value::String(it) => it.as_str().into(),
        Value::Array(items) => {
            let items: Option<Vec<_>> = items.iter().map(to_toml).collect();
            toml_edit::Value::Array(items?.into_iter().collect())
        }
        Value::Object(members) => {
            let mut table = toml_edit::InlineTable::new();
            for (key, value) in members {
                table.insert(key, to_toml(value)?);
            }
            table.into()
        }
    })
}

fn to_json(value: &toml_edit::Value) -> Value {
    use toml_edit::Value as Toml;
    match value {
        Toml::String(it) => json!(it.value()),
        Toml::Integer(it) => json!(it.value()),
        Toml::Float(it) => json!(it.value()),
        Toml::Boolean(it) => json!(it.value()),
        Toml::Datetime(it) => json!(it.value().to_string()),
        Toml::Array(items) => items.iter().map(to_json).collect(),
        Toml::InlineTable(table) => {
            let members = table.iter().map(|(key, value)| (key.to_owned(), to_json(value)));
            Value::Object(members.collect())
        }
    }
}

fn updated_json(text: &str, answers: &[Option<&Map<String, Value>>]) -> anyhow::Result<String> {
    let mut cases: Vec<Map<String, Value>> = serde_json::from_str(text)?;
    for (case, answer) in cases.iter_mut().zip(answers) {
        if let Some(answer) = answer {
            case.retain(|key, _| !ANSWER_KEYS.contains(&key.as_str()));
            case.extend((*answer).clone());
        }
    }
    Ok(serde_json::to_string_pretty(&cases)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(keys) => keys,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn update_changes_only_the_expectations_of_toml_cases() {
        let text = "# Recorded.\n[[case]]\nname = \"one\"  # first\nexpect = { http = 200 } # as it was\npath = \"/\"\n\n[[case]]\nrefused = true\n\n[[case]]\nexpect = [\"a\"]\n";
        let one = keys(json!({"expect": {"http": 503}}));
        let two = keys(json!({"expect": [{"replace": {"a": 1.5}}, "drop"]}));
        let updated = updated_toml(text, &[Some(&one), Some(&two), None]).unwrap();
        assert_eq!(
            updated,
            "# Recorded.\n[[case]]\nname = \"one\"  # first\nexpect = { http = 503 } # as it was\npath = \"/\"\n\n[[case]]\nexpect = [{ replace = { a = 1.5 } }, \"drop\"]\n\n[[case]]\nexpect = [\"a\"]\n"
        );
        let same = keys(json!({"expect": {"http": 503}}));
        assert_eq!(
            updated_toml(&updated, &[Some(&same), None, None]).unwrap(),
            updated
        );
        let null = keys(json!({"expect": {"custom": {"a": null}}}));
        assert!(updated_toml(text, &[Some(&null), None, None]).is_err());
    }

    #[test]
    fn update_changes_only_the_expectations_of_json_cases() {
        let answer = keys(json!({"expect": {"tcp": true}}));
        let updated = updated_json(
            r#"[{"refused": true, "name": "a"}, {"path": "/"}]"#,
            &[Some(&answer), None],
        )
        .unwrap();
        let updated: Value = serde_json::from_str(&updated).unwrap();
        assert_eq!(
            updated,
            json!([{"name": "a", "expect": {"tcp": true}}, {"path": "/"}])
        );
    }
}
