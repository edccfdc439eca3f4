//! `GET /openapi.json`: the description of the API, generated from the table of calls.

use axum::extract::Request;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::call::{Body, Call};
use super::paths::{KINDS, RESOURCES};
use super::{JSON, is_alias, success};

/// The statuses of errors that the port itself may return for every path.
const PORT_ERRORS: [u16; 3] = [403, 413, 421];

/// Serves the document. Below the path of an instance, that path is the document's server URL.
pub(super) fn get(calls: &[Call], request: &Request) -> Response {
    let mut document = document(calls);
    let path = super::requested_path(request).strip_suffix(request.uri().path());
    if let Some(path) = path.filter(|path| !path.is_empty()) {
        document["servers"] = json!([{"url": path}]);
    }
    success(JSON, document.to_string())
}

/// The document.
fn document(calls: &[Call]) -> Value {
    let mut paths = Map::new();
    for call in calls {
        for path in call.paths() {
            // Several calls may have the same path.
            let item = paths
                .entry(path.clone())
                .or_insert_with(|| json!({"parameters": parameters(&path)}));
            for method in call.methods {
                let method = method.as_str().to_lowercase();
                let operation = operation(call, &path, &method);
                item[method] = operation;
            }
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Transom Kubernetes",
            "version": super::VERSION,
            "description": "Runs a Kubernetes distribution on the cluster. The paths below /api/m3s are those of the program \
                that this service replaces, with its shapes; their errors have no body. Every other error is a JSON document \
                with a message. Unknown paths (404) and methods (405, HEAD included) are answered without credentials. A \
                standby forwards requests to the leader.",
        },
        // Credentials are optional here, because the port may have none.
        "security": [{}, {"basic": []}],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
    })
}

fn operation(call: &Call, path: &str, method: &str) -> Value {
    let alias = is_alias(path);
    let mut responses = Map::new();
    let mut success = json!({"description": call.summary});
    match call.body {
        Body::Json(neutral, theirs) => {
            let schema = if alias { theirs } else { neutral };
            let schema = json!({"$ref": format!("#/components/schemas/{schema}")});
            success["content"] = json!({"application/json": {"schema": schema}});
        }
        Body::Text(content_type) => {
            success["content"] = json!({content_type: {"schema": {"type": "string"}}});
        }
        Body::Number => {
            let schema = json!({"schema": {"type": "integer"}});
            success["content"] = json!({"application/json": schema, "text/plain": schema});
        }
        Body::Empty => {}
    }
    responses.insert(call.success.to_string(), success);
    let credentials: &[u16] = if call.open { &[] } else { &[401] };
    for status in call.errors.iter().chain(credentials).chain(&PORT_ERRORS) {
        let mut error = json!({"description": description(*status)});
        // Errors of the port itself have a body on the alias as well.
        if !alias || PORT_ERRORS.contains(status) {
            let schema = json!({"$ref": "#/components/schemas/Error"});
            error["content"] = json!({"application/json": {"schema": schema}});
        }
        responses.insert(status.to_string(), error);
    }
    let mut operation = json!({
        "operationId": format!("{method} {path}").replace(|c: char| !c.is_ascii_alphanumeric(), "_"),
        "summary": call.summary,
        "responses": responses,
    });
    if call.open {
        operation["security"] = json!([]);
    }
    operation
}

fn description(status: u16) -> &'static str {
    match status {
        401 => "Invalid or missing credentials.",
        403 => {
            "The user may only read, the network is not trusted, or a web page of another site sent the request."
        }
        404 => "The resource does not exist.",
        406 => {
            "A number is not a whole number or is negative, or the current state does not allow the request."
        }
        409 => "Another backup or restore is under way, or the datastore is not healthy.",
        413 => "The body is too large.",
        421 => "The host name of the request is not that of this port.",
        422 => "The count, the amount or the backup does not fit the settings or the datastore.",
        502 => "No leader is known, or it did not answer.",
        507 => "The directory of backups cannot be used.",
        _ => "Not possible now; `Retry-After` says when to try again.",
    }
}

/// The parameters in a path.
fn parameters(path: &str) -> Value {
    let names = path
        .split('/')
        .filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
    let parameters = names.map(|name| {
        let kinds = KINDS.iter().map(|(name, _)| *name);
        let schema = match name {
            "kind" => json!({"enum": kinds.collect::<Vec<_>>()}),
            "scope" => json!({"enum": kinds.chain(["cluster"]).collect::<Vec<_>>()}),
            "resource" => json!({"enum": RESOURCES.map(|(name, ..)| name)}),
            "count" | "amount" => json!({"type": "integer", "minimum": 0}),
            _ => json!({"type": "string"}),
        };
        json!({"name": name, "in": "path", "required": true, "schema": schema})
    });
    parameters.collect()
}

