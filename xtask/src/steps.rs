//! Steps that several commands share: where things are, running cargo, showing progress.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, ensure};

use crate::{authors, components};

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

/// Builds the components into `out` (`target/components` when none is given) and returns that directory.
pub(crate) fn components(out: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    eprintln!("==> components");
    let begun = Instant::now();
    let out = out.unwrap_or_else(|| target().join("components"));
    let built = components::build(&root(), &out, &|line| eprintln!("    {line}"))?;
    eprintln!(
        "    components: {} in {}, {:.1} s",
        built.len(),
        out.display(),
        begun.elapsed().as_secs_f64()
    );
    Ok(out)
}

/// Builds the components of other languages beside them, and returns what tests are told of these.
pub(crate) fn authors(components: &Path) -> anyhow::Result<Vec<(&'static str, OsString)>> {
    eprintln!("==> components of Python and JavaScript");
    let begun = Instant::now();
    let told = authors::build_where_possible(&target().join("debug/transom"), components)?;
    eprintln!(
        "    components of Python and JavaScript: {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    Ok(told)
}
