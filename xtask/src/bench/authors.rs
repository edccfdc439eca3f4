//! `cargo xtask bench authors`: the time from an empty folder to a plugin that serves, in each
//! language, with only the documented commands.
//!
//! The commands are `transom plugin new` and then those of the project's own README.md, line by
//! line, with the kit that `new` puts into the project. The last one copies the plugin into the
//! directory of a running `transom dev`, and its time ends when the plugin serves. Afterwards
//! `transom plugin dev` follows the project, and the time of one change is measured, until it
//! serves. Nothing is built or compiled before; downloaded packages may be in the caches of cargo,
//! pip and npm, so a first run measures the network as well.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// A language, the target time in seconds on two cores with downloaded packages, and the plugin's
/// source file.
const LANGUAGES: &[(&str, u64, &str)] = &[
    ("rust", 120, "src/lib.rs"),
    ("python", 180, "src/app.py"),
    ("javascript", 180, "plugin.js"),
];
/// The measured change: a text of the template that subscribers see, and its replacement.
const REPLACEMENT: [&str; 2] = [
    "this filter takes no expressions",
    "this filter has no expressions",
];
const NAME: &str = "mine";
const WORLD: &str = "event-filter";
/// Timeout of a command, of the daemon's start, and of its admission.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(15);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Measures with this `transom`. `variables` are cargo's variables for compiling components.
pub(super) fn figures(transom: &Path, components: &Path, variables: &[(String, String)]) -> Result<Value> {
    let dir = tempfile::tempdir().context("a folder")?;
    let site = Site {
        transom,
        cache: dir.path().join("cache"),
        variables,
        daemon: Daemon::start(transom, components, &dir.path().join("state"))?,
    };
    let mut figures = serde_json::Map::new();
    for &(language, aim, source) in LANGUAGES {
        eprintln!("    {language}");
        let folder = dir.path().join(language);
        fs::create_dir(&folder)?;
        let mut measured = site
            .measure_language(language, source, &folder)
            .with_context(|| format!("the documented commands for {language}"))?;
        measured["aim_seconds"] = json!(aim);
        figures.insert(language.to_owned(), measured);
    }
    Ok(Value::Object(figures))
}

struct Site<'a> {
    transom: &'a Path,
    /// The cache of compiled components, which is empty at the start.
    cache: PathBuf,
    variables: &'a [(String, String)],
    daemon: Daemon,
}

