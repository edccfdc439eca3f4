//! Converts a task of the framework to a `TaskInfo` (specification, part B). The containers are the
//! same as upstream's, so that its images run unchanged.
//!
//! A task is built in two steps. [`Draft`] contains the environment and the arguments that are known
//! before an offer; the bootstrap component prepares them together with the script. [`Launch`] adds
//! the secrets, which are never passed to a component, and the values that depend on the offer: the
//! agent and its ports.

mod arguments;
mod container;
mod data_volume;
mod environment;
mod kvstore;
mod one_off;
mod ports;
mod tls;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use transom_cluster::v1::{TaskInfo, Uri, Visibility};
use transom_launch::{
    Command, Discovery, Environment, HealthCheck, Limit, Limits, Probe, ProbeTimes, Program, Task,
};
use transom_plugin_host::matcher::Constraint;
use transom_scheduler::{BuildTask, Placement, RunSpec};

use crate::config::{Config, KindConfig};
use crate::kind::Kind;
use crate::secrets::Secrets;
use crate::settings::Engine;

pub(crate) use environment::Endpoints;
pub(crate) use kvstore::{DataHost, MemberStart, client_address, member_name};
pub(crate) use one_off::{OneOffTask, Preparation, Work};
pub(crate) use ports::container_ports;

/// The path of the sandbox in containers.
const SANDBOX: &str = "/mnt/mesos/sandbox";
/// The name of the bootstrap script in the sandbox.
const SCRIPT: &str = "bootstrap";
/// The time for a kvstore to find its other members, before its health is checked.
const KVSTORE_DELAY: std::time::Duration = std::time::Duration::from_mins(1);

/// The service's part of a task's record in the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) kind: Kind,
    /// 0 for the first of its kind. A number is used again by later tasks.
    pub(crate) number: u32,
    /// Counts the tasks with this number.
    pub(crate) incarnation: u32,
}

/// Variables and arguments of a container without its secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) arguments: Vec<String>,
}

/// The script of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Script {
    /// The URL for the cluster's fetcher.
    pub(crate) url: String,
    pub(crate) draft: Draft,
}

/// A task before its offer.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) config: Arc<Config>,
    /// The settings of its kind, with the resources that requests have changed.
    pub(crate) settings: KindConfig,
    pub(crate) metadata: Metadata,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) endpoints: Endpoints,
    /// The script that the bootstrap component prepared; `None`: the datastore, which runs no script.
    pub(crate) script: Option<Script>,
    /// How a member of a clustered kvstore starts.
    pub(crate) member: Option<MemberStart>,
    /// The preparation of a kvstore's data before it starts, while a backup is restored.
    pub(crate) preparation: Option<Preparation>,
}

impl Launch {
    /// Describes the container before there is an offer, without secrets.
    pub(crate) fn draft(
        config: &Config,
        settings: &KindConfig,
        metadata: Metadata,
        endpoints: &Endpoints,
        task: &str,
    ) -> Draft {
        Draft {
            environment: environment::public_variables(config, settings, metadata.kind, endpoints, task),
            arguments: arguments::of(config, metadata, task),
        }
    }

    /// The name of the task in the cluster.
    pub(crate) fn name(config: &Config, kind: Kind) -> String {
        format!("{}:{kind}", config.name())
    }

    /// The run spec of this launch; `version` identifies the configuration.
    pub(crate) fn run_spec(self, version: String, wanted: u32) -> RunSpec {
        let Metadata { kind, number, .. } = self.metadata;
        let settings = self.settings.clone();
        let former = self.member.as_ref().and_then(|member| member.home.as_ref());
        let former_ports = former.map_or(&[][..], |home| &home.ports);
        let ports = ports::requests(&self.config, kind, number, self.member.is_some(), former_ports);
        RunSpec {
            id: Self::name(&self.config, kind),
            version,
            instances: wanted,
            cpus: settings.cpus,
            mem: settings.mem,
            disk: settings.disk,
            gpus: 0.0,
            avoid_gpus: false,
            ports,
            role: None,
            volumes: Vec::new(),
            constraints: match &self.member {
                Some(member) => kvstore::constraints(settings.constraint.as_deref(), member),
                None if kind == Kind::Server && wanted > 1 => {
                    pinned_or_spread(settings.constraint.as_deref())
                }
                None => constraints(settings.constraint.as_deref()),
            },
            roles: Vec::new(),
            executor: transom_scheduler::ExecutorResources::default(),
            build: Arc::new(self).into(),
        }
    }

