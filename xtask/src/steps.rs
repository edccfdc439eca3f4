//! Steps that several commands share: paths, running cargo, progress output.

use std::collections::HashSet;
use std::env;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Deserialize;

/// Interval of progress lines of a build without a terminal.
const REPORT_INTERVAL: Duration = Duration::from_secs(15);

/// The selection of all builds for development and tests. It is always the same, so that nothing is
/// compiled twice: the whole workspace without the daemon's allocator, which is C code that takes
/// minutes to compile.
pub(crate) const SELECTION: &[&str] = &["--workspace", "--no-default-features"];

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Cargo's output folder.
pub(crate) fn target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR").map(PathBuf::from) {
        Some(dir) if dir.is_absolute() => dir,
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Cargo, in the workspace's root. The variables that the outer cargo sets for xtask are removed:
/// build scripts that read them would run again, with everything above them, after each `cargo test`
/// without xtask.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in env::vars_os() {
        let of_package = name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"));
        if of_package {
            command.env_remove(name);
        }
    }
    command
}

/// Runs `command`; prints its purpose and how long it took.
pub(crate) fn step(what: &str, command: &mut Command) -> anyhow::Result<()> {
    eprintln!("==> {what}");
    let begun = Instant::now();
    let status = command
        .status()
        .with_context(|| format!("{what}: cannot run {command:?}"))?;
    ensure!(status.success(), "{what} failed ({status})");
    eprintln!("    {what}: {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Builds these targets of the workspace and shows the progress: cargo's own bar on a terminal,
/// else a line with the number of crates at intervals.
pub(crate) fn build(what: &str, targets: &[&str]) -> anyhow::Result<()> {
    let mut command = cargo();
    command.arg("build").args(SELECTION).args(targets);
    if std::io::stderr().is_terminal() {
        return step(what, &mut command);
    }
    eprintln!("==> {what}");
    let begun = Instant::now();
    let total = crates();
    let mut child = command
        .args(["--quiet", "--message-format", "json-render-diagnostics"])
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{what}: cannot run {command:?}"))?;
    let messages = child.stdout.take().context("cargo's messages")?;
    let mut built = HashSet::new();
    let mut next_report = Duration::from_secs(2);
    for line in BufReader::new(messages).lines() {
        if let Ok(Message {
            package_id: Some(package),
        }) = serde_json::from_str(&line?)
        {
            built.insert(package);
        }
        if begun.elapsed() >= next_report {
            eprintln!("    {what}: {} of at most {total} crates", built.len());
            next_report = begun.elapsed() + REPORT_INTERVAL;
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "{what} failed ({status})");
    eprintln!("    {what}: {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Cargo's message for every completed crate; other messages have no package.
#[derive(Deserialize)]
struct Message {
    package_id: Option<String>,
}

/// The number of crates in the lock file: an upper bound for every build.
fn crates() -> usize {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap_or_default();
    lock.lines().filter(|line| *line == "[[package]]").count()
}
