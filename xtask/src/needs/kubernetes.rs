//! The control plane of Kubernetes, built once from Debian's source package.
//!
//! The build takes minutes and 2.5 GB, so its result is kept outside of `target/`, in the user's
//! cache folder. The build runs in a temporary folder next to it, with separate package lists and
//! its own Go, and is renamed at the end, so that the result is either complete or absent.
//! Everything else is deleted.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::steps::step;

/// The version in Debian 12.
const VERSION: &str = "1.20.2";
const PROGRAMS: &[&str] = &["kube-apiserver", "kube-controller-manager", "kube-scheduler"];
const SCRIPT: &str = include_str!("kubernetes.sh");
/// Prefix of folders in which a build runs.
const BUILD_PREFIX: &str = "building-";
/// The environment variable with the folder of the programs.
const VARIABLE: &str = "TRANSOM_KUBERNETES";

/// The variable that tests read, with the folder of the programs. Builds them if they are missing.
/// `None` means that they cannot be built here: the tests that need them are skipped and say so; in
/// CI this is an error.
pub(crate) fn variable() -> anyhow::Result<Option<(&'static str, PathBuf)>> {
    match find_or_build() {
        Ok(folder) => Ok(Some((VARIABLE, folder))),
        Err(error) if env::var_os("CI").is_none() => {
            eprintln!("    Kubernetes {VERSION}: {error:#}");
            eprintln!("    the tests with a real Kubernetes are skipped");
            Ok(None)
        }
        Err(error) => Err(error.context("the tests with a real Kubernetes are required in CI")),
    }
}

fn find_or_build() -> anyhow::Result<PathBuf> {
    if let Some(from_environment) =
        env::var_os(VARIABLE).filter(|from_environment| !from_environment.is_empty())
    {
        let folder = PathBuf::from(from_environment);
        ensure!(
            is_complete(&folder),
            "{VARIABLE}: {} lacks one of {}",
            folder.display(),
            PROGRAMS.join(", ")
        );
        return Ok(folder);
    }
    let cache = cache()?;
    let folder = cache.join(format!("kubernetes-{VERSION}"));
    if !is_complete(&folder) {
        build(&cache, &folder)?;
    }
    eprintln!("    Kubernetes {VERSION}: {}", folder.display());
    Ok(folder)
}

fn is_complete(folder: &Path) -> bool {
    PROGRAMS.iter().all(|program| folder.join(program).is_file())
}

/// `${XDG_CACHE_HOME:-~/.cache}/transom`
fn cache() -> anyhow::Result<PathBuf> {
    let set = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let cache = cache.context("neither XDG_CACHE_HOME nor HOME is set: no cache folder for the build")?;
    Ok(cache.join("transom"))
}

fn build(cache: &Path, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(cache).with_context(|| format!("creating {}", cache.display()))?;
    // Another checkout may build concurrently.
    let lock = cache.join("kubernetes.lock");
    let lock = File::create(&lock).with_context(|| format!("creating {}", lock.display()))?;
    lock.lock().context("waiting for another build")?;
    if is_complete(folder) {
        return Ok(());
    }
    remove_leftovers(cache)?;
    let temporary = tempfile::Builder::new()
        .prefix(BUILD_PREFIX)
        .tempdir_in(cache)
        .context("a folder to build in")?;
    step(
        &format!("Kubernetes {VERSION} for the tests, built once; about 15 minutes and 2.5 GB"),
        Command::new("sh")
            .args(["-c", SCRIPT, "kubernetes.sh", VERSION])
            .current_dir(temporary.path()),
    )?;
    let out = temporary.path().join("out");
    ensure!(
        is_complete(&out),
        "the build did not produce all of {}",
        PROGRAMS.join(", ")
    );
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    fs::rename(&out, folder).with_context(|| format!("moving to {}", folder.display()))
}

/// Removes the folders of interrupted builds. The caller holds the lock.
fn remove_leftovers(cache: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(cache)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(BUILD_PREFIX) {
            fs::remove_dir_all(entry.path())
                .with_context(|| format!("removing {}", entry.path().display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    #[test]
    fn folder_is_complete_when_it_has_every_program() {
        let folder = tempfile::tempdir().unwrap();
        for &program in PROGRAMS {
            assert!(!is_complete(folder.path()), "before {program}");
            fs::write(folder.path().join(program), "").unwrap();
        }
        assert!(is_complete(folder.path()));
    }

    #[test]
    fn leftovers_of_a_build_are_removed_and_its_result_stays() {
        let cache = tempfile::tempdir().unwrap();
        for name in ["building-abc", "kubernetes-1.20.2"] {
            fs::create_dir(cache.path().join(name)).unwrap();
        }
        remove_leftovers(cache.path()).unwrap();
        assert!(!cache.path().join("building-abc").exists());
        assert!(cache.path().join("kubernetes-1.20.2").exists());
    }
}
