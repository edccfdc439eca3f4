//! Turns an instance of an app into a task: command, environment, labels, discovery, check, kill
//! policy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use transom_cluster::v1::{TaskInfo, Uri, Visibility};
use transom_launch::{Command, Discovery, Environment, HealthCheck, Port, Probe, ProbeTimes, Program, Task};
use transom_plugin_host::matcher;
use transom_scheduler::{BuildTask, Placement, PortRequest, RunSpec, TaskRecord};

use crate::config::Checks;
use crate::model::{
    self, App, Check, CheckCommand, CheckKind, CheckPort, Constraint, HealthProtocol, IpProtocol,
};
use crate::time::Moment;

/// Settings for the tasks of all apps of this daemon.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaunchSettings {
    /// Where checks run.
    pub(crate) checks: Checks,
    /// Prefix of the variable `HOST` and of the `PORT` variables.
    pub(crate) env_vars_prefix: Arc<str>,
}

/// The run spec of one version of an app. All its instances share it, so that they are matched
/// together. `current` are the versions with the same configuration, this one among them.
pub(crate) fn run_spec(app: &Arc<App>, current: BTreeSet<Moment>, settings: &LaunchSettings) -> Arc<RunSpec> {
    let ports = app
        .port_definitions
        .iter()
        .map(|definition| match definition.port {
            port if app.require_ports && port != 0 => PortRequest::Fixed(port),
            _ => PortRequest::Random,
        });
    Arc::new(RunSpec {
        id: app.id.to_string(),
        version: app.version.to_string(),
        instances: app.instances,
        cpus: app.cpus,
        mem: app.mem,
        disk: app.disk,
        gpus: f64::from(app.gpus),
        ports: ports.collect(),
        constraints: app.constraints.iter().map(condition).collect(),
        roles: accepted_roles(app),
        build: Arc::new(Build {
            app: Arc::clone(app),
            current,
            settings: settings.clone(),
        })
        .into(),
    })
}

/// The roles whose resources the app may use: by default its own and unreserved ones.
fn accepted_roles(app: &App) -> Vec<String> {
    if !app.accepted_resource_roles.is_empty() {
        return app.accepted_resource_roles.clone();
    }
    let mut roles = vec![app.role.clone(), "*".to_owned()];
    roles.dedup();
    roles
}

/// A constraint in the form that the attributes component takes.
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
        let check = app
            .check
            .as_ref()
            .and_then(|check| agent_check(check, self.settings.checks, &placement.host_ports));
        let grace = app.task_kill_grace_period_seconds;
        let task = Task {
            labels: app.labels.clone(),
            discovery: Some(discovery(app, &placement.host_ports)),
            check,
            health_check: app
                .agent_health_check()
                .and_then(|check| agent_health_check(check, &placement.host_ports)),
            kill_grace: grace.map(|seconds| Duration::from_secs(u64::from(seconds))),
            ..Task::new(app.id.task_name(), self.command(placement))
        };
        Some(task.into())
    }

    /// Instances of another configuration are being replaced; `UNIQUE` must not block a restart.
    fn counts_as_placed(&self, record: &TaskRecord) -> bool {
        let version = record.version.parse::<Moment>();
        version.is_ok_and(|version| self.current.contains(&version))
    }
}

impl Build {
    fn command(&self, placement: &Placement) -> Command {
        let app = &self.app;
        let uris = app.fetch.iter().map(|artifact| Uri {
            value: artifact.uri.clone(),
            executable: Some(artifact.executable),
            extract: Some(artifact.extract),
            cache: Some(artifact.cache),
            output_file: artifact.dest_path.clone(),
        });
        Command {
            program: app
                .cmd
                .clone()
                .map_or_else(|| Program::Argv(app.args.clone()), Program::Shell),
            environment: environment(app, placement, &self.settings.env_vars_prefix),
            uris: uris.collect(),
            user: app.user.clone(),
        }
    }
}

