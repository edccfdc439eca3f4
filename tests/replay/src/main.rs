//! `replay`: compares a cluster manager with recordings of another one.

use anyhow::{Context, bail};
use clap::{Parser, ValueEnum};
use std::{io::Write, net::SocketAddr, path::PathBuf, process::ExitCode};
use transom_replay::{Outcome, replay};

/// Replays recorded requests against a master and compares the answers with the recordings.
///
/// The master should be newly started: other frameworks and earlier runs change its documents,
/// which counts as a difference. Differences of the build (version, build date, `git_sha` ...) are
/// shown and do not count.
///
/// Exit code: 0 when all answers agree, 1 when one differs, 2 when the run could not be executed.
#[derive(Debug, Parser)]
struct Arguments {
    /// The master: `http://host:port` or `host:port`.
    #[arg(long)]
    master: String,
    /// The folder with the recordings.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/cluster"))]
    fixtures: PathBuf,
    /// Format of the result.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// A table for reading: one line for each match, and the reasons of each failure.
    Table,
    /// A list of JSON objects for programs.
    Json,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("replay: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn run(arguments: Arguments) -> anyhow::Result<bool> {
    let master = resolve(&arguments.master).await?;
    let outcomes = replay(master, &arguments.fixtures).await?;
    let report = match arguments.output {
        Output::Table => table(&outcomes),
        Output::Json => json(&outcomes)?,
    };
    match std::io::stdout().write_all(report.as_bytes()) {
        // The reader has closed the output, as `head` does.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        written => written.context("cannot write the report")?,
    }
    Ok(outcomes.iter().all(|outcome| outcome.differences.is_empty()))
}

async fn resolve(master: &str) -> anyhow::Result<SocketAddr> {
    let authority = master
        .strip_prefix("http://")
        .unwrap_or(master)
        .trim_end_matches('/');
    let found = tokio::net::lookup_host(authority)
        .await
        .with_context(|| format!("--master {master}: expected http://host:port"))?;
    let mut addresses: Vec<SocketAddr> = found.collect();
    // Masters mostly listen on IPv4 only.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    match addresses.first() {
        Some(addr) => Ok(*addr),
        None => bail!("--master {master}: the name has no address"),
    }
}

fn table(outcomes: &[Outcome]) -> String {
    let width = outcomes
        .iter()
        .map(|outcome| outcome.recording.len())
        .max()
        .unwrap_or(0);
    let mut lines = Vec::with_capacity(outcomes.len() + 2);
    for outcome in outcomes {
        let verdict = if outcome.differences.is_empty() {
            "ok  "
        } else {
            "FAIL"
        };
        lines.push(format!(
            "{verdict}  {:width$}  {}",
            outcome.recording, outcome.step
        ));
        lines.extend(
            outcome
                .differences
                .iter()
                .map(|difference| format!("      {difference}")),
        );
        lines.extend(
            outcome
                .build_differences
                .iter()
                .map(|difference| format!("      build: {difference}")),
        );
    }
    let of_build = outcomes
        .iter()
        .filter(|outcome| !outcome.build_differences.is_empty())
        .count();
    let failed = outcomes
        .iter()
        .filter(|outcome| !outcome.differences.is_empty())
        .count();
    lines.push(format!(
        "\n{} compared, {} agree, {failed} differ; {of_build} with differences of the build, which do not count\n",
        outcomes.len(),
        outcomes.len() - failed
    ));
    lines.join("\n")
}

fn json(outcomes: &[Outcome]) -> anyhow::Result<String> {
    let outcomes: Vec<serde_json::Value> = outcomes
        .iter()
        .map(|outcome| {
            serde_json::json!({
                "recording": outcome.recording,
                "step": outcome.step,
                "ok": outcome.differences.is_empty(),
                "differences": outcome.differences,
                "build_differences": outcome.build_differences,
            })
        })
        .collect();
    Ok(serde_json::to_string_pretty(&outcomes)? + "\n")
}
