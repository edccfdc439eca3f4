//! A probe's steps of input and output, and their answers. Not public: callers only see the
//! outcome.

use std::time::Duration;

use super::probe::{CommandLine, CommandOutput, Endpoint, Failure, IoError, Outcome};

/// The next action that a component requests from the host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Http(HttpRequest),
    Connect(Endpoint, Option<Tls>),
    Send(Vec<u8>),
    Receive(u32),
    Run(CommandLine),
    Done(Outcome),
    Failed(Failure),
}

/// The result of a step.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Http(Result<HttpResponse, IoError>),
    Connected(Result<Duration, IoError>),
    Sent(Result<(), IoError>),
    Received(Result<Vec<u8>, IoError>),
    Ran(Result<CommandOutput, IoError>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tls {
    pub(crate) server_name: String,
    pub(crate) verify: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HttpRequest {
    pub(crate) method: String,
    pub(crate) endpoint: Endpoint,
    pub(crate) tls: Option<Tls>,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) max_body: u32,
    pub(crate) redirects: u8,
}

#[derive(Clone, Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) elapsed: Duration,
}

impl Step {
    /// Size in bytes of all parts without a fixed size.
    pub(crate) fn bytes(&self) -> usize {
        let tls = |tls: &Option<Tls>| tls.as_ref().map_or(0, |tls| tls.server_name.len());
        match self {
            Step::Http(it) => {
                it.method.len()
                    + it.endpoint.host.len()
                    + tls(&it.tls)
                    + it.path.len()
                    + bytes_of(&it.headers)
                    + it.body.len()
            }
            Step::Connect(to, with) => to.host.len() + tls(with),
            Step::Send(bytes) => bytes.len(),
            Step::Run(CommandLine::Shell(line)) => line.len(),
            Step::Run(CommandLine::Argv(words)) => words.iter().map(String::len).sum(),
            Step::Done(Outcome::Custom(json)) => json.len(),
            Step::Receive(_) | Step::Done(_) => 0,
            Step::Failed(why) => why.message.len(),
        }
    }
}

impl Answer {
    /// Size in bytes of all parts without a fixed size.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Answer::Http(Ok(response)) => bytes_of(&response.headers) + response.body.len(),
            Answer::Received(Ok(bytes)) => bytes.len(),
            Answer::Ran(Ok(output)) => output.stdout.len() + output.stderr.len(),
            _ => 0,
        }
    }
}

fn bytes_of(headers: &[(String, String)]) -> usize {
    headers.iter().map(|(name, value)| name.len() + value.len()).sum()
}
