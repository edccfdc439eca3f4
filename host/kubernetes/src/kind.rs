//! The three kinds of tasks, and a value for each of them.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kind of a task of the framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The orchestrator's datastore: a SQL server or a kvstore.
    Datastore,
    /// The orchestrator's server, which serves its API.
    Server,
    /// An agent of the orchestrator, which runs its pods.
    Agent,
}

impl Kind {
    /// All of them, in the order in which they start.
    pub const ALL: [Self; 3] = [Self::Datastore, Self::Server, Self::Agent];

    /// The name in task names, host names and paths.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Datastore => "datastore",
            Self::Server => "server",
            Self::Agent => "agent",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One value for each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct PerKind<T> {
    /// The datastore's.
    pub datastore: T,
    /// The servers'.
    pub server: T,
    /// The agents'.
    pub agent: T,
}

impl<T> PerKind<T> {
    /// The value of `kind`.
    pub fn of(&self, kind: Kind) -> &T {
        match kind {
            Kind::Datastore => &self.datastore,
            Kind::Server => &self.server,
            Kind::Agent => &self.agent,
        }
    }

    /// The value of `kind`, to be changed.
    pub fn of_mut(&mut self, kind: Kind) -> &mut T {
        match kind {
            Kind::Datastore => &mut self.datastore,
            Kind::Server => &mut self.server,
            Kind::Agent => &mut self.agent,
        }
    }

    /// A value for each kind.
    pub fn from_fn(mut value: impl FnMut(Kind) -> T) -> Self {
        Self {
            datastore: value(Kind::Datastore),
            server: value(Kind::Server),
            agent: value(Kind::Agent),
        }
    }
}
