//! Turns an instance of an app into a task: command, environment, container, labels, discovery,
//! check, kill policy, limits.

mod container;
mod discovery;
mod environment;
mod executor;
mod gpus;
pub(crate) mod pod;
pub(crate) mod ports;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use transom_cluster::v1::{TaskInfo, Uri};
use transom_launch::{Command, HealthCheck, Limit, Limits, Probe, ProbeTimes, Program, Task};
use transom_plugin_host::matcher;
use transom_scheduler::{BuildTask, Placement, RunSpec, TaskRecord};

use self::ports::InstancePort;
use crate::model::{
    self, App, Artifact, Check, CheckCommand, CheckKind, CheckPort, Constraint, HealthProtocol, IpProtocol,
    ResourceLimit, ResourceLimits, SecretDef, Spec,
};
use crate::settings::{Checks, GpuScheduling};
use crate::time::Moment;

/// Settings for the tasks of all apps of this daemon.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaunchSettings {
    /// Where checks run.
    pub(crate) checks: Checks,
    /// Prefix of the variable `HOST` and of the `PORT` variables.
    pub(crate) env_vars_prefix: Arc<str>,
    /// Whether tasks without GPUs use offers that contain some.
    pub(crate) gpus: GpuScheduling,
}

/// The run spec of one version of an app or pod. All its instances share it, so that they are
/// matched together. `current` are the versions with the same configuration, this one among them.
pub(crate) fn run_spec(spec: &Spec, current: BTreeSet<Moment>, settings: &LaunchSettings) -> Arc<RunSpec> {
    match spec {
        Spec::App(app) => app_spec(app, current, settings),
        Spec::Pod(pod) => pod::pod_spec(pod, current, settings),
    }
}

fn app_spec(app: &Arc<App>, current: BTreeSet<Moment>, settings: &LaunchSettings) -> Arc<RunSpec> {
    Arc::new(RunSpec {
        id: app.id.to_string(),
        version: app.version.to_string(),
        instances: app.instances,
        cpus: app.cpus,
        mem: app.mem,
        disk: app.disk,
        gpus: f64::from(app.gpus),
        avoid_gpus: gpus::avoids(&app.labels, app.gpus, settings),
        executor: executor::resources(app),
        ports: ports::requests(app),
        role: Some(app.role.clone()),
        volumes: volumes::of_app(app),
        constraints: app.constraints.iter().map(condition).collect(),
        roles: accepted_roles(&app.accepted_resource_roles, &app.role),
        build: Arc::new(Build {
            app: Arc::clone(app),
            current,
            settings: settings.clone(),
        })
        .into(),
    })
}

/// The roles whose resources an app or a pod may use: by default its own and unreserved ones.
fn accepted_roles(accepted: &[String], role: &str) -> Vec<String> {
    if !accepted.is_empty() {
        return accepted.to_vec();
    }
    let mut roles = vec![role.to_owned(), "*".to_owned()];
    roles.dedup();
    roles
}

/// A constraint in the form that the attributes component receives.
pub(crate) fn condition(constraint: &Constraint) -> matcher::Constraint {
    let field = |index: usize| constraint.0.get(index).cloned();
    matcher::Constraint::Field {
        field: field(0).unwrap_or_default(),
        operator: field(1).unwrap_or_default(),
        operand: field(2),
    }
}

#[derive(Debug)]
struct Build {
    app: Arc<App>,
    current: BTreeSet<Moment>,
    settings: LaunchSettings,
}

impl BuildTask for Build {
    fn build(&self, placement: &Placement) -> Option<TaskInfo> {
        let app = &self.app;
        let ports = ports::of_instance(app, placement.task.as_str(), &placement.host_ports);
        let check = app
            .check
            .as_ref()
            .and_then(|check| agent_check(check, self.settings.checks, &ports));
        let grace = app.task_kill_grace_period_seconds;
        let task = Task {
            container: container::container(app, placement, &ports),
            labels: app.labels.clone(),
            discovery: Some(discovery::discovery(&app.id, &app.networks, &ports)),
            check,
            health_check: app
                .agent_health_check()
                .and_then(|check| agent_health_check(check, &ports)),
            kill_grace: grace.map(|seconds| Duration::from_secs(u64::from(seconds))),
            limits: limits(app.resource_limits),
            executor: executor::path(app).map(|_| format!("marathon-{}", placement.task)),
            ..Task::new(app.id.task_name(), self.command(placement, &ports))
        };
        Some(task.into())
    }

    /// Tasks of another configuration are not counted, because they are being replaced, and
    /// `UNIQUE` must not block a restart.
    fn counts_as_placed(&self, record: &TaskRecord) -> bool {
        is_current(record, &self.current)
    }
}

/// Whether a task runs one of these versions.
fn is_current(record: &TaskRecord, current: &BTreeSet<Moment>) -> bool {
    let version = record.version.parse::<Moment>();
    version.is_ok_and(|version| current.contains(&version))
}

