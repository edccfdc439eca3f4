//! A probe that does what a test asks of it: reports, reaches for what it may not have, or
//! misbehaves.
//!
//! The check's `settings` say what an attempt does, as `{"do": "loop"}`; without them the
//! configuration's `attempt` does. The configuration's `configure` says what becomes of configuring
//! it. Everything there is to ask for is in [`Behaviour`].

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "tests fail by panicking"
    )
)]

use std::cell::Cell;
use std::hint::black_box;

use serde::Deserialize;
use transom_sdk::probe::{
    Answer, Attempt, CommandLine, Endpoint, HttpRequest, IoError, Outcome, Probe, Reason, Request, Step,
    failed,
};
use transom_sdk::{ConfigError, Description, Plugin, export_probe, log};

/// What an attempt, or configuring, comes to.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Behaviour {
    /// Reports `{"mark": MARK, "attempt": N}`: the configuration's mark, and the how-manieth
    /// attempt of this instance it is.
    #[default]
    Report,
    /// Could not tell.
    Fail,
    /// Refuses the configuration.
    Refuse,
    /// Never returns.
    Loop,
    /// Takes memory until it gets no more.
    Allocate,
    /// Traps.
    Trap,
    /// Calls itself without end, and takes memory for each call: its own stack grows into nothing.
    Recurse,
    /// Calls itself without end, with next to no memory: the engine's stack ends first.
    Deep,
    /// Takes one step after the other and is never done.
    Steps,
    /// Writes so many lines of so many bytes to the log, then reports.
    Log {
        /// How many lines.
        lines: u32,
        /// How long each is.
        bytes: usize,
    },
    /// Reports a JSON object of about so many bytes.
    Output {
        /// How many.
        bytes: usize,
    },
    /// Reports something that is not JSON.
    BadJson,
    /// Reports a text that is not UTF-8.
    BadText,
    /// Could not tell, in words that would drive a terminal and look like a line of the host's own.
    Forge,
    /// Writes this to the log, and reports `{"said": TEXT}`.
    Say {
        /// As it is.
        text: String,
    },
    /// Reports this HTTP status code.
    Status {
        /// Whatever it is.
        status: u16,
    },
    /// Connects to the check's port and asks to receive again and again, whatever came of it.
    Insist,
    /// Connects there and reports `{"connect": "ok"}` or the error's name.
    Connect {
        /// Where to.
        host: String,
        /// Where to.
        port: u16,
    },
    /// Connects to the check's port and receives until the peer closes; reports how many bytes, or
    /// the error's name.
    Receive,
    /// Sends so many bytes to the check's port and reports `{"send": "ok"}` or the error's name.
    Send {
        /// How many.
        bytes: usize,
    },
    /// Asks the check's port for this path and reports `{"status": N, "bytes": N}` or `{"http":
    /// ERROR}`.
    Http {
        /// Method, path and headers are handed on as they are.
        #[serde(default = "get")]
        method: String,
        /// As written.
        path: String,
        /// More of the body than this is not asked for.
        #[serde(default)]
        max_body: u32,
        /// How many redirects to follow.
        #[serde(default)]
        redirects: u8,
        /// Headers.
        #[serde(default)]
        headers: Vec<(String, String)>,
    },
    /// Runs this where the task runs and reports `{"run": "ok"}` or the error's name.
    Run {
        /// For `/bin/sh -c`.
        command: String,
    },
}

fn get() -> String {
    "GET".to_owned()
}

/// What the operator may write.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Part of its report, which identifies a version.
    mark: String,
    /// What attempts do whose check has no settings.
    attempt: Behaviour,
    /// What becomes of configuring it.
    configure: Behaviour,
}

/// The plugin.
#[derive(Debug)]
pub struct OddProbe {
    config: Config,
    attempts: Cell<u32>,
}

impl Plugin for OddProbe {
    type Config = Config;

