//! `verify`: executes one run and prints its results.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use transom_verify::{Options, Outcome, Report, run};

/// Runs Transom against a master and verifies its behaviour from outside.
///
/// The daemon is started on this machine with its own frameworks, whose names begin with
/// `transom-verify-`. They are torn down at the end. Agents and the ports of their tasks must be
/// reachable from this machine.
///
/// Exit code: 0 when every story held, 1 when one failed, 2 when the run could not begin or was
/// interrupted.
#[derive(Debug, Parser)]
#[command(name = "verify", bin_name = "cargo xtask verify")]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Format of the result.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// The same as `--output json`.
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Output {
    /// A table for reading.
    Table,
    /// One JSON object for programs.
    Json,
}

#[tokio::main]
async fn main() -> ExitCode {
    match carry_out(Arguments::parse()).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("verify: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn carry_out(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let json = arguments.json || arguments.output == Output::Json;
    let report = run(arguments.options).await?;
    show(json, &report)?;
    let interrupted = report
        .stories
        .iter()
        .any(|story| story.outcome == Outcome::NotRun);
    Ok(match (report.held, interrupted) {
        (true, _) => ExitCode::SUCCESS,
        (false, false) => ExitCode::from(1),
        (false, true) => ExitCode::from(2),
    })
}

fn show(json: bool, report: &Report) -> anyhow::Result<()> {
    let text = if json {
        serde_json::to_string_pretty(report)? + "\n"
    } else {
        report.to_string()
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // The reader has closed the output, as `head` does.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write the report"),
    }
}
