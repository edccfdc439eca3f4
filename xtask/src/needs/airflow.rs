//! A workflow engine and its clients, in a Python environment of their own: `target/python/airflow`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

use super::{apt, is_root};
use crate::steps::{step, target};

/// What tests start, and what looks after our own distribution.
const PACKAGES: [&str; 6] = [
    "apache-airflow==3.3.2",
    "avmesos-airflow-provider==0.4.0",
    "mypy>=1.18,<3",
    "pytest>=8,<10",
    "ruff>=0.14,<1",
    "types-requests",
];
/// Pythons that this Airflow runs on, the best known first.
const PYTHONS: [&str; 5] = ["python3.11", "python3.12", "python3.13", "python3.10", "python3"];

/// Makes the environment, unless it is there and as it should be.
pub(super) fn install() -> anyhow::Result<()> {
    let dir = target().join("python/airflow");
    let (done, wanted) = (dir.join("packages"), PACKAGES.join("\n"));
    if fs::read_to_string(&done).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    let python = python()?;
    // What is left of another version would get in the way.
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    step(
        "an environment for Airflow",
        Command::new(python).args(["-m", "venv"]).arg(&dir),
    )?;
    step(
        "Airflow for the tests (about 300 MB)",
        Command::new(dir.join("bin/pip"))
            .args(["install", "--quiet", "--disable-pip-version-check"])
            .args(PACKAGES),
    )?;
    write(&done, &wanted)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// A Python that this Airflow runs on, installed where that is possible.
fn python() -> anyhow::Result<&'static str> {
    let usable = || {
        PYTHONS.into_iter().find(|name| {
            let says = "import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info < (3, 14))";
            let outcome = Command::new(name).args(["-c", says]).output();
            outcome.is_ok_and(|output| output.status.success())
        })
    };
    if let Some(found) = usable() {
        return Ok(found);
    }
    if is_root() {
        apt(&["update", "-qq"])?;
        apt(&[
            "install",
            "-y",
            "-qq",
            "--no-install-recommends",
            "python3",
            "python3-venv",
        ])?;
    }
    usable().context(
        "tests run Airflow, which takes a Python from 3.10 to 3.13 with its module venv: apt-get install -y python3-venv",
    )
}
