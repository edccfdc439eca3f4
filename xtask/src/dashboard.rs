//! `cargo xtask dashboard`: builds the dashboard into `dashboard/dist`, which is checked in, so
//! that `cargo build` needs no Node.js. `cargo xtask test` verifies that the checked-in files match
//! the sources.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::needs::node;
use crate::steps::{root, step, target};

fn sources() -> PathBuf {
    root().join("dashboard")
}

/// Checks and builds the sources, and replaces the checked-in files.
pub(crate) fn build() -> anyhow::Result<()> {
    node::ensure_usable("the dashboard")?;
    install_packages()?;
    check_sources()?;
    build_into(&sources().join("dist"))
}

/// Checks the sources, and that building them results in the checked-in files.
pub(crate) fn test() -> anyhow::Result<()> {
    install_packages()?;
    check_sources()?;
    let fresh = target().join("dashboard");
    build_into(&fresh)?;
    let (expected, found) = (read_files(&fresh)?, read_files(&sources().join("dist"))?);
    let names = expected.keys().chain(found.keys());
    for name in names {
        ensure!(
            expected.get(name) == found.get(name),
            "dashboard/dist/{name} is outdated: run `cargo xtask dashboard` and add its files"
        );
    }
    Ok(())
}

/// Installs the packages of the lock file.
fn install_packages() -> anyhow::Result<()> {
    npm("packages of the dashboard", &["ci", "--no-audit", "--no-fund"])
}

fn check_sources() -> anyhow::Result<()> {
    npm("types of the dashboard", &["run", "--silent", "check"])?;
    npm("unit tests of the dashboard", &["run", "--silent", "test"])
}

fn build_into(dir: &Path) -> anyhow::Result<()> {
    let dir = dir.to_string_lossy();
    let arguments = [
        "run",
        "--silent",
        "build",
        "--",
        "--outDir",
        &dir,
        "--emptyOutDir",
        "--logLevel",
        "warn",
    ];
    npm("building the dashboard", &arguments)
}

fn npm(what: &str, arguments: &[&str]) -> anyhow::Result<()> {
    step(what, Command::new("npm").args(arguments).current_dir(sources()))
}

/// The contents of a folder's files by name.
fn read_files(dir: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    entries
        .map(|entry| {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let content = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            Ok((name, content))
        })
        .collect()
}