/// The schema of an object that has exactly these properties.
fn object(properties: &Value) -> Value {
    let required: Vec<String> = properties
        .as_object()
        .map(|members| members.keys().cloned().collect())
        .unwrap_or_default();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn schemas() -> Value {
    let (text, count) = (
        json!({"type": "string"}),
        json!({"type": "integer", "minimum": 0}),
    );
    let may_be_text = json!({"type": ["string", "null"]});
    let good = json!({"enum": ["ok", "nok"]});
    let node_state = object(&json!({"Status": text, "K3sNodeName": text}));
    let node_states = json!({"type": "object", "additionalProperties": node_state});
    let node = object(&json!({"NodeName": text, "NodeInfo": {"type": "object"}}));
    let kind = json!({"enum": ["datastore", "server", "agent"]});
    let ports = json!({"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65535}});
    let task = object(&json!({
        "number": count, "id": text, "state": may_be_text, "host": may_be_text, "ports": ports, "node": may_be_text,
    }));
    let tasks = json!({"type": "array", "items": task});
    let last = object(&json!({"at": text, "from": count, "to": count, "reason": text}));
    let autoscale = object(&json!({
        "min": count, "max": count, "unschedulable_pods": count, "idle_agents": count,
        "notes": {"type": "array", "items": text}, "last": {"anyOf": [{"type": "null"}, last]},
    }));
    let backup = object(&json!({
        "name": text, "state": {"enum": ["complete", "running", "failed"]}, "reason": may_be_text,
        "engine": {"enum": ["sql", "kvstore", null]}, "version": may_be_text, "created": may_be_text,
        "size": {"type": ["integer", "null"], "minimum": 0}, "sha256": may_be_text,
    }));
    let operation = object(&json!({
        "kind": {"enum": ["backup", "restore"]}, "backup": text,
        "phase": {"enum": ["dump", "read", "stop", "load", "withdraw", "revert", "resume", "held"]},
        "started": text, "deadline": text, "text": text, "reason": may_be_text,
    }));
    let outcome = object(&json!({"backup": text, "ended": text, "reason": may_be_text}));
    let outcome = json!({"anyOf": [outcome, {"type": "null"}]});
    // While a backup or a restore is under way the object has one more property.
    let mut status = object(&json!({"Server": text, "Agent": text, "API": good, "Kvstore": text}));
    status["properties"]["Operation"] = text.clone();
    json!({
        "Error": {
            "type": "object",
            "properties": {"message": text},
            "required": ["message"],
        },
        "Document": {"type": "object", "required": ["openapi", "info", "paths"]},
        "Texts": {"type": "array", "items": text},
        "Scale": object(&json!({"Scale": count, "Running": count})),
        "Status": status,
        "TaskStates": object(&json!({
            "Server": node_states, "Agent": node_states, "API": text,
            "Datastore": {"type": "object", "additionalProperties": text},
        })),
        "Version": object(&json!({"Version": may_be_text, "Framework": text})),
        "NodeVersions": object(&json!({
            "M3SVersion": object(&json!({"gitVersion": text, "buildDate": text})),
            "K3SVersion": {"type": ["array", "null"], "items": node},
        })),
        "Name": object(&json!({"name": text})),
        "Credentials": object(&json!({
            "engine": {"enum": ["sql", "kvstore"]}, "username": may_be_text, "password": may_be_text,
            "authority": may_be_text, "certificate": may_be_text, "key": may_be_text,
        })),
        "Backup": backup,
        "Backups": object(&json!({
            "backups": {"type": "array", "items": backup},
            "operation": {"anyOf": [operation, {"type": "null"}]},
            "last_backup": outcome, "last_restore": outcome,
        })),
        "Explanation": object(&json!({
            "operation": {"anyOf": [operation, {"type": "null"}]},
            "waiting": {"type": "array", "items": object(&json!({"kind": kind, "reason": text}))},
            "tasks": object(&json!({"datastore": tasks, "server": tasks, "agent": tasks})),
            "autoscale": {"anyOf": [{"type": "null"}, autoscale]},
        })),
    })
}
