//! Prints the error of a command, and determines the exit code from the kind of the error, as `--help`
//! documents it.

use std::fmt;
use std::io;
use std::process::ExitCode;

use transom_plugin_host::printable;

use crate::output::print_note;

/// Marks an error of the command line or the configuration: nothing was started.
#[derive(Debug)]
pub struct Misconfigured;

/// Marks an error of the environment: an address, a directory or a daemon is unavailable.
#[derive(Debug)]
pub struct Unavailable;

/// A mark has no text: the cause of the error is its source.
impl fmt::Display for Misconfigured {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

/// Reports the error of a command and returns the exit code.
pub fn report(outcome: &anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // The program at the other end of the pipe has closed it, as `head` does.
        Err(error) if is_broken_pipe(error) => ExitCode::SUCCESS,
        Err(error) => {
            let messages: Vec<String> = error
                .chain()
                .map(ToString::to_string)
                .filter(|text| !text.is_empty())
                .collect();
            let lines: Vec<_> = messages
                .join(": ")
                .lines()
                .map(|line| printable(line).into_owned())
                .collect();
            print_note(format_args!("transom: {}", lines.join("\n")));
            code(error)
        }
    }
}

/// The first line of an error's message.
pub(crate) fn first_line(error: &anyhow::Error) -> String {
    let messages = error.chain().map(ToString::to_string);
    let messages: Vec<String> = messages.filter(|text| !text.is_empty()).collect();
    messages.join(": ").lines().next().unwrap_or_default().to_owned()
}

fn code(error: &anyhow::Error) -> ExitCode {
    if error.is::<Misconfigured>() {
        ExitCode::from(2)
    } else if error.is::<Unavailable>() {
        ExitCode::from(3)
    } else {
        ExitCode::FAILURE
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
