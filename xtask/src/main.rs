//! `cargo xtask`: the commands to build, try and test this project.
//!
//! | command | does |
//! |---|---|
//! | `dev` | builds components and daemon and starts everything on loopback |
//! | `dashboard` | builds the dashboard into `dashboard/dist` |
//! | `plugins` | builds the components (and installs a Wasm toolchain first if there is none) |
//! | `kits` | builds the packages for plugin authors |
//! | `manual` | builds the manual, and checks its links |
//! | `bench` | measures, and prints one JSON document |
//! | `dist` | creates the release: tarball, Debian package, OCI image layout, checksums |
//! | `test` | checks formatting and lints, builds the components, runs every test |
//! | `chaos` | injects random faults into daemon, store and cluster, and checks invariants |
//! | `replay` | replays recorded requests against a cluster manager and compares the answers |
//! | `mutations` | shows that the simulation finds changes of the code |
//! | `simulate` | runs daemons in a simulated world, in virtual time, and checks invariants |
//! | `verify` | runs the daemon's acceptance test against any cluster manager's master |

mod authors;
mod bench;
mod chaos;
mod components;
mod dashboard;
#[cfg(test)]
mod dependencies;
mod dev;
mod dist;
#[cfg(test)]
mod doctests;
mod durations;
mod failures;
mod kits;
mod manual;
mod mutations;
mod needs;
#[cfg(test)]
mod source_rules;
mod steps;
mod test;
mod toolchain;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Builds and tests Transom.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Xtask {
    /// Builds components and daemon and starts everything on loopback. Further arguments are passed
    /// to `transom dev`.
    Dev {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Checks the dashboard's sources and builds them into `dashboard/dist`, which is checked in.
    Dashboard,
    /// Builds the components into `target/components`.
    Plugins {
        /// Another output directory.
        #[arg(long)]
        out: Option<PathBuf>,
        /// Also builds those in Python and JavaScript, which needs `transom` itself, python3 and
        /// node.
        #[arg(long)]
        all: bool,
    },
    /// Builds the packages for plugin authors into `target/kits`: a crate, a wheel and an npm
    /// package.
    Kits {
        /// Another output directory.
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Builds the manual into `target/manual` and checks its links.
    Manual,
    /// Runs a benchmark and prints one JSON document with its figures, the machine and the commit.
    Bench {
        /// Name of the benchmark: `apps`, `authors`, `discovery`, `events`, `framework`, `growth`,
        /// `leader`, `plugins`, `scale`, `scheduler` or `workflow`.
        name: String,
        /// Cargo's profile; `bench` is the release profile.
        #[arg(long, default_value = "bench")]
        profile: String,
        /// Arguments for the benchmark: `growth` takes `--quick` and parts of the names of rows.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Creates a tarball, a Debian package, an OCI image layout, a bill of materials and checksums.
    Dist(dist::Options),
    /// Checks formatting and lints, builds the components and runs every test.
    Test {
        /// Skips formatting and lints.
        #[arg(long)]
        quick: bool,
        /// Arguments for `cargo test`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Injects random faults into daemon, store, cluster and tasks, and checks invariants.
    Chaos {
        /// Arguments for the run, such as `--seed N` and `--minutes M`; see `--help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Runs daemons in a simulated world, in virtual time, and checks invariants.
    Simulate {
        /// Arguments for the run, such as `--seed N` and `--hours H`; see `--help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Changes the daemons' code in one place after another, and shows that the simulation finds it.
    Mutations {
        /// The mutations, by the names of their files; default: all.
        names: Vec<String>,
    },
    /// Replays the recorded requests against a master and compares status, headers and JSON keys.
    Replay {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Runs the daemon against a master and verifies its behaviour from outside.
    Verify {
        /// Arguments for the run, such as `--master http://HOST:5050`; see `--help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn plugins(out: Option<PathBuf>, all: bool) -> anyhow::Result<()> {
    let components = components::step(out, components::Scope::All)?;
    if all {
        steps::build("daemon", &["--bin", "transom"])?;
        authors::step(&components)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let outcome = match Xtask::parse() {
        Xtask::Dev { arguments } => dev::run(&arguments),
        Xtask::Dashboard => dashboard::build(),
        Xtask::Plugins { out, all } => plugins(out, all),
        Xtask::Kits { out } => authors::build_kits(out),
        Xtask::Manual => manual::build(),
        Xtask::Bench {
            name,
            profile,
            arguments,
        } => bench::run(&name, &profile, &arguments),
        Xtask::Dist(options) => dist::run(options),
        Xtask::Test { quick, arguments } => test::run(quick, &arguments),
        Xtask::Chaos { arguments } => chaos::run(&arguments),
        Xtask::Simulate { arguments } => dev::program("simulate", &arguments),
        Xtask::Mutations { names } => mutations::run(&names),
        Xtask::Replay { arguments } => dev::program("replay", &arguments),
        Xtask::Verify { arguments } => verify::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
