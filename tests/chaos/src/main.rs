//! `chaos`: executes one run and prints its report.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Parser, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use transom_chaos::{Options, Report, Store, run};

/// Injects random faults into daemon, store, cluster and tasks while apps are created and deleted,
/// and checks invariants.
///
/// Exit code: 0 when every invariant held, 1 when one was violated, 2 when the run could not be
/// executed.
#[derive(Debug, Parser)]
#[command(name = "chaos")]
struct Arguments {
    /// Determines the writes and faults and their order. Default: a random seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Time in which new steps begin.
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// The state store. With all but `file` the store is disturbed, too, and two daemons share it. Redis
    /// needs `redis-server`, and ZooKeeper needs `zookeeper` and `default-jre-headless`.
    #[arg(long, value_enum, default_value_t = StoreKind::Redis)]
    store: StoreKind,
    /// Prints every step when it is executed.
    #[arg(long)]
    verbose: bool,
    /// Format of the report.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StoreKind {
    /// The embedded store.
    File,
    /// A Redis that is started for the run.
    Redis,
    /// A Redis with two replicas and three Sentinels that is started for the run.
    Sentinel,
    /// An ensemble of three servers that is started for the run.
    Zookeeper,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// A table for reading.
    Table,
    /// One JSON object for programs.
    Json,
}

#[tokio::main]
async fn main() -> ExitCode {
    match carry_out(Arguments::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("chaos: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn carry_out(arguments: Arguments) -> anyhow::Result<bool> {
    let time = Duration::try_from_secs_f64(arguments.minutes * 60.0).context("--minutes")?;
    let options = Options {
        seed: arguments.seed.unwrap_or_else(|| u64::from(rand::random::<u32>())),
        time,
        store: match arguments.store {
            StoreKind::File => Store::File,
            StoreKind::Redis => Store::Redis,
            StoreKind::Sentinel => Store::Sentinel,
            StoreKind::Zookeeper => Store::ZooKeeper,
        },
        verbose: arguments.verbose,
    };
    eprintln!("{}", options.command());
    let (mut interrupted, mut terminated) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    // Dropping the unfinished run stops its programs.
    let report = tokio::select! {
        report = run(&options) => report?,
        _ = interrupted.recv() => bail!("interrupted"),
        _ = terminated.recv() => bail!("terminated"),
    };
    show(arguments.output, &report)?;
    Ok(report.holds)
}

fn show(output: Output, report: &Report) -> anyhow::Result<()> {
    let text = match output {
        Output::Table => report.to_string(),
        Output::Json => serde_json::to_string_pretty(report)? + "\n",
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // The reader has closed the output, as `head` does.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write the report"),
    }
}