impl Site<'_> {
    fn measure_language(&self, language: &str, source: &str, folder: &Path) -> Result<Value> {
        let new = format!("transom plugin new {NAME} --world {WORLD} --language {language}");
        let mut steps = vec![self.step(folder, &new)?];
        let project = folder.join(NAME);
        let readme = fs::read_to_string(project.join("README.md")).context("the project's README.md")?;
        let commands = commands(&readme);
        ensure!(
            commands.iter().any(|it| it.starts_with("cp ")),
            "README.md has no command that copies the plugin to a daemon"
        );
        let plugins = self.daemon.plugins.display().to_string();
        for command in commands {
            let run = command.replace("DIRECTORY", &plugins);
            if command.starts_with("cp ") {
                let digest = self.digest(&project)?;
                let begun = Instant::now();
                self.step(&project, &run)?;
                self.wait_until_served(&digest)?;
                eprintln!("    {:>7.1} s  until it serves", seconds(begun));
                steps.push(json!({"command": command, "seconds": seconds(begun)}));
            } else {
                steps.push(self.step(&project, &run)?);
            }
        }
        let total: f64 = steps.iter().filter_map(|it| it["seconds"].as_f64()).sum();
        let second_test = self.step(
            &project,
            &format!("transom plugin test out/{NAME}.wasm cases.toml"),
        )?;
        let change = self.measure_change(&project, &project.join(source))?;
        fs::remove_file(self.daemon.plugins.join(format!("{NAME}.wasm")))?;
        self.wait_until_served(&Value::Null)?;
        Ok(json!({
            "steps": steps,
            "seconds": (total * 10.0).round() / 10.0,
            "second_test_seconds": second_test["seconds"],
            "change_until_served_seconds": change,
        }))
    }

    /// Measures the time from a change of the source until the new version serves, while `transom
    /// plugin dev` follows the project: it builds, tests and copies the component, and the daemon
    /// compiles it.
    fn measure_change(&self, project: &Path, source: &Path) -> Result<f64> {
        let mut dev = self.shell(project, "exec transom plugin dev")?;
        let dev = RunningCommand::start(dev.stdout(Stdio::piped()).stderr(Stdio::inherit()))?;
        dev.wait_for_line("the first round of `plugin dev`", |line| {
            line.contains("waiting for changes").then_some(())
        })?;
        let text = fs::read_to_string(source).with_context(|| format!("reading {}", source.display()))?;
        let [from, to] = REPLACEMENT;
        ensure!(text.contains(from), "`{from}` is not in {}", source.display());
        let begun = Instant::now();
        fs::write(source, text.replace(from, to)).with_context(|| format!("writing {}", source.display()))?;
        let served = dev.wait_for_line("a served change", |line| {
            line.contains(", after ").then(|| line.contains(" serves"))
        })?;
        let time = seconds(begun);
        ensure!(served, "`transom plugin dev` does not serve the change");
        eprintln!("    {time:>7.1} s  a change, with `transom plugin dev`");
        Ok(time)
    }

    /// Runs a command in a shell, as an author would.
    fn step(&self, folder: &Path, command: &str) -> Result<Value> {
        let begun = Instant::now();
        let output = self
            .shell(folder, command)?
            .output()
            .with_context(|| format!("cannot start `{command}`"))?;
        let time = seconds(begun);
        ensure!(
            output.status.success(),
            "`{command}` failed ({}):\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        eprintln!("    {time:>7.1} s  {command}");
        Ok(json!({"command": command, "seconds": time}))
    }

    /// A shell with an author's environment.
    fn shell(&self, folder: &Path, command: &str) -> Result<Command> {
        let bin = self.transom.parent().context("a program is in a folder")?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::iter::once(bin.to_owned()).chain(std::env::split_paths(&path));
        let mut shell = Command::new("timeout");
        shell
            .arg(COMMAND_TIMEOUT.as_secs().to_string())
            .args(["sh", "-c", command])
            .current_dir(folder)
            .env("PATH", std::env::join_paths(path)?)
            .env("TRANSOM_CACHE_DIR", &self.cache)
            .env("TRANSOM_ADMIN_URL", &self.daemon.admin)
            // Authors do not have the settings of the cargo that runs this program.
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("LD_LIBRARY_PATH")
            .env_remove("RUSTFLAGS");
        // A compiler that was downloaded for components must not be used by `cargo test`.
        if command.contains("transom ") {
            shell.envs(self.variables.iter().map(|(name, value)| (name, value)));
        }
        Ok(shell)
    }

    /// The digest of the project's component.
    fn digest(&self, project: &Path) -> Result<Value> {
        let component = format!("out/{NAME}.wasm");
        let output = Command::new(self.transom)
            .args(["plugin", "check", &component, "--output", "json"])
            .current_dir(project)
            .env("TRANSOM_CACHE_DIR", &self.cache)
            .output()?;
        let verdict: Value = serde_json::from_slice(&output.stdout).context("`plugin check`")?;
        ensure!(
            verdict["digest"].is_string(),
            "the output of `plugin check` has no digest: {verdict}"
        );
        Ok(verdict["digest"].clone())
    }

    /// Waits until the daemon shows this digest of the plugin; null: until it has no such plugin.
    fn wait_until_served(&self, digest: &Value) -> Result<()> {
        let begun = Instant::now();
        loop {
            let output = Command::new(self.transom)
                .args([
                    "plugin",
                    "list",
                    "--output",
                    "json",
                    "--admin",
                    &self.daemon.admin,
                ])
                .output()?;
            let plugins: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let plugins = plugins.as_array().map_or(&[][..], Vec::as_slice);
            let found = plugins.iter().find(|it| it["name"] == NAME);
            let found = found.map_or(&Value::Null, |it| &it["digest"]);
            if found == digest {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < COMMAND_TIMEOUT,
                "the daemon shows {found}, not {digest}"
            );
            thread::sleep(POLL_INTERVAL);
        }
    }
}