/// Maximum key length of a label that becomes a variable, plus one; upstream drops longer ones.
const LABEL_KEY: usize = 512 - "MARATHON_APP_LABEL_".len();
/// The same for its value.
const LABEL_VALUE: usize = 512;

/// The environment of a task, in upstream's order: variables about the task and its app, then host
/// and ports with `prefix`, then the definition's own variables. A later variable replaces an
/// earlier one of the same name.
///
/// The agent sets none of these, not even `MESOS_TASK_ID` for command tasks.
fn environment(app: &App, placement: &Placement, prefix: &str) -> Environment {
    let mut env: Environment = described(app, placement).into_iter().collect();
    let host = ("HOST".to_owned(), placement.agent.hostname.clone());
    let network = std::iter::once(host).chain(ports(app, &placement.host_ports));
    env.extend(network.map(|(name, value)| (format!("{prefix}{name}"), value)));
    env.extend(app.env.clone());
    env
}

/// The ids of the task and the app, and the app's version, resources and labels.
fn described(app: &App, placement: &Placement) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    let mut set = |name: &str, value: String| drop(env.insert(name.to_owned(), value));
    set("MESOS_TASK_ID", placement.task.to_string());
    set("MARATHON_APP_ID", app.id.to_string());
    set("MARATHON_APP_VERSION", app.version.to_string());
    // With at least one decimal, as upstream formats these.
    set("MARATHON_APP_RESOURCE_CPUS", format!("{:?}", app.cpus));
    set("MARATHON_APP_RESOURCE_MEM", format!("{:?}", app.mem));
    set("MARATHON_APP_RESOURCE_DISK", format!("{:?}", app.disk));
    set("MARATHON_APP_RESOURCE_GPUS", app.gpus.to_string());
    let labels: BTreeMap<String, &String> = app
        .labels
        .iter()
        .filter(|(key, value)| key.chars().count() < LABEL_KEY && value.chars().count() < LABEL_VALUE)
        .map(|(key, value)| (label_variable(key), value))
        .collect();
    let names: Vec<&str> = labels.keys().map(String::as_str).collect();
    set("MARATHON_APP_LABELS", names.join(" "));
    for (name, value) in labels {
        set(&format!("MARATHON_APP_LABEL_{name}"), value.clone());
    }
    env
}

/// `PORT`, `PORTS`, `PORT0` and so on, `PORT_80` for a port number in the definition and
/// `PORT_HTTP` for a port name; none for an app without ports.
fn ports(app: &App, host_ports: &[u16]) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    let mut set = |name: String, value: &str| drop(env.insert(name, value.to_owned()));
    let ports: Vec<String> = host_ports.iter().map(ToString::to_string).collect();
    for (index, (port, definition)) in ports.iter().zip(&app.port_definitions).enumerate() {
        set(format!("PORT{index}"), port);
        let requested = match definition.port {
            0 => port.clone(),
            requested => requested.to_string(),
        };
        set(format!("PORT_{requested}"), port);
        if let Some(name) = &definition.name {
            let name = name.to_ascii_uppercase();
            // Shells cannot read a variable with a hyphen in its name.
            set(format!("PORT_{}", name.replace('-', "_")), port);
            set(format!("PORT_{name}"), port);
        }
    }
    if let Some(first) = ports.first() {
        set("PORT".to_owned(), first);
        set("PORTS".to_owned(), &ports.join(","));
    }
    env
}

/// A label's key as the suffix of a variable's name: each run of characters other than letters,
/// digits and `_` becomes one `_`.
fn label_variable(key: &str) -> String {
    let mut name = String::with_capacity(key.len());
    let mut in_run = false;
    for char in key.chars() {
        let kept = char.is_ascii_alphanumeric() || char == '_';
        if kept {
            name.push(char.to_ascii_uppercase());
        } else if !in_run {
            name.push('_');
        }
        in_run = !kept;
    }
    name
}

