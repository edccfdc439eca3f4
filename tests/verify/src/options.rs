//! The options of a run.

use std::path::PathBuf;
use std::time::Duration;

use crate::stories::Name;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The master's `host:port`.
    pub master: String,
    /// User and password for masters and agents that require them.
    pub credentials: Option<(String, String)>,
    /// The role whose offers are used.
    pub role: String,
    /// The user as whom tasks run on the agents.
    pub task_user: String,
    /// The stories, in the order in which they run.
    pub stories: Vec<Name>,
    /// Timeout of each story.
    pub limit: Duration,
    /// Directory for the logs. `None`: a temporary directory, which is removed if all stories held.
    pub logs: Option<PathBuf>,
}
