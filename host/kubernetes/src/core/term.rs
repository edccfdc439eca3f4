//! Wires the core of a term: the actor with its queue, and the jobs that it starts.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use transom_common::ambient;
use transom_framework::{LeaderHandles, LeaderTerm, RunningTerm};
use transom_scheduler::{SchedulerApi, SubscriptionStatus};

use super::Dependencies;
use super::command::Command;
use super::persist::Repository;
use crate::Result;
use crate::backup::delivery::Delivery;
use crate::bootstrap::{Bootstrap, Scripts};
use crate::config::Config;
use crate::dependencies::{Cluster, Connector};
use crate::kvstore::Kvstore;
use crate::metrics::Metrics;
use crate::secrets::Secrets;
use crate::view::Views;

/// Capacity of the command queue of the core.
const COMMAND_QUEUE_CAPACITY: usize = 1024;

/// Handles that only the leader has.
#[derive(Debug)]
pub(crate) struct Handles {
    pub(crate) core: mpsc::Sender<Command>,
    pub(crate) scheduler: Arc<dyn SchedulerApi>,
}

impl LeaderHandles for Handles {
    fn subscription(&self) -> SubscriptionStatus {
        self.scheduler.subscription()
    }
}

/// The parts of the service that all terms share.
#[derive(Clone, Debug)]
pub(crate) struct TermDependencies {
    pub(crate) config: Arc<Config>,
    pub(crate) views: Arc<Views>,
    pub(crate) metrics: Metrics,
    pub(crate) bootstrap: Arc<dyn Bootstrap>,
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) delivery: Arc<Delivery>,
    /// The URL at which the cluster's agents reach the scripts: `http://host:port`, and the path of the
    /// instance.
    pub(crate) script_base: String,
    /// The same for backups: the port of the API, with TLS if it has a certificate.
    pub(crate) backup_base: String,
    pub(crate) cluster: Arc<dyn Cluster>,
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) kvstore: Arc<dyn Kvstore>,
}

impl TermDependencies {
    /// Reads the stored records and starts the core with them.
    pub(crate) async fn start(&self, term: LeaderTerm) -> Result<(Handles, RunningTerm)> {
        let repository = Repository::new(term.store, &self.config);
        let stored = repository.load(&self.config).await?;
        // All tasks of this term end with this token.
        let (token, tracker) = (term.token.child_token(), TaskTracker::new());
        let (commands_in, commands) = mpsc::channel(COMMAND_QUEUE_CAPACITY);
        let mut service = self.clone();
        let config = Arc::new(stored.in_use.apply_to(&self.config));
        let token_of_nodes = config.settings.orch_token.clone();
        let token_of_nodes = token_of_nodes.unwrap_or_else(|| stored.token.clone());
        let secrets = Secrets::new(token_of_nodes, &stored.datastore, &config, ambient::now())?;
        service.config = config;
        if let Some(tls) = &secrets.tls {
            service.kvstore = self.kvstore.with_tls(tls)?;
        }
        let parts = Dependencies {
            configured: Arc::clone(&self.config),
            service,
            secrets,
            scheduler: Arc::clone(&term.scheduler),
            events: term.events,
            commands,
            abdication: term.abdication,
        };
        let core = super::start(stored, repository, parts, &tracker, token.clone());
        let handles = Handles {
            core: commands_in,
            scheduler: term.scheduler,
        };
        Ok((handles, RunningTerm::new(core, tracker, token)))
    }
}
