//! `cargo xtask chaos`: builds and executes the chaos program.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;

use crate::components::{self, Scope};
use crate::needs;
use crate::steps::{build, root, target};

/// Builds components and programs, and starts a run.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    needs::install()?;
    build("programs", &["--bins"])?;
    let components = components::step(None, Scope::FirstParty)?;
    // The program replaces this process: it receives signals, and stops its children.
    let error = Command::new(target().join("debug/chaos"))
        .args(arguments)
        .current_dir(root())
        .env("TRANSOM_COMPONENTS", components)
        .env("TRANSOM_BIN", target().join("debug/transom"))
        .exec();
    Err(error).context("cannot start the chaos run")
}
