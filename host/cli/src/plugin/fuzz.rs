//! `transom plugin fuzz`: drives a component with generated calls and configurations.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use transom_plugin_host::{printable, printable_json};
use transom_plugin_tools::workbench::{FuzzPlan, FuzzReport, Input};

use super::input::ComponentUnderTest;
use crate::output::{Output, print_line, print_note};

/// Search for calls and configurations that make a component trap, exceed a limit of its manifest, or
/// give an answer that the interface forbids.
///
/// Calls are generated from the types of the component's world, with boundary values and words from the
/// manifest; configurations from the component's schema and the manifest's `[config]`. Each call gets a
/// new instance. No network connections are made: the answers to a probe's steps are generated too. The
/// command minimizes each input that causes a fault, and writes it to a file of cases for `transom
/// plugin test`. Exit code 1 means that it found a fault.
#[derive(Debug, Args)]
pub(crate) struct Fuzz {
    #[command(flatten)]
    subject: ComponentUnderTest,
    /// Seed of the generator; the same seed generates the same calls.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Calls and configurations to try.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    calls: u64,
    /// Maximum duration in seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// File for the calls that cause faults. Default: `fuzz.json` next to the component.
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

impl Fuzz {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let candidate = self.subject.admit().await?;
        let plan = FuzzPlan {
            seed: self.seed,
            calls: self.calls,
            time: Duration::from_secs(self.seconds),
        };
        let report = candidate
            .fuzz(plan)
            .await
            .with_context(|| self.subject.display_path())?;
        let cases = report.cases();
        let to = self.to.unwrap_or_else(|| self.subject.sibling_path("fuzz.json"));
        // Written first, because printing ends the command if nobody reads its output.
        if !cases.is_empty() {
            let text = format!("{}\n", serde_json::to_string_pretty(&cases)?);
            fs::write(&to, text).with_context(|| format!("cannot write {}", to.display()))?;
        }
        match self.output {
            Output::Json => print_line(printable_json(&serde_json::to_string_pretty(&report)?))?,
            Output::Table => print(&report)?,
        }
        if report.findings.is_empty() {
            return Ok(());
        }
        if !cases.is_empty() {
            let (component, to) = (self.subject.display_path(), to.display());
            print_note(format_args!(
                "\nrun them against a later build: transom plugin test {component} {to}"
            ));
        }
        bail!(
            "{} faults found with the seed {}",
            report.findings.len(),
            report.seed
        )
    }
}

fn print(report: &FuzzReport) -> io::Result<()> {
    print_line(format_args!(
        "{} calls, {} configurations accepted and {} rejected, seed {}",
        report.calls, report.accepted, report.rejected, report.seed
    ))?;
    for finding in &report.findings {
        let (input_kind, input) = match &finding.input {
            Input::Case(case) => ("case", case),
            Input::Config(config) => ("[config]", config),
        };
        print_line(format_args!(
            "\n{}\n  {input_kind}  {}",
            printable(&finding.fault),
            printable_json(&input.to_string())
        ))?;
    }
    if report.findings.is_empty() {
        print_line("no faults")?;
    }
    Ok(())
}
