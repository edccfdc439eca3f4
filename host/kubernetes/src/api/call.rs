//! One call of the API: its paths, its access control, and its responses.

use axum::routing::{MethodFilter, MethodRouter};
use http::Method;

use super::Api;
use super::paths::{ALIAS, NEUTRAL, VERSION};

/// The prefixes below which a call is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathPrefix {
    /// Below both prefixes with the version.
    Both,
    /// Below the neutral prefix with the version.
    Neutral,
    /// Below both prefixes without the version.
    Unversioned,
    /// Below no prefix.
    Root,
}

/// The body of a successful response.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body {
    /// A JSON document: the names of its schema on the neutral path and on the alias.
    Json(&'static str, &'static str),
    /// A text with this content type.
    Text(&'static str),
    /// A whole number: JSON for servers and agents, text for the datastore, as in upstream.
    Number,
    /// No body.
    Empty,
}

/// One path with its methods.
pub(super) struct Call {
    prefix: PathPrefix,
    path: &'static str,
    pub(super) methods: &'static [Method],
    handler: fn(MethodFilter) -> MethodRouter<Api>,
    /// Whether it changes something, even with GET.
    pub(super) changes: bool,
    /// Whether it requires no credentials.
    pub(super) open: bool,
    /// Whether a standby answers it itself.
    pub(super) local: bool,
    pub(super) summary: &'static str,
    pub(super) body: Body,
    /// The status of a successful response.
    pub(super) success: u16,
    /// The statuses of its errors, without those of the whole port.
    pub(super) errors: &'static [u16],
}

const GET: &[Method] = &[Method::GET];
const PUT: &[Method] = &[Method::PUT];
/// The errors of a call that the leader answers.
pub(super) const LEADER_ERRORS: &[u16] = &[502, 503];

impl Call {
    /// A call that reads.
    pub(super) const fn read(path: &'static str, summary: &'static str, body: Body) -> Self {
        Self {
            prefix: PathPrefix::Both,
            path,
            methods: GET,
            handler: |_| MethodRouter::new(),
            changes: false,
            open: false,
            local: false,
            summary,
            body,
            success: 200,
            errors: LEADER_ERRORS,
        }
    }

    /// A call that changes something.
    pub(super) const fn write(
        path: &'static str,
        summary: &'static str,
        body: Body,
        errors: &'static [u16],
    ) -> Self {
        let read = Self::read(path, summary, body);
        Self {
            methods: PUT,
            changes: true,
            errors,
            ..read
        }
    }

    pub(super) const fn with(self, handler: fn(MethodFilter) -> MethodRouter<Api>) -> Self {
        Self { handler, ..self }
    }

    pub(super) const fn at(self, prefix: PathPrefix) -> Self {
        Self { prefix, ..self }
    }

    /// The same call, answered by a standby itself.
    pub(super) const fn local(self) -> Self {
        Self {
            local: true,
            errors: &[],
            ..self
        }
    }

    /// The same call, answered with 202 before it is carried out.
    pub(super) const fn accepted(self) -> Self {
        Self { success: 202, ..self }
    }

    pub(super) const fn open(self) -> Self {
        Self { open: true, ..self }
    }

    pub(super) const fn methods(self, methods: &'static [Method]) -> Self {
        Self { methods, ..self }
    }

    pub(super) const fn errors(self, errors: &'static [u16]) -> Self {
        Self { errors, ..self }
    }

    /// The paths, with parameters in braces.
    pub(super) fn paths(&self) -> Vec<String> {
        let below = |prefix: &str| match self.prefix {
            PathPrefix::Both | PathPrefix::Neutral => format!("{prefix}/{VERSION}{}", self.path),
            PathPrefix::Unversioned => format!("{prefix}{}", self.path),
            PathPrefix::Root => self.path.to_owned(),
        };
        match self.prefix {
            PathPrefix::Both | PathPrefix::Unversioned => vec![below(NEUTRAL), below(ALIAS)],
            PathPrefix::Neutral | PathPrefix::Root => vec![below(NEUTRAL)],
        }
    }

    /// The handler for the methods.
    pub(super) fn method_router(&self) -> MethodRouter<Api> {
        let filters = self.methods.iter().cloned().map(MethodFilter::try_from);
        let filter = filters.flatten().reduce(MethodFilter::or);
        filter.map_or_else(MethodRouter::new, self.handler)
    }
}
