//! `transom plugin bench`: measures warm calls of a component.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use transom_plugin_tools::workbench::BenchResult;

use super::input::{ComponentUnderTest, bytes, micros, read_cases};
use crate::output::{self, Output, print_note};

/// Measure how long a warm instance takes for test cases, on this machine.
///
/// A run is one call, or for a probe one attempt with all its steps. The answers to the steps are those
/// of the case, without network input or output, so a run measures the component and the host around
/// it. The cases are those of `transom plugin test`; all of them have to pass.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    subject: ComponentUnderTest,
    /// File of cases: NAME.toml or NAME.json.
    cases: PathBuf,
    /// Seconds to measure, over all cases.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Bench {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let (cases, ..) = read_cases(&self.cases)?;
        let candidate = self.subject.admit().await?;
        if self.seconds > 1 && self.output == Output::Table {
            print_note(format_args!("measuring for {} s", self.seconds));
        }
        let time = Duration::from_secs(self.seconds);
        let measured = candidate.bench(&cases, time).await;
        let figures = measured.with_context(|| self.subject.display_path())?;
        output::print(self.output, &figures, COLUMNS, figures.iter().map(row))
    }
}

const COLUMNS: &[&str] = &[
    "case", "runs/s", "calls/s", "p50", "p90", "p99", "max", "cpu/call", "memory",
];

fn row(it: &BenchResult) -> Vec<String> {
    vec![
        it.name.clone(),
        format!("{:.0}", it.runs_per_second),
        format!("{:.0}", it.calls_per_second),
        micros(it.p50_micros),
        micros(it.p90_micros),
        micros(it.p99_micros),
        micros(it.max_micros),
        micros(it.cpu_micros_per_call),
        bytes(it.memory),
    ]
}
