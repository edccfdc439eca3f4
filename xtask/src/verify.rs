//! `cargo xtask verify`: builds and executes the program that verifies the daemon against a master.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;

use crate::components::{self, Scope};
use crate::steps::{build, root, target};

/// Builds components and programs, and starts a run.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    build("programs", &["--bin", "transom", "--bin", "verify"])?;
    let components = components::step(None, Scope::FirstParty)?;
    // The program replaces this process, so that it receives signals and can clean up.
    let error = Command::new(target().join("debug/verify"))
        .args(arguments)
        .current_dir(root())
        .env("TRANSOM_COMPONENTS", components)
        .env("TRANSOM_BIN", target().join("debug/transom"))
        .exec();
    Err(error).context("cannot start the run")
}
