//! What can go wrong between this daemon and the cluster manager.

use std::time::Duration;

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the cluster manager could not be talked to, or what it refused. The texts say who was asked and, where an
/// operator can do something, what to look at; what lies below is in [`source`](std::error::Error::source).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration cannot be used.
    #[error("cluster configuration: {what}")]
    Config {
        /// What is wrong and what was expected.
        what: String,
    },

    /// Nobody answers at an address, or not like an HTTP server, or not in time.
    #[error(
        "{address} cannot be reached; check that the address is right, that {role} runs there and that nothing between blocks it"
    )]
    Unreachable {
        /// Scheme, host and port.
        address: String,
        /// Who should have answered: "a master", "an agent".
        role: &'static str,
        /// What the attempt ended with.
        #[source]
        source: TransportError,
    },

    /// None of several masters could be used; the source is what the last one ended with, or one that said why it cannot
    /// serve (503, 404).
    #[error("none of the masters {masters} can be used; check [cluster] master and that one of them leads")]
    NoMaster {
        /// All that were tried, separated by commas.
        masters: String,
        /// What one of them ended with.
        #[source]
        source: Box<Error>,
    },

    /// ZooKeeper has named no master yet. Worth another try soon.
    #[error("no leading master is known from {zookeeper}: {why}")]
    NoLeader {
        /// The address of ZooKeeper, without password.
        zookeeper: String,
        /// What it ended with last.
        why: String,
    },

    /// Another master leads now: what comes on this stream is over. Subscribe again, at once.
    #[error("{leader} leads now instead of {address}")]
    LeaderMoved {
        /// Scheme, host and port of the master whose stream this was.
        address: String,
        /// Host and port of the new one.
        leader: String,
    },

    /// A master that knows of no leader, or a leader that is still recovering (503). Worth another try soon.
    #[error("{address} cannot serve yet: {body}")]
    NotReady {
        /// Scheme, host and port.
        address: String,
        /// What it said.
        body: String,
    },

    /// A master answered 404 to a call that every supported master offers. A master that starts does so for a moment,
    /// before it answers 503; one that goes on doing so is too old, or no master. Worth another try soon.
    #[error(
        "{address} answers 404 to {call}: the master is still starting, or it is too old to offer this; check its version if this lasts"
    )]
    NotFound {
        /// Scheme, host and port.
        address: String,
        /// What was asked for: a call's type (`SUBSCRIBE`) or a path.
        call: String,
    },

    /// A call reached a master that no longer leads: the subscription is over.
    #[error("{address} no longer leads (it points to {leader}): subscribe again")]
    NotLeader {
        /// Scheme, host and port of the master that was asked.
        address: String,
        /// Where it pointed to.
        leader: String,
    },

    /// A redirect that is not followed.
    #[error("{address} redirects {call} to {location:?}, which is not followed: {why}")]
    Redirect {
        /// Scheme, host and port.
        address: String,
        /// What was asked for.
        call: String,
        /// The `Location` as it was sent.
        location: String,
        /// Why not.
        why: &'static str,
    },

    /// The cluster manager is older than what this daemon is made for.
    #[error(
        "the cluster manager at {address} is version {version}; {oldest} is the oldest that is supported"
    )]
    TooOld {
        /// Scheme, host and port of the master that was asked.
        address: String,
        /// The version it tells.
        version: String,
        /// The oldest one that will do.
        oldest: String,
    },

    /// The answer was a refusal.
    #[error("{call} was refused with {status}: {body}")]
    Refused {
        /// What was asked for: a call's type (`ACCEPT`) or a path.
        call: String,
        /// The HTTP status.
        status: u16,
        /// The beginning of the body's text.
        body: String,
    },

    /// Credentials are wanted and none are configured, or those configured are wrong (401).
    #[error("{address} answered {call} with 401: {}", advice(*.sent, keys))]
    Unauthorized {
        /// Scheme, host and port.
        address: String,
        /// What was asked for.
        call: String,
        /// Whether the request carried credentials or a token.
        sent: bool,
        /// [`Config::credential_keys`](crate::Config::credential_keys).
        keys: String,
    },

    /// A call was made before the master told the framework's id.
    #[error("{call} needs the framework id, which is not known before SUBSCRIBED")]
    NotSubscribed {
        /// The call's type.
        call: &'static str,
    },

    /// This process may not act for its framework (any more): another one may. Whether a call that was under way arrived is not
    /// known.
    #[error("{call} was not sent, or given up: this daemon does not lead its framework at the moment")]
    NoMandate {
        /// The call's type.
        call: String,
    },

    /// Something arrived that is not what was asked for.
    #[error("{what} cannot be read")]
    Decode {
        /// What was being read.
        what: String,
        /// Where and what was expected.
        #[source]
        source: serde_json::Error,
    },

    /// A compressed body is none, or was cut.
    #[error("{what} cannot be unpacked")]
    Corrupt {
        /// What was being read.
        what: String,
        /// What is wrong with it.
        #[source]
        source: std::io::Error,
    },

    /// Something arrived that can be read but lacks what it must have.
    #[error("{what} lacks {missing}")]
    Incomplete {
        /// What was being read.
        what: String,
        /// The missing part.
        missing: &'static str,
    },

    /// A record of a stream is longer than this daemon takes.
    #[error("a record of {length} bytes is longer than the {limit} allowed")]
    RecordTooLarge {
        /// What its length line said.
        length: u64,
        /// The bound.
        limit: u64,
    },

    /// A stream does not have a record's length where one must be.
    #[error("expected a record's length in decimal and a line feed, found {found:?}")]
    BadRecordLength {
        /// What was there.
        found: String,
    },

    /// An answer's body is longer than this daemon takes.
    #[error("the answer to {call} is longer than the {limit} bytes allowed")]
    BodyTooLarge {
        /// What was asked for.
        call: String,
        /// The bound.
        limit: u64,
    },

    /// A stream ended within a record.
    #[error("the stream ended within a record, {have} bytes into it")]
    Truncated {
        /// How much of it had come.
        have: usize,
    },

    /// A connection broke while something was being received.
    #[error("the connection to {address} broke")]
    Broken {
        /// Scheme, host and port.
        address: String,
        /// How.
        #[source]
        source: TransportError,
    },

    /// Nothing, not even a heartbeat, came on a stream.
    #[error("{address} has been silent for {} s, heartbeats included", for_.as_secs_f64())]
    Silent {
        /// Scheme, host and port.
        address: String,
        /// How long was waited.
        for_: Duration,
    },

    /// An answer was not complete in time.
    #[error("{address} did not answer {call} within {} s", after.as_secs_f64())]
    TimedOut {
        /// Scheme, host and port.
        address: String,
        /// What was asked for.
        call: String,
        /// How long was waited.
        after: Duration,
    },
}

