//! `cargo xtask bench`: measurements, with their environment.
//!
//! A benchmark is a target of its package that prints one JSON document; the common fields are
//! added here. Times are not asserted: ratios within one run are comparable, times of different
//! machines are not.

mod authors;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use crate::components::{self, Scope};
use crate::steps::{self, cargo, root, step, target};

/// Name, which is also the target's, and package. All need the feature `bench` and the components.
const BENCHES: &[(&str, &str)] = &[
    ("apps", "transom-tests"),
    ("discovery", "transom-discovery"),
    ("events", "transom-tests"),
    ("framework", "transom-tests"),
    ("growth", "transom-tests"),
    ("scheduler", "transom-scheduler"),
    ("leader", "transom-scheduler"),
    ("plugins", "transom-tests"),
    ("scale", "transom-tests"),
    ("store", "transom-store"),
    ("workflow", "transom-tests"),
];
/// This benchmark is not a target of a package: it runs the commands of authors.
const AUTHORS: &str = "authors";
/// The benchmarks that start the daemon.
const BENCHES_WITH_DAEMON: &[&str] = &["apps", "events", "framework", "growth", "plugins", "workflow"];

/// The benchmarks that run parts of the daemon themselves, with the daemon's allocator.
const BENCHES_WITH_JEMALLOC: &[&str] = &["discovery", "growth", "plugins", "scale"];

/// Builds and runs a benchmark with these arguments, and prints its document.
pub(crate) fn run(name: &str, profile: &str, arguments: &[String]) -> anyhow::Result<()> {
    if name == AUTHORS {
        return print(name, profile, &authors(profile)?);
    }
    let Some((_, package)) = BENCHES.iter().find(|(known, _)| *known == name) else {
        let known = BENCHES.iter().map(|(known, _)| *known);
        let known: Vec<&str> = known.chain([AUTHORS]).collect();
        bail!("unknown benchmark `{name}`; expected one of {}", known.join(", "));
    };
    let components = components::step(None, Scope::All)?;
    // Benchmark and daemon are built with the same feature selection in one run, so that common
    // crates are compiled once.
    let mut selection = vec!["--package".to_owned(), (*package).to_owned()];
    selection.extend(["--features".to_owned(), format!("{package}/bench")]);
    if BENCHES_WITH_JEMALLOC.contains(&name) {
        selection.extend(["--features".to_owned(), format!("{package}/jemalloc")]);
    }
    let mut measuring = cargo();
    if BENCHES_WITH_DAEMON.contains(&name) {
        selection.extend(["--package", "transom"].map(str::to_owned));
        let mut programs = vec!["--bin", "transom"];
        if ["framework", "growth"].contains(&name) {
            // The program of the framework's servers and agents.
            selection.extend(["--package", "transom-orchestrator"].map(str::to_owned));
            programs.extend(["--bin", "orchestrator"]);
        }
        let mut build = cargo();
        build
            .arg("build")
            .args(programs)
            .args(["--bench", name, "--profile", build_profile(profile)])
            .args(&selection);
        step("the daemon", &mut build)?;
        measuring.env("TRANSOM_BIN", target().join(folder(profile)).join("transom"));
    }
    eprintln!("==> {name}, profile {profile}");
    let output = measuring
        .args(["bench", "--bench", name, "--profile", profile])
        .args(&selection)
        .arg("--")
        .args(arguments)
        .env("TRANSOM_COMPONENTS", components)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "{name} failed ({})", output.status);
    let figures: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{name} did not print a JSON document"))?;
    print(name, profile, &figures)
}

/// Builds the daemon and the components, and measures the documented commands. `TRANSOM_BIN` names
/// an existing daemon to measure, such as an installed one.
fn authors(profile: &str) -> anyhow::Result<Value> {
    let components = components::step(None, Scope::FirstParty)?;
    let present = std::env::var_os("TRANSOM_BIN").map(PathBuf::from);
    if present.is_some() {
        // The existing daemon is measured.
    } else if folder(profile) == "debug" {
        steps::build("daemon", &["--bin", "transom"])?;
    } else {
        let mut build = cargo();
        build.args(["build", "--package", "transom", "--bin", "transom"]);
        step("the daemon", build.args(["--profile", build_profile(profile)]))?;
    }
    let variables = components::toolchain()?;
    let variables: Vec<(String, String)> = variables
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    eprintln!("==> {AUTHORS}, profile {profile}");
    authors::figures(
        &present.unwrap_or_else(|| target().join(folder(profile)).join("transom")),
        &components,
        &variables,
    )
}

/// Prints the document with the common fields.
fn print(name: &str, profile: &str, figures: &Value) -> anyhow::Result<()> {
    let document = json!({
        "benchmark": name,
        "profile": build_profile(profile),
        "commit": commit()?,
        "machine": machine(),
        "figures": figures,
    });
    println!("{document:#}");
    Ok(())
}

/// Cargo's `bench` is `release` under another name; the document names the build profile.
fn build_profile(profile: &str) -> &str {
    match profile {
        "bench" => "release",
        other => other,
    }
}

/// The name of a profile's output folder.
fn folder(profile: &str) -> &str {
    match build_profile(profile) {
        "dev" | "test" => "debug",
        other => other,
    }
}

/// The commit, and whether the working tree has changes.
fn commit() -> anyhow::Result<Value> {
    let git = |arguments: &[&str]| -> anyhow::Result<String> {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(root())
            .output()
            .context("cannot start git")?;
        ensure!(output.status.success(), "git {} failed", arguments.join(" "));
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Ok(json!({"id": git(&["rev-parse", "HEAD"])?, "changed_since": changed}))
}

/// A value from Linux; `null` if unavailable.
fn machine() -> Value {
    let field = |file: &str, name: &str| {
        let text = fs::read_to_string(file).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let memory = field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
        .map(|kib| kib / 1024);
    let cores = std::thread::available_parallelism().ok();
    json!({
        "cpu": field("/proc/cpuinfo", "model name"),
        "cores": cores.map(std::num::NonZero::get),
        "memory_mib": memory,
    })
}
