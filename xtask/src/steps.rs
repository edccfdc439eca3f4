//! Steps that several commands share: where things are, running cargo, showing progress.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, ensure};

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR").map(PathBuf::from) {
        Some(dir) if dir.is_absolute() => dir,
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Cargo, in the workspace's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs `command`, saying what for and how long it took.
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