impl Build {
    fn command(&self, placement: &Placement, ports: &[InstancePort<'_>]) -> Command {
        let app = &self.app;
        Command {
            program: program(app),
            environment: environment::environment(app, placement, ports, &self.settings.env_vars_prefix),
            uris: app.fetch.iter().map(uri).collect(),
            user: app.user.clone(),
        }
    }
}

fn uri(artifact: &Artifact) -> Uri {
    Uri {
        value: artifact.uri.clone(),
        executable: Some(artifact.executable),
        extract: Some(artifact.extract),
        cache: Some(artifact.cache),
        output_file: artifact.dest_path.clone(),
    }
}

/// The program of a task. In a container with an image, arguments are passed to the entry point.
fn program(app: &App) -> Program {
    if let Some(path) = executor::path(app) {
        return Program::Shell(executor::line(path, app));
    }
    let image = app.container.as_ref().is_some_and(|it| it.docker.is_some());
    match &app.cmd {
        Some(line) => Program::Shell(line.clone()),
        None if image && !app.args.is_empty() => Program::EntryPoint(app.args.clone()),
        None => Program::Argv(app.args.clone()),
    }
}

/// The name of a secret in the cluster's secret store. A name that the definition does not define
/// would stand for itself, but the rules do not allow one.
fn secret_source(secrets: &BTreeMap<String, SecretDef>, name: &str) -> String {
    let secret = secrets.get(name);
    secret.map_or_else(|| name.to_owned(), |secret| secret.source.clone())
}

fn limits(limits: Option<ResourceLimits>) -> Limits {
    let limit = |limit: ResourceLimit| match limit {
        ResourceLimit::Amount(amount) => Limit::Amount(amount),
        ResourceLimit::Unlimited(_) => Limit::Unlimited,
    };
    Limits {
        cpus: limits.and_then(|limits| limits.cpus).map(limit),
        mem: limits.and_then(|limits| limits.mem).map(limit),
    }
}

/// The port that a check of the agent probes: the one in the container, if that has its own ports.
fn check_port(port: CheckPort, ports: &[InstancePort<'_>]) -> Option<u16> {
    match port {
        CheckPort::Port(port) => Some(port),
        CheckPort::PortIndex(index) => ports.get(usize::from(index)).map(InstancePort::listen_port),
    }
}

/// The port that a health check probes.
pub(crate) fn health_port(check: &model::HealthCheck) -> Option<CheckPort> {
    let by_index = || check.port_index.map(CheckPort::PortIndex);
    check.port.map(CheckPort::Port).or_else(by_index)
}

/// The health check for the agent, which kills the task after too many failures.
fn agent_health_check(check: &model::HealthCheck, ports: &[InstancePort<'_>]) -> Option<HealthCheck> {
    let port = || check_port(health_port(check)?, ports);
    let probe = match check.protocol {
        HealthProtocol::MesosHttp | HealthProtocol::MesosHttps => Probe::Http {
            port: port()?,
            path: check.path.clone(),
        },
        HealthProtocol::MesosTcp => Probe::Tcp { port: port()? },
        HealthProtocol::Command => Probe::Command(Program::Shell(check.command.as_ref()?.value.clone())),
        HealthProtocol::Http | HealthProtocol::Https | HealthProtocol::Tcp => return None,
    };
    Some(HealthCheck {
        probe,
        times: probe_times(check.delay_seconds, check.interval_seconds, check.timeout_seconds),
        grace_period: Some(Duration::from_secs(u64::from(check.grace_period_seconds))),
        consecutive_failures: Some(max_failures_for_agent(check.max_consecutive_failures)),
        https: check.protocol == HealthProtocol::MesosHttps,
        ipv6: check.ip_protocol == IpProtocol::IPv6,
    })
}

/// In a definition, 0 means that failures never kill the task; for an agent it would mean that the
/// first one does.
fn max_failures_for_agent(max_failures: u32) -> u32 {
    match max_failures {
        0 => u32::MAX,
        max_failures => max_failures,
    }
}

fn probe_times(delay: u32, interval: u32, timeout: u32) -> ProbeTimes {
    let seconds = |seconds: u32| Some(Duration::from_secs(u64::from(seconds)));
    ProbeTimes {
        delay: seconds(delay),
        interval: seconds(interval),
        timeout: seconds(timeout),
    }
}

fn command_line(command: &CheckCommand) -> Program {
    match command {
        CheckCommand::Shell(line) => Program::Shell(line.clone()),
        CheckCommand::Argv(argv) => Program::Argv(argv.clone()),
    }
}

/// The check for the agent; `None` when this daemon makes it.
fn agent_check(check: &Check, checks: Checks, ports: &[InstancePort<'_>]) -> Option<transom_launch::Check> {
    if check.is_made_by_daemon(checks) {
        return None;
    }
    let probe = match &check.kind {
        CheckKind::Http { port, path, .. } => Probe::Http {
            port: check_port(*port, ports)?,
            path: path.clone(),
        },
        CheckKind::Tcp { port } => Probe::Tcp {
            port: check_port(*port, ports)?,
        },
        CheckKind::Exec { command } => Probe::Command(command_line(command)),
        CheckKind::Plugin(_) => return None,
    };
    let times = probe_times(check.delay_seconds, check.interval_seconds, check.timeout_seconds);
    Some(transom_launch::Check { probe, times })
}

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
