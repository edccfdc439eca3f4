//! The options of a run.

use std::path::PathBuf;
use std::time::Duration;

use crate::stories::Name;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The master's `host:port`.
    pub master: String,
    /// User and password for masters and agents that ask for them.
    pub credentials: Option<(String, String)>,
    /// The role that offers are taken for.
    pub role: String,
    /// The user that tasks run as on the agents.
    pub task_user: String,
    /// The stories, in the order in which they run.
    pub stories: Vec<Name>,
    /// How long each story may take.
    pub limit: Duration,
    /// Where to keep logs; a temporary directory, removed when all stories held, when there is
    /// none.
    pub logs: Option<PathBuf>,
}