    fn command(&self, placement: &Placement) -> Result<Command, rcgen::Error> {
        let kind = self.metadata.kind;
        let program = match (&self.script, kind) {
            (Some(script), _) => {
                let containers = self.config.settings.containers;
                let folder = if containers { SANDBOX } else { "." };
                let mut argv = vec![format!("{folder}/{SCRIPT}")];
                argv.extend(script.draft.arguments.iter().cloned());
                argv.extend(arguments::of_placement(&self.config, self.metadata, placement));
                if let Some(prefix) = self.tls_prefix() {
                    let line = format!("{}exec \"$@\"", tls::write_to(&prefix));
                    let shell = ["/bin/sh", "-c", &line, "sh"].map(str::to_owned);
                    argv = shell.into_iter().chain(argv).collect();
                }
                Program::Argv(argv)
            }
            (None, _) if self.member.is_some() => self.prepared(kvstore::program()),
            (None, _) => self.prepared(container::datastore_program(&self.config, &self.secrets)),
        };
        let backup = self.preparation.as_ref().and_then(Preparation::uri);
        Ok(Command {
            environment: self.environment(placement)?,
            uris: self
                .script
                .iter()
                .map(|script| uri(&script.url))
                .chain(backup)
                .collect(),
            ..Command::new(program)
        })
    }

    /// The beginning of the paths of the task's certificates; `None`: it has none, or it is a SQL server,
    /// whose command makes a directory.
    fn tls_prefix(&self) -> Option<String> {
        let Metadata { kind, number, .. } = self.metadata;
        let section = &self.config.settings;
        let needed = match kind {
            Kind::Datastore => section.engine() == Engine::Kvstore,
            Kind::Server => section.ds_endpoint.is_none(),
            Kind::Agent => false,
        };
        (needed && self.secrets.tls.is_some()).then(|| tls::prefix(&self.config, kind, number))
    }

    /// The program of a datastore, preceded by its preparation and the writing of its certificates if it
    /// is a kvstore.
    fn prepared(&self, program: Program) -> Program {
        let Program::Shell(line) = program else {
            return program;
        };
        let certificates = self.tls_prefix().map(|prefix| tls::write_to(&prefix));
        let preparation = self.preparation.as_ref();
        let preparation = preparation.map(|it| it.line(&self.config, self.member.is_some()));
        let parts = [certificates, preparation, Some(line)];
        Program::Shell(parts.into_iter().flatten().collect())
    }

    /// The variables for the certificates.
    fn tls_variables(&self, placement: &Placement) -> Result<Vec<(&'static str, String)>, rcgen::Error> {
        let Some(tls) = &self.secrets.tls else {
            return Ok(Vec::new());
        };
        let prefix = self.tls_prefix();
        if self.metadata.kind != Kind::Datastore {
            let of_server = prefix.map(|prefix| {
                let files = tls::server_variables(&prefix);
                [tls::client_variables(tls), files].concat()
            });
            return Ok(of_server.unwrap_or_default());
        }
        let own = container::hostname(&self.config, Kind::Datastore, self.metadata.number);
        let names = [&own, "localhost", "127.0.0.1", &placement.agent.hostname];
        let names = names.into_iter().map(str::to_owned).collect();
        let member = tls.authority.member(names, tls.since)?;
        let peers = self.member.is_some();
        Ok(match prefix {
            Some(prefix) => tls::member_variables(tls, &member, &prefix, peers),
            None => tls::sql_variables(tls, &member),
        })
    }

    fn environment(&self, placement: &Placement) -> Result<Environment, rcgen::Error> {
        let task = placement.task.as_str();
        let public = match &self.script {
            Some(script) => script.draft.environment.clone(),
            None => environment::public_variables(
                &self.config,
                &self.settings,
                self.metadata.kind,
                &self.endpoints,
                task,
            ),
        };
        let mut all: Environment = public.into_iter().collect();
        for (name, value) in
            environment::secret_variables(&self.config, self.metadata.kind, &self.secrets, &self.endpoints)
        {
            all.set(name, value);
        }
        if !self.config.settings.containers {
            for (at, port) in placement.host_ports.iter().enumerate() {
                all.set(format!("PORT{at}"), port.to_string());
            }
        }
        if let Some(member) = &self.member {
            let (number, scheme) = (self.metadata.number, self.secrets.kvstore_scheme());
            for (name, value) in kvstore::variables(&self.config, number, member, scheme, placement) {
                all.set(name, value);
            }
        }
        for (name, value) in self.tls_variables(placement)? {
            all.set(name, value);
        }
        Ok(all)
    }

