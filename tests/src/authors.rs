//! The tools of plugin authors: `transom plugin`, and the compilers of each language.
//!
//! `cargo xtask test` passes the tools' folders. Python and JavaScript may be missing on machines
//! without them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::process::{binary, components};
use crate::set_proxies;

/// Runs `transom ARGUMENTS` in `dir` with the compiler for components. All tests share one target
/// directory of cargo.
pub fn transom(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(arguments).current_dir(dir);
    set_build_environment(&mut command);
    command.output().expect("transom runs")
}

/// Runs the command as [`transom`] does and requires that it succeeds; returns its output.
pub fn run_transom(dir: &Path, arguments: &[&str]) -> String {
    let output = transom(dir, arguments);
    assert!(
        output.status.success(),
        "transom {}: {}\n{}{}",
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Sets the environment of a command that builds components.
pub fn set_build_environment(command: &mut Command) {
    for line in std::env::var("TRANSOM_WASM_TOOLCHAIN")
        .unwrap_or_default()
        .lines()
    {
        let (name, value) = line.split_once('=').expect("NAME=VALUE");
        command.env(name, value);
    }
    let target = std::env::var_os("TRANSOM_AUTHORS_TARGET").map_or_else(
        || components().with_file_name("authors").join("cargo"),
        PathBuf::from,
    );
    // The settings of the outer cargo must not reach the inner one.
    command.env_remove("LD_LIBRARY_PATH").env_remove("RUSTFLAGS");
    let inherited = std::env::vars().map(|(name, _)| name);
    for name in inherited.filter(|name| name.starts_with("TRANSOM_") || name.starts_with("CARGO_PKG")) {
        command.env_remove(name);
    }
    // Shared by all tests, and separate from the user's own cache.
    command.env("TRANSOM_CACHE_DIR", target.with_file_name("compiled"));
    command.env("CARGO_TARGET_DIR", target);
    set_proxies(command);
}

/// Whether this machine has no Python or no Node.js, as `cargo xtask test` reported.
pub fn is_missing_a_language() -> bool {
    let message = std::env::var("TRANSOM_AUTHORS_LEFT_OUT").ok();
    if let Some(message) = &message {
        eprintln!("skipped: {message}");
    }
    message.is_some()
}

/// The folder of `componentize-py`.
pub fn python() -> PathBuf {
    folder_from_variable("TRANSOM_AUTHORS_PYTHON")
}

/// A `node_modules` with `componentize-js`.
pub fn node_modules() -> PathBuf {
    folder_from_variable("TRANSOM_AUTHORS_NODE_MODULES")
}

fn folder_from_variable(variable: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(
        || panic!("{variable} is not set: `cargo xtask test` sets it"),
        PathBuf::from,
    )
}
