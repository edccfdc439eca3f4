//! What jobs report back to the core.

use std::sync::Arc;

use tokio::time::Instant;
use transom_cluster::TaskId;
use transom_common::{HostPort, ambient, error_chain};

use super::members::ScriptState;
use super::persist::StoredClientConfig;
use super::version::IMPORTED;
use super::{Core, ReadClientConfig};
use crate::backup::receive::ReceiveError;
use crate::bootstrap::{Prepared, ScriptError};
use crate::kind::Kind;
use crate::kvstore::{EtcdState, KvstoreError};
use crate::orchestrator::{ClientConfig, Drained, Observation, Orchestrator, OrchestratorError, Pods};
use crate::plan::Drain;
use crate::task::{Metadata, Script};

/// The result of a job.
#[derive(Debug)]
pub(super) enum JobResult {
    /// A script was prepared, or its preparation failed.
    Prepared {
        metadata: Metadata,
        task: TaskId,
        /// The number of changes of the component when the job began.
        component_changes: u64,
        prepared: Result<Prepared, ScriptError>,
    },
    /// The client configuration in the sandbox of the server; `Ok(None)`: it does not exist yet.
    ClientConfig {
        task: TaskId,
        address: HostPort,
        read: transom_cluster::Result<Option<Vec<u8>>>,
    },
    /// The orchestrator answered a query, or did not. `changes`: the number of changes of nodes when
    /// the job began.
    Observed {
        client: Arc<dyn Orchestrator>,
        changes: u64,
        result: Result<Observation, OrchestratorError>,
    },
    /// The pods were listed, or listing them failed.
    Pods {
        client: Arc<dyn Orchestrator>,
        result: Result<Pods, OrchestratorError>,
    },
    /// The drain of an agent's node is over.
    Drained {
        node: String,
        task: TaskId,
        result: Result<Drained, OrchestratorError>,
    },
    /// The members of the kvstore answered, or none of them did. `changes`: the number of changes of
    /// members when the job began.
    Kvstore {
        changes: u64,
        result: Result<EtcdState, KvstoreError>,
    },
    /// A member was removed from the etcd cluster, or its removal failed. `None`: no other member
    /// could be called.
    Dismissed {
        etcd: u64,
        result: Option<Result<(), KvstoreError>>,
    },
    /// The result of a one-off task was read; `Ok(None)`: the task has left none.
    OneOffResult {
        task: TaskId,
        read: transom_cluster::Result<Option<Vec<u8>>>,
    },
    /// The dump of an operation was received, or receiving it failed.
    Received {
        operation: String,
        received: Result<u64, ReceiveError>,
    },
    /// A node was cordoned, uncordoned or removed.
    NodeChanged {
        change: NodeChange,
        node: String,
        result: Result<(), OrchestratorError>,
    },
}

/// A change of a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum NodeChange {
    Cordoned(bool),
    Removed,
}

impl Core {
    pub(super) async fn handle_job_result(&mut self, job_result: JobResult) {
        match job_result {
            JobResult::Prepared {
                metadata,
                task,
                component_changes,
                prepared,
            } => {
                let current = component_changes == self.component_changes;
                self.handle_prepared_script(metadata, &task, current.then_some(prepared));
            }
            JobResult::ClientConfig { task, address, read } => {
                self.jobs.reading = false;
                self.handle_client_config(&task, address, read).await;
            }
            JobResult::Observed {
                client,
                changes,
                result,
            } => self.handle_observation(&client, changes, result),
            JobResult::Pods { client, result } => self.handle_pod_list(&client, result, ambient::now()),
            JobResult::Drained { node, task, result } => self.handle_drain_end(&node, &task, result),
            JobResult::Kvstore { changes, result } => self.handle_kvstore_state(changes, result),
            JobResult::Dismissed { etcd, result } => self.handle_dismissal(etcd, result),
            JobResult::OneOffResult { task, read } => self.handle_one_off_result(&task, read),
            JobResult::Received { operation, received } => self.handle_received_dump(&operation, received),
            JobResult::NodeChanged { change, node, result } => {
                self.jobs.nodes.remove(&node);
                match result {
                    Ok(()) => self.handle_node_change(change, &node),
                    Err(error) => tracing::warn!(
                        framework = self.config.name(),
                        node,
                        ?change,
                        error = error_chain(&error),
                        "changing a node failed"
                    ),
                }
            }
        }
    }

