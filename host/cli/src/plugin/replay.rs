//! `transom plugin replay`: repeats the recorded calls of a running daemon on a component.

use anyhow::bail;
use clap::Args;
use serde::Serialize;
use serde_json::json;
use transom_plugin_host::printable;
use transom_plugin_tools::workbench::ReplayReport;

use super::Daemon;
use super::input::{ComponentUnderTest, bytes, micros};
use super::recorded::CallSelection;
use crate::output::{self, Output, print_line};

/// Repeat the calls that a running daemon has recorded on a component, and show which answers would
/// differ.
///
/// The component runs in this process, with its manifest's configuration and limits; the daemon only
/// supplies the recorded calls. Exit code 1 means that more answers differ than `--allow`.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    subject: ComponentUnderTest,
    /// Name of the plugin whose calls are repeated. Default: the component's file name without `.wasm`.
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    selection: CallSelection,
    /// Answers that may differ, in percent of those compared.
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT", value_parser = percent)]
    allow: f64,
    #[command(flatten)]
    daemon: Daemon,
    /// The same as `--output json`.
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|it| (0.0..=100.0).contains(it));
    number.ok_or_else(|| "expected a number from 0 to 100".to_owned())
}

#[derive(Serialize)]
struct Document<'a> {
    plugin: &'a str,
    #[serde(flatten)]
    report: &'a ReplayReport,
    percent: f64,
    allowed_percent: f64,
}

impl Replay {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let stem = self.subject.name();
        let name = self.name.as_deref().unwrap_or(&stem);
        let candidate = self.subject.admit().await?;
        let recorded = self.selection.calls(&self.daemon, name).await?;
        let report = candidate.replay(&recorded).await;
        let percent = report.percent();
        let output = if self.json {
            Output::Json
        } else {
            self.daemon.output
        };
        let document = Document {
            plugin: name,
            report: &report,
            percent,
            allowed_percent: self.allow,
        };
        match output {
            Output::Json => output::print(output, &json!(document), &[], [])?,
            Output::Table => print(&report)?,
        }
        let differing = report.different + report.failed;
        if report.compared == 0 {
            bail!(
                "none of the {} calls could be replayed: {}",
                recorded.calls.len(),
                report.skipped
            );
        }
        if percent > self.allow {
            let compared = report.compared;
            bail!(
                "{differing} of {compared} answers differ ({percent:.1} %), {} % are allowed (--allow)",
                self.allow
            );
        }
        Ok(())
    }
}

fn print(report: &ReplayReport) -> anyhow::Result<()> {
    let time = |time: Option<u64>| time.map_or_else(|| "-".to_owned(), |time| micros(time as f64));
    let row = |heading: &str, recorded: String, now: String| vec![heading.to_owned(), recorded, now];
    let mut rows = vec![
        row("compared", report.compared.to_string(), String::new()),
        row("same", String::new(), report.same.to_string()),
        row("different", String::new(), report.different.to_string()),
        row("failed", String::new(), report.failed.to_string()),
    ];
    let failed_before = report.recovered + report.still_failing;
    if failed_before > 0 {
        rows.push(row(
            "failed when recorded",
            failed_before.to_string(),
            report.still_failing.to_string(),
        ));
    }
    rows.extend([
        row(
            "p50",
            time(report.p50_micros.recorded),
            time(report.p50_micros.candidate),
        ),
        row(
            "p99",
            time(report.p99_micros.recorded),
            time(report.p99_micros.candidate),
        ),
        row("cpu per call", String::new(), micros(report.cpu_micros_per_call)),
        row(
            "memory",
            bytes(report.memory.recorded),
            bytes(report.memory.candidate),
        ),
    ]);
    output::print(Output::Table, &(), &["", "recorded", "now"], rows)?;
    if report.skipped.total() > 0 {
        print_line(format_args!(
            "\nnot replayed: {}",
            printable(&report.skipped.to_string())
        ))?;
    }
    for group in &report.differences {
        print_line(format_args!(
            "\n{} calls: {}",
            group.calls,
            printable(&group.kind)
        ))?;
        for example in &group.examples {
            let millis = i64::try_from(example.at).unwrap_or(i64::MAX);
            let time = jiff::Timestamp::from_millisecond(millis)
                .map_or_else(|_| millis.to_string(), |it| it.to_string());
            print_line(format_args!("  {time}  {}", printable(&example.question)))?;
            print_line(format_args!("    recorded {}", printable(&example.recorded)))?;
            print_line(format_args!("    now      {}", printable(&example.candidate)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn allowed_differences_are_a_percentage() {
        assert_eq!(percent("2.5"), Ok(2.5));
        for text in ["-1", "101", "x", "NaN"] {
            assert!(percent(text).unwrap_err().contains("0 to 100"), "{text}");
        }
    }
}
