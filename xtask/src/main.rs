//! `cargo xtask`: everything that building, trying out and testing this project takes, in one
//! place.
//!
//! | command | does |
//! |---|---|
//! | `dev` | builds components and daemon and starts everything on loopback |
//! | `dashboard` | builds the dashboard into `dashboard/dist` |
//! | `plugins` | builds the components (getting a Wasm toolchain first where there is none) |
//! | `kits` | builds the packages that plugins are written with |
//! | `manual` | builds the manual, and checks its links |
//! | `bench` | measures, and prints one JSON document |
//! | `test` | formatting, lints, components, and every test there is |
//! | `chaos` | disturbs everything at random and looks whether what must hold does |
//! | `replay` | replays recorded requests at a cluster manager and compares the answers |
//! | `verify` | runs the daemon's acceptance test against any cluster manager's master |

mod authors;
mod bench;
mod chaos;
mod components;
mod dashboard;
#[cfg(test)]
mod dependencies;
mod dev;
#[cfg(test)]
mod doctests;
mod kits;
mod manual;
mod needs;
mod steps;
mod test;
mod toolchain;
#[cfg(test)]
mod unsafe_code;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Builds, tries out and tests Transom.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Xtask {
    /// Builds components and daemon and starts everything on loopback; what follows goes to
    /// `transom dev`.
    Dev {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Checks the dashboard's sources and builds them into `dashboard/dist`, which is checked in.
    Dashboard,
    /// Builds the components into `target/components`.
    Plugins {
        /// Another directory to put them into.
        #[arg(long)]
        out: Option<PathBuf>,
        /// Also those in Python and JavaScript, which takes `transom` itself, python3 and node.
        #[arg(long)]
        all: bool,
    },
    /// Builds the packages that plugins are written with into `target/kits`: a crate, a wheel and an npm
    /// package.
    Kits {
        /// Another directory to put them into.
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Builds the manual into `target/manual` and checks its links.
    Manual,
    /// Runs a benchmark and prints its figures with the machine's and the commit's as one JSON
    /// document.
    Bench {
        /// Which: `apps`, `authors`, `discovery`, `events`, `framework`, `leader`, `plugins`, `scheduler`, `workflow`.
        name: String,
        /// Cargo's profile; `bench` is the release profile.
        #[arg(long, default_value = "bench")]
        profile: String,
    },
    /// Checks formatting and lints, builds the components and runs every test.
    Test {
        /// Leaves formatting and lints out.
        #[arg(long)]
        quick: bool,
        /// Goes to `cargo test`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Disturbs daemon, store, cluster and tasks at random and looks whether what must hold does.
    Chaos {
        /// `--seed N`, `--minutes M` and more, see `--help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Replays the recorded requests at a master and compares status, headers and JSON keys.
    Replay {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Runs the daemon against a master and verifies from outside that everything holds.
    Verify {
        /// `--master http://HOST:5050` and more, see `--help`.
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
        Xtask::Bench { name, profile } => bench::run(&name, &profile),
        Xtask::Test { quick, arguments } => test::run(quick, &arguments),
        Xtask::Chaos { arguments } => chaos::run(&arguments),
        Xtask::Replay { arguments } => dev::replay(&arguments),
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
