//! `cargo xtask mutations`: changes the daemons' code in one place after another, and shows that the
//! simulation finds each change.
//!
//! A mutation is a patch in `tests/simulation/mutations`. It is applied to a worktree of the current
//! commit below `target/mutations`, which has its own build.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::steps::{cargo, root, target};

/// How long the simulation may take to find a mutation.
const LIMIT: Duration = Duration::from_mins(1);
/// The hours of one seed: enough for two storms and two calm times.
const HOURS: &str = "2";

/// The names of mutations begin like this that concern a daemon with an embedded store.
const EMBEDDED: &str = "embedded-";

/// How a mutation was found.
struct Found {
    seed: u64,
    hours: f64,
    took: Duration,
    what: String,
}

/// Runs the named mutations, or all, and prints a table.
pub(crate) fn run(names: &[String]) -> anyhow::Result<()> {
    let patches = patches(names)?;
    let directory = target().join("mutations");
    let tree = directory.join("tree");
    // A previous run may have been interrupted.
    let _ = git(
        &root(),
        &["worktree", "remove", "--force", &tree.display().to_string()],
    );
    git(&root(), &["worktree", "prune"])?;
    git(
        &root(),
        &["worktree", "add", "--detach", &tree.display().to_string(), "HEAD"],
    )?;
    println!("| mutation | seed | simulated hours | seconds | found |\n|---|---|---|---|---|");
    let mut missed = Vec::new();
    for (name, patch) in patches {
        eprintln!("{name}: building and simulating");
        git(&tree, &["apply", &patch.display().to_string()]).with_context(|| format!("mutation {name}"))?;
        if let Some(found) = simulate(&tree, &directory.join("build"), name.starts_with(EMBEDDED))? {
            println!(
                "| `{name}` | {} | {:.1} | {:.1} | {} |",
                found.seed,
                found.hours,
                found.took.as_secs_f64(),
                found.what
            );
        } else {
            println!("| `{name}` | | | {} | **not found** |", LIMIT.as_secs());
            missed.push(name);
        }
        git(&tree, &["checkout", "--", "."])?;
    }
    git(
        &root(),
        &["worktree", "remove", "--force", &tree.display().to_string()],
    )?;
    ensure!(missed.is_empty(), "not found: {}", missed.join(", "));
    Ok(())
}

/// The mutations and their files, by name.
fn patches(names: &[String]) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let directory = root().join("tests/simulation/mutations");
    let mut all = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if let Some(name) = path.file_stem().and_then(|name| name.to_str()) {
            all.push((name.to_owned(), path));
        }
    }
    all.sort();
    for name in names {
        ensure!(
            all.iter().any(|(known, _)| known == name),
            "no mutation {name:?}; expected the name of a file in tests/simulation/mutations"
        );
    }
    all.retain(|(name, _)| names.is_empty() || names.contains(name));
    Ok(all)
}

/// Builds the simulation in `tree` and runs it with one seed after another.
fn simulate(tree: &Path, build: &Path, embedded: bool) -> anyhow::Result<Option<Found>> {
    let compiled = cargo()
        .args([
            "build",
            "--quiet",
            "--package",
            "transom-simulation",
            "--target-dir",
        ])
        .arg(build)
        // A release is linked as one, which takes longer than the simulation.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .current_dir(tree)
        .status()
        .context("cannot start cargo")?;
    ensure!(compiled.success(), "the mutated code does not compile");
    let began = Instant::now();
    let mut child = Command::new(build.join("debug/simulate"))
        .args([
            "--seed",
            "1",
            "--seeds",
            "1000",
            "--hours",
            HOURS,
            "--no-shrink",
            "--output",
            "json",
        ])
        .args(embedded.then_some("--embedded"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the simulation")?;
    let stdout = child.stdout.take().context("a pipe")?;
    let (sender, reports) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let (mut hours, mut found) = (0.0, None);
    while let Ok(line) = reports.recv_timeout(LIMIT.saturating_sub(began.elapsed())) {
        let report: Value = serde_json::from_str(&line).context("a report")?;
        hours += report["hours"].as_f64().unwrap_or_default();
        if let Some(what) = report["violation"]["what"].as_str() {
            found = Some(Found {
                seed: report["seed"].as_u64().unwrap_or_default(),
                hours,
                took: began.elapsed(),
                what: what.to_owned(),
            });
        }
    }
    let _ = child.kill();
    child.wait().context("the simulation")?;
    let _ = reader.join();
    Ok(found)
}

fn git(directory: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(directory)
        .output()
        .context("cannot start git")?;
    ensure!(
        output.status.success(),
        "git {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
