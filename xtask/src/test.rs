//! `cargo xtask test`: what has to hold before a change lands.

use std::process::{Command, Stdio};

use crate::steps::{cargo, step, target};
use crate::{authors, components, needs};

/// Formatting and lints (unless `quick`), components, then all tests.
pub(crate) fn run(quick: bool, arguments: &[String]) -> anyhow::Result<()> {
    if !quick {
        if installed("fmt") {
            step("formatting", cargo().args(["fmt", "--all", "--check"]))?;
        } else {
            eprintln!("==> formatting: left out, `rustup component add rustfmt` adds it");
        }
        if installed("clippy") {
            let lints = [
                "clippy",
                "--workspace",
                "--all-targets",
                // Benchmarks are behind a feature, and nothing else looks at them.
                "--features",
                "transom-discovery/bench,transom-scheduler/bench,transom-tests/bench",
                "--quiet",
                "--",
                "-D",
                "warnings",
            ];
            step("lints", cargo().args(lints))?;
        } else {
            eprintln!("==> lints: left out, `rustup component add clippy` adds them");
        }
    }
    needs::install()?;
    let components = components::step(None)?;
    // One selection with `cargo test`'s features, so that nothing is compiled twice; and so that waiting for the compiler and
    // waiting for tests are told apart.
    let everything = ["build", "--workspace", "--bins", "--tests", "--quiet"];
    step("programs and tests", cargo().args(everything))?;
    let told = authors::step(&components)?;
    let toolchain = components::toolchain()?;
    step(
        "running tests",
        cargo()
            .args(["test", "--workspace", "--no-fail-fast"])
            .args(arguments)
            .env("TRANSOM_COMPONENTS", components)
            .envs(told)
            // Not the variables themselves: cargo would read them for the tests, too.
            .env("TRANSOM_WASM_TOOLCHAIN", toolchain)
            .env("TRANSOM_BIN", target().join("debug/transom")),
    )
}

fn installed(subcommand: &str) -> bool {
    let mut probe: Command = cargo();
    probe
        .args([subcommand, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}