    /// Requests a task with its script. `prepared` is `None` if the component has changed since the
    /// job began; then the script is prepared again.
    fn handle_prepared_script(
        &mut self,
        metadata: Metadata,
        task: &TaskId,
        prepared: Option<Result<Prepared, ScriptError>>,
    ) {
        let Metadata { kind, number, .. } = metadata;
        let Some(member) = self.members.get_mut(kind, number) else {
            return;
        };
        if member.task != *task || member.record.is_some() || !member.replica.is_wanted() {
            return;
        }
        let Some(prepared) = prepared else {
            return self.prepare(metadata, task.clone());
        };
        let served = prepared.and_then(|prepared| {
            let path = self.service.scripts.add(task.as_str(), prepared.script)?;
            Ok(Script {
                url: format!("{}{path}", self.service.script_base),
                draft: prepared.draft,
            })
        });
        match served {
            Ok(script) => self.submit(metadata, task, Some(script)),
            Err(error) => {
                let requested = std::mem::take(&mut member.requested);
                let reason = error.to_string();
                tracing::warn!(
                    framework = self.config.name(),
                    %kind,
                    number,
                    error = reason,
                    "preparing the bootstrap script failed; the task is not started"
                );
                member.script = ScriptState::Failed(reason, Self::prepare_retry());
                if requested {
                    // The earlier request must not be launched with its outdated script. The id of a
                    // withdrawn request is never used again.
                    self.withdraw(kind, number);
                }
            }
        }
    }

    /// Withdraws the request of a task that is not launched. The member gets another task id.
    fn withdraw(&mut self, kind: Kind, number: u32) {
        let Some(member) = self.members.get_mut(kind, number) else {
            return;
        };
        let former = std::mem::replace(&mut member.task, TaskId::from(ambient::uuid().to_string()));
        self.service.scripts.remove(former.as_str());
        self.orphans.insert(former.clone());
        self.scheduler.kill(vec![former], None);
    }

    async fn handle_client_config(
        &mut self,
        task: &TaskId,
        address: HostPort,
        read: transom_cluster::Result<Option<Vec<u8>>>,
    ) {
        let Some((text, config)) = self.parse_client_config(read) else {
            return self.use_stored_client_config(task, &address).await;
        };
        // The server may have ended in the meantime.
        if self
            .server_for_clients()
            .is_none_or(|(server, _)| server != *task)
        {
            return;
        }
        let stored = StoredClientConfig {
            text,
            address,
            task: task.to_string(),
        };
        if self.client_config.as_ref().map(|known| &known.stored) != Some(&stored) {
            if !self.store_client_config(&stored).await {
                return;
            }
            tracing::info!(
                framework = self.config.name(),
                address = %stored.address,
                "read the client configuration of the server"
            );
        } else if self.orchestrator.client.is_some() {
            return;
        }
        self.connect(&config, stored);
    }

    /// The client configuration that was read; `None`: there is no valid one yet.
    fn parse_client_config(
        &self,
        read: transom_cluster::Result<Option<Vec<u8>>>,
    ) -> Option<(String, ClientConfig)> {
        let text = read.unwrap_or_else(|error| {
            tracing::debug!(
                framework = self.config.name(),
                error = error_chain(&error),
                "reading the client configuration failed; retrying"
            );
            None
        });
        let text = String::from_utf8_lossy(&text?).into_owned();
        match ClientConfig::parse(&text) {
            Ok(config) => Some((text, config)),
            Err(error) => {
                tracing::warn!(
                    framework = self.config.name(),
                    error = error_chain(&error),
                    "the client configuration in the server's sandbox is invalid; retrying"
                );
                None
            }
        }
    }

    /// Uses the stored client configuration while that of the server cannot be read, if it is the same
    /// server's. A server of m3s writes none into its sandbox, and after a restart of the daemon the
    /// agent may not answer.
    async fn use_stored_client_config(&mut self, task: &TaskId, address: &HostPort) {
        let Some(known) = &self.client_config else { return };
        let is_current = self
            .server_for_clients()
            .is_some_and(|(server, _)| server == *task);
        if self.orchestrator.client.is_some() || !is_current {
            return;
        }
        let mut servers = self.members.of(Kind::Server).values();
        let server = servers.find(|member| member.task == *task);
        let both_imported =
            known.stored.task.is_empty() && server.is_some_and(|server| server.replica.version == IMPORTED);
        if !known.stored.is_of(task, address) && !both_imported {
            return;
        }
        let Ok(config) = ClientConfig::parse(&known.stored.text) else {
            return;
        };
        let stored = StoredClientConfig {
            task: task.to_string(),
            ..known.stored.clone()
        };
        if stored != known.stored && !self.store_client_config(&stored).await {
            return;
        }
        tracing::info!(
            framework = self.config.name(),
            address = %stored.address,
            "the client configuration of the server cannot be read; using the stored one"
        );
        self.connect(&config, stored);
    }

