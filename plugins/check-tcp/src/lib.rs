//! tcp checks: whether a connection to the task's port comes about.
//!
//! A connection that is refused, unreachable, cut off or late is an answer (`tcp(false)`), as it is when an agent looks. What was not
//! tried, because no port is named, the name does not resolve or the destination is not granted, is no answer: a failure, and
//! the check keeps its last result.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests fail by panicking"
    )
)]

use transom_sdk::probe::{Answer, Attempt, Failure, IoError, Outcome, Probe, Reason, Request, Step, failed};
use transom_sdk::{ConfigError, Description, NoConfig, Plugin, export_probe};

/// The plugin. It has nothing to remember.
#[derive(Debug)]
pub struct CheckTcp;

impl Plugin for CheckTcp {
    type Config = NoConfig;

    fn describe() -> Description {
        Description {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            summary: "tcp checks: whether the task's port takes connections",
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

/// One look at one port.
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
            Some(_) => failed(Reason::Internal, "an answer to something that was not asked"),
        }
    }
}

export_probe!(CheckTcp);
