//! Errors of the connection to the cluster manager.

use std::time::Duration;

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the connection or a rejection of the cluster manager. The texts name the server and
/// what an operator can check; the cause is in [`source`](std::error::Error::source).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is invalid.
    #[error("cluster configuration: {what}")]
    Config {
        /// The error and the expected value.
        what: String,
    },

    /// The server does not answer, or not with HTTP.
    #[error(
        "{address} cannot be reached; check that the address is right, that {role} runs there and that no firewall blocks it"
    )]
    Unreachable {
        /// Scheme, host and port.
        address: String,
        /// The kind of server: "a master", "an agent".
        role: &'static str,
        /// The cause.
        #[source]
        source: TransportError,
    },

    /// All masters failed; the source is the error of the last one, or of one that answered 503 or
    /// 404.
    #[error(
        "none of the masters {masters} can be used; check [cluster] master and that one of them is the leader"
    )]
    NoMaster {
        /// All masters that were tried, separated by commas.
        masters: String,
        /// The error of one of them.
        #[source]
        source: Box<Error>,
    },

    /// ZooKeeper has named no master yet. Retry soon.
    #[error("no leading master is known from {zookeeper}: {why}")]
    NoLeader {
        /// The address of ZooKeeper, without password.
        zookeeper: String,
        /// The last failure.
        why: String,
    },

    /// The leader changed, so this stream is over. Subscribe again immediately.
    #[error("the leading master changed from {address} to {leader}")]
    LeaderMoved {
        /// Scheme, host and port of the master whose stream this was.
        address: String,
        /// Host and port of the new one.
        leader: String,
    },

    /// A master without a leader, or a leader that is recovering (503). Retry soon.
    #[error("{address} is not ready: {body}")]
    NotReady {
        /// Scheme, host and port.
        address: String,
        /// The body of its answer.
        body: String,
    },

    /// A master answered 404 to a call that every supported master offers. A starting master does
    /// so briefly, before it answers 503; otherwise it is too old, or no master. Retry soon.
    #[error(
        "{address} answers 404 to {call}: the master is still starting, or it is too old to offer this; check its version if this lasts"
    )]
    NotFound {
        /// Scheme, host and port.
        address: String,
        /// The call's type (`SUBSCRIBE`) or the path.
        call: String,
    },

    /// The master is no longer the leader, so the subscription is over.
    #[error("{address} is no longer the leading master (it redirects to {leader}): subscribe again")]
    NotLeader {
        /// Scheme, host and port of the master that answered.
        address: String,
        /// The target of the redirect.
        leader: String,
    },

    /// A redirect that is not followed.
    #[error("{address} redirects {call} to {location:?}, which is not followed: {why}")]
    Redirect {
        /// Scheme, host and port.
        address: String,
        /// The call's type or the path.
        call: String,
        /// The `Location` as it was sent.
        location: String,
        /// Why not.
        why: &'static str,
    },

    /// The cluster manager is older than the minimum version.
    #[error("the cluster manager at {address} has version {version}; the minimum is {oldest}")]
    TooOld {
        /// Scheme, host and port of the master that answered.
        address: String,
        /// Its version.
        version: String,
        /// The minimum version.
        oldest: String,
    },

    /// The call was rejected.
    #[error("{call} was rejected with {status}: {body}")]
    Rejected {
        /// The call's type (`ACCEPT`) or the path.
        call: String,
        /// The HTTP status.
        status: u16,
        /// The beginning of the body's text.
        body: String,
    },

    /// Credentials are required and none are configured, or the configured ones are wrong (401).
    #[error("{address} answered {call} with 401: {}", advice(*.sent, keys))]
    Unauthorized {
        /// Scheme, host and port.
        address: String,
        /// The call's type or the path.
        call: String,
        /// Whether the request carried credentials or a token.
        sent: bool,
        /// [`Config::credential_keys`](crate::Config::credential_keys).
        keys: String,
    },

    /// A call was made before SUBSCRIBED with the framework's id.
    #[error("{call} requires the framework id, which is unknown before SUBSCRIBED")]
    NotSubscribed {
        /// The call's type.
        call: &'static str,
    },

    /// This process is not, or no longer, the leader of its framework. A call in flight may have
    /// arrived.
    #[error("{call} was cancelled or never sent: this daemon is not the leader of its framework")]
    NotFrameworkLeader {
        /// The call's type.
        call: String,
    },

    /// The answer is invalid.
    #[error("{what} is invalid")]
    Decode {
        /// The name of the parsed item.
        what: String,
        /// The position and the expected value.
        #[source]
        source: serde_json::Error,
    },

    /// A compressed body is invalid or truncated.
    #[error("{what} cannot be decompressed")]
    Corrupt {
        /// The name of the decompressed item.
        what: String,
        /// Why it is invalid.
        #[source]
        source: std::io::Error,
    },

    /// The answer lacks a required part.
    #[error("{what} lacks {missing}")]
    Incomplete {
        /// The name of the parsed item.
        what: String,
        /// The missing part.
        missing: &'static str,
    },

    /// A record of a stream exceeds the limit.
    #[error("a record of {length} bytes exceeds the limit of {limit} bytes")]
    RecordTooLarge {
        /// The length in its header.
        length: u64,
        /// The limit.
        limit: u64,
    },

    /// A stream does not have a record's length where one must be.
    #[error("expected a record's length in decimal and a line feed, found {found:?}")]
    BadRecordLength {
        /// The text at that place.
        found: String,
    },

    /// The body of an answer exceeds the limit.
    #[error("the answer to {call} exceeds the limit of {limit} bytes")]
    BodyTooLarge {
        /// The call's type or the path.
        call: String,
        /// The limit.
        limit: u64,
    },

    /// A stream ended within a record.
    #[error("the stream ended inside a record, after {have} of its bytes")]
    Truncated {
        /// The number of bytes received.
        have: usize,
    },

    /// A connection broke while a body was being received.
    #[error("the connection to {address} was lost")]
    Broken {
        /// Scheme, host and port.
        address: String,
        /// The cause.
        #[source]
        source: TransportError,
    },

    /// A stream was silent, without even a heartbeat.
    #[error("heartbeat timeout: {address} has sent nothing for {} s", for_.as_secs_f64())]
    Silent {
        /// Scheme, host and port.
        address: String,
        /// The heartbeat timeout.
        for_: Duration,
    },

    /// An answer was not complete in time.
    #[error("timeout: {address} did not answer {call} within {} s", after.as_secs_f64())]
    TimedOut {
        /// Scheme, host and port.
        address: String,
        /// The call's type or the path.
        call: String,
        /// The timeout.
        after: Duration,
    },
}

