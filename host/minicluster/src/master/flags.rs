//! The command-line flags that the master and the agents report: those that describe this cluster,
//! under their real names.

use crate::{
    config::{AgentConfig, Images, Registry},
    state::{Agent, State},
    wire::{duration, resources::ReservationFormat},
};
use serde_json::{Value, json};
use std::time::Duration;

/// GET /flags of the master, without its envelope.
pub(crate) fn master(state: &State) -> Value {
    let config = &state.config;
    let authenticate = if config.credentials.is_empty() {
        "false"
    } else {
        "true"
    };
    json!({
        "agent_ping_timeout": duration_flag(config.agent_timeout / 5),
        "max_agent_ping_timeouts": "5",
        "agent_reregister_timeout": "10mins",
        "allocation_interval": duration_flag(config.allocation_interval),
        "allocator": "hierarchical",
        "authenticate_agents": "false",
        "authenticate_frameworks": "false",
        "authenticate_http_frameworks": authenticate,
        "authenticate_http_readonly": authenticate,
        "authenticate_http_readwrite": authenticate,
        "authorizers": "local",
        "cluster": state.master.cluster,
        "hostname": state.master.hostname,
        "http_authenticators": "basic",
        "ip": state.master.addr.ip().to_string(),
        "logging_level": "INFO",
        "max_completed_frameworks": crate::state::MAX_COMPLETED_FRAMEWORKS.to_string(),
        "max_completed_tasks_per_framework": state.max_completed_tasks.to_string(),
        "min_allocatable_resources": "cpus:0.01|mem:32",
        "port": state.master.addr.port().to_string(),
        "registry": match config.registry {
            Registry::InMemory => "in_memory",
            Registry::ReplicatedLog => "replicated_log",
        },
        "work_dir": config.work_dir.display().to_string(),
        "version": "false",
    })
}

/// GET /flags of an agent, without its envelope.
pub(crate) fn agent(state: &State, agent: &Agent) -> Value {
    let config = &agent.config;
    let containerizers = match state.config.images {
        Images::Auto | Images::Podman | Images::Docker => "docker,mesos",
        Images::Process | Images::None => "mesos",
    };
    let attributes: Vec<String> = config
        .attributes
        .iter()
        .map(|(name, value)| format!("{name}:{value}"))
        .collect();
    // A real agent's default is the first two. Volumes in a pod's sandbox need the third one, and are
    // supported here.
    let isolation = "posix/cpu,posix/mem,volume/sandbox_path";
    json!({
        "attributes": attributes.join(";"),
        "authenticate_http_readonly": "false",
        "authenticate_http_readwrite": "false",
        "containerizers": containerizers,
        "default_role": "*",
        "executor_registration_timeout": duration::text(state.config.executor_registration_timeout),
        "executor_reregistration_timeout": duration::text(state.config.executor_reregistration_timeout),
        "executor_shutdown_grace_period": duration::text(state.config.executor_shutdown_grace),
        "hostname": config.hostname,
        "ip": agent.addr.ip().to_string(),
        "isolation": isolation,
        "launcher": "posix",
        "logging_level": "INFO",
        "master": state.master.addr.to_string(),
        "port": agent.addr.port().to_string(),
        "resources": resources(config),
        "switch_user": "true",
        "version": "false",
        "work_dir": agent.work_dir.display().to_string(),
    })
}

/// The resources of an agent. With further disks the flag is JSON, because its short form cannot
/// express them.
fn resources(config: &AgentConfig) -> String {
    if !config.disks.is_empty() {
        return Value::Array(config.resources().messages(ReservationFormat::Refined, None)).to_string();
    }
    format!(
        "cpus:{};mem:{};disk:{};ports:[{}-{}]",
        config.cpus, config.mem, config.disk, config.ports.0, config.ports.1
    )
}

/// Flags in the form of `GET_FLAGS`.
pub(crate) fn to_list(flags: &Value) -> Value {
    let flags: Vec<Value> = flags
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    json!({ "flags": flags })
}

/// A duration in the syntax of flags.
fn duration_flag(duration: Duration) -> String {
    match duration.subsec_millis() {
        0 => format!("{}secs", duration.as_secs()),
        _ => format!("{}ms", duration.as_millis()),
    }
}
