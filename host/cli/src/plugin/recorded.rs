//! Recorded calls of a running daemon, and `transom plugin cases`: writes them as test cases.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use clap::Args;
use serde_json::Value;
use transom_plugin_host::{RecordedCalls, parse_duration, printable_json};
use transom_plugin_tools::workbench::export;

use super::Daemon;
use super::input::CasesFormat;
use super::test::to_toml;
use crate::exit::Misconfigured;
use crate::output::{print_line, print_note};

/// The options that select recorded calls.
#[derive(Debug, Args)]
pub(super) struct CallSelection {
    /// Age of the oldest call, such as `30m` or `2h`.
    #[arg(long, default_value = "24h", value_name = "DURATION", value_parser = duration)]
    since: String,
    /// The maximum number of calls; the newest are used.
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    max: u64,
}

pub(super) fn duration(text: &str) -> Result<String, String> {
    match parse_duration(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("expected a duration such as 30m or 2h".to_owned()),
    }
}

impl CallSelection {
    /// The recorded calls of a plugin of the daemon; an error if there are none.
    pub(super) async fn calls(&self, daemon: &Daemon, name: &str) -> anyhow::Result<RecordedCalls> {
        let query = [("since", self.since.clone()), ("max", self.max.to_string())];
        let document = daemon.connection.get(&[name, "calls"], &query).await?;
        let calls: RecordedCalls = serde_json::from_value(document)
            .context("the daemon's response is not a list of recorded calls")?;
        if calls.damaged > 0 {
            print_note(format_args!(
                "{} records of the log are damaged and were skipped",
                calls.damaged
            ));
        }
        if calls.more {
            print_note(format_args!(
                "there are more calls; these are the newest {}",
                calls.calls.len()
            ));
        }
        ensure!(
            !calls.calls.is_empty(),
            "no calls of `{name}` from the last {} are recorded; the daemon records a sample of them \
             (plugins.recording.sample_percent)",
            self.since
        );
        Ok(calls)
    }
}

/// Write the recorded calls of a plugin as test cases with the recorded answers as the expected
/// ones.
///
/// `transom plugin test` runs these cases. Equal calls become one case. Calls with masked secrets and
/// calls that ended in a fault are left out.
#[derive(Debug, Args)]
pub(crate) struct Cases {
    /// Name of the plugin: its file name without `.wasm`.
    name: String,
    #[command(flatten)]
    selection: CallSelection,
    /// File to write, NAME.toml or NAME.json. Default: JSON on standard output.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    daemon: Daemon,
}

/// The maximum number of cases that `transom plugin test` accepts.
const MAX_CASES: usize = 1000;

impl Cases {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let format = self
            .to
            .as_deref()
            .map_or(Ok(CasesFormat::Json), CasesFormat::from_path)
            .context(Misconfigured)?;
        let recorded = self.selection.calls(&self.daemon, &self.name).await?;
        let mut exported = export(&recorded);
        // Only the newest cases are kept.
        let surplus = exported.cases.len().saturating_sub(MAX_CASES);
        exported.cases.drain(..surplus);
        let (text, unwritable) = match format {
            CasesFormat::Json => (serde_json::to_string_pretty(&exported.cases)? + "\n", 0),
            CasesFormat::Toml => toml_cases(&exported.cases),
        };
        let written = exported.cases.len() - unwritable;
        for (calls, reason) in [
            (exported.repeated, "are equal to another one"),
            (exported.masked, "have masked secrets"),
            (exported.failed, "ended in a fault"),
            (exported.incomplete, "were recorded without their list of agents"),
            (surplus as u64, "are older than the newest 1000 cases"),
            (
                unwritable as u64,
                "have a null, which TOML cannot write: use a .json file",
            ),
        ] {
            if calls > 0 {
                print_note(format_args!("skipped: {calls} calls that {reason}"));
            }
        }
        ensure!(
            written > 0,
            "no calls of `{}` from the last {} can be written as cases",
            self.name,
            self.selection.since
        );
        match &self.to {
            Some(path) => {
                fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
                print_line(format_args!("{written} cases written to {}", path.display()))?;
            }
            None => write!(std::io::stdout().lock(), "{}", printable_json(&text))?,
        }
        Ok(())
    }
}

/// `[[case]]` tables, and the number of cases that TOML cannot express.
fn toml_cases(cases: &[Value]) -> (String, usize) {
    let mut text = String::new();
    let mut unwritable = 0;
    for case in cases {
        match toml_case(case) {
            Ok(case) => text.push_str(&case),
            Err(_) => unwritable += 1,
        }
    }
    (text, unwritable)
}

fn toml_case(case: &Value) -> anyhow::Result<String> {
    let members = case.as_object().context("a case is an object")?;
    let mut table = toml_edit::Table::new();
    for (key, value) in members {
        let Some(value) = to_toml(value) else {
            bail!("`{key}` has a null");
        };
        table.insert(key, toml_edit::Item::Value(value));
    }
    Ok(format!("[[case]]\n{table}\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use transom_plugin_tools::workbench::Cases;

    use super::*;

    #[test]
    fn cases_in_toml_are_read_as_they_were_recorded() {
        let cases = [
            json!({"name": "one", "events": [{"kind": "a", "body": {"x": 1.5, "s": "\"\u{1b}\n"}}], "expect": ["pass"]}),
            json!({"name": "two", "events": [{"kind": "a", "body": {"x": null}}], "expect": ["pass"]}),
            json!({"name": "three", "agents": [{"hostname": "a", "attributes": [["b", "c"], ["a", [[1, 2]]]]}], "expect": {"a": "fits"}}),
        ];
        let (text, unwritable) = toml_cases(&cases);
        assert_eq!(unwritable, 1);
        let json = serde_json::to_string(&[&cases[0], &cases[2]]).unwrap();
        assert_eq!(
            Cases::from_toml(&text).unwrap(),
            Cases::from_json(&json).unwrap(),
            "{text}"
        );
    }

    #[test]
    fn durations_of_options_are_checked() {
        assert_eq!(duration("2h"), Ok("2h".to_owned()));
        assert!(duration("yesterday").unwrap_err().contains("30m"));
    }
}
