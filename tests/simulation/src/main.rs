//! `simulate`: executes simulations and prints their reports.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::{Parser, ValueEnum};
use transom_simulation::{Options, Report, run};

/// Runs daemons in a simulated world, in virtual time, and checks invariants after each step.
///
/// The same seed gives the same run. Exit code: 0 when every invariant held, 1 when one was violated,
/// 2 when the simulation could not be executed.
#[derive(Debug, Parser)]
#[command(name = "simulate")]
struct Arguments {
    /// Determines everything that happens. Default: a random seed.
    #[arg(long)]
    seed: Option<u64>,
    /// The simulated time in hours.
    #[arg(long, default_value_t = 24.0)]
    hours: f64,
    /// The number of simulations, with the seeds that follow.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// A job or an app, such as `job-7` or `app-2`, of which the last events are shown.
    #[arg(long, value_name = "NAME")]
    about: Option<String>,
    /// Format of the reports.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// A line for each seed.
    Text,
    /// One JSON object for each seed.
    Json,
}

fn main() -> ExitCode {
    match carry_out(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("simulate: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn carry_out(arguments: &Arguments) -> anyhow::Result<bool> {
    let seconds = arguments.hours * 3600.0;
    ensure!(
        seconds.is_finite() && (1.0..=3.6e8).contains(&seconds),
        "--hours {}: expected a time from 0.0003 (a second) to 100000",
        arguments.hours
    );
    let first = arguments.seed.unwrap_or_else(rand::random);
    for number in 0..arguments.seeds {
        let began = Instant::now();
        let mut options = Options {
            seed: first.wrapping_add(number),
            time: Duration::from_secs_f64(seconds),
            sabotage: None,
            about: arguments.about.clone(),
        };
        let report = run(&options)?;
        if !report.about.is_empty() && matches!(arguments.output, Output::Text) {
            println!("{}", report.about.join("\n"));
        }
        match arguments.output {
            Output::Json => println!(
                "{}",
                serde_json::to_string(&report).context("cannot write a report")?
            ),
            Output::Text => print(&report, began.elapsed()),
        }
        if let Some(violation) = &report.violation {
            if let (Some(subject), None) = (violation.subject(), &options.about) {
                options.about = Some(subject.to_owned());
                let events = run(&options)?.about.join("\n");
                eprintln!("Events about {subject}:\n{events}\n\nLast events:");
            }
            eprintln!(
                "{violation}\n\nRepeat it with: cargo xtask simulate --seed {} --hours {}",
                report.seed, arguments.hours
            );
            return Ok(false);
        }
    }
    Ok(true)
}

fn print(report: &Report, took: Duration) {
    let faults: u64 = report.faults.values().sum();
    println!(
        "seed {}: {:.1} h in {:.1} s, {} events, {faults} faults, {} terms, {} writes, {} jobs, {} changes of apps, {}",
        report.seed,
        report.hours,
        took.as_secs_f64(),
        report.events,
        report.terms,
        report.writes,
        report.jobs,
        report.changes,
        if report.violation.is_some() {
            "VIOLATED"
        } else {
            "ok"
        }
    );
}
