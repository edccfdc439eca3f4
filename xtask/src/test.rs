//! `cargo xtask test`: the checks that every change must pass.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, anyhow, ensure};

use crate::components::Scope;
use crate::steps::{SELECTION, build, cargo, step, target};
use crate::{authors, components, dashboard, failures, manual, needs};

/// A proxy that does not answer: a test fails if its client or the daemon uses a proxy for addresses
/// of the cluster.
const DEAD_PROXY: &str = "http://127.0.0.1:9";

/// The variables that name a proxy or its exceptions.
const PROXY_VARIABLES: &[&str] = &[
    "http_proxy",
    "https_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
];

/// Checks formatting and lints (unless `quick`), builds the components, and runs all tests. Prints
/// the list of parts first, and the duration of each at the end.
pub(crate) fn run(quick: bool, arguments: &[String]) -> anyhow::Result<()> {
    let mut report = Report::begin(quick);
    let outcome = run_parts(&mut report, quick, arguments);
    report.end();
    outcome
}

fn run_parts(report: &mut Report, quick: bool, arguments: &[String]) -> anyhow::Result<()> {
    if !quick {
        report.part(FORMATTING, || {
            run_if_installed("fmt", cargo().args(["fmt", "--all", "--check"]))
        })?;
    }
    // Installing waits for the network most of the time, and compiling needs the processor.
    let mut installing = Report::new();
    let kubernetes = thread::scope(|scope| {
        let installed = scope.spawn(|| install(&mut installing));
        let compiled = compile(report, quick);
        let installed = installed.join().map_err(|_| anyhow!("panic while installing"))?;
        compiled.and(installed)
    });
    report.durations.append(&mut installing.durations);
    let kubernetes = kubernetes?;
    let components = report.part(COMPONENTS, || components::step(None, Scope::All))?;
    let mut variables = report.part(OTHER_LANGUAGES, || authors::step(&components))?;
    variables.extend(kubernetes.map(|(name, folder)| (name, folder.into_os_string())));
    report.part(TESTS, || run_tests(arguments, &components, &variables))
}

/// Installs what the tests need, and tests what needs nothing that is compiled. Returns the
/// variable with the control plane of Kubernetes.
fn install(report: &mut Report) -> anyhow::Result<Option<(&'static str, PathBuf)>> {
    report.part(NEEDS, needs::install)?;
    report.part(MANUAL, manual::build)?;
    report.part(DASHBOARD, dashboard::test)?;
    report.part(KUBERNETES, needs::kubernetes::variable)
}

/// Lints (unless `quick`) and builds the programs and tests.
fn compile(report: &mut Report, quick: bool) -> anyhow::Result<()> {
    if !quick {
        // Benchmarks need a feature, so only this command lints them.
        let features = "transom-discovery/bench,transom-scheduler/bench,transom-tests/bench";
        let mut lints = cargo();
        lints
            .arg("clippy")
            .args(SELECTION)
            .args(["--all-targets", "--features", features, "--quiet"])
            .args(["--", "-D", "warnings"]);
        report.part(LINTS, || run_if_installed("clippy", &mut lints))?;
    }
    // A separate part, so that its duration is not counted as that of the tests.
    report.part(PROGRAMS, || build("programs and tests", &["--bins", "--tests"]))
}