    fn health_check(&self) -> Option<HealthCheck> {
        let section = &self.config.settings;
        if self.metadata.kind != Kind::Datastore || !self.config.settings.containers {
            return None;
        }
        let (program, delay) = match section.engine() {
            Engine::Sql => {
                let argv = ["mysqladmin", "ping", "-h", "localhost"].map(str::to_owned);
                (Program::Argv(argv.to_vec()), None)
            }
            Engine::Kvstore => {
                let line = format!(
                    "etcdctl endpoint health --endpoints={}://127.0.0.1:{}",
                    self.secrets.kvstore_scheme(),
                    section.ds_port
                );
                (Program::Shell(line), Some(KVSTORE_DELAY))
            }
        };
        Some(HealthCheck {
            probe: Probe::Command(program),
            times: ProbeTimes {
                delay,
                ..ProbeTimes::default()
            },
            grace_period: None,
            // The check only reports the health of a clustered member: it fails while a learner catches
            // up, and on every member without a quorum. The plan replaces a member that stays unhealthy.
            consecutive_failures: self.member.is_some().then_some(u32::MAX),
            https: false,
            ipv6: false,
        })
    }

    fn limits(&self) -> Limits {
        if !self.config.settings.enforce_task_limits {
            return Limits::default();
        }
        let (settings, docker) = (&self.settings, self.config.settings.containers);
        // An agent drops a Mesos container with limits unless it has the cgroups isolators, although
        // limits equal to the resources mean the same as none.
        let limit = |configured: Option<f64>, amount: f64| {
            let limit = configured.unwrap_or(amount);
            (docker || limit > amount).then_some(Limit::Amount(limit))
        };
        Limits {
            cpus: limit(settings.cpu_limit, settings.cpus),
            mem: limit(settings.mem_limit, settings.mem),
        }
    }
}

impl BuildTask for Launch {
    fn build(&self, placement: &Placement) -> Option<TaskInfo> {
        let (config, kind) = (&self.config, self.metadata.kind);
        let command = self.command(placement).inspect_err(|error| {
            tracing::error!(
                framework = config.name(),
                agent = placement.agent.hostname,
                error = transom_common::error_chain(error),
                "making the certificate of a datastore failed"
            );
        });
        let command = command.ok()?;
        let clustered = self.member.is_some();
        let name = Self::name(config, kind);
        let discovery = Discovery {
            name: name.clone(),
            visibility: Visibility::External,
            ports: ports::discovery_ports(config, kind, clustered, &placement.host_ports),
        };
        let labels: BTreeMap<String, String> = self.settings.labels.iter().cloned().collect();
        let task = Task {
            container: config.settings.containers.then(|| {
                let ports = &placement.host_ports;
                container::of(config, &self.settings, self.metadata, clustered, ports)
            }),
            labels,
            discovery: Some(discovery),
            health_check: self.health_check(),
            limits: self.limits(),
            ..Task::new(name, command)
        };
        Some(task.into())
    }

    fn metadata(&self, _placement: &Placement) -> serde_json::Value {
        serde_json::to_value(self.metadata).unwrap_or_default()
    }
}

/// The script as a file for the cluster's fetcher.
fn uri(url: &str) -> Uri {
    Uri {
        value: url.to_owned(),
        executable: Some(true),
        extract: Some(false),
        cache: Some(false),
        output_file: Some(SCRIPT.to_owned()),
    }
}

/// Constraints for this host. The host name is compared case-insensitively, which the matcher's `LIKE`
/// supports and its `IS` does not.
fn constraints(host: Option<&str>) -> Vec<Constraint> {
    let pattern = |host: &str| {
        let escaped: String = host
            .chars()
            .flat_map(|character| {
                let plain = character.is_alphanumeric() || character == '-' || character == '_';
                (!plain).then_some('\\').into_iter().chain([character])
            })
            .collect();
        Constraint::Field {
            field: "@hostname".to_owned(),
            operator: "LIKE".to_owned(),
            operand: Some(format!("(?i){escaped}")),
        }
    };
    host.map(pattern).into_iter().collect()
}

/// Constraints for this host; without a host, constraints that spread tasks over different agents, if
/// there are enough.
fn pinned_or_spread(host: Option<&str>) -> Vec<Constraint> {
    match host {
        Some(host) => constraints(Some(host)),
        None => vec![Constraint::Field {
            field: "@hostname".to_owned(),
            operator: "GROUP_BY".to_owned(),
            operand: None,
        }],
    }
}

#[cfg(test)]
mod tests;