    fn describe() -> Description {
        Description {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            summary: "misbehaves on demand",
            config_schema: Some(r#"{"type": "object"}"#),
        }
    }

    fn configure(config: Config) -> Result<Self, Vec<ConfigError>> {
        if matches!(config.configure, Behaviour::Refuse) {
            return Err(vec![ConfigError::at("/configure", "refused, as asked")]);
        }
        misbehave(&config.configure);
        Ok(Self {
            config,
            attempts: Cell::new(0),
        })
    }
}

impl Probe for OddProbe {
    type Attempt = Look;

    fn attempt(&self, request: Request) -> Look {
        let number = self.attempts.get() + 1;
        self.attempts.set(number);
        let behaviour = match request.settings.as_str() {
            "" | "{}" => Ok(self.config.attempt.clone()),
            settings => serde_json::from_str(settings).map_err(|error| error.to_string()),
        };
        Look {
            behaviour,
            request,
            mark: self.config.mark.clone(),
            number,
            received: 0,
        }
    }
}

/// One attempt.
#[derive(Debug)]
pub struct Look {
    behaviour: Result<Behaviour, String>,
    request: Request,
    mark: String,
    number: u32,
    received: usize,
}

impl Attempt for Look {
    fn next(&mut self, last: Option<Answer>) -> Step {
        let behaviour = match &self.behaviour {
            Ok(behaviour) => behaviour.clone(),
            Err(message) => return failed(Reason::Invalid, format!("settings: {message}")),
        };
        misbehave(&behaviour);
        match last {
            None => self.first(behaviour),
            Some(answer) => self.then(&behaviour, answer),
        }
    }
}

impl Look {
    fn first(&self, behaviour: Behaviour) -> Step {
        let Some(endpoint) = self.request.endpoint.clone() else {
            return match behaviour {
                Behaviour::Connect { host, port } => Step::Connect((Endpoint { host, port }, None)),
                Behaviour::Run { command } => Step::Run(CommandLine::Shell(command)),
                Behaviour::Steps
                | Behaviour::Insist
                | Behaviour::Receive
                | Behaviour::Send { .. }
                | Behaviour::Http { .. } => failed(Reason::Invalid, "the check names no port"),
                other => self.report(&other),
            };
        };
        match behaviour {
            Behaviour::Connect { host, port } => Step::Connect((Endpoint { host, port }, None)),
            Behaviour::Steps | Behaviour::Insist | Behaviour::Receive | Behaviour::Send { .. } => {
                Step::Connect((endpoint, None))
            }
            Behaviour::Http {
                method,
                path,
                max_body,
                redirects,
                headers,
            } => Step::Http(HttpRequest {
                method,
                endpoint,
                tls: None,
                path,
                headers,
                body: Vec::new(),
                max_body,
                redirects,
            }),
            Behaviour::Run { command } => Step::Run(CommandLine::Shell(command)),
            other => self.report(&other),
        }
    }

    fn then(&mut self, behaviour: &Behaviour, answer: Answer) -> Step {
        match (behaviour, answer) {
            (Behaviour::Steps, _) => match self.request.endpoint.clone() {
                Some(endpoint) => Step::Connect((endpoint, None)),
                None => failed(Reason::Invalid, "the check names no port"),
            },
            (Behaviour::Insist, _) => Step::Receive(1024),
            (Behaviour::Receive, Answer::Connected(Ok(_))) => Step::Receive(64 * 1024),
            (Behaviour::Receive, Answer::Received(Ok(bytes))) if !bytes.is_empty() => {
                self.received += bytes.len();
                Step::Receive(64 * 1024)
            }
            (Behaviour::Receive, Answer::Received(Ok(_) | Err(IoError::Closed))) => {
                custom("received", &self.received.to_string())
            }
            (Behaviour::Send { bytes }, Answer::Connected(Ok(_))) => Step::Send(vec![b'x'; *bytes]),
            (_, Answer::Connected(result)) => custom("connect", &quoted(result.err().as_ref())),
            (_, Answer::Sent(result)) => custom("send", &quoted(result.err().as_ref())),
            (_, Answer::Received(result)) => custom("receive", &quoted(result.err().as_ref())),
            (_, Answer::Ran(result)) => custom("run", &quoted(result.err().as_ref())),
            (_, Answer::Http(Ok(response))) => Step::Done(Outcome::Custom(format!(
                r#"{{"status": {}, "bytes": {}}}"#,
                response.status,
                response.body.len()
            ))),
            (_, Answer::Http(Err(error))) => custom("http", &quoted(Some(&error))),
        }
    }

