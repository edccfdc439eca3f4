//! The one-off tasks of backups and restores: a shell command in the datastore's image, with the
//! datastore's address and credentials, but without its volumes and ports.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use transom_cluster::v1::{TaskInfo, Uri};
use transom_common::HostPort;
use transom_launch::{Command, Container, Containerizer, Environment, Image, Program, Task};
use transom_scheduler::{BuildTask, Placement, RunSpec};

use super::environment::{self, Endpoints};
use super::{SANDBOX, constraints, container, data_volume, tls};
use crate::backup::script::{self, Sql};
use crate::config::Config;
use crate::secrets::Secrets;
use crate::settings::Engine;

/// The service's part of a one-off task's record in the scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OneOffMetadata {
    /// The id of its backup or restore.
    pub(crate) operation: String,
}

/// What a one-off task does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Dumps the datastore into its sandbox.
    Dump,
    /// Loads the dump into a SQL datastore. `again`: an earlier task of the phase was lost.
    Load {
        url: String,
        sha256: String,
        again: bool,
    },
    /// Waits until the first member of a kvstore is healthy.
    Check,
}

/// A one-off task before its offer.
#[derive(Clone, Debug)]
pub(crate) struct OneOffTask {
    pub(crate) config: Arc<Config>,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) endpoints: Endpoints,
    pub(crate) operation: String,
    pub(crate) work: Work,
}

impl OneOffTask {
    pub(crate) fn run_spec(self) -> RunSpec {
        let backup = &self.config.settings.backup;
        RunSpec {
            id: name(&self.config),
            version: self.operation.clone(),
            instances: 1,
            cpus: backup.cpu,
            mem: backup.mem,
            disk: backup.disk,
            gpus: 0.0,
            avoid_gpus: false,
            ports: Vec::new(),
            role: None,
            volumes: Vec::new(),
            constraints: constraints(self.config.kinds.datastore.constraint.as_deref()),
            roles: Vec::new(),
            executor: transom_scheduler::ExecutorResources::default(),
            build: Arc::new(self).into(),
        }
    }

    fn line(&self) -> String {
        let folder = folder(&self.config);
        let section = &self.config.settings;
        let members = environment::datastore_members(&self.config, &self.endpoints);
        let first = members.first().cloned();
        let first = first.unwrap_or_else(|| HostPort::new("localhost", section.ds_port));
        let scheme = self.secrets.kvstore_scheme();
        let url = |member: &HostPort| format!("{scheme}://{member}");
        let sql = Sql {
            host: &first.host,
            port: first.port,
            user: &section.ds_mysql_username,
            database: environment::DATABASE,
            tls: self.secrets.tls.is_some(),
        };
        let line = match (&self.work, section.engine()) {
            (Work::Dump, Engine::Kvstore) => {
                let endpoints: Vec<String> = members.iter().map(url).collect();
                script::dump_kvstore(folder, &endpoints)
            }
            (Work::Dump, Engine::Sql) => script::dump_sql(folder, &sql),
            (Work::Load { sha256, again, .. }, _) => script::load_sql(folder, &sql, sha256, *again),
            (Work::Check, _) => {
                let seconds = self.config.settings.backup.timeout.duration().as_secs();
                script::check_kvstore(folder, &url(&first), seconds)
            }
        };
        if self.secrets.tls.is_some() {
            tls::write_temporary() + &line
        } else {
            line
        }
    }

    fn environment(&self) -> Environment {
        let mut variables = vec![("TZ".to_owned(), self.config.settings.tz.clone())];
        let section = &self.config.settings;
        if section.engine() == Engine::Sql {
            variables.push(("MYSQL_PWD".to_owned(), self.secrets.password.reveal().to_owned()));
        }
        if let Some(tls) = &self.secrets.tls {
            let client = tls::client_variables(tls).into_iter();
            variables.extend(client.map(|(name, value)| (name.to_owned(), value)));
        }
        variables.into_iter().collect()
    }

    fn container(&self) -> Container {
        let mut parameters = Vec::new();
        if let Some(runtime) = &self.config.settings.container_runtime {
            parameters.push(("runtime".to_owned(), runtime.clone()));
        }
        Container {
            image: Some(Image {
                name: self.config.settings.ds_image().to_owned(),
                force_pull: true,
                pull_secret: None,
            }),
            network: container::network(&self.config),
            ..Container::new(Containerizer::Docker {
                privileged: false,
                parameters,
            })
        }
    }
}

impl BuildTask for OneOffTask {
    fn build(&self, _placement: &Placement) -> Option<TaskInfo> {
        let uri = match &self.work {
            Work::Load { url, .. } => Some(dump_uri(url)),
            Work::Dump | Work::Check => None,
        };
        let command = Command {
            environment: self.environment(),
            uris: uri.into_iter().collect(),
            ..Command::new(Program::Shell(self.line()))
        };
        let task = Task {
            container: self.config.settings.containers.then(|| self.container()),
            labels: BTreeMap::new(),
            ..Task::new(name(&self.config), command)
        };
        Some(task.into())
    }

    fn metadata(&self, _placement: &Placement) -> serde_json::Value {
        let metadata = OneOffMetadata {
            operation: self.operation.clone(),
        };
        serde_json::to_value(metadata).unwrap_or_default()
    }
}

/// The preparation of a kvstore's data before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Preparation {
    /// Replaces the data by those of a backup.
    Restore {
        operation: String,
        url: String,
        sha256: String,
    },
    /// Brings back the data that it had before a restore.
    Revert { operation: String },
}

impl Preparation {
    /// The shell command that runs before the command of the datastore.
    pub(super) fn line(&self, config: &Config, clustered: bool) -> String {
        let data = if config.settings.containers {
            script::quoted(data_volume::KVSTORE_DATA)
        } else if clustered {
            "\"$ETCD_DATA_DIR\"".to_owned()
        } else {
            "\"$DATA_DIR\"".to_owned()
        };
        match self {
            Self::Restore {
                operation, sha256, ..
            } => script::restore_kvstore(folder(config), &data, sha256, operation, clustered),
            Self::Revert { operation } => script::revert_kvstore(&data, operation),
        }
    }

    pub(super) fn uri(&self) -> Option<Uri> {
        match self {
            Self::Restore { url, .. } => Some(dump_uri(url)),
            Self::Revert { .. } => None,
        }
    }
}

/// The name of one-off tasks in the cluster.
fn name(config: &Config) -> String {
    format!("{}:backup", config.name())
}

/// The path of the sandbox for the task itself.
fn folder(config: &Config) -> &'static str {
    if config.settings.containers { SANDBOX } else { "." }
}

/// The backup as a file for the cluster's fetcher.
fn dump_uri(url: &str) -> Uri {
    Uri {
        value: url.to_owned(),
        executable: Some(false),
        extract: Some(false),
        cache: Some(false),
        output_file: Some(script::DUMP.to_owned()),
    }
}
