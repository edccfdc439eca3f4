//! Programs that tests start: real servers, from Debian's packages.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

/// A program that tests start, the file that shows that it is there, and the package it comes from.
const NEEDS: [(&str, &[&str], &str); 3] = [
    // The server itself; installing the package `redis-server` would also start one.
    (
        "redis-server",
        &["/usr/bin/redis-check-rdb", "/usr/bin/redis-server"],
        "redis-tools",
    ),
    ("ZooKeeper", &["/usr/share/java/zookeeper.jar"], "zookeeper"),
    ("java", &["/usr/bin/java"], "default-jre-headless"),
];

/// Installs what is missing where that is possible, else says what to install.
pub(crate) fn install() -> anyhow::Result<()> {
    let missing: Vec<&(&str, &[&str], &str)> = NEEDS
        .iter()
        .filter(|(_, files, _)| !files.iter().any(|file| Path::new(file).exists()))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|(name, ..)| *name).collect();
    let packages: Vec<&str> = missing.iter().map(|(.., package)| *package).collect();
    eprintln!("==> {} for the tests", names.join(", "));
    if !is_root() {
        bail!(
            "tests start {}: sudo apt-get install -y --no-install-recommends {}",
            names.join(", "),
            packages.join(" ")
        );
    }
    apt(&["update", "-qq"])?;
    apt(&[
        &["install", "-y", "-qq", "--no-install-recommends"],
        packages.as_slice(),
    ]
    .concat())
}

fn apt(arguments: &[&str]) -> anyhow::Result<()> {
    let status = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(Stdio::null())
        .status()
        .context("cannot run apt-get")?;
    ensure!(
        status.success(),
        "apt-get {} failed ({status})",
        arguments.join(" ")
    );
    Ok(())
}

fn is_root() -> bool {
    // Without a library: the owner of our own process directory is who we are.
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
