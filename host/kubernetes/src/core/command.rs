//! The requests to the core, and why it rejects them.

use transom_common::Secret;
use transom_framework::ActorError;

use crate::backup::Manifest;
use crate::kind::Kind;
use crate::secrets::Credentials;

/// Why a request is rejected.
#[derive(Clone, Debug)]
pub(crate) enum Rejection {
    /// More than `max_scale`.
    AboveMaximum { count: u32, maximum: u32 },
    /// Outside of the limits of `[kubernetes.agents.autoscale]`.
    OutsideAutoscale { count: u32, min: u32, max: u32 },
    /// The members of a kvstore form a cluster only in odd numbers.
    EvenKvstore(u32),
    /// A command of the configuration runs one datastore.
    SeveralCommands(u32),
    /// There can be one SQL datastore only.
    SeveralSqlDatastores(u32),
    /// Every kind has a count that is not 0, so there is nothing to start.
    AlreadyStarted,
    /// The counts of all kinds to restart are 0.
    NothingToRestart,
    /// A resource must be positive and possible, and a limit at least the resource.
    BadResource(String),
    /// The kvstore has several members, which replace each other.
    SeveralMembers,
    /// The master did not answer whether it knows the framework's id.
    MasterUnavailable,
    /// The datastore is outside of the framework, which has no tasks for it.
    DatastoreOutside,
    /// No directory for backups is configured.
    NoBackupDirectory,
    /// A backup or a restore is under way: a description of it.
    OperationUnderWay(String),
    /// No member of the datastore is healthy.
    DatastoreNotHealthy,
    /// The backup is of another kind of datastore.
    OtherEngine {
        backup: &'static str,
        datastore: &'static str,
    },
    /// No other user and password than those in use are configured.
    NoOtherPassword,
    /// The core did not carry the request out.
    Actor(ActorError),
}

impl From<ActorError> for Rejection {
    fn from(error: ActorError) -> Self {
        Self::Actor(error)
    }
}

/// A resource of the tasks of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// CPUs.
    Cpus,
    /// Memory in MB.
    Memory,
    /// Disk in MB.
    Disk,
}

/// The kinds that a restart replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Agents.
    Agents,
    /// Servers and agents.
    Servers,
    /// All three kinds.
    All,
}

impl Scope {
    /// Whether tasks of `kind` are restarted.
    pub(crate) fn covers(self, kind: Kind) -> bool {
        match self {
            Self::Agents => kind == Kind::Agent,
            Self::Servers => kind != Kind::Datastore,
            Self::All => true,
        }
    }
}

/// One request to the core. Each is answered when the change is stored and visible in the view.
#[derive(Debug)]
pub(crate) enum Command {
    /// Sets a count. Replies with the difference to the former one.
    Scale {
        kind: Kind,
        count: u32,
        reply: Reply<i64>,
    },
    /// Cordons or uncordons the agents' nodes.
    Cordon { cordoned: bool, reply: Reply<()> },
    /// Sets all counts to 0 and keeps the present ones for the next start.
    Stop { reply: Reply<()> },
    /// Sets the counts to those before the last stop.
    Start { reply: Reply<()> },
    /// Replaces tasks one by one. Replies with the reason why none is replaced now, if there is one.
    Restart {
        scope: Scope,
        reply: Reply<Option<String>>,
    },
    /// Changes a resource, or its limit, of the tasks of a kind; those that run are replaced one by
    /// one.
    Adjust {
        kind: Kind,
        resource: Resource,
        limit: bool,
        amount: u32,
        reply: Reply<()>,
    },
    /// Gives up the data of the datastore on its host, so that it starts on any agent.
    MoveDatastore { reply: Reply<()> },
    /// Begins a backup of the datastore. Replies with its name.
    BackUp { reply: Reply<String> },
    /// Begins the restore of a backup whose data was verified.
    Restore { manifest: Manifest, reply: Reply<()> },
    /// Replies with what a client of the datastore needs.
    Credentials { reply: Reply<Credentials> },
    /// Replies with the token with which servers and agents join.
    Token { reply: Reply<Secret> },
    /// Uses the configured user and password, because the SQL server has them now.
    AdoptPassword { reply: Reply<()> },
    /// Drops the framework's id if the master no longer knows it, and subscribes as a new framework.
    ForgetFramework { reply: Reply<()> },
}

/// The channel of a reply.
pub(crate) type Reply<T> = transom_framework::Reply<T, Rejection>;
