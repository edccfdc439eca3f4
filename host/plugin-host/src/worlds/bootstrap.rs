//! Preparing the first script of the orchestration framework's containers: the types of
//! `bootstrap-handler`.
//!
//! The types mirror the WIT package `transom:bootstrap`.

use crate::error::CallError;

/// The kind of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The orchestrator's server.
    Server,
    /// One of its agents.
    Agent,
    /// Its datastore.
    Datastore,
}

/// The container to prepare. Carries no secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// The kind of the container.
    pub role: Role,
    /// `FRAMEWORK_NAME`.
    pub framework: String,
    /// The task's id.
    pub task: String,
    /// Number within its role, from 0.
    pub number: u32,
    /// Host name of the agent; empty before there is an offer.
    pub host: String,
    /// The agent's attributes: name and text form.
    pub attributes: Vec<(String, String)>,
    /// The container's image.
    pub image: String,
    /// Host port and container port; the host port is 0 before there is an offer.
    pub ports: Vec<(u16, u16)>,
    /// `BOOTSTRAP_URL` without credentials.
    pub source: String,
    /// Lower-case hexadecimal SHA-256 of the script.
    pub digest: String,
    /// The environment without its secrets.
    pub environment: Vec<(String, String)>,
    /// Arguments of the script.
    pub arguments: Vec<String>,
    /// Fields of later versions of the interface.
    pub extensions: Vec<(String, String)>,
}

/// Replaces script, environment and arguments as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The script to run.
    pub script: Vec<u8>,
    /// Its environment; the host adds the secrets.
    pub environment: Vec<(String, String)>,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// The component's rejection. The container must not be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    /// Shown in the framework's status.
    pub message: String,
    /// Whether a later call may succeed.
    pub retry: bool,
}

/// Why nothing was prepared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// The plugin rejects.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The call of the plugin failed.
    #[error(transparent)]
    Call(#[from] CallError),
}
