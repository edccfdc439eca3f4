//! The body of `POST /v0/queue_command` (specification, part D, "Queue command body"), with the
//! operator's additional fields.
//!
//! Unknown fields are ignored, as upstream does: engines put their own data into `executor_config`.

use std::sync::Arc;

use serde_json::{Map, Value};
use transom_web::Problems;

use super::field_reader::{Fields, NUL, has_nul, kind, scalar};
use super::{Command, Containerizer, ExecutorConfig, JobPort, Key, Mount, Spec, megabytes};
use crate::Settings;
use crate::ids::JobId;

/// Maximum bytes of a request key, which is stored with its job.
pub(super) const MAX_REQUEST_KEY_BYTES: usize = 200;
/// Maximum bytes of `executor_config`.
pub(super) const MAX_EXECUTOR_CONFIG_BYTES: usize = 64 << 10;
/// Maximum bytes of all constraints of a job, of which the matching keeps copies.
const MAX_ATTRIBUTES_BYTES: usize = 16 << 10;
/// Maximum bytes of a job as [`Spec::bytes`] counts them. The system of an agent accepts arguments
/// of 128 KiB.
pub(super) const MAX_JOB_BYTES: usize = 256 << 10;

/// A parsed body.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::struct_field_names,
    reason = "`request_key` is the field's name in the body"
)]
pub(crate) struct Request {
    /// The job id; `None`: one is generated.
    pub(crate) id: Option<JobId>,
    /// Whether the request is rejected while a job with this id is active.
    pub(crate) unique: bool,
    /// The request key: a request that is repeated with it after a lost response queues nothing
    /// new.
    pub(crate) request_key: Option<Arc<str>>,
    pub(crate) spec: Spec,
    /// Fields that the body contains under both of their names: the name that is read, and the
    /// ignored one.
    pub(crate) ignored: Vec<[&'static str; 2]>,
}

/// Fields with two names; the first one wins.
const ALIASES: [[&str; 2]; 3] = [
    ["workflow_task_id", "airflow_task_id"],
    ["workflow_key", "airflow_key"],
    ["container_sock", "docker_sock"],
];

/// Parses a body. `None`: it has no command, which has its own error text.
///
/// # Errors
/// All problems of the body, in the order of their paths.
pub(crate) fn read(body: &Map<String, Value>, defaults: &Settings) -> Option<Result<Request, Problems>> {
    let empty = Map::new();
    let config = body.get("executor_config").and_then(Value::as_object);
    let mut fields = Fields::new(body, config.unwrap_or(&empty));
    if !body.contains_key("command") {
        return None;
    }
    if let Some(other) = body
        .get("executor_config")
        .filter(|value| !value.is_object() && !value.is_null())
    {
        fields.problems.add(
            "/executor_config",
            format!("is {}; expected an object", kind(other)),
        );
    }
    let ignored = ALIASES
        .into_iter()
        .filter(|pair| fields.has_both(*pair))
        .collect();
    let id = fields.read(&["workflow_task_id", "airflow_task_id"], |value| {
        let text = value
            .as_str()
            .ok_or_else(|| format!("is {}; expected a string", kind(value)))?;
        JobId::parse(text)
    });
    let unique = fields.flag(&["unique"]).unwrap_or(false);
    let request_key = fields.read(&["request_key"], request_key);
    let executor_config = ExecutorConfig::from(config.unwrap_or(&empty));
    let spec = spec(&mut fields, executor_config, defaults);
    check_size(&mut fields.problems, &spec);
    Some(if fields.problems.is_empty() {
        Ok(Request {
            id,
            unique,
            request_key,
            spec,
            ignored,
        })
    } else {
        Err(fields.problems.sorted())
    })
}

fn spec(fields: &mut Fields<'_>, executor_config: ExecutorConfig, defaults: &Settings) -> Spec {
    let command = command(fields, defaults);
    let image = fields.text(&["image"]);
    if defaults.containers
        && image.is_none()
        && defaults.container_image_slave.is_none()
        && fields.get(&["image"]).is_none()
    {
        fields.problems.add(
            "/image",
            "is missing; expected the container's image (or container_image_slave in the configuration)",
        );
    }
    if !defaults.containers && command == Command::Args(Vec::new()) && fields.problems.is_empty() {
        fields.problems.add(
            "/command",
            "is empty; expected a program, because this cluster does not run images",
        );
    }
    Spec {
        command,
        image,
        containerizer: containerizer(fields),
        // Zero is accepted, as upstream does; see `launch` for a job without any resources.
        cpus: fields.number(&["cpus"], 0.0).unwrap_or(defaults.task_cpu),
        mem: fields
            .read(&["mem_limit", "memlimit"], megabytes)
            .unwrap_or(defaults.task_memory),
        disk: fields.number(&["disk"], 0.0).unwrap_or(defaults.task_disk),
        gpus: fields.number(&["gpus"], 0.0).unwrap_or(0.0),
        environment: fields.texts(&["environment"]),
        attributes: fields.list(&["attributes"], |value| {
            value
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| format!("is {}; expected a string such as \"key:value\"", kind(value)))
        }),
        force_pull: fields.flag(&["force_pull"]).unwrap_or(true),
        network_mode: fields.text(&["network_mode"]),
        user: fields.text(&["user"]),
        volumes: fields.list(&["volumes"], Mount::read),
        ports: fields.list(&["ports"], JobPort::read),
        labels: fields.texts(&["labels"]),
        container_sock: container_sock(fields, defaults),
        priority: fields.integer(&["priority"]).unwrap_or(0),
        max_wait: fields.number(&["max_wait"], 0.0),
        max_runtime: fields.number(&["max_runtime"], 0.001),
        kill_grace: fields.number(&["kill_grace"], 0.0),
        key: fields.read(&["workflow_key", "airflow_key"], key),
        executor_config,
    }
}

