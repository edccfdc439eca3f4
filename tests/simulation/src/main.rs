//! `simulate`: executes simulations and prints their reports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::{Parser, ValueEnum};
use serde::Deserialize;
use transom_simulation::{Options, Report, WORLD, faults, run, simplified};

/// Runs daemons in a simulated world, in virtual time, and checks invariants after each step.
///
/// The same options always give the same run. Exit code: 0 when every invariant held, 1 when one was
/// violated, 2 when the simulation could not be executed.
#[derive(Debug, Parser)]
#[command(name = "simulate")]
#[allow(clippy::struct_excessive_bools, reason = "options of a command")]
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
    /// Begins no further seed after this time, in seconds of the real clock.
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
    /// Runs the seeds of a file instead, such as `tests/simulation/seeds.json`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "hours", "seeds"])]
    file: Option<PathBuf>,
    /// The number of agents.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=5_000))]
    agents: u16,
    /// The number of apps.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    apps: u32,
    /// The most instances of an app.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    instances: u32,
    /// One daemon with an embedded store, in place of three that share one.
    #[arg(long)]
    embedded: bool,
    /// Every second machine of an agent that is reset has lost its disk: the agent gets another id.
    #[arg(long)]
    lost_disks: bool,
    /// A fault that does not happen, such as `reset agent`; may be repeated.
    #[arg(long, value_name = "FAULT", value_parser = fault)]
    without: Vec<String>,
    /// A job or an app, such as `job-7` or `app-2`, of which the last events are shown.
    #[arg(long, value_name = "NAME")]
    about: Option<String>,
    /// Prints all events.
    #[arg(long)]
    trace: bool,
    /// Does not look for a simpler run when an invariant is violated.
    #[arg(long)]
    no_shrink: bool,
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

/// Seeds that once ended with a violation.
#[derive(Debug, Deserialize)]
struct Seeds {
    world: u32,
    seeds: Vec<Seed>,
}

#[derive(Debug, Deserialize)]
struct Seed {
    seed: u64,
    hours: f64,
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
    let (began, limit) = (Instant::now(), arguments.limit.map(Duration::from_secs));
    let tasks = u64::from(arguments.apps) * u64::from(arguments.instances);
    ensure!(
        tasks <= 100_000,
        "--apps {} with --instances {}: expected at most 100000 tasks, because the simulation keeps all of them in memory",
        arguments.apps,
        arguments.instances
    );
    for (seed, time) in seeds(arguments)? {
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            break;
        }
        let options = Options {
            agents: arguments.agents,
            apps: arguments.apps,
            instances: arguments.instances,
            embedded: arguments.embedded,
            lost_disks: arguments.lost_disks,
            without: arguments.without.iter().cloned().collect(),
            trace: arguments.trace.then_some(|event| println!("{event}")),
            about: arguments.about.clone(),
            ..Options::new(seed, time)
        };
        let started = Instant::now();
        let report = run(&options)?;
        if !report.about.is_empty() && matches!(arguments.output, Output::Text) {
            println!("{}", report.about.join("\n"));
        }
        match arguments.output {
            Output::Json => println!(
                "{}",
                serde_json::to_string(&report).context("cannot write a report")?
            ),
            Output::Text => print(&report, started.elapsed()),
        }
        if report.violation.is_some() {
            explain(&options, &report, arguments)?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// The seeds to run, each with the simulated time.
fn seeds(arguments: &Arguments) -> anyhow::Result<Vec<(u64, Duration)>> {
    if let Some(file) = &arguments.file {
        return kept(file).with_context(|| file.display().to_string());
    }
    let first = arguments.seed.unwrap_or_else(rand::random);
    let time = time(arguments.hours).context("--hours")?;
    let numbers = (0..arguments.seeds).map(|number| (first.wrapping_add(number), time));
    Ok(numbers.collect())
}

fn kept(file: &Path) -> anyhow::Result<Vec<(u64, Duration)>> {
    let text = fs::read_to_string(file)?;
    let kept: Seeds = serde_json::from_str(&text)?;
    ensure!(
        kept.world == WORLD,
        "its seeds are of world {}, and this is world {WORLD}: here they give other runs; remove them, or run them with \
         the commit that they come from",
        kept.world
    );
    let seeds = kept.seeds.into_iter();
    seeds.map(|seed| Ok((seed.seed, time(seed.hours)?))).collect()
}

fn time(hours: f64) -> anyhow::Result<Duration> {
    let seconds = hours * 3600.0;
    ensure!(
        seconds.is_finite() && (1.0..=3.6e8).contains(&seconds),
        "{hours} hours: expected a time from 0.0003 (a second) to 100000"
    );
    Ok(Duration::from_secs_f64(seconds))
}

fn fault(name: &str) -> Result<String, String> {
    if faults().any(|known| known == name) {
        return Ok(name.to_owned());
    }
    let known: Vec<String> = faults().collect();
    Err(format!("no such fault; expected one of: {}", known.join(", ")))
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

/// Shows a violation, and the simplest run that has it.
fn explain(options: &Options, report: &Report, arguments: &Arguments) -> anyhow::Result<()> {
    let (mut options, mut report) = (options.clone(), report.clone());
    options.trace = None;
    if !arguments.no_shrink {
        (options, report) = simplified(options, report, |simpler| {
            eprintln!(
                "looking for a simpler run: without {} kinds of faults, {} apps, {:.2} h",
                simpler.without.len(),
                simpler.apps,
                simpler.time.as_secs_f64() / 3600.0
            );
            run(simpler)
        })?;
    }
    let Some(violation) = &report.violation else {
        return Ok(());
    };
    if let (Some(subject), None) = (violation.subject(), &options.about) {
        let about = Options {
            about: Some(subject.to_owned()),
            ..options.clone()
        };
        let events = run(&about)?.about.join("\n");
        eprintln!("Events about {subject}:\n{events}\n\nLast events:");
    }
    eprint!(
        "{violation}\n\nRepeat it with: cargo xtask simulate --seed {} --hours {} --agents {} --apps {} --instances {}",
        report.seed,
        // Rounded up, so that the run does not end before the violation.
        (options.time.as_secs_f64() / 3600.0 * 1e4).ceil() / 1e4,
        options.agents,
        options.apps,
        options.instances,
    );
    for (is_set, option) in [
        (options.embedded, "--embedded"),
        (options.lost_disks, "--lost-disks"),
    ] {
        eprint!(
            "{}",
            if is_set {
                format!(" {option}")
            } else {
                String::new()
            }
        );
    }
    for fault in &options.without {
        eprint!(" --without '{fault}'");
    }
    eprintln!();
    Ok(())
}
