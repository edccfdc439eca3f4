//! `cargo xtask dev`, `replay` and `simulate`: build and execute the program.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;

use crate::components::{self, Scope};
use crate::steps::{self, root, target};

/// Builds components and daemon, and starts `transom dev`.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    steps::build("daemon", &["--bin", "transom", "--bin", "componentize"])?;
    let components = components::step(None, Scope::FirstParty)?;
    // The daemon replaces this process: Ctrl-C reaches only the daemon.
    let error = Command::new(target().join("debug/transom"))
        .arg("dev")
        .arg("--components")
        .arg(components)
        .args(arguments)
        .current_dir(root())
        .exec();
    Err(error).context("cannot start the daemon")
}

/// Builds and executes a program that needs nothing else.
pub(crate) fn program(name: &str, arguments: &[String]) -> anyhow::Result<()> {
    steps::build(name, &["--bin", name])?;
    let error = Command::new(target().join("debug").join(name))
        .args(arguments)
        .current_dir(root())
        .exec();
    Err(error).with_context(|| format!("cannot start {name}"))
}
