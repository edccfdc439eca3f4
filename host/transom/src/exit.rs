//! Exit codes that mean something: what kind of failure an error is, as `--help` promises.

use std::fmt;
use std::process::ExitCode;

/// The command line or the configuration is wrong: nothing was started.
#[derive(Debug)]
pub(crate) struct Misconfigured;

/// An address, a directory or a file that is needed cannot be had: what was started was stopped again.
#[derive(Debug)]
pub(crate) struct Unavailable;

impl fmt::Display for Misconfigured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("wrong configuration")
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot start")
    }
}

/// What `--help` promises of exit codes.
pub(crate) fn code(error: &anyhow::Error) -> ExitCode {
    if error.is::<Misconfigured>() {
        ExitCode::from(2)
    } else if error.is::<Unavailable>() {
        ExitCode::from(3)
    } else {
        ExitCode::FAILURE
    }
}
