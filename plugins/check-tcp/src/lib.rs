//! tcp checks: the result is whether a connection to the task's port succeeds.
//!
//! A connection that is refused, closed, late, or has no route is a result (`tcp(false)`), as with
//! checks by the agent. If no connection was attempted, because the check names no port, the host
//! name does not resolve or the destination is not granted, the attempt fails and the check keeps
//! its last result.

use transom_sdk::probe::{Answer, Attempt, Failure, IoError, Outcome, Probe, Reason, Request, Step, failed};
use transom_sdk::{ConfigError, Description, NoConfig, Plugin, export_probe};

/// The plugin. It has no state.
#[derive(Debug)]
pub struct CheckTcp;

impl Plugin for CheckTcp {
    type Config = NoConfig;

    fn describe() -> Description {
        Description {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            summary: "tcp checks: whether the task's port accepts connections",
            config_schema: None,
        }
    }

    fn configure(NoConfig {}: NoConfig) -> Result<Self, Vec<ConfigError>> {
        Ok(Self)
    }
}

impl Probe for CheckTcp {
    type Attempt = Look;

    fn attempt(&self, request: Request) -> Look {
        Look(request)
    }
}

/// One attempt on one port.
#[derive(Debug)]
pub struct Look(Request);

impl Attempt for Look {
    fn next(&mut self, last: Option<Answer>) -> Step {
        let Some(endpoint) = &self.0.endpoint else {
            return failed(Reason::Invalid, "a tcp check needs a port; this one names none");
        };
        match last {
            None => Step::Connect((endpoint.clone(), None)),
            Some(Answer::Connected(Ok(_))) => Step::Done(Outcome::Tcp(true)),
            Some(Answer::Connected(Err(error))) => match error {
                IoError::Refused | IoError::Unreachable | IoError::TimedOut | IoError::Closed => {
                    Step::Done(Outcome::Tcp(false))
                }
                other => Step::Failed(Failure::of(
                    &other,
                    &format!("connecting to {}:{}", endpoint.host, endpoint.port),
                )),
            },
            Some(_) => failed(Reason::Internal, "the answer does not match the last step"),
        }
    }
}

export_probe!(CheckTcp);

#[cfg(test)]
mod tests {
    use transom_sdk::probe::Endpoint;
    use transom_sdk::testing::{End, drive, plugin, request};

    use super::*;

    fn end(answer: &Answer) -> End {
        let check = plugin::<CheckTcp>("{}").unwrap();
        drive(&*check, request(), 4, |_| answer.clone()).0
    }

    #[test]
    fn probe_only_connects_to_the_port_of_the_check() {
        let check = plugin::<CheckTcp>("{}").unwrap();
        let (end, steps) = drive(&*check, request(), 4, |_| Answer::Connected(Ok(2)));
        assert_eq!(end, End::Done(Outcome::Tcp(true)));
        assert_eq!(
            steps[0],
            Step::Connect((
                Endpoint {
                    host: "10.0.0.1".to_owned(),
                    port: 31000
                },
                None
            ))
        );
        assert_eq!(steps.len(), 2);
    }

    #[test]
    fn failed_connection_is_a_negative_result() {
        for error in [
            IoError::Refused,
            IoError::Unreachable,
            IoError::TimedOut,
            IoError::Closed,
        ] {
            assert_eq!(
                end(&Answer::Connected(Err(error.clone()))),
                End::Done(Outcome::Tcp(false)),
                "{error:?}"
            );
        }
    }

    #[test]
    fn connection_that_was_not_attempted_is_a_failure() {
        let cases = [
            (IoError::Denied, Reason::Denied),
            (IoError::Unresolved, Reason::Unreachable),
            (
                IoError::Unavailable("the task is gone".to_owned()),
                Reason::Unreachable,
            ),
        ];
        for (error, reason) in cases {
            let End::Failed(failure) = end(&Answer::Connected(Err(error.clone()))) else {
                panic!("{error:?}")
            };
            assert_eq!(failure.reason, reason);
            assert!(failure.message.contains("10.0.0.1:31000"), "{}", failure.message);
        }
    }

    #[test]
    fn a_check_without_a_port_is_invalid() {
        let check = plugin::<CheckTcp>("{}").unwrap();
        let look = Request {
            endpoint: None,
            ..request()
        };
        let (end, _) = drive(&*check, look, 4, |_| Answer::Connected(Ok(2)));
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

    #[test]
    fn plugin_takes_no_configuration() {
        assert!(plugin::<CheckTcp>(r#"{"port": 1}"#).is_err());
    }
}