fn seconds(begun: Instant) -> f64 {
    (begun.elapsed().as_secs_f64() * 10.0).round() / 10.0
}

/// The lines of a page's `sh` blocks, without those of `rustup`, because the toolchain of this
/// build has the target already.
fn commands(page: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut in_block = false;
    for line in page.lines() {
        match line.trim() {
            "```sh" => in_block = true,
            "```" => in_block = false,
            line if in_block && !line.is_empty() && !line.starts_with("rustup ") => {
                commands.push(line.to_owned());
            }
            _ => {}
        }
    }
    commands
}

/// A running `transom dev`.
struct Daemon {
    _running: RunningCommand,
    admin: String,
    plugins: PathBuf,
}

impl Daemon {
    fn start(transom: &Path, components: &Path, state: &Path) -> Result<Daemon> {
        let mut command = Command::new(transom);
        command.arg("dev").arg("--state").arg(state);
        command.arg("--components").arg(components);
        for port in ["apps", "dns", "discovery", "workflow", "admin", "cluster"] {
            command.args(["--port", &format!("{port}=0")]);
        }
        let running = RunningCommand::start(command.stdout(Stdio::piped()).stderr(Stdio::null()))?;
        // The greeting contains the address of the admin port.
        let admin = running.wait_for_line("the greeting of `transom dev`", |line| {
            let address = line.trim().strip_prefix("admin").map(str::trim)?;
            Some(address.strip_suffix("/v1/plugins")?.to_owned())
        })?;
        Ok(Daemon {
            _running: running,
            admin,
            plugins: state.join("plugins"),
        })
    }
}

/// A command that runs until it is interrupted; that happens when this is dropped.
struct RunningCommand {
    child: Child,
    lines: Receiver<String>,
}

impl RunningCommand {
    /// Starts a command whose output is piped.
    fn start(command: &mut Command) -> Result<RunningCommand> {
        let mut child = command.spawn().context("cannot start transom")?;
        let output = child.stdout.take().context("its output")?;
        let (lines, receiver) = channel();
        // The output is read to its end, so that the command never blocks on a full pipe.
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = lines.send(line);
            }
        });
        Ok(RunningCommand {
            child,
            lines: receiver,
        })
    }

    /// Waits for a line for which `pick` returns a value.
    fn wait_for_line<T>(&self, what: &str, pick: impl Fn(&str) -> Option<T>) -> Result<T> {
        let begun = Instant::now();
        while let Some(remaining) = COMMAND_TIMEOUT.checked_sub(begun.elapsed()) {
            let Ok(line) = self.lines.recv_timeout(remaining) else {
                break;
            };
            if let Some(found) = pick(&line) {
                return Ok(found);
            }
        }
        bail!("timed out waiting for {what}")
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        // SIGINT, as Ctrl-C sends it, so that the command leaves no process behind.
        let interrupted = Command::new("kill")
            .args(["-INT", &self.child.id().to_string()])
            .status();
        if !interrupted.is_ok_and(|it| it.success()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    #[test]
    fn commands_are_the_lines_of_shell_blocks() {
        let page = "a\n```sh\nrustup target add x\n```\n```sh\none\n\ntwo\n```\nb\n```text\nnot this\n```\n";
        assert_eq!(commands(page), ["one", "two"]);
    }

    #[test]
    fn every_documented_project_ends_with_a_copy_to_a_daemon() {
        for &(language, ..) in LANGUAGES {
            let page = format!("host/cli/templates/plugin/README.{language}.md");
            let page = fs::read_to_string(crate::steps::root().join(page)).unwrap();
            let commands = commands(&page);
            let last = commands.last().unwrap();
            assert!(last.starts_with("cp ") && last.ends_with("DIRECTORY"), "{last}");
        }
    }
}
