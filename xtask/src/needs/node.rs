//! Node.js packages that tests use: `target/node/NAME`, each with its `node_modules`.

use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};

use super::{apt, is_root};
use crate::steps::{root, step, target};

/// The reference implementation of a browser's `EventSource`, in the last version for Debian's Node.js
/// 18, and a client of the apps API's events, which needs an older version.
const PACKAGES: &[(&str, &str)] = &[("eventsource", "3.0.7"), ("marathon-event-bus-client", "0.1.7")];

/// A file in each completed folder.
const STAMP_FILE: &str = "packages";

/// Installs missing packages.
pub(super) fn install() -> anyhow::Result<()> {
    for &(name, version) in PACKAGES {
        package(name, version)?;
    }
    browser()
}

/// Installs the packages for the tests of the dashboard, in the versions of their lock file.
fn browser() -> anyhow::Result<()> {
    let from = root().join("tests/dashboard");
    let dir = target().join("node/dashboard");
    let files = ["package.json", ".npmrc", "package-lock.json"];
    let read =
        |file: &str| fs::read_to_string(from.join(file)).with_context(|| format!("tests/dashboard/{file}"));
    let lock = read("package-lock.json")?;
    let done = dir.join(STAMP_FILE);
    if fs::read_to_string(&done).is_ok_and(|found| found == lock) {
        return Ok(());
    }
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    for file in files {
        fs::write(dir.join(file), read(file)?)
            .with_context(|| format!("writing {}/{file}", dir.display()))?;
    }
    step(
        "packages for the tests of the dashboard",
        Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund"])
            .current_dir(&dir),
    )?;
    fs::write(&done, lock).with_context(|| format!("writing {}", done.display()))
}

/// Installs Node.js and npm if they are missing and that is possible.
///
/// # Errors
/// They are missing; the message names `what` needs them.
pub(crate) fn ensure_usable(what: &str) -> anyhow::Result<()> {
    if !is_usable() && is_root() {
        apt(&["update", "-qq"])?;
        apt(&["install", "-y", "-qq", "--no-install-recommends", "nodejs", "npm"])?;
    }
    ensure!(
        is_usable(),
        "{what} requires Node.js 18 or later and npm: apt-get install -y nodejs npm"
    );
    Ok(())
}

/// Installs a package unless this version is installed already.
fn package(name: &str, version: &str) -> anyhow::Result<()> {
    let dir = target().join("node").join(name);
    let done = dir.join(STAMP_FILE);
    if fs::read_to_string(&done).is_ok_and(|found| found == version) && is_usable() {
        return Ok(());
    }
    ensure_usable(&format!("{name}, which tests run,"))?;
    // Files of another version would cause conflicts.
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let package = format!("{{\"private\": true, \"dependencies\": {{\"{name}\": \"{version}\"}}}}\n");
    let file = dir.join("package.json");
    fs::write(&file, package).with_context(|| format!("writing {}", file.display()))?;
    step(
        &format!("{name} {version} for the tests"),
        Command::new("npm")
            .args(["install", "--no-audit", "--no-fund", "--no-package-lock"])
            .current_dir(&dir),
    )?;
    fs::write(&done, version).with_context(|| format!("writing {}", done.display()))
}

/// Whether npm and a sufficiently new Node.js are installed.
fn is_usable() -> bool {
    let does = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        output.is_ok_and(|it| it.status.success())
    };
    let version = "process.exit(Number(process.versions.node.split('.')[0]) < 18 ? 1 : 0)";
    does("node", &["--eval", version]) && does("npm", &["--version", "--silent"])
}