/// Adds the problems of free fields that are too large, and of a job that is too large as a whole.
fn check_size(problems: &mut Problems, spec: &Spec) {
    let attributes: usize = spec.attributes.iter().map(String::len).sum();
    for (path, bytes, max) in [
        (
            "/executor_config",
            spec.executor_config.len(),
            MAX_EXECUTOR_CONFIG_BYTES,
        ),
        ("/attributes", attributes, MAX_ATTRIBUTES_BYTES),
    ] {
        if bytes > max {
            problems.add(path, format!("has {bytes} bytes; expected at most {max}"));
        }
    }
    let bytes = spec.bytes();
    if bytes > MAX_JOB_BYTES {
        problems.add(
            "/",
            format!(
                "the job needs {bytes} bytes of memory; expected at most {MAX_JOB_BYTES}: pass large values as files \
                 or by reference"
            ),
        );
    }
}

fn command(fields: &mut Fields<'_>, defaults: &Settings) -> Command {
    // The operator sends `null` for no command.
    let Some((path, value)) = fields.get(&["command"]) else {
        return Command::Args(Vec::new());
    };
    match value {
        Value::String(line) if line.trim().is_empty() => fields.problems.add(
            path,
            "is an empty string; expected a command, or an empty list for the image's own command",
        ),
        Value::String(line) if has_nul(line) => fields.problems.add(path, NUL),
        Value::String(line) if defaults.command_shell => return Command::Shell(line.clone()),
        Value::String(line) => {
            return Command::Args(vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()]);
        }
        Value::Array(_) => {
            return Command::Args(fields.list(&["command"], scalar));
        }
        other => fields.problems.add(
            path,
            format!(
                "is {}; expected a list of strings, or one string for a shell",
                kind(other)
            ),
        ),
    }
    Command::Args(Vec::new())
}

fn containerizer(fields: &mut Fields<'_>) -> Containerizer {
    let found = fields.read(&["container_type"], |value| {
        match value.as_str().map(str::to_ascii_uppercase).as_deref() {
            Some("CONTAINER" | "DOCKER") => Ok(Containerizer::Docker),
            Some("MESOS") => Ok(Containerizer::Mesos),
            _ => Err(format!("is {value}; expected CONTAINER, DOCKER or MESOS")),
        }
    });
    found.unwrap_or_default()
}

fn container_sock(fields: &mut Fields<'_>, defaults: &Settings) -> bool {
    let requested = fields.flag(&["container_sock", "docker_sock"]).unwrap_or(false);
    if requested && defaults.container_sock.is_none() {
        fields.problems.add(
            "/container_sock",
            "requires the container socket, but container_sock is not configured",
        );
    }
    requested
}

fn request_key(value: &Value) -> Result<Arc<str>, String> {
    value
        .as_str()
        .filter(|text| {
            (1..=MAX_REQUEST_KEY_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
        })
        .map(Arc::from)
        .ok_or_else(|| {
            format!("expected a string of 1 to {MAX_REQUEST_KEY_BYTES} bytes without control characters")
        })
}

fn key(value: &Value) -> Result<Key, String> {
    serde_json::from_value(value.clone()).map_err(|error| {
        format!(
            "cannot be read ({error}); expected an object with dag_id, task_id, run_id, try_number and map_index"
        )
    })
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "bounds_tests.rs"]
mod bounds;
