//! Turns an instance of an app into a task: command, environment, labels, discovery, check, kill
//! policy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use transom_cluster::v1::{
    CheckCommand as CommandCheck, CheckHttp, CheckInfo, CheckTcp, CheckType, CommandInfo, DiscoveryInfo,
    Environment, KillPolicy, Port, Ports, TaskInfo, Uri, Variable, Visibility,
};
use transom_plugin_host::matcher;
use transom_scheduler::{BuildTask, Placement, PortRequest, RunSpec, TaskRecord};

use crate::config::{Checks, Exec, Network};
use crate::model::{App, Check, CheckCommand, CheckKind, CheckPort, Constraint};
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
/// together.
pub(crate) fn run_spec(app: &Arc<App>, settings: &LaunchSettings) -> Arc<RunSpec> {
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
        roles: app.accepted_resource_roles.clone(),
        build: Arc::new(Build {
            app: Arc::clone(app),
            settings: settings.clone(),
        })
        .into(),
    })
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
    settings: LaunchSettings,
}

impl BuildTask for Build {
    fn build(&self, placement: &Placement) -> Option<TaskInfo> {
        let app = &self.app;
        Some(TaskInfo {
            name: app.id.task_name(),
            command: Some(self.command(placement)),
            labels: (!app.labels.is_empty()).then(|| {
                app.labels
                    .iter()
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect()
            }),
            discovery: Some(discovery(app, &placement.host_ports)),
            check: app
                .check
                .as_ref()
                .and_then(|check| agent_check(check, self.settings.checks, &placement.host_ports)),
            kill_policy: app.task_kill_grace_period_seconds.map(|seconds| KillPolicy {
                grace_period: Some(Duration::from_secs(u64::from(seconds)).into()),
            }),
            ..TaskInfo::default()
        })
    }

    /// Instances of an older configuration are being replaced; `UNIQUE` must not block a restart.
    fn counts_as_placed(&self, record: &TaskRecord) -> bool {
        record
            .version
            .parse::<Moment>()
            .is_ok_and(|version| version >= self.app.config_version())
    }
}

impl Build {
    fn command(&self, placement: &Placement) -> CommandInfo {
        let app = &self.app;
        let variables = environment(app, placement, &self.settings.env_vars_prefix)
            .into_iter()
            .map(|(name, value)| Variable {
                name,
                value: Some(value),
                ..Variable::default()
            });
        let uris = app.fetch.iter().map(|artifact| Uri {
            value: artifact.uri.clone(),
            executable: Some(artifact.executable),
            extract: Some(artifact.extract),
            cache: Some(artifact.cache),
            output_file: artifact.dest_path.clone(),
        });
        CommandInfo {
            shell: Some(app.cmd.is_some()),
            value: app.cmd.clone().or_else(|| app.args.first().cloned()),
            arguments: if app.cmd.is_some() {
                Vec::new()
            } else {
                app.args.clone()
            },
            environment: Some(Environment {
                variables: variables.collect(),
            }),
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
fn environment(app: &App, placement: &Placement, prefix: &str) -> BTreeMap<String, String> {
    let mut env = described(app, placement);
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

fn discovery(app: &App, host_ports: &[u16]) -> DiscoveryInfo {
    let ports = host_ports
        .iter()
        .zip(&app.port_definitions)
        .flat_map(|(number, definition)| {
            definition.protocol.names().iter().map(|protocol| Port {
                number: u32::from(*number),
                name: definition.name.clone(),
                protocol: Some((*protocol).to_owned()),
                visibility: None,
                labels: (!definition.labels.is_empty()).then(|| {
                    definition
                        .labels
                        .iter()
                        .map(|(key, value)| (key.clone(), value.clone()))
                        .collect()
                }),
            })
        });
    DiscoveryInfo {
        visibility: Visibility::Framework,
        name: Some(app.id.task_name()),
        ports: Some(Ports {
            ports: ports.collect(),
        }),
        ..DiscoveryInfo::default()
    }
}

/// The port that a check probes.
pub(crate) fn check_port(port: CheckPort, host_ports: &[u16]) -> Option<u16> {
    match port {
        CheckPort::Port(port) => Some(port),
        CheckPort::PortIndex(index) => host_ports.get(usize::from(index)).copied(),
    }
}

/// Whether this daemon, and not the agent, makes the check.
pub(crate) fn is_ours(check: &Check, checks: Checks) -> bool {
    match check.kind {
        CheckKind::Http { .. } | CheckKind::Tcp { .. } => checks.network == Network::Host,
        CheckKind::Exec { .. } => checks.exec == Exec::Host,
    }
}

/// The check in the form of the agent; `None` when this daemon makes it.
fn agent_check(check: &Check, checks: Checks, host_ports: &[u16]) -> Option<CheckInfo> {
    if is_ours(check, checks) {
        return None;
    }
    let mut info = CheckInfo {
        delay_seconds: Some(f64::from(check.delay_seconds)),
        interval_seconds: Some(f64::from(check.interval_seconds)),
        timeout_seconds: Some(f64::from(check.timeout_seconds)),
        ..CheckInfo::default()
    };
    match &check.kind {
        CheckKind::Http { port, path, .. } => {
            let port = u32::from(check_port(*port, host_ports)?);
            info.r#type = CheckType::Http;
            info.http = Some(CheckHttp {
                port,
                path: path.clone(),
            });
        }
        CheckKind::Tcp { port } => {
            info.r#type = CheckType::Tcp;
            info.tcp = Some(CheckTcp {
                port: u32::from(check_port(*port, host_ports)?),
            });
        }
        CheckKind::Exec { command } => {
            let command = match command {
                CheckCommand::Shell(shell) => CommandInfo {
                    shell: Some(true),
                    value: Some(shell.clone()),
                    ..CommandInfo::default()
                },
                CheckCommand::Argv(argv) => CommandInfo {
                    shell: Some(false),
                    value: argv.first().cloned(),
                    arguments: argv.clone(),
                    ..CommandInfo::default()
                },
            };
            info.r#type = CheckType::Command;
            info.command = Some(CommandCheck { command });
        }
    }
    Some(info)
}

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
