//! Python environments of the tests: `target/python/airflow` with Airflow and its clients,
//! `airflow-2` with the oldest version that our operator supports, `marathon` and `shpkpr` with clients
//! of the apps API, and `cluster-cli` with the published command line of the cluster. Our own distribution
//! is installed into the first two with pip, as its users do. `manual` contains the tools that
//! build the manual.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, anyhow};

use super::{apt, is_root};
use crate::steps::{root, step, target};

/// Names of Python programs, in the order of preference; the first is the version on which Airflow
/// is used most.
const PYTHONS: &[&str] = &["python3.11", "python3.12", "python3.13", "python3.10", "python3"];

/// A file in each completed environment.
const STAMP_FILE: &str = "packages";

/// An environment: the name of its folder, its packages, and the supported minor versions of Python
/// 3.
struct PythonEnvironment {
    name: &'static str,
    packages: &'static [&'static str],
    /// Exact versions of dependencies, if the newest ones do not work.
    constraints: Option<&'static str>,
    pythons: std::ops::RangeInclusive<u32>,
    /// Approximate size of the download.
    size: &'static str,
}

const ENVIRONMENTS: &[PythonEnvironment] = &[
    // The programs that tests start, and the build tools of our distribution.
    PythonEnvironment {
        name: "airflow",
        packages: &[
            "apache-airflow==3.3.2",
            "avmesos-airflow-provider==0.4.0",
            "mypy>=1.18,<3",
            "pytest>=8,<10",
            "ruff>=0.14,<1",
            // The build tool of our distribution.
            "setuptools>=77",
            "types-requests",
        ],
        constraints: None,
        pythons: 10..=13,
        size: "300 MB",
    },
    // The oldest Airflow that the operator supports. It is no longer maintained, so its
    // dependencies must keep their versions.
    PythonEnvironment {
        name: "airflow-2",
        packages: &["apache-airflow==2.10.5", "setuptools>=77"],
        constraints: Some(include_str!("airflow-2.10.txt")),
        pythons: 10..=12,
        size: "300 MB",
    },
    // The most common Python client of the apps API, whose development has ended, and a client of
    // event streams that resumes.
    PythonEnvironment {
        name: "marathon",
        packages: &["marathon==0.13.0", "requests-sse==0.5.3"],
        constraints: None,
        pythons: 10..=13,
        size: "2 MB",
    },
    // A command line that deploys apps. It imports `distutils`, which Python 3.12 does not have, and
    // its version of jinja2 needs a name that later versions of markupsafe lack.
    PythonEnvironment {
        name: "shpkpr",
        packages: &["shpkpr==4.1.2", "markupsafe==2.0.1"],
        constraints: None,
        pythons: 10..=11,
        size: "5 MB",
    },
    // The command line that loads the plugin in `clients/cluster-cli`. It imports `imp`, which
    // Python 3.12 does not have, and `requests`, which it does not declare as a dependency.
    PythonEnvironment {
        name: "cluster-cli",
        packages: &[
            "avmesos_cli==1.0.0",
            "mypy>=1.18,<3",
            "pytest>=8,<10",
            "requests>=2.31,<3",
            "ruff>=0.14,<1",
        ],
        constraints: None,
        pythons: 10..=11,
        size: "40 MB",
    },
    MANUAL,
];

/// The tools that build the manual; the theme requires the others.
const MANUAL: PythonEnvironment = PythonEnvironment {
    name: "manual",
    packages: &["mkdocs-material==9.8.2"],
    constraints: Some(include_str!("manual.txt")),
    pythons: 10..=14,
    size: "30 MB",
};

/// Creates the environment of the manual unless it exists; returns its folder.
pub(super) fn manual() -> anyhow::Result<PathBuf> {
    if !MANUAL.is_installed() {
        MANUAL.create(python(&MANUAL.pythons)?)?;
    }
    Ok(MANUAL.dir())
}

/// Creates missing and outdated environments. It does so concurrently, because most of the time is
/// spent waiting for packages.
pub(super) fn install() -> anyhow::Result<()> {
    let mut missing = Vec::new();
    for environment in ENVIRONMENTS
        .iter()
        .filter(|environment| !environment.is_installed())
    {
        missing.push((environment, python(&environment.pythons)?));
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = missing
            .into_iter()
            .map(|(environment, python)| scope.spawn(move || environment.create(python)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .map_err(|_| anyhow!("panic while creating an environment"))?
        })
    })?;
    install_client()
}

/// Installs `clients/airflow` if it is missing or outdated. Tests do the same before they run it.
fn install_client() -> anyhow::Result<()> {
    let dirs = [&ENVIRONMENTS[0], &ENVIRONMENTS[1]].map(PythonEnvironment::dir);
    step(
        "our distribution for Airflow",
        Command::new(dirs[0].join("bin/python"))
            .arg(root().join("tests/airflow/install.py"))
            .args(&dirs),
    )
}

impl PythonEnvironment {
    fn dir(&self) -> PathBuf {
        target().join("python").join(self.name)
    }

    /// The content of the stamp of a completed environment.
    fn stamp(&self) -> String {
        let packages = self.packages.join("\n");
        match self.constraints {
            Some(constraints) => format!("{packages}\n\n{constraints}"),
            None => packages,
        }
    }

    fn is_installed(&self) -> bool {
        fs::read_to_string(self.dir().join(STAMP_FILE)).is_ok_and(|found| found == self.stamp())
    }

    fn create(&self, python: &str) -> anyhow::Result<()> {
        let dir = self.dir();
        // Files of another version would cause conflicts.
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
        }
        step(
            &format!("an environment for {}", self.name),
            Command::new(python).args(["-m", "venv"]).arg(&dir),
        )?;
        let mut pip = Command::new(dir.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check"])
            .args(self.packages);
        if let Some(constraints) = self.constraints {
            let file = dir.join("constraints.txt");
            write(&file, constraints)?;
            pip.arg("--constraint").arg(file);
        }
        step(&format!("{} (about {})", self.packages[0], self.size), &mut pip)?;
        write(&dir.join(STAMP_FILE), &self.stamp())
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// A Python of one of these minor versions, which is installed if possible.
fn python(versions: &std::ops::RangeInclusive<u32>) -> anyhow::Result<&'static str> {
    let (first, last) = (versions.start(), versions.end());
    let find_usable = || {
        PYTHONS.iter().copied().find(|name| {
            let script = format!(
                "import sys, venv, ensurepip; sys.exit(not (3, {first}) <= sys.version_info[:2] <= (3, {last}))"
            );
            let outcome = Command::new(name).args(["-c", &script]).output();
            outcome.is_ok_and(|output| output.status.success())
        })
    };
    if let Some(found) = find_usable() {
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
    find_usable().with_context(|| {
        format!(
            "tests need a Python from 3.{first} to 3.{last} with its module venv: apt-get install -y \
             python3-venv"
        )
    })
}