/// What an HTTP exchange ended with below HTTP: refused, reset, no such name, certificate not valid, too late.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct TransportError(#[from] reqwest::Error);

impl TransportError {
    pub(crate) fn new(source: reqwest::Error) -> Self {
        // The address is in the error around this one.
        Self(source.without_url())
    }

    /// Whether a connection could not be made at all.
    pub fn is_connect(&self) -> bool {
        self.0.is_connect()
    }
}

/// What an operator can do about a 401.
fn advice(sent: bool, keys: &str) -> String {
    if sent {
        format!("it does not accept the credentials of this daemon; check {keys}")
    } else {
        format!("it wants credentials and none are configured; set {keys}")
    }
}

impl Error {
    /// Whether the same request may well succeed a little later, perhaps at another master, without anybody changing
    /// anything: connections, timeouts, leader elections.
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
            Self::Refused { status, .. } => *status >= 500,
            Self::Config { .. }
            | Self::Redirect { .. }
            | Self::TooOld { .. }
            | Self::Unauthorized { .. }
            | Self::NotSubscribed { .. }
            | Self::NoMandate { .. }
            | Self::Decode { .. }
            | Self::Corrupt { .. }
            | Self::Incomplete { .. }
            | Self::RecordTooLarge { .. }
            | Self::BadRecordLength { .. }
            | Self::BodyTooLarge { .. } => false,
        }
    }

    /// Whether a master answered 404, see [`NotFound`](Self::NotFound); with several masters, the one whose
    /// answer is told.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::NotFound { .. } => true,
            Self::NoMaster { source, .. } => source.is_not_found(),
            _ => false,
        }
    }

    /// Whether a master answered 503, see [`NotReady`](Self::NotReady); with several masters, the one whose
    /// answer is told.
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
