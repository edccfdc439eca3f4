//! A probe whose behaviour is chosen by tests: it reports, uses what it is not granted, or
//! misbehaves.
//!
//! The check's `settings` determine what an attempt does, as `{"do": "loop"}`; without them the
//! configuration's `attempt` does. The configuration's `configure` determines what happens when the
//! plugin is configured. [`Behaviour`] lists the possible values.

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

/// The behaviour of an attempt or of the configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Behaviour {
    /// Reports `{"mark": MARK, "attempt": N}`: the configuration's mark, and the number of this
    /// instance's attempts so far.
    #[default]
    Report,
    /// Returns no result.
    Fail,
    /// Rejects the configuration.
    Reject,
    /// Loops forever.
    Loop,
    /// Allocates memory without limit.
    Allocate,
    /// Traps.
    Trap,
    /// Calls itself without end and allocates memory in each call, so that the component's own
    /// stack overflows.
    Recurse,
    /// Calls itself without end and uses almost no memory, so that the engine's stack overflows
    /// first.
    Deep,
    /// Returns one step after the other and never a result.
    Steps,
    /// Writes lines to the log, then reports.
    Log {
        /// Number of lines.
        lines: u32,
        /// Length of each line.
        bytes: usize,
    },
    /// Reports a JSON object of about this size.
    Output {
        /// Size in bytes.
        bytes: usize,
    },
    /// Reports something that is not JSON.
    BadJson,
    /// Reports a text that is not UTF-8.
    BadText,
    /// Returns no result, with a text that controls a terminal and looks like a log line of the
    /// host.
    Forge,
    /// Writes a text to the log and reports `{"said": TEXT}`.
    Say {
        /// The text, which is not changed.
        text: String,
    },
    /// Reports this HTTP status code.
    Status {
        /// Any number, valid or not.
        status: u16,
    },
    /// Connects to the check's port and requests to receive repeatedly, whatever the result was.
    Insist,
    /// Connects to an address and reports `{"connect": "ok"}` or the error's name.
    Connect {
        /// Host of the address.
        host: String,
        /// Port of the address.
        port: u16,
    },
    /// Connects to the check's port and receives until the peer closes the connection; reports the
    /// number of bytes or the error's name.
    Receive,
    /// Sends bytes to the check's port and reports `{"send": "ok"}` or the error's name.
    Send {
        /// Number of bytes.
        bytes: usize,
    },
    /// Requests a path from the check's port and reports `{"status": N, "bytes": N}` or `{"http":
    /// ERROR}`.
    Http {
        /// Method, path and headers are passed on unchanged.
        #[serde(default = "default_method")]
        method: String,
        /// The path, sent unchanged.
        path: String,
        /// Maximum of bytes of the body to read.
        #[serde(default)]
        max_body: u32,
        /// Maximum of redirects to follow.
        #[serde(default)]
        redirects: u8,
        /// Additional headers.
        #[serde(default)]
        headers: Vec<(String, String)>,
    },
    /// Runs a command where the task runs and reports `{"run": "ok"}` or the error's name.
    Run {
        /// A command for `/bin/sh -c`.
        command: String,
    },
}

fn default_method() -> String {
    "GET".to_owned()
}

/// The configuration that an operator may write.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Part of the report; identifies a version.
    mark: String,
    /// The behaviour of attempts whose check has no settings.
    attempt: Behaviour,
    /// The behaviour when the plugin is configured.
    configure: Behaviour,
}

/// The plugin.
#[derive(Debug)]
pub struct FaultyProbe {
    config: Config,
    attempts: Cell<u32>,
}

impl Plugin for FaultyProbe {
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
        if matches!(config.configure, Behaviour::Reject) {
            return Err(vec![ConfigError::at("/configure", "rejected, as asked")]);
        }
        misbehave(&config.configure);
        Ok(Self {
            config,
            attempts: Cell::new(0),
        })
    }
}

impl Probe for FaultyProbe {
    type Attempt = FaultyAttempt;

    fn attempt(&self, request: Request) -> FaultyAttempt {
        let number = self.attempts.get() + 1;
        self.attempts.set(number);
        let behaviour = match request.settings.as_str() {
            "" | "{}" => Ok(self.config.attempt.clone()),
            settings => serde_json::from_str(settings).map_err(|error| error.to_string()),
        };
        FaultyAttempt {
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
pub struct FaultyAttempt {
    behaviour: Result<Behaviour, String>,
    request: Request,
    mark: String,
    number: u32,
    received: usize,
}

impl Attempt for FaultyAttempt {
    fn next(&mut self, last: Option<Answer>) -> Step {
        let behaviour = match &self.behaviour {
            Ok(behaviour) => behaviour.clone(),
            Err(message) => return failed(Reason::Invalid, format!("settings: {message}")),
        };
        misbehave(&behaviour);
        match last {
            None => self.first_step(behaviour),
            Some(answer) => self.next_step(&behaviour, answer),
        }
    }
}

impl FaultyAttempt {
    fn first_step(&self, behaviour: Behaviour) -> Step {
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

    fn next_step(&mut self, behaviour: &Behaviour, answer: Answer) -> Step {
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

    /// The result of behaviours that take no step.
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

/// Executes a behaviour that does not return, or that writes to the log. All others are handled by
/// the steps.
#[allow(clippy::panic, reason = "a trap is what was asked for")]
fn misbehave(behaviour: &Behaviour) {
    match behaviour {
        Behaviour::Loop => loop {
            black_box(());
        },
        Behaviour::Trap => panic!("trapped, as asked"),
        Behaviour::Recurse => drop(black_box(recurse(black_box(0)))),
        Behaviour::Deep => drop(black_box(recurse_flat(black_box(0)))),
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
    // SAFETY: the text is passed to the host unchanged; no code of this component reads it.
    unsafe { String::from_utf8_unchecked(vec![b'{', 0xff, 0xfe, b'}']) }
}

#[allow(unconditional_recursion, reason = "that is the point")]
fn recurse(depth: u64) -> u64 {
    let deeper = black_box([depth; 64]);
    recurse(deeper[63] + 1) + deeper[0]
}

#[allow(unconditional_recursion, reason = "that is the point")]
#[inline(never)]
fn recurse_flat(depth: u64) -> u64 {
    // The recursive call is not in tail position, so that it cannot be compiled to a loop.
    recurse_flat(black_box(depth + 1)).wrapping_mul(3) ^ depth
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

export_probe!(FaultyProbe);

#[cfg(test)]
mod tests {
    use transom_sdk::testing::{End, drive, logs, plugin, request};

    use super::*;

    fn end(config: &str, settings: &str, world: impl FnMut(&Step) -> Answer) -> (End, usize) {
        let probe = plugin::<FaultyProbe>(config).unwrap();
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
        let probe = plugin::<FaultyProbe>(r#"{"mark": "v1"}"#).unwrap();
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
    fn configuration_is_rejected_and_lines_are_logged_on_request() {
        assert_eq!(
            plugin::<FaultyProbe>(r#"{"configure": {"do": "reject"}}"#).unwrap_err()[0].pointer,
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