    /// The end of those that take no step.
    fn report(&self, behaviour: &Behaviour) -> Step {
        match behaviour {
            Behaviour::Fail => failed(Reason::Unreachable, "failed, as asked"),
            Behaviour::Output { bytes } => custom("output", &format!("\"{}\"", "x".repeat(*bytes))),
            Behaviour::Say { text } => {
                log::warn!("{text}");
                Step::Done(Outcome::Custom(serde_json::json!({"said": text}).to_string()))
            }
            Behaviour::Status { status } => Step::Done(Outcome::Http(*status)),
            Behaviour::BadJson => Step::Done(Outcome::Custom("{not json".to_owned())),
            Behaviour::BadText => Step::Done(Outcome::Custom(no_text())),
            Behaviour::Forge => failed(Reason::Unreachable, "gone\r\n2026 INFO all is well \u{1b}[2J\0"),
            _ => Step::Done(Outcome::Custom(format!(
                r#"{{"mark": {:?}, "attempt": {}}}"#,
                self.mark, self.number
            ))),
        }
    }
}

/// Performs the bad part of a behaviour; behaviours that only return steps pass through.
#[allow(clippy::panic, reason = "a trap is what was asked for")]
fn misbehave(behaviour: &Behaviour) {
    match behaviour {
        Behaviour::Loop => loop {
            black_box(());
        },
        Behaviour::Trap => panic!("trapped, as asked"),
        Behaviour::Recurse => drop(black_box(recurse(black_box(0)))),
        Behaviour::Deep => drop(black_box(deep(black_box(0)))),
        Behaviour::Allocate => {
            let mut taken = Vec::new();
            loop {
                taken.push(black_box(vec![1_u8; 1024 * 1024]));
            }
        }
        Behaviour::Log { lines, bytes } => {
            let line = "x".repeat(*bytes);
            for _ in 0..*lines {
                log::info!("{line}");
            }
        }
        _ => {}
    }
}

#[allow(
    unsafe_code,
    reason = "nothing here reads it, and the host has to see that it is no text"
)]
fn no_text() -> String {
    // SAFETY: it is handed to the host as it is; no code of this component looks into it.
    unsafe { String::from_utf8_unchecked(vec![b'{', 0xff, 0xfe, b'}']) }
}

#[allow(unconditional_recursion, reason = "that is the point")]
fn recurse(depth: u64) -> u64 {
    let deeper = black_box([depth; 64]);
    recurse(deeper[63] + 1) + deeper[0]
}

#[allow(unconditional_recursion, reason = "that is the point")]
#[inline(never)]
fn deep(depth: u64) -> u64 {
    // Not the last thing it does, so that it cannot become a loop.
    deep(black_box(depth + 1)).wrapping_mul(3) ^ depth
}

