//! Builds the components: every crate below `plugins/`, `tests/guests/` and `examples/plugins` with
//! a manifest, `plugin.toml` or one named after the crate.
//!
//! A guest is compiled to a core module with the profile `guest`, wrapped into a component by the
//! program `componentize`, and written to the output folder as `NAME.wasm` next to its manifest
//! `NAME.toml`; guests of the tests go to `tests/`, examples to `examples/`. Files are replaced
//! atomically, and only if their content changes, so that a daemon that watches the folder sees
//! only real changes.
//!
//! Concurrent runs are serialized by a lock next to the output.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::steps::{self, target};
use crate::toolchain::{self, TARGET};

const PROFILE: &str = "guest";

/// The components to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The first-party components.
    FirstParty,
    /// The first-party components, the guests of the tests and the examples.
    All,
}

/// A crate that is built into a component.
struct Guest {
    /// The name of folder, package and component.
    name: String,
    manifest: PathBuf,
    /// The path below the output folder.
    folder: &'static str,
}

/// Builds the components into `out` (default: `target/components`) and returns that directory.
pub(crate) fn step(out: Option<PathBuf>, scope: Scope) -> Result<PathBuf> {
    steps::build("componentize", &["--bin", "componentize"])?;
    eprintln!("==> components");
    let begun = Instant::now();
    let out = out.unwrap_or_else(|| target().join("components"));
    let built = build(&steps::root(), &out, scope, &|line| eprintln!("    {line}"))?;
    eprintln!(
        "    components: {} in {}, {:.1} s",
        built.len(),
        out.display(),
        begun.elapsed().as_secs_f64()
    );
    Ok(out)
}

/// Builds all components of the workspace at `root` into `out` and returns their paths, sorted by
/// name. `progress` receives a line for each step that takes longer than a second.
fn build(root: &Path, out: &Path, scope: Scope, progress: &dyn Fn(&str)) -> Result<Vec<PathBuf>> {
    let target = root.join("target");
    fs::create_dir_all(&target).with_context(|| format!("creating {}", target.display()))?;
    let _lock = lock(&target.join("components.lock"), progress)?;

    let mut guests = guests(&root.join("plugins"), "")?;
    if scope == Scope::All {
        guests.extend(self::guests(&root.join("tests/guests"), "tests")?);
        guests.extend(self::guests(&root.join("examples/plugins"), "examples")?);
    }
    let modules = compile(root, &target, &guests, progress)?;

    let mut components = Vec::new();
    for guest in &guests {
        let module = modules.join(format!("{}.wasm", guest.name.replace('-', "_")));
        let folder = out.join(guest.folder);
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let path = folder.join(format!("{}.wasm", guest.name));
        let component = componentize(&module)?;
        // The manifest is written first, because a component without one is not admitted.
        let manifest =
            fs::read(&guest.manifest).with_context(|| format!("reading {}", guest.manifest.display()))?;
        replace_if_changed(&folder.join(format!("{}.toml", guest.name)), &manifest)?;
        replace_if_changed(&path, &component)?;
        components.push(path);
    }
    Ok(components)
}

/// The environment with which cargo builds components, as `NAME=VALUE` lines; empty if the
/// installed toolchain needs none.
pub(crate) fn toolchain() -> Result<String> {
    let found = toolchain::find(&steps::root().join("target/toolchain"), &|line| {
        eprintln!("    {line}");
    })?;
    Ok(found.variables())
}

fn lock(path: &Path, progress: &dyn Fn(&str)) -> Result<fs::File> {
    let file = fs::File::create(path).with_context(|| format!("creating {}", path.display()))?;
    if file.try_lock().is_err() {
        progress("another build of the components is under way; waiting for it");
        file.lock()
            .with_context(|| format!("locking {}", path.display()))?;
    }
    Ok(file)
}

