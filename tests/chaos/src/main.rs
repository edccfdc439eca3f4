//! `chaos`: one run, and what it came to.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Parser, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use transom_chaos::{Options, Report, Store, run};

/// Disturbs daemon, store, cluster and tasks at random while apps come and go, and looks whether
/// what must hold does.
///
/// Exit code: 0 when everything held, 1 when something did not, 2 when the run could not be carried
/// out.
#[derive(Debug, Parser)]
#[command(name = "chaos")]
struct Arguments {
    /// Decides what happens and in which order; a new one each time when none is given.
    #[arg(long)]
    seed: Option<u64>,
    /// New disturbances begin for this long.
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// The state store. A Redis (needs `redis-server`) is disturbed as well, and two daemons share
    /// it.
    #[arg(long, value_enum, default_value_t = StoreKind::Redis)]
    store: StoreKind,
    /// Tells every step as it is taken.
    #[arg(long)]
    verbose: bool,
    /// How to show the outcome.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StoreKind {
    /// The embedded store.
    File,
    /// A Redis of the run's own.
    Redis,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// For programs: one object.
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
        // The reader of the output has closed it, for example `head`.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write the report"),
    }
}
