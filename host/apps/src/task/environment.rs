//! The environment of a task, in upstream's order: variables about the task and its app, then host
//! and ports with the configured prefix, then the definition's own variables. A later variable
//! replaces an earlier one of the same name.
//!
//! The agent sets none of these variables, not even `MESOS_TASK_ID` for command tasks.

use std::collections::BTreeMap;

use transom_launch::Environment;
use transom_scheduler::Placement;

use super::ports::InstancePort;
use super::secret_source;
use crate::model::{App, Engine, EnvValue};

/// Maximum key length of a label that becomes a variable, plus one; upstream drops longer ones.
pub(super) const LABEL_KEY_LIMIT: usize = 512 - "MARATHON_APP_LABEL_".len();
/// The maximum length of the value of such a label, plus one.
pub(super) const LABEL_VALUE_LIMIT: usize = 512;

/// The environment of a task with these ports.
pub(super) fn environment(
    app: &App,
    placement: &Placement,
    ports: &[InstancePort<'_>],
    prefix: &str,
) -> Environment {
    let mut env: Environment = app_variables(app, placement).into_iter().collect();
    let host = ("HOST".to_owned(), placement.agent.hostname.clone());
    let network = std::iter::once(host).chain(port_variables(ports));
    env.extend(network.map(|(name, value)| (format!("{prefix}{name}"), value)));
    for (name, value) in &app.env {
        match value {
            EnvValue::Plain(value) => env.set(name, value),
            EnvValue::Secret { secret } => env.set_secret(name, secret_source(&app.secrets, secret)),
        }
    }
    env
}

/// The variables with the ids of the task and the app, and with the app's version, resources and
/// labels.
fn app_variables(app: &App, placement: &Placement) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    let mut set = |name: &str, value: String| drop(env.insert(name.to_owned(), value));
    set("MESOS_TASK_ID", placement.task.to_string());
    set("MARATHON_APP_ID", app.id.to_string());
    set("MARATHON_APP_VERSION", app.version.to_string());
    let docker = app.container.as_ref().filter(|it| it.engine == Engine::Docker);
    if let Some(docker) = docker.and_then(|container| container.docker.as_ref()) {
        set("MARATHON_APP_DOCKER_IMAGE", docker.image.clone());
    }
    // Formatted with at least one decimal, as in upstream.
    set("MARATHON_APP_RESOURCE_CPUS", format!("{:?}", app.cpus));
    set("MARATHON_APP_RESOURCE_MEM", format!("{:?}", app.mem));
    set("MARATHON_APP_RESOURCE_DISK", format!("{:?}", app.disk));
    set("MARATHON_APP_RESOURCE_GPUS", app.gpus.to_string());
    env.extend(label_variables(&app.labels));
    env
}

/// The variables for labels, and the list of their names.
pub(super) fn label_variables(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let labels: BTreeMap<String, &String> = labels
        .iter()
        .filter(|(key, value)| {
            key.chars().count() < LABEL_KEY_LIMIT && value.chars().count() < LABEL_VALUE_LIMIT
        })
        .map(|(key, value)| (label_variable(key), value))
        .collect();
    let names: Vec<&str> = labels.keys().map(String::as_str).collect();
    let all = ("MARATHON_APP_LABELS".to_owned(), names.join(" "));
    let each = labels
        .iter()
        .map(|(name, value)| (format!("MARATHON_APP_LABEL_{name}"), (*value).clone()));
    each.chain([all]).collect()
}

/// `PORT`, `PORTS`, `PORT0` and so on, `PORT_80` for a port number in the definition, and
/// `PORT_HTTP` for a port name; none for an app without ports. `PORT` and `PORTS` omit the
/// container's ports with a number in the definition.
fn port_variables(ports: &[InstancePort<'_>]) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    let mut set = |name: String, value: &str| drop(env.insert(name, value.to_owned()));
    for (index, port) in ports.iter().enumerate() {
        let number = port.client_port().to_string();
        set(format!("PORT{index}"), &number);
        let requested = match port.requested {
            0 => number.clone(),
            requested => requested.to_string(),
        };
        set(format!("PORT_{requested}"), &number);
        if let Some(name) = port.name {
            let name = name.to_ascii_uppercase();
            // Shells cannot access a variable with a hyphen in its name.
            set(format!("PORT_{}", name.replace('-', "_")), &number);
            set(format!("PORT_{name}"), &number);
        }
    }
    let on_agent = ports.iter().filter_map(|port| port.host);
    let unfixed = ports
        .iter()
        .filter(|port| port.host.is_none() && port.requested == 0);
    let assigned: Vec<String> = on_agent
        .chain(unfixed.map(InstancePort::client_port))
        .map(|port| port.to_string())
        .collect();
    if let Some(first) = assigned.first() {
        set("PORT".to_owned(), first);
    }
    if !ports.is_empty() {
        set("PORTS".to_owned(), &assigned.join(","));
    }
    env
}

/// A label's key as the suffix of a variable's name: each run of characters other than letters,
/// digits and `_` becomes one `_`.
pub(super) fn label_variable(key: &str) -> String {
    let mut name = String::with_capacity(key.len());
    let mut in_run = false;
    for char in key.chars() {
        let is_alphanumeric = char.is_ascii_alphanumeric() || char == '_';
        if is_alphanumeric {
            name.push(char.to_ascii_uppercase());
        } else if !in_run {
            name.push('_');
        }
        in_run = !is_alphanumeric;
    }
    name
}