fn discovery(app: &App, host_ports: &[u16]) -> Discovery {
    let ports = host_ports
        .iter()
        .zip(&app.port_definitions)
        .flat_map(|(number, definition)| {
            definition.protocol.names().iter().map(|protocol| Port {
                number: *number,
                name: definition.name.clone(),
                protocol: (*protocol).to_owned(),
                labels: definition.labels.clone(),
            })
        });
    Discovery {
        name: app.id.task_name(),
        visibility: Visibility::Framework,
        ports: ports.collect(),
    }
}

/// The port that a check probes.
pub(crate) fn check_port(port: CheckPort, host_ports: &[u16]) -> Option<u16> {
    match port {
        CheckPort::Port(port) => Some(port),
        CheckPort::PortIndex(index) => host_ports.get(usize::from(index)).copied(),
    }
}

/// The port that a health check probes.
pub(crate) fn health_port(check: &model::HealthCheck, host_ports: &[u16]) -> Option<u16> {
    let by_index = || host_ports.get(usize::from(check.port_index?)).copied();
    check.port.or_else(by_index)
}

/// The port with a name.
pub(crate) fn port_named(app: &App, name: &str, host_ports: &[u16]) -> Option<u16> {
    let mut ports = app.port_definitions.iter().zip(host_ports);
    ports
        .find(|(definition, _)| definition.name.as_deref() == Some(name))
        .map(|(_, port)| *port)
}

/// The health check for the agent, which kills the task after too many failures.
fn agent_health_check(check: &model::HealthCheck, host_ports: &[u16]) -> Option<HealthCheck> {
    let probe = match check.protocol {
        HealthProtocol::MesosHttp | HealthProtocol::MesosHttps => Probe::Http {
            port: health_port(check, host_ports)?,
            path: check.path.clone(),
        },
        HealthProtocol::MesosTcp => Probe::Tcp {
            port: health_port(check, host_ports)?,
        },
        HealthProtocol::Command => Probe::Command(Program::Shell(check.command.as_ref()?.value.clone())),
        HealthProtocol::Http | HealthProtocol::Https | HealthProtocol::Tcp => return None,
    };
    let seconds = |seconds: u32| Some(Duration::from_secs(u64::from(seconds)));
    Some(HealthCheck {
        probe,
        times: ProbeTimes {
            delay: seconds(check.delay_seconds),
            interval: seconds(check.interval_seconds),
            timeout: seconds(check.timeout_seconds),
        },
        grace_period: seconds(check.grace_period_seconds),
        // An agent takes 0 for "the first failure kills"; here it means that none does.
        consecutive_failures: Some(match check.max_consecutive_failures {
            0 => u32::MAX,
            most => most,
        }),
        https: check.protocol == HealthProtocol::MesosHttps,
        ipv6: check.ip_protocol == IpProtocol::IPv6,
    })
}

/// The check for the agent; `None` when this daemon makes it.
fn agent_check(check: &Check, checks: Checks, host_ports: &[u16]) -> Option<transom_launch::Check> {
    if check.is_made_here(checks) {
        return None;
    }
    let probe = match &check.kind {
        CheckKind::Http { port, path, .. } => Probe::Http {
            port: check_port(*port, host_ports)?,
            path: path.clone(),
        },
        CheckKind::Tcp { port } => Probe::Tcp {
            port: check_port(*port, host_ports)?,
        },
        CheckKind::Exec { command } => Probe::Command(match command {
            CheckCommand::Shell(line) => Program::Shell(line.clone()),
            CheckCommand::Argv(argv) => Program::Argv(argv.clone()),
        }),
        CheckKind::Plugin(_) => return None,
    };
    let seconds = |seconds: u32| Some(Duration::from_secs(u64::from(seconds)));
    let times = ProbeTimes {
        delay: seconds(check.delay_seconds),
        interval: seconds(check.interval_seconds),
        timeout: seconds(check.timeout_seconds),
    };
    Some(transom_launch::Check { probe, times })
}

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