fn run_tests(
    arguments: &[String],
    components: &Path,
    variables: &[(&'static str, OsString)],
) -> anyhow::Result<()> {
    let mut command = tests(arguments, components, variables)?;
    eprintln!("==> {TESTS}");
    let first = failures::run(&mut command, threads()?)?;
    let names = first.repeatable();
    if !names.is_empty() && arguments.is_empty() {
        eprintln!("==> once more, one at a time: {}", names.join(", "));
        let arguments = [&["--".to_owned(), "--exact".to_owned()], names].concat();
        let second = failures::run(&mut tests(&arguments, components, variables)?, 1)?;
        if second.has_passed(names) {
            eprintln!("{}", first.output.join("\n"));
            eprintln!(
                "==> passed when run once more, but failed first: {}",
                names.join(", ")
            );
            return Ok(());
        }
    }
    let separator = if first.output.is_empty() { "" } else { "\n\n" };
    ensure!(
        first.status.success(),
        "{TESTS} failed ({}){separator}{}",
        first.status,
        first.output.join("\n")
    );
    Ok(())
}

/// `cargo test` with what the tests need.
fn tests(
    arguments: &[String],
    components: &Path,
    variables: &[(&'static str, OsString)],
) -> anyhow::Result<Command> {
    let toolchain = components::toolchain()?;
    // Outside of CI, the tests of containers are skipped if containers cannot run.
    let containers = std::env::var_os("CI").map(|_| ("TRANSOM_CONTAINERS", "required"));
    let mut command = cargo();
    command
        .arg("test")
        .args(SELECTION)
        .arg("--no-fail-fast")
        .args(arguments)
        .env("TRANSOM_COMPONENTS", components)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .envs(containers)
        // In one variable, because cargo would apply the original variables to the tests, too.
        .env("TRANSOM_WASM_TOOLCHAIN", toolchain)
        .env("TRANSOM_BIN", target().join("debug/transom"));
    replace_proxies(&mut command);
    Ok(command)
}

/// The tests that a program runs at the same time. One more than there are processors, because the
/// tests of whole daemons wait half of the time.
fn threads() -> anyhow::Result<usize> {
    match std::env::var("RUST_TEST_THREADS") {
        Ok(number) => number
            .parse()
            .with_context(|| format!("RUST_TEST_THREADS is {number:?}; expected a number")),
        Err(_) => Ok(thread::available_parallelism()?.get() + 1),
    }
}

/// Sets [`DEAD_PROXY`] for the tests. Those that download packages get the proxies of this machine
/// from one variable, as `NAME=VALUE` lines.
fn replace_proxies(command: &mut Command) {
    let of_machine = PROXY_VARIABLES.iter().filter_map(|name| {
        let value = std::env::var(name).ok()?;
        Some(format!("{name}={value}"))
    });
    command.env(
        "TRANSOM_DOWNLOAD_PROXIES",
        of_machine.collect::<Vec<_>>().join("\n"),
    );
    for &name in PROXY_VARIABLES {
        command.env_remove(name);
    }
    command.envs(PROXY_VARIABLES[..4].iter().map(|name| (name, DEAD_PROXY)));
}

/// Runs a cargo subcommand that may not be installed.
fn run_if_installed(subcommand: &str, command: &mut Command) -> anyhow::Result<()> {
    if is_installed(subcommand) {
        step(subcommand, command)
    } else {
        eprintln!("==> {subcommand}: skipped; `rustup component add {subcommand}` adds it");
        Ok(())
    }
}

fn is_installed(subcommand: &str) -> bool {
    let mut probe: Command = cargo();
    probe
        .args([subcommand, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

const FORMATTING: &str = "formatting";
const LINTS: &str = "lints of every crate";
const NEEDS: &str = "servers and clients that tests start, installed where they are missing";
const MANUAL: &str = "building the manual and checking its links";
const KUBERNETES: &str = "the control plane of Kubernetes, built where it is missing";
const DASHBOARD: &str = "the dashboard: types, unit tests, and whether its built files are current";
const PROGRAMS: &str = "building programs and tests";
const COMPONENTS: &str = "building components";
const OTHER_LANGUAGES: &str = "building components in Python and JavaScript";
const TESTS: &str = "running tests";

/// The parts of a run and their durations.
struct Report {
    begun: Instant,
    durations: Vec<(&'static str, f64, bool)>,
}

impl Report {
    fn new() -> Self {
        Self {
            begun: Instant::now(),
            durations: Vec::new(),
        }
    }

    /// Prints the parts.
    fn begin(quick: bool) -> Self {
        let parts = [
            FORMATTING,
            LINTS,
            PROGRAMS,
            NEEDS,
            MANUAL,
            DASHBOARD,
            KUBERNETES,
            COMPONENTS,
            OTHER_LANGUAGES,
            TESTS,
        ];
        eprintln!("cargo xtask test does, 2 and 3 beside 4 to 7:");
        for (number, part) in parts.iter().enumerate() {
            let left_out = if quick && number < 2 {
                " (not with --quick)"
            } else {
                ""
            };
            eprintln!("  {}. {part}{left_out}", number + 1);
        }
        Self::new()
    }

    fn part<T>(&mut self, name: &'static str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let begun = Instant::now();
        let outcome = work();
        self.durations
            .push((name, begun.elapsed().as_secs_f64(), outcome.is_ok()));
        outcome
    }

    fn end(&self) {
        eprintln!("cargo xtask test took:");
        for (part, seconds, passed) in &self.durations {
            let failed = if *passed { "" } else { "  FAILED" };
            eprintln!("  {seconds:7.1} s  {part}{failed}");
        }
        eprintln!("  {:7.1} s  in all", self.begun.elapsed().as_secs_f64());
    }
}
