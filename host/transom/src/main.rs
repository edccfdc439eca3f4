//! `transom`: parses the command line, runs the command, converts its result to an exit code.
//!
//! The commands are in [`cli`], the parts of the daemon in [`daemon`].
#![forbid(unsafe_code)]
// They panic if the other end of a pipe is closed; see `output::print_line`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod admin;
mod cli;
mod daemon;
#[cfg(test)]
mod manual;
mod process;
mod service;
mod telemetry;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

/// The allocator. It returns the memory of a large snapshot or of a compilation to the system; glibc's
/// allocator retains three times as much.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Maximum wait for blocking work at the end of a command.
const MAX_RUNTIME_SHUTDOWN: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    // Installs the TLS implementation for the whole process. This only fails if one is installed
    // already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    if cli::complete() {
        return ExitCode::SUCCESS;
    }
    let command_line = cli::CommandLine::parse();
    if command_line.is_compilation() {
        return transom_plugin_host::compile_standard_input();
    }
    // Must be called before threads are started, because it reads and removes environment variables.
    transom_web::adopt_sockets();
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| {
            let outcome = runtime.block_on(command_line.run());
            // The command has ended, and blocking work without an owner must not delay the exit.
            runtime.shutdown_timeout(MAX_RUNTIME_SHUTDOWN);
            outcome
        });
    transom_cli::exit::report(&outcome)
}