    /// Returns whether the client configuration was stored.
    async fn store_client_config(&self, config: &StoredClientConfig) -> bool {
        let stored = self.repository.put_client_config(config).await;
        if let Err(error) = &stored {
            tracing::warn!(
                framework = self.config.name(),
                error = error_chain(error),
                "storing the client configuration failed; retrying"
            );
        }
        stored.is_ok()
    }

    /// Creates the client for a stored client configuration, and serves this configuration.
    fn connect(&mut self, config: &ClientConfig, stored: StoredClientConfig) {
        match self.service.connector.connect(config, &stored.address) {
            Ok(client) => {
                self.orchestrator.client = Some(client);
                self.jobs.observe_at = None;
            }
            Err(error) => tracing::warn!(
                framework = self.config.name(),
                error = error_chain(&error),
                "the client configuration cannot be used"
            ),
        }
        self.client_config = Some(ReadClientConfig::new(stored));
    }

    /// Applies a change of a node to the last observation, before the orchestrator is queried again.
    fn handle_node_change(&mut self, change: NodeChange, node: &str) {
        self.orchestrator.changes += 1;
        self.jobs.observe_at = None;
        let Some(observation) = &mut self.orchestrator.observation else {
            return;
        };
        let nodes = &mut Arc::make_mut(observation).nodes;
        match change {
            NodeChange::Removed => nodes.retain(|known| known.name != node),
            NodeChange::Cordoned(cordoned) => {
                for known in nodes.iter_mut().filter(|known| known.name == node) {
                    known.cordoned = cordoned;
                    known.draining = false;
                }
            }
        }
    }

    fn handle_observation(
        &mut self,
        client: &Arc<dyn Orchestrator>,
        changes: u64,
        result: Result<Observation, OrchestratorError>,
    ) {
        self.jobs.observing = false;
        // The client of another server may have replaced this one in the meantime.
        if self
            .orchestrator
            .client
            .as_ref()
            .is_none_or(|current| !Arc::ptr_eq(current, client))
        {
            return;
        }
        if changes != self.orchestrator.changes {
            // The answer may be older than a change.
            self.jobs.observe_at = None;
            return;
        }
        match result {
            Ok(observation) => {
                if self.orchestrator.observation.is_none() {
                    tracing::info!(
                        framework = self.config.name(),
                        version = observation.version,
                        nodes = observation.nodes.len(),
                        "the Kubernetes API answers"
                    );
                }
                self.orchestrator.observation = Some(Arc::new(observation));
            }
            Err(error) => {
                if self.orchestrator.observation.take().is_some() {
                    tracing::warn!(
                        framework = self.config.name(),
                        error = error_chain(&error),
                        "the Kubernetes API does not answer"
                    );
                }
                self.orchestrator.problem = Some(error_chain(&error));
            }
        }
        self.schedule_observation();
    }

    fn handle_drain_end(&mut self, node: &str, task: &TaskId, result: Result<Drained, OrchestratorError>) {
        self.jobs.nodes.remove(node);
        let member = match self.members.find(task) {
            Some((kind, number)) => self.members.get_mut(kind, number),
            None => None,
        };
        if let Some(member) = member {
            let over = member.drain_until.is_none_or(|end| end <= Instant::now());
            member.drain = if result.is_ok() || over {
                Drain::Done
            } else {
                Drain::Failed
            };
        }
        match result {
            Ok(drained) if drained.remaining.is_empty() => {
                tracing::info!(
                    framework = self.config.name(),
                    node,
                    evicted = drained.evicted,
                    "node drained"
                );
            }
            Ok(drained) => tracing::warn!(
                framework = self.config.name(),
                node,
                evicted = drained.evicted,
                remaining = ?drained.remaining,
                "drain timeout reached; ending the node's task although these pods remain"
            ),
            Err(error) => tracing::warn!(
                framework = self.config.name(),
                node,
                error = error_chain(&error),
                "draining a node failed; retrying until the drain timeout"
            ),
        }
        self.jobs.observe_at = None;
    }

    /// Stops querying the API of a server that has ended.
    pub(super) fn forget_server(&mut self, task: &TaskId) {
        let was_current = self
            .client_config
            .as_ref()
            .is_some_and(|known| known.stored.task == task.as_str());
        if was_current {
            self.orchestrator.client = None;
            self.orchestrator.observation = None;
            // Clients cannot use the served configuration until another server's is read.
            self.jobs.read_after = None;
        }
    }
}
