//! Checks whether a Redis answers PING.
//!
//! A Redis that is loading its data accepts connections but answers every command with an error. A
//! tcp check reports it as healthy, this check does not. The result is `{"pong": true}` or
//! `{"pong": false, "error": "LOADING"}`. A Redis that requires a password counts as healthy,
//! because the check cannot tell more.

#![forbid(unsafe_code)]

use transom_sdk::probe::{Answer, Attempt, Failure, Outcome, Probe, Reason, Request, Step, failed};
use transom_sdk::{export_probe, log};

/// Maximum number of bytes of an answer. A status and an error are one short line each.
const MOST: usize = 512;

/// The plugin. It takes no configuration.
#[derive(Debug)]
pub struct RedisPing;

transom_sdk::plugin!(RedisPing);

impl Probe for RedisPing {
    type Attempt = Ping;

    fn attempt(&self, request: Request) -> Ping {
        Ping {
            request,
            line: Vec::new(),
        }
    }
}

/// One PING, and the part of the answer that has been received.
#[derive(Debug)]
pub struct Ping {
    request: Request,
    line: Vec<u8>,
}

impl Attempt for Ping {
    fn next(&mut self, last: Option<Answer>) -> Step {
        match last {
            None => match self.request.endpoint.clone() {
                Some(endpoint) => Step::Connect((endpoint, None)),
                None => failed(Reason::Invalid, "the check names no port"),
            },
            Some(Answer::Connected(Ok(_))) => Step::Send(b"PING\r\n".to_vec()),
            Some(Answer::Sent(Ok(()))) => Step::Receive(MOST as u32),
            Some(Answer::Received(Ok(bytes))) => {
                self.line.extend(bytes);
                self.answered()
            }
            Some(Answer::Connected(Err(error)) | Answer::Sent(Err(error)) | Answer::Received(Err(error))) => {
                Step::Failed(Failure::of(&error, "PING"))
            }
            Some(_) => failed(Reason::Internal, "the answer does not match the last step"),
        }
    }
}

impl Ping {
    /// Ends the attempt once the line is complete. Otherwise receives more of it.
    fn answered(&self) -> Step {
        let Some(end) = self.line.iter().position(|byte| *byte == b'\r') else {
            if self.line.len() >= MOST {
                return failed(Reason::Invalid, "the server is not a Redis");
            }
            return Step::Receive((MOST - self.line.len()) as u32);
        };
        let line = String::from_utf8_lossy(&self.line[..end]);
        log::debug!("{} answers {line}", self.request.task);
        let result = match line.split_at_checked(1) {
            Some(("+", "PONG")) => serde_json::json!({"pong": true}),
            Some(("-", error)) => {
                let kind = error.split_whitespace().next().unwrap_or_default();
                serde_json::json!({"pong": kind == "NOAUTH", "error": kind})
            }
            _ => return failed(Reason::Invalid, "the server is not a Redis"),
        };
        Step::Done(Outcome::Custom(result.to_string()))
    }
}

export_probe!(RedisPing);

#[cfg(test)]
mod tests {
    use transom_sdk::testing::{End, drive, plugin, request};

    use super::*;

    #[test]
    fn reply_without_line_end_is_rejected_at_the_size_limit() {
        let probe = plugin::<RedisPing>("{}").unwrap();
        let (end, steps) = drive(&*probe, request(), 600, |step| match step {
            Step::Connect(_) => Answer::Connected(Ok(1)),
            Step::Send(_) => Answer::Sent(Ok(())),
            _ => Answer::Received(Ok(vec![b'x'])),
        });
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
        assert_eq!(steps.len(), MOST + 3);
    }
}
