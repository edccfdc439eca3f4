//! One attempt of a probe: the request to the component, and its result.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use transom_cluster::agent::Agents;
use transom_cluster::v1::CommandInfo;
use transom_cluster::{ContainerId, Error as ClusterError};
use transom_common::HostPort;
use transom_plugin_host::Plugins;
use transom_plugin_host::explain::ProbeTranscript;
use transom_plugin_host::probe::{
    CommandLine, CommandOutput, Failure, IoError, Kind, Outcome, Port, Reason, Request, Runner,
};
use transom_scheduler::TaskRecord;

use super::times::Times;
use super::wheel::{self, Lane};
use crate::check_result::CheckResult;
use crate::health::{HealthVerdict, evaluate};
use crate::ids::InstanceId;
use crate::instance::Response;
use crate::model::{
    Check, CheckCommand, CheckKind, CheckPort, HealthCheck, HealthProtocol, Pod, ReadinessCheck, Scheme, Spec,
};
use crate::policies::Policies;
use crate::task::health_port;
use crate::task::pod::{endpoint_address, endpoints_of};
use crate::task::ports::{InstancePort, endpoint, endpoint_of, of_instance};

/// The additional time before the host cancels an attempt, so that the component can time out
/// first.
const CANCEL_MARGIN: Duration = Duration::from_secs(1);

/// Additional members of a request, which not every component knows; see `transom:probe`.
const HTTPS_MEMBER: [(&str, &str); 2] = [("scheme", "https"), ("tls-verify", "false")];
const WHOLE_RESPONSE_MEMBER: (&str, &str) = ("response", "whole");

/// The purpose of a probe, and its index in the definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// The check of the container with this index; 0 for an app.
    Check(usize),
    /// The health check with this index.
    Health(usize),
    Readiness,
}

