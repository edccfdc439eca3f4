//! A probe's steps of input and output, and what comes of them: what the component asks for and the host does.
//!
//! Not public: whoever asks for a look at a task sees its outcome alone.

use std::time::Duration;

use super::probe::{CommandLine, CommandOutput, Endpoint, Failure, IoError, Outcome};

/// What the host is to do next.
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

/// What came of it.
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