/// The crates below `folder` that have a manifest, by name.
fn guests(folder: &Path, subfolder: &'static str) -> Result<Vec<Guest>> {
    let mut guests = Vec::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(guests),
        Err(error) => return Err(error).with_context(|| format!("reading {}", folder.display())),
    };
    for entry in entries {
        let folder = entry?.path();
        let name = folder
            .file_name()
            .context("a folder has a name")?
            .to_string_lossy()
            .into_owned();
        // First-party manifests have one name; others are projects as `transom plugin new` creates
        // them.
        let manifests = ["plugin", &name].map(|it| folder.join(format!("{it}.toml")));
        let Some(manifest) = manifests.into_iter().find(|it| it.is_file()) else {
            continue;
        };
        // The project uses another language.
        if !folder.join("Cargo.toml").is_file() {
            continue;
        }
        let package = fs::read_to_string(folder.join("Cargo.toml"))
            .with_context(|| format!("reading {name}/Cargo.toml"))?;
        let package: toml::Table = package
            .parse()
            .with_context(|| format!("reading {name}/Cargo.toml"))?;
        let found = package
            .get("package")
            .and_then(|package| package.get("name"))
            .and_then(toml::Value::as_str);
        ensure!(
            found == Some(&name),
            "{}: the package name must be the folder's name, {name}",
            folder.display()
        );
        guests.push(Guest {
            name,
            manifest,
            folder: subfolder,
        });
    }
    guests.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(guests)
}

/// Compiles the guests to core modules and returns their folder.
fn compile(root: &Path, target: &Path, guests: &[Guest], progress: &dyn Fn(&str)) -> Result<PathBuf> {
    let toolchain = toolchain::find(&target.join("toolchain"), progress)?;
    // A separate target folder, because its files may be of another compiler, and the outer build's
    // lock must not be shared.
    let target = target.join("wasm");
    let mut command = toolchain.cargo_build(root);
    command
        .args(["--lib", "--profile", PROFILE, "--target-dir"])
        .arg(&target);
    for guest in guests {
        command.args(["--package", &guest.name]);
    }
    let what = format!("compiling {} components with {}", guests.len(), toolchain.name);
    toolchain::run(&mut command, &what, progress)?;
    Ok(target.join(TARGET).join(PROFILE))
}

fn componentize(module: &Path) -> Result<Vec<u8>> {
    let component = module.with_extension("component.wasm");
    let mut command = Command::new(target().join("debug/componentize"));
    command.arg(module).arg(&component);
    toolchain::run(&mut command, "making a component", &|_| {})?;
    fs::read(&component).with_context(|| format!("reading {}", component.display()))
}

/// Writes a temporary file in the same folder and renames it, unless the content is unchanged.
fn replace_if_changed(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|present| present == content) {
        return Ok(());
    }
    let folder = path.parent().context("a file is in a folder")?;
    let mut file = tempfile::Builder::new()
        .prefix(".writing-")
        .tempfile_in(folder)
        .context("a file to write to")?;
    file.write_all(content)?;
    // A temporary file is readable by its owner only; the result is readable by all.
    fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    file.persist(path)
        .with_context(|| format!("writing {}", path.display()))?;
    Ok(())
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_only_when_its_content_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.wasm");
        replace_if_changed(&path, b"one").unwrap();
        let first = fs::metadata(&path).unwrap();
        replace_if_changed(&path, b"one").unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().modified().unwrap(),
            first.modified().unwrap()
        );
        replace_if_changed(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing is left beside it"
        );
    }

    #[test]
    fn a_guest_is_a_crate_with_a_manifest_named_as_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        for (name, package, manifest) in [("b", "b", true), ("a", "a", true), ("sdk", "sdk", false)] {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(
                path.join("Cargo.toml"),
                format!("[package]\nname = \"{package}\"\n"),
            )
            .unwrap();
            if manifest {
                fs::write(path.join("plugin.toml"), "world = \"check-probe\"\n").unwrap();
            }
        }
        let names: Vec<_> = guests(folder.path(), "")
            .unwrap()
            .into_iter()
            .map(|guest| guest.name)
            .collect();
        assert_eq!(names, ["a", "b"]);
        fs::write(
            folder.path().join("a/Cargo.toml"),
            "[package]\nname = \"other\"\n",
        )
        .unwrap();
        let error = guests(folder.path(), "").err().unwrap().to_string();
        assert!(error.contains("the folder's name, a"), "{error}");
        assert!(guests(&folder.path().join("absent"), "").unwrap().is_empty());
    }
}