/// A failure below HTTP: connection refused or reset, unknown host, invalid certificate, timeout.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub enum TransportError {
    /// Of the network.
    Network(reqwest::Error),
    /// Of a [`Transport`](crate::Transport).
    Simulated(std::io::Error),
}

impl TransportError {
    pub(crate) fn new(source: reqwest::Error) -> Self {
        // The enclosing error has the address.
        Self::Network(source.without_url())
    }

    /// Whether the connection could not be established.
    pub fn is_connect(&self) -> bool {
        match self {
            Self::Network(error) => error.is_connect(),
            Self::Simulated(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        }
    }
}

/// The operator's options after a 401.
fn advice(sent: bool, keys: &str) -> String {
    if sent {
        format!("the credentials of this daemon were rejected; check {keys}")
    } else {
        format!("credentials are required and none are configured; set {keys}")
    }
}

impl Error {
    /// Whether a retry of the same request, perhaps at another master, may succeed without an
    /// operator's action: connections, timeouts, leader elections.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::NotReady { .. }
            | Self::NotFound { .. }
            | Self::NoLeader { .. }
            | Self::LeaderMoved { .. }
            | Self::NotLeader { .. }
            | Self::Truncated { .. }
            | Self::Broken { .. }
            | Self::Silent { .. }
            | Self::TimedOut { .. } => true,
            Self::NoMaster { source, .. } => source.is_transient(),
            Self::Rejected { status, .. } => *status >= 500,
            Self::Config { .. }
            | Self::Redirect { .. }
            | Self::TooOld { .. }
            | Self::Unauthorized { .. }
            | Self::NotSubscribed { .. }
            | Self::NotFrameworkLeader { .. }
            | Self::Decode { .. }
            | Self::Corrupt { .. }
            | Self::Incomplete { .. }
            | Self::RecordTooLarge { .. }
            | Self::BadRecordLength { .. }
            | Self::BodyTooLarge { .. } => false,
        }
    }

    /// Whether the server did not answer at all: it could not be reached, or not in time. Another call
    /// would wait as long. With several masters, of the one whose error is returned.
    pub fn is_no_answer(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } => true,
            Self::NoMaster { source, .. } => source.is_no_answer(),
            _ => false,
        }
    }

    /// Whether a master answered 404, see [`NotFound`](Self::NotFound); with several masters, the
    /// one whose error is returned.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::NotFound { .. } => true,
            Self::NoMaster { source, .. } => source.is_not_found(),
            _ => false,
        }
    }

    /// Whether a master answered 503, see [`NotReady`](Self::NotReady); with several masters, the
    /// one whose error is returned.
    pub fn is_not_ready(&self) -> bool {
        match self {
            Self::NotReady { .. } => true,
            Self::NoMaster { source, .. } => source.is_not_ready(),
            _ => false,
        }
    }

    pub(crate) fn decode(what: impl Into<String>, source: serde_json::Error) -> Self {
        Self::Decode {
            what: what.into(),
            source,
        }
    }
}
