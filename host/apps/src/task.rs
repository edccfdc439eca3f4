//! How an instance of an app becomes a task of the cluster: command, environment, labels, discovery, check, kill policy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use transom_cluster::v1::{
    CheckCommand as CommandCheck, CheckHttp, CheckInfo, CheckTcp, CheckType, CommandInfo, DiscoveryInfo,
    Environment, KillPolicy, Port, Ports, TaskInfo, Uri, Variable, Visibility,
};
use transom_plugins::matcher::Condition;
use transom_scheduler::{BuildTask, Placement, PortRequest, RunSpec, TaskRecord};

use crate::config::{Checks, Exec, Network};
use crate::model::{App, Check, CheckCommand, CheckKind, CheckPort, Constraint};
use crate::time::Moment;

/// What the scheduler launches for one version of an app. All instances share it, so that they are matched together.
pub(crate) fn run_spec(app: &Arc<App>, checks: Checks) -> Arc<RunSpec> {
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
        conditions: app.constraints.iter().map(condition).collect(),
        roles: app.accepted_resource_roles.clone(),
        build: Arc::new(Build {
            app: Arc::clone(app),
            checks,
        })
        .into(),
    })
}

/// A constraint as the attributes component is asked about it.
pub(crate) fn condition(constraint: &Constraint) -> Condition {
    let field = |index: usize| constraint.0.get(index).cloned();
    Condition::Constraint {
        field: field(0).unwrap_or_default(),
        operator: field(1).unwrap_or_default(),
        operand: field(2),
    }
}

#[derive(Debug)]
struct Build {
    app: Arc<App>,
    checks: Checks,
}

impl BuildTask for Build {
    fn build(&self, placement: &Placement) -> TaskInfo {
        let app = &self.app;
        TaskInfo {
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
                .and_then(|check| agent_check(check, self.checks, &placement.host_ports)),
            kill_policy: app.task_kill_grace_period_seconds.map(|seconds| KillPolicy {
                grace_period: Some(Duration::from_secs(u64::from(seconds)).into()),
            }),
            ..TaskInfo::default()
        }
    }

    /// Instances of an older configuration are on their way out; `UNIQUE` must not lock a restart.
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
        let variables = environment(app, placement)
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

/// What the task finds in its environment. The definition's own variables win.
fn environment(app: &App, placement: &Placement) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    let mut set = |name: String, value: String| drop(env.insert(name, value));
    set("HOST".to_owned(), placement.agent.hostname.clone());
    let ports: Vec<String> = placement.host_ports.iter().map(ToString::to_string).collect();
    if let Some(first) = ports.first() {
        set("PORT".to_owned(), first.clone());
        set("PORTS".to_owned(), ports.join(","));
    }
    for (index, (port, definition)) in ports.iter().zip(&app.port_definitions).enumerate() {
        set(format!("PORT{index}"), port.clone());
        let requested = if definition.port == 0 {
            port.clone()
        } else {
            definition.port.to_string()
        };
        set(format!("PORT_{requested}"), port.clone());
        if let Some(name) = &definition.name {
            set(format!("PORT_{}", variable(name)), port.clone());
        }
    }
    set("MARATHON_APP_ID".to_owned(), app.id.to_string());
    set("MARATHON_APP_VERSION".to_owned(), app.version.to_string());
    // One decimal at least, as upstream writes these.
    set("MARATHON_APP_RESOURCE_CPUS".to_owned(), format!("{:?}", app.cpus));
    set("MARATHON_APP_RESOURCE_MEM".to_owned(), format!("{:?}", app.mem));
    set("MARATHON_APP_RESOURCE_DISK".to_owned(), format!("{:?}", app.disk));
    set("MARATHON_APP_RESOURCE_GPUS".to_owned(), app.gpus.to_string());
    let labels: Vec<String> = app.labels.keys().map(|key| variable(key)).collect();
    set("MARATHON_APP_LABELS".to_owned(), labels.join(" "));
    for (key, value) in labels.iter().zip(app.labels.values()) {
        set(format!("MARATHON_APP_LABEL_{key}"), value.clone());
    }
    env.extend(app.env.clone());
    env
}

/// A text as part of a variable's name.
fn variable(text: &str) -> String {
    text.chars()
        .map(|char| {
            if char.is_ascii_alphanumeric() {
                char.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect()
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

/// The port that a check looks at.
pub(crate) fn check_port(port: CheckPort, host_ports: &[u16]) -> Option<u16> {
    match port {
        CheckPort::Port(port) => Some(port),
        CheckPort::PortIndex(index) => host_ports.get(usize::from(index)).copied(),
    }
}

/// Whether this side, and not the agent, makes the check.
pub(crate) fn is_ours(check: &Check, checks: Checks) -> bool {
    match check.kind {
        CheckKind::Http { .. } | CheckKind::Tcp { .. } => checks.network == Network::Host,
        CheckKind::Exec { .. } => checks.exec == Exec::Host,
    }
}

/// The check as the agent is told to make it; `None` when this side makes it.
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