/// The definition of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Definition<'a> {
    Check(Cow<'a, Check>),
    Health(&'a HealthCheck),
    Readiness(&'a ReadinessCheck),
}

/// A probe of a task.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) instance: InstanceId,
    pub(crate) incarnation: u32,
    pub(crate) purpose: Purpose,
    /// The definition with the probe.
    pub(crate) spec: Spec,
    pub(crate) record: Arc<TaskRecord>,
    /// All tasks of a pod's instance; empty for an app.
    pub(crate) group: Arc<[Arc<TaskRecord>]>,
}

impl wheel::Subject for Arc<Probe> {
    fn is_same(&self, other: &Self) -> bool {
        self.incarnation == other.incarnation && self.is_defined_by(&other.spec, other.purpose)
    }
}

impl Probe {
    /// Whether the definition contains this probe, unchanged and for the same purpose.
    pub(crate) fn is_defined_by(&self, spec: &Spec, purpose: Purpose) -> bool {
        self.purpose == purpose
            && self.definition().is_some()
            && self.definition() == definition(spec, purpose)
    }

    pub(super) fn lane(&self) -> Lane {
        match self.purpose {
            Purpose::Check(_) => Lane::Checks,
            Purpose::Health(_) | Purpose::Readiness => Lane::Health,
        }
    }

    /// The times of its attempts on a clock on which the task started at `start`. `None` if the
    /// definition has no such probe.
    pub(super) fn times(&self, start: i64, now: u64) -> Option<Times> {
        let task = self.record.id.as_str();
        Some(match self.definition()? {
            Definition::Check(check) => Times::of_check(&check, task, start),
            Definition::Health(check) => Times::of_health(check, task, start),
            Definition::Readiness(check) => Times::of_readiness(check, now),
        })
    }

    /// The kind of component that makes it.
    pub(super) fn kind(&self) -> Kind {
        match self.definition() {
            Some(Definition::Check(check)) => match &check.kind {
                CheckKind::Http { .. } => Kind::Http,
                CheckKind::Tcp { .. } => Kind::Tcp,
                CheckKind::Exec { .. } => Kind::Exec,
                CheckKind::Plugin(plugin) => Kind::Named(plugin.name.clone()),
            },
            Some(Definition::Health(check)) if check.protocol == HealthProtocol::Tcp => Kind::Tcp,
            _ => Kind::Http,
        }
    }

    /// The names of its purpose and kind, for metrics and operators.
    pub(crate) fn labels(&self) -> (&'static str, &'static str) {
        let purpose = match self.purpose {
            Purpose::Check(_) => "check",
            Purpose::Health(_) => "health",
            Purpose::Readiness => "readiness",
        };
        let kind = match self.kind() {
            Kind::Http => "http",
            Kind::Tcp => "tcp",
            Kind::Exec => "exec",
            Kind::Named(_) => "plugin",
        };
        (purpose, kind)
    }

    /// The name of the outcome of an attempt, for metrics and operators: whether it passed, or why
    /// it has no result.
    pub(crate) fn outcome(&self, result: &Result<Outcome, Failure>) -> &'static str {
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(failure) => return failure.reason.as_str(),
        };
        let passed = match self.definition() {
            Some(Definition::Health(check)) => {
                !matches!(evaluate(check, result), HealthVerdict::Unhealthy(_))
            }
            Some(Definition::Readiness(check)) => {
                let codes = &check.http_status_codes_for_ready;
                codes.contains(&Response::of(result).status)
            }
            Some(Definition::Check(_)) | None => CheckResult::from(outcome).is_success(),
        };
        if passed { "passed" } else { "failed" }
    }

    fn definition(&self) -> Option<Definition<'_>> {
        definition(&self.spec, self.purpose)
    }

    /// The timeout of an attempt. With 0 every attempt would fail, so the minimum is one second.
    fn timeout(&self) -> Duration {
        let seconds = match self.definition() {
            Some(Definition::Check(check)) => check.timeout_seconds,
            Some(Definition::Health(check)) => check.timeout_seconds,
            Some(Definition::Readiness(check)) => check.timeout_seconds,
            None => 1,
        };
        Duration::from_secs(u64::from(seconds.max(1)))
    }

    /// Makes the attempt.
    pub(super) async fn attempt(
        &self,
        previous: Option<Outcome>,
        policies: &dyn Policies,
        agents: Option<&Agents>,
    ) -> Result<Outcome, Failure> {
        let timeout = self.timeout();
        let probe = policies.probe(self.kind(), self.request(previous), self.runner(agents));
        tokio::time::timeout(timeout + CANCEL_MARGIN, probe)
            .await
            .unwrap_or_else(|_| {
                Err(Failure {
                    reason: Reason::TimedOut,
                    message: format!("the probe timed out after {timeout:?}"),
                })
            })
    }

    /// Makes an attempt with a transcript. It is made like the first one of its task, and its
    /// result is not used.
    pub(crate) async fn explain(&self, plugins: &Plugins, agents: Option<&Agents>) -> ProbeTranscript {
        let (request, runner) = (self.request(None), self.runner(agents));
        plugins.explain_probe(&self.kind(), request, runner).await
    }

    fn request(&self, previous: Option<Outcome>) -> Request {
        let record = &*self.record;
        let mut request = Request {
            run_spec: self.spec.id().to_string(),
            task: self.record.id.to_string(),
            agent: record.agent.hostname.clone(),
            labels: self.spec.labels().clone().into_iter().collect(),
            ports: self.ports(),
            endpoint: self.endpoint(),
            path: "/".to_owned(),
            command: None,
            settings: "{}".to_owned(),
            previous,
            timeout: self.timeout(),
            extensions: Vec::new(),
        };
        let mut extend = |(name, value): (&str, &str)| {
            request.extensions.push((name.to_owned(), value.to_owned()));
        };
        match self.definition() {
            Some(Definition::Check(check)) => match &check.kind {
                CheckKind::Http { path: Some(path), .. } => request.path.clone_from(path),
                CheckKind::Exec { command } => request.command = Some(shell(command)),
                CheckKind::Plugin(plugin) => request.settings = plugin.settings.to_string(),
                CheckKind::Http { path: None, .. } | CheckKind::Tcp { .. } => {}
            },
            Some(Definition::Health(check)) => {
                if check.protocol == HealthProtocol::Https {
                    HTTPS_MEMBER.into_iter().for_each(extend);
                }
                if let Some(path) = &check.path {
                    request.path.clone_from(path);
                }
            }
            Some(Definition::Readiness(check)) => {
                if check.protocol == Scheme::Https {
                    HTTPS_MEMBER.into_iter().for_each(&mut extend);
                }
                extend(WHOLE_RESPONSE_MEMBER);
                request.path.clone_from(&check.path);
            }
            None => {}
        }
        request
    }

    /// All ports of the task, with the addresses at which they are reached.
    fn ports(&self) -> Vec<Port> {
        let record = &*self.record;
        let ports: Vec<(InstancePort<'_>, Option<HostPort>)> = match &self.spec {
            Spec::App(app) => {
                let ports = of_instance(app, record.id.as_str(), &record.host_ports).into_iter();
                ports
                    .map(|port| (port.clone(), endpoint_of(app, record, &port)))
                    .collect()
            }
            Spec::Pod(pod) => {
                let ports = endpoints_of(pod, &self.group).into_iter();
                let own = self.container(pod).and_then(|index| ports.into_iter().nth(index));
                let own = own.into_iter().flatten();
                own.map(|port| (port.clone(), endpoint_address(pod, record, &port)))
                    .collect()
            }
        };
        let mut all = Vec::new();
        for (port, endpoint) in ports {
            let Some(endpoint) = endpoint else { continue };
            all.extend(port.protocol.names().iter().map(|protocol| Port {
                name: port.name.map(str::to_owned),
                protocol: (*protocol).to_owned(),
                endpoint: endpoint.clone(),
            }));
        }
        all
    }

    /// The index of the pod's container that the task runs.
    fn container(&self, pod: &Pod) -> Option<usize> {
        let name = &self.record.group.as_ref()?.member;
        pod.containers
            .iter()
            .position(|container| container.name == *name)
    }

    /// The address at which the probed port is reached.
    fn endpoint(&self) -> Option<HostPort> {
        let record = &*self.record;
        let app = match &self.spec {
            Spec::App(app) => app,
            Spec::Pod(pod) => {
                let container = self.container(pod)?;
                let at = pod.indexed_check_of(container)?.port()?;
                let ports = endpoints_of(pod, &self.group);
                let port = match at {
                    CheckPort::PortIndex(index) => ports.get(container)?.get(usize::from(index))?,
                    CheckPort::Port(_) => return None,
                };
                return endpoint_address(pod, record, port);
            }
        };
        match self.definition()? {
            Definition::Check(check) => endpoint(app, record, check.port()?),
            Definition::Health(check) => endpoint(app, record, health_port(check)?),
            Definition::Readiness(check) => {
                let ports = of_instance(app, record.id.as_str(), &record.host_ports);
                let mut named = ports
                    .iter()
                    .filter(|port| port.name == Some(check.port_name.as_str()));
                endpoint_of(app, record, named.next()?)
            }
        }
    }

    fn runner(&self, agents: Option<&Agents>) -> Option<Arc<dyn Runner>> {
        if self.kind() != Kind::Exec {
            return None;
        }
        let agent = self.record.agent.endpoint.clone()?;
        let container = self
            .record
            .status
            .as_ref()?
            .container_status
            .as_ref()?
            .container_id
            .clone()?;
        Some(Arc::new(ContainerRunner {
            agents: agents?.clone(),
            agent,
            container,
        }))
    }
}

