//! exec checks: the result is the exit code of the check's command, which runs on the task's agent.
//!
//! Any exit code is a result. If the command cannot run or exceeds its timeout, the attempt fails
//! and the check keeps its last result.

use transom_sdk::probe::{
    Answer, Attempt, CommandLine, Failure, Outcome, Probe, Reason, Request, Step, failed,
};
use transom_sdk::{ConfigError, Description, NoConfig, Plugin, export_probe};

/// The plugin. It has no state.
#[derive(Debug)]
pub struct CheckCommand;

impl Plugin for CheckCommand {
    type Config = NoConfig;

    fn describe() -> Description {
        Description {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            summary: "exec checks: the exit code of a command that runs beside the task",
            config_schema: None,
        }
    }

    fn configure(NoConfig {}: NoConfig) -> Result<Self, Vec<ConfigError>> {
        Ok(Self)
    }
}

impl Probe for CheckCommand {
    type Attempt = Look;

    fn attempt(&self, request: Request) -> Look {
        Look {
            command: request.command,
        }
    }
}

/// One attempt: one run of the command.
#[derive(Debug)]
pub struct Look {
    command: Option<String>,
}

impl Attempt for Look {
    fn next(&mut self, last: Option<Answer>) -> Step {
        match last {
            None => match &self.command {
                Some(command) => Step::Run(CommandLine::Shell(command.clone())),
                None => failed(
                    Reason::Invalid,
                    "an exec check needs a command; this one has none",
                ),
            },
            Some(Answer::Ran(Ok(output))) => Step::Done(Outcome::Command(output.exit_code)),
            Some(Answer::Ran(Err(error))) => Step::Failed(Failure::of(&error, "running the check's command")),
            Some(_) => failed(Reason::Internal, "the answer does not match the last step"),
        }
    }
}

export_probe!(CheckCommand);

#[cfg(test)]
mod tests {
    use transom_sdk::probe::{CommandOutput, IoError};
    use transom_sdk::testing::{End, drive, plugin, request};

    use super::*;

    fn look() -> Request {
        Request {
            command: Some("test -f /ready".to_owned()),
            endpoint: None,
            ..request()
        }
    }

    #[test]
    fn any_exit_code_is_returned_as_the_result() {
        let check = plugin::<CheckCommand>("{}").unwrap();
        for exit_code in [0, 1, 127, 137, -1] {
            let output = CommandOutput {
                exit_code,
                stdout: Vec::new(),
                stderr: b"no".to_vec(),
            };
            let (end, steps) = drive(&*check, look(), 4, |_| Answer::Ran(Ok(output.clone())));
            assert_eq!(end, End::Done(Outcome::Command(exit_code)));
            assert_eq!(
                steps[0],
                Step::Run(CommandLine::Shell("test -f /ready".to_owned()))
            );
            assert_eq!(steps.len(), 2);
        }
    }

    #[test]
    fn command_that_did_not_complete_is_a_failure() {
        let check = plugin::<CheckCommand>("{}").unwrap();
        let cases = [
            (IoError::TimedOut, Reason::TimedOut),
            (IoError::Denied, Reason::Denied),
            (
                IoError::Unavailable("agents run no commands here".to_owned()),
                Reason::Unreachable,
            ),
        ];
        for (error, reason) in cases {
            let (end, _) = drive(&*check, look(), 4, |_| Answer::Ran(Err(error.clone())));
            let End::Failed(failure) = end else {
                panic!("{error:?}: {end:?}")
            };
            assert_eq!(failure.reason, reason, "{error:?}");
        }
    }

    #[test]
    fn a_check_without_a_command_is_invalid() {
        let check = plugin::<CheckCommand>("{}").unwrap();
        let (end, _) = drive(&*check, request(), 4, |_| Answer::Ran(Err(IoError::Denied)));
        assert!(
            matches!(
                end,
                End::Failed(Failure {
                    reason: Reason::Invalid,
                    ..
                })
            ),
            "{end:?}"
        );
    }
}