fn custom(name: &str, value: &str) -> Step {
    Step::Done(Outcome::Custom(format!(r#"{{"{name}": {value}}}"#)))
}

/// `"ok"`, or the error's name as in the interface.
fn quoted(error: Option<&IoError>) -> String {
    let name = match error {
        None => "ok",
        Some(IoError::Denied) => "denied",
        Some(IoError::Unresolved) => "unresolved",
        Some(IoError::Refused) => "refused",
        Some(IoError::Unreachable) => "unreachable",
        Some(IoError::TimedOut) => "timed-out",
        Some(IoError::Closed) => "closed",
        Some(IoError::Tls(_)) => "tls",
        Some(IoError::Protocol(_)) => "protocol",
        Some(IoError::Unavailable(_)) => "unavailable",
    };
    format!("\"{name}\"")
}

export_probe!(OddProbe);

#[cfg(test)]
mod tests {
    use transom_sdk::testing::{End, drive, logs, plugin, request};

    use super::*;

    fn end(config: &str, settings: &str, world: impl FnMut(&Step) -> Answer) -> (End, usize) {
        let probe = plugin::<OddProbe>(config).unwrap();
        let (end, steps) = drive(
            &*probe,
            Request {
                settings: settings.to_owned(),
                ..request()
            },
            10,
            world,
        );
        (end, steps.len())
    }

    fn reported(text: &str) -> End {
        End::Done(Outcome::Custom(text.to_owned()))
    }

    #[test]
    fn result_has_the_mark_and_the_number_of_the_attempt() {
        let probe = plugin::<OddProbe>(r#"{"mark": "v1"}"#).unwrap();
        for number in 1..3 {
            let (end, _) = drive(&*probe, request(), 2, |_| Answer::Sent(Ok(())));
            assert_eq!(
                end,
                reported(&format!(r#"{{"mark": "v1", "attempt": {number}}}"#))
            );
        }
    }

    #[test]
    fn attempt_asked_for_steps_never_ends() {
        let (end, steps) = end("{}", r#"{"do": "steps"}"#, |_| Answer::Connected(Ok(1)));
        assert_eq!((end, steps), (End::Endless, 11));
    }

    #[test]
    fn attempt_asked_to_insist_continues_after_a_timeout() {
        let (end, steps) = end("{}", r#"{"do": "insist"}"#, |_| {
            Answer::Received(Err(IoError::TimedOut))
        });
        assert_eq!((end, steps), (End::Endless, 11));
    }

    #[test]
    fn result_of_a_step_is_reported() {
        let cases = [
            (
                r#"{"do": "connect", "host": "h", "port": 1}"#,
                Answer::Connected(Err(IoError::Denied)),
                r#"{"connect": "denied"}"#,
            ),
            (
                r#"{"do": "run", "command": "true"}"#,
                Answer::Ran(Err(IoError::Denied)),
                r#"{"run": "denied"}"#,
            ),
            (
                r#"{"do": "http", "path": "/"}"#,
                Answer::Http(Err(IoError::Closed)),
                r#"{"http": "closed"}"#,
            ),
            (
                r#"{"do": "output", "bytes": 3}"#,
                Answer::Sent(Ok(())),
                r#"{"output": "xxx"}"#,
            ),
        ];
        for (settings, answer, expected) in cases {
            assert_eq!(
                end("{}", settings, |_| answer.clone()).0,
                reported(expected),
                "{settings}"
            );
        }
        let mut chunks = vec![
            Answer::Received(Ok(Vec::new())),
            Answer::Received(Ok(vec![0; 5])),
            Answer::Connected(Ok(1)),
        ];
        let (end, _) = end("{}", r#"{"do": "receive"}"#, |_| chunks.pop().unwrap());
        assert_eq!(end, reported(r#"{"received": 5}"#));
    }

    #[test]
    fn configuration_is_refused_and_lines_are_logged_on_request() {
        assert_eq!(
            plugin::<OddProbe>(r#"{"configure": {"do": "refuse"}}"#).unwrap_err()[0].pointer,
            "/configure"
        );
        end("{}", r#"{"do": "log", "lines": 3, "bytes": 5}"#, |_| {
            Answer::Sent(Ok(()))
        });
        assert_eq!(logs().iter().filter(|(_, line)| line == "xxxxx").count(), 3);
    }

    #[test]
    #[should_panic(expected = "as asked")]
    fn attempt_asked_to_trap_panics() {
        end(r#"{"attempt": {"do": "trap"}}"#, "{}", |_| Answer::Sent(Ok(())));
    }
}
