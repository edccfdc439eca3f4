//! Rust projects: cargo builds a core module that contains its world, which is converted to a
//! component here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail};
use serde_json::Value;
use tokio::process::Command;
use wit_component::ComponentEncoder;

use super::tool::{BUILD_TIMEOUT, spawn};

const TARGET: &str = "wasm32-unknown-unknown";

/// Builds the project and returns the component. Cargo's own environment variables apply: `RUSTC`,
/// `CARGO_TARGET_DIR` and so on.
pub(super) async fn build(dir: &Path) -> anyhow::Result<Vec<u8>> {
    // Building `std` from source needs no installed target.
    if std::env::var_os("CARGO_UNSTABLE_BUILD_STD").is_none() {
        find_target(dir).await?;
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--release", "--lib", "--target", TARGET])
        .args(["--message-format", "json-render-diagnostics"])
        .stdout(Stdio::piped())
        .current_dir(dir);
    // Cargo prints its own progress on standard error.
    let child = spawn(&mut cargo, "cargo", "install Rust: https://rustup.rs")?;
    let result = tokio::time::timeout(BUILD_TIMEOUT, child.wait_with_output()).await;
    let output = result
        .with_context(|| format!("cargo timed out after {} minutes", BUILD_TIMEOUT.as_secs() / 60))??;
    if !output.status.success() {
        bail!("cargo build failed ({}), see above", output.status);
    }
    let module = module(&String::from_utf8_lossy(&output.stdout), dir).with_context(|| {
        format!(
            "cargo built no module of {}: expected crate-type = [\"cdylib\"] under [lib] in Cargo.toml",
            dir.display()
        )
    })?;
    let bytes = fs::read(&module).with_context(|| format!("cannot read {}", module.display()))?;
    encode(&bytes).with_context(|| {
        format!(
            "{} cannot be converted to a component: does it call one export_…! macro of the SDK?",
            module.display()
        )
    })
}

fn encode(module: &[u8]) -> anyhow::Result<Vec<u8>> {
    ComponentEncoder::default()
        .module(module)?
        .validate(true)
        .encode()
}

/// The module among cargo's reported outputs: the last `.wasm` of the package in this folder.
fn module(messages: &str, dir: &Path) -> Option<PathBuf> {
    let manifest = dir.join("Cargo.toml");
    let is_of_package = |it: &Value| {
        it["reason"] == "compiler-artifact"
            && it["manifest_path"]
                .as_str()
                .is_some_and(|path| Path::new(path) == manifest)
    };
    let wasm_file = |it: &Value| {
        let files = it["filenames"].as_array()?.iter().filter_map(Value::as_str);
        files
            .map(PathBuf::from)
            .find(|it| it.extension().is_some_and(|extension| extension == "wasm"))
    };
    let messages = messages
        .lines()
        .rev()
        .filter_map(|line| serde_json::from_str(line).ok());
    messages.filter(is_of_package).find_map(|it| wasm_file(&it))
}

/// Adds a hint if the compiler has no library for the target.
async fn find_target(dir: &Path) -> anyhow::Result<()> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc
        .args(["--print", "target-libdir", "--target", TARGET])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .current_dir(dir);
    let child = spawn(&mut rustc, "rustc", "install Rust: https://rustup.rs")?;
    let output = tokio::time::timeout(BUILD_TIMEOUT, child.wait_with_output()).await??;
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || !Path::new(&folder).is_dir() {
        bail!("the Rust target {TARGET} is not installed; run:\n\n  rustup target add {TARGET}\n");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_of_the_project_is_found_in_cargo_messages() {
        let messages = r#"
{"reason":"compiler-artifact","manifest_path":"/p/vendor/Cargo.toml","filenames":["/t/libsdk.rlib"]}
{"reason":"compiler-artifact","manifest_path":"/p/Cargo.toml","filenames":["/t/mine.wasm","/t/libmine.rlib"]}
{"reason":"build-finished","success":true}
no JSON
"#;
        assert_eq!(
            module(messages, Path::new("/p")),
            Some(PathBuf::from("/t/mine.wasm"))
        );
        assert_eq!(module(messages, Path::new("/q")), None);
        let library = r#"{"reason":"compiler-artifact","manifest_path":"/p/Cargo.toml","filenames":["/t/libmine.rlib"]}"#;
        assert_eq!(module(library, Path::new("/p")), None);
    }
}
