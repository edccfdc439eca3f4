//! Builds Python and JavaScript projects, and runs tools. Each tool has a timeout, and a tool that
//! takes long is announced with a message.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::process::{Child, Command};

use crate::output::print_note;
use crate::plugin::new::write;
use crate::plugin::template::{World, interface};

/// Timeout of a build: longer than any regular one, including the first one on a small machine.
pub(super) const BUILD_TIMEOUT: Duration = Duration::from_mins(30);

/// Starts a program. `advice`: the advice if it is missing.
pub(super) fn spawn(command: &mut Command, name: &str, advice: &str) -> anyhow::Result<Child> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    match command.spawn() {
        Ok(child) => Ok(child),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("{name} was not found on this machine; {advice}")
        }
        Err(error) => Err(error).with_context(|| format!("cannot start {name}")),
    }
}

/// Runs a tool that writes a component, and returns the component. The tool's output is shown when
/// it fails.
async fn run_tool(
    mut command: Command,
    name: &str,
    advice: &str,
    component: &Path,
) -> anyhow::Result<Vec<u8>> {
    print_note(format_args!(
        "building the component with {name}; this takes ten seconds or more"
    ));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = spawn(&mut command, name, advice)?;
    let result = tokio::time::timeout(BUILD_TIMEOUT, child.wait_with_output()).await;
    let output = result
        .with_context(|| format!("{name} timed out after {} minutes", BUILD_TIMEOUT.as_secs() / 60))??;
    if !output.status.success() {
        bail!(
            "{name} failed ({}):\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    fs::read(component).with_context(|| format!("{name} did not write a component"))
}

/// Builds `src/app.py` and the modules that it imports with `componentize-py`, which is taken from the
/// project's `.venv` or from PATH. The WIT is the project's own in `wit`; the default is that of this
/// version.
pub(super) async fn python(dir: &Path, world: World) -> anyhow::Result<Vec<u8>> {
    let advice = "run:\n\n  python3 -m venv .venv && .venv/bin/pip install -r requirements.txt\n";
    let local_program = dir.join(".venv/bin/componentize-py");
    let program = if local_program.is_file() {
        local_program.as_os_str()
    } else {
        OsStr::new("componentize-py")
    };
    let temp_dir = tempfile::tempdir()?;
    let component = temp_dir.path().join("component.wasm");
    let mut wit = dir.join("wit");
    if !wit.is_dir() {
        wit = temp_dir.path().join("wit");
        for (name, text) in interface(world) {
            write(&wit.join(name), &text)?;
        }
    }
    let mut command = Command::new(program);
    let environment = dir.join(".venv");
    if environment.is_dir() {
        // The tool searches this environment for packages such as `transom-plugin`.
        command.env("VIRTUAL_ENV", environment);
    }
    command
        .arg("-d")
        .arg(wit)
        .arg("-w")
        .arg(format!("transom:{}/{}", world.package(), world.name()))
        .args(["componentize", "-p", "src", "app", "-o"])
        .arg(&component)
        .current_dir(dir);
    run_tool(command, "componentize-py", advice, &component).await
}

/// Runs the project's `build.mjs`, which calls `componentize-js`.
pub(super) async fn javascript(dir: &Path) -> anyhow::Result<Vec<u8>> {
    const PACKAGE: &str = "node_modules/@bytecodealliance/componentize-js";
    if !dir.ancestors().any(|it| it.join(PACKAGE).is_dir()) {
        bail!(
            "@bytecodealliance/componentize-js is not installed; run:\n\n  npm install\n\nin {}",
            dir.display()
        );
    }
    let temp_dir = tempfile::tempdir()?;
    let component: PathBuf = temp_dir.path().join("component.wasm");
    let mut command = Command::new("node");
    command.arg("build.mjs").arg(&component).current_dir(dir);
    run_tool(
        command,
        "node",
        "install Node.js 20 or later: https://nodejs.org",
        &component,
    )
    .await
}