fn definition(spec: &Spec, purpose: Purpose) -> Option<Definition<'_>> {
    match purpose {
        Purpose::Check(index) => spec.check(index).map(Definition::Check),
        Purpose::Health(index) => spec.health_checks().get(index).map(Definition::Health),
        Purpose::Readiness => spec.readiness_checks().first().map(Definition::Readiness),
    }
}

/// The command as a line for a shell; arguments are quoted.
fn shell(command: &CheckCommand) -> String {
    match command {
        CheckCommand::Shell(shell) => shell.clone(),
        CheckCommand::Argv(argv) => {
            let quoted: Vec<String> = argv
                .iter()
                .map(|argument| format!("'{}'", argument.replace('\'', r"'\''")))
                .collect();
            quoted.join(" ")
        }
    }
}

/// Runs commands in a task's container, through its agent.
struct ContainerRunner {
    agents: Agents,
    agent: HostPort,
    container: ContainerId,
}

#[async_trait]
impl Runner for ContainerRunner {
    async fn run(&self, command: CommandLine, timeout: Duration) -> Result<CommandOutput, IoError> {
        let command = match command {
            CommandLine::Shell(shell) => CommandInfo {
                shell: Some(true),
                value: Some(shell),
                ..CommandInfo::default()
            },
            CommandLine::Argv(argv) => CommandInfo {
                shell: Some(false),
                value: argv.first().cloned(),
                arguments: argv,
                ..CommandInfo::default()
            },
        };
        match self
            .agents
            .run_in_task(&self.agent, &self.container, &command, timeout)
            .await
        {
            Ok(result) => Ok(CommandOutput {
                exit_code: result.exit_code,
                stdout: result.stdout,
                stderr: result.stderr,
            }),
            Err(ClusterError::TimedOut { .. }) => Err(IoError::TimedOut),
            Err(error) => Err(IoError::Unavailable(error.to_string())),
        }
    }
}

#[cfg(test)]
#[path = "attempt_tests.rs"]
pub(super) mod tests;
