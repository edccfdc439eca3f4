//! The schema of the body that [`read`](super::read) reads field by field.

use serde_json::{Value, json};

use super::field_reader::max_length;
use super::input::{MAX_EXECUTOR_CONFIG_BYTES, MAX_JOB_BYTES, MAX_REQUEST_KEY_BYTES};
use crate::ids;

/// The schema of a job.
pub(crate) fn schema() -> Value {
    let (text, flag) = (
        json!({"type": "string"}),
        |default: bool| json!({"type": "boolean", "default": default}),
    );
    let amount = |description: &str| json!({"type": "number", "minimum": 0, "description": description});
    let list =
        |name: &str, items: &Value| json!({"type": "array", "maxItems": max_length(name), "items": items});
    let texts = |name: &str| json!({"type": "object", "maxProperties": max_length(name), "additionalProperties": text});
    let either = |one: &Value, other: &str| json!({"oneOf": [one, {"type": other}]});
    let described = |mut schema: Value, description: &str| {
        schema["description"] = json!(description);
        schema
    };
    let config = format!("At most {MAX_EXECUTOR_CONFIG_BYTES} bytes as compact JSON.");
    let description = format!(
        "Unknown fields are ignored. Fields of `executor_config` are the fallback for missing ones. A job needs at most \
         {} KiB of memory.",
        MAX_JOB_BYTES >> 10
    );
    json!({
        "type": "object",
        "description": description,
        "required": ["command"],
        "properties": {
            "workflow_task_id": {
                "type": "string", "maxLength": ids::MAX_BYTES,
                "description": "The job's id; default: generated. Also `airflow_task_id`.",
            },
            "command": {
                "oneOf": [list("command", &text), text, {"type": "null"}],
                "description": "Arguments, which reach the program unchanged; a string runs in a shell; an empty list or \
                    null is the image's own command.",
            },
            "image": text,
            "container_type": {"type": "string", "enum": ["CONTAINER", "DOCKER", "MESOS"], "default": "CONTAINER"},
            "force_pull": flag(true),
            "cpus": {"type": "number", "minimum": 0},
            "mem_limit": described(
                either(&json!({"type": "number"}), "string"),
                "Megabytes, or a string with `k`, `m` or `g`. Also `memlimit`.",
            ),
            "disk": amount("Megabytes."),
            "gpus": {"type": "number", "minimum": 0},
            "environment": texts("environment"),
            "labels": texts("labels"),
            "attributes": described(
                list("attributes", &text),
                "Constraints on agents: `key:value`, or `A?:B`.",
            ),
            "network_mode": described(text.clone(), "`host`, `bridge`, `none`, or a network's name."),
            "user": text,
            "volumes": list("volumes", &either(&text, "object")),
            "ports": list("ports", &either(&json!({"type": "integer"}), "object")),
            "container_sock": described(flag(false), "Mounts the configured container socket. Also `docker_sock`."),
            "priority": {
                "type": "integer", "format": "int32", "default": 0,
                "description": "Higher priorities are matched first, and equal ones in the order of submission.",
            },
            "max_wait": amount("Maximum seconds pending; then the job fails."),
            "max_runtime": {"type": "number", "minimum": 0.001, "description": "Maximum seconds running."},
            "kill_grace": amount("Seconds between SIGTERM and SIGKILL."),
            "unique": described(
                flag(false),
                "Rejected with 409 while a run of this id is active, unless the request has that run's `request_key`.",
            ),
            "request_key": {
                "type": "string", "minLength": 1, "maxLength": MAX_REQUEST_KEY_BYTES,
                "description": "Identifies this request. If the id's newest run was queued with the same key, the answer \
                    is `Ok` and nothing is queued, also when that run has ended: a request whose response was lost can \
                    be sent again.",
            },
            "workflow_key": {
                "type": "object", "required": ["dag_id", "task_id"],
                "properties": {
                    "dag_id": text, "task_id": text, "run_id": text, "try_number": {"type": "integer"},
                    "map_index": {"type": "integer", "default": -1},
                },
                "description": "Identifies the task in the workflow engine. Also `airflow_key`.",
            },
            "executor_config": {"type": "object", "description": config},
        },
    })
}
