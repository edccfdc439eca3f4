//! The packages for plugin authors: `transom-sdk` for cargo, and `transom-plugin` for pip and npm.
//! The interface is a link in their folders and a copy in the packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::steps::{cargo, root, step};
use crate::toolchain::run;

/// The kit's folder of each language.
pub(crate) const PYTHON: &str = "clients/plugin-kit-python";
pub(crate) const JAVASCRIPT: &str = "clients/plugin-kit-javascript";

/// Files in a project's folder that are not part of its input.
pub(crate) const BUILD_OUTPUT: &[&str] = &[
    ".venv",
    "node_modules",
    "out",
    "__pycache__",
    "build",
    "dist",
    "transom_plugin.egg-info",
    ".mypy_cache",
    ".ruff_cache",
];

/// Packages the Rust crate; cargo also compiles it from the package alone.
pub(crate) fn rust_package(out: &Path) -> Result<()> {
    let mut package = cargo();
    package
        .args(["package", "--package", "transom-sdk", "--target-dir"])
        .arg(out.join("cargo"));
    step("transom-sdk", &mut package)?;
    let folder = out.join("cargo/package");
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "crate") {
            fs::copy(&path, out.join(path.file_name().unwrap_or_default()))?;
        }
    }
    Ok(())
}

/// Builds the Python package with this `pip`. `temporary` is a folder for temporary files.
pub(crate) fn wheel(pip: &Path, temporary: &Path, out: &Path, progress: &dyn Fn(&str)) -> Result<PathBuf> {
    let source = temporary.join("kit-python");
    copy_folder(&root().join(PYTHON), &source)?;
    let mut command = Command::new(pip);
    command
        .args([
            "wheel",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "-w",
        ])
        .arg(out)
        .arg(&source);
    run(&mut command, "building the wheel of transom-plugin", progress)?;
    only_file(out, "transom_plugin-", ".whl")
}

/// Packs the npm package.
pub(crate) fn tarball(temporary: &Path, out: &Path, progress: &dyn Fn(&str)) -> Result<PathBuf> {
    let source = temporary.join("kit-javascript");
    copy_folder(&root().join(JAVASCRIPT), &source)?;
    let mut command = Command::new("npm");
    command
        .args(["pack", "--silent", "--pack-destination"])
        .arg(out)
        .current_dir(&source);
    run(&mut command, "packing transom-plugin", progress)?;
    only_file(out, "transom-plugin-", ".tgz")
}

/// The only file with this prefix and suffix.
fn only_file(out: &Path, prefix: &str, suffix: &str) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(out).with_context(|| format!("reading {}", out.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(prefix) && name.ends_with(suffix) {
            found.push(out.join(name));
        }
    }
    ensure!(
        found.len() == 1,
        "{} has {} files {prefix}*{suffix}; expected one",
        out.display(),
        found.len()
    );
    found.pop().context("a package")
}

/// Copies a folder; links are replaced by their targets.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if BUILD_OUTPUT.contains(&&*name.to_string_lossy()) {
            continue;
        }
        let to = to.join(name);
        if path.is_dir() {
            copy_folder(&path, &to)?;
        } else {
            fs::copy(&path, &to).with_context(|| format!("copying {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    fn read(path: &str) -> String {
        fs::read_to_string(root().join(path)).unwrap()
    }

    /// The newest version of each interface package.
    fn interfaces() -> Vec<(String, String)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(root().join("wit")).unwrap() {
            let path = entry.unwrap().path();
            let versions = fs::read_dir(&path).unwrap();
            let mut versions: Vec<String> = versions
                .map(|it| it.unwrap().file_name().to_string_lossy().into_owned())
                .collect();
            versions.sort_by_key(|it| {
                it.split('.')
                    .map(|part| part.parse::<u32>().unwrap())
                    .collect::<Vec<_>>()
            });
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            found.push((name, versions.pop().unwrap()));
        }
        found
    }

    #[test]
    fn kits_have_the_version_of_the_interface() {
        let workspace: toml::Table = read("Cargo.toml").parse().unwrap();
        let sdk: toml::Table = read("plugins/sdk/Cargo.toml").parse().unwrap();
        assert_eq!(sdk["package"]["version"]["workspace"].as_bool(), Some(true));
        let python: toml::Table = read("clients/plugin-kit-python/pyproject.toml").parse().unwrap();
        let javascript: serde_json::Value =
            serde_json::from_str(&read("clients/plugin-kit-javascript/package.json")).unwrap();
        let kits = [
            (
                "transom-sdk",
                workspace["workspace"]["package"]["version"].as_str(),
            ),
            ("Python", python["project"]["version"].as_str()),
            ("JavaScript", javascript["version"].as_str()),
        ];
        let interfaces = interfaces();
        assert_eq!(interfaces.len(), 5);
        for (package, version) in &interfaces {
            for (kit, found) in kits {
                assert_eq!(found, Some(version.as_str()), "{kit} and wit/{package}");
            }
        }
    }

    #[test]
    fn smallest_plugin_of_each_language_is_under_twenty_lines() {
        for file in [
            "smallest/src/lib.rs",
            "smallest-python/src/app.py",
            "smallest-javascript/plugin.js",
        ] {
            let lines = read(&format!("examples/plugins/{file}")).lines().count();
            assert!(lines < 20, "{file}: {lines} lines");
        }
    }

    #[test]
    fn copy_has_files_in_place_of_links_and_no_build_output() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        fs::create_dir_all(from.join("src")).unwrap();
        fs::create_dir_all(from.join("node_modules")).unwrap();
        fs::create_dir(dir.path().join("wit")).unwrap();
        fs::write(dir.path().join("wit/a.wit"), "a").unwrap();
        std::os::unix::fs::symlink("../../wit", from.join("src/wit")).unwrap();
        let to = dir.path().join("to");
        copy_folder(&from, &to).unwrap();
        assert!(fs::symlink_metadata(to.join("src/wit")).unwrap().is_dir());
        assert_eq!(fs::read_to_string(to.join("src/wit/a.wit")).unwrap(), "a");
        assert!(!to.join("node_modules").exists());
    }
}
