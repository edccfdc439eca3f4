//! An agent's routes, with and without the prefix `/slave(1)`.

use super::{executor_api, files, nested, views};
use crate::{
    http::{
        Body, HttpResult, Rejection, accepts, authenticate, check_accept, empty, json, json_or_jsonp,
        not_found, query, queue_stream, read_call, rejection, route, stream_response, with_content_type,
    },
    master::{flags, state_views},
    shared::Shared,
    state::{Agent, AgentId, State},
    wire::{json as doc, messages},
};
use base64::Engine;
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use serde_json::{Value, json as document};
use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, sync::Arc};

/// Answers one request to the agent with this address. `first_id` is the agent's first id.
pub(crate) async fn handle(
    shared: Arc<Shared>,
    addr: SocketAddr,
    first_id: AgentId,
    request: Request<Incoming>,
) -> Response<Body> {
    let agent = shared
        .with_state(|state| state.agent_id_at(addr))
        .unwrap_or(first_id);
    let (parts, body) = request.into_parts();
    let path = route(parts.uri.path(), "/slave(1)");
    let query = query(&shared.config, &parts.uri);
    let response = if path == "/api/v1" {
        call(&shared, &agent, &parts.method, &parts.headers, body).await
    } else if path == "/api/v1/executor" {
        executor_api::call(&shared, &agent, &parts.method, &parts.headers, body).await
    } else if let Some(action) = path.strip_prefix("/files/") {
        match authenticate(&shared.config, &parts.headers, "mesos-agent-readonly") {
            Ok(_) => files_route(&shared, &agent, action, &query).await,
            Err(rejection) => Err(rejection),
        }
    } else {
        get(&shared, &agent, path, &parts.headers, &query)
    };
    response.unwrap_or_else(Rejection::into_response)
}

/// Reads from the agent's state. An agent that was marked gone is an error.
fn read_agent<R>(
    shared: &Arc<Shared>,
    agent: &AgentId,
    view: impl FnOnce(&State, &Agent) -> R,
) -> Result<R, Rejection> {
    let viewed = shared.with_state(|state| {
        let state: &State = state;
        state.agent(agent).map(|agent| view(state, agent))
    });
    viewed.ok_or_else(|| rejection(StatusCode::SERVICE_UNAVAILABLE, "Agent has been marked gone"))
}

fn get(
    shared: &Arc<Shared>,
    agent: &AgentId,
    path: &str,
    headers: &HeaderMap,
    query: &BTreeMap<String, String>,
) -> HttpResult {
    match path {
        "/health" => return Ok(empty(StatusCode::OK)),
        "/version" => return Ok(json_or_jsonp(&state_views::version(), query)),
        _ => {}
    }
    authenticate(&shared.config, headers, "mesos-agent-readonly")?;
    let document = read_agent(shared, agent, |state, agent| match path {
        "/state" => Some(views::state(state, agent)),
        "/containers" => Some(views::containers(state, agent, true)),
        "/monitor/statistics" => Some(views::containers(state, agent, false)),
        "/flags" => Some(document!({"flags": flags::agent(state, agent)})),
        "/metrics/snapshot" => Some(views::metrics(state, agent)),
        _ => None,
    })?;
    document
        .map(|document| json_or_jsonp(&document, query))
        .ok_or_else(not_found)
}

/// The path from a query, if it is inside the sandboxes.
async fn sandbox_path(
    shared: &Arc<Shared>,
    agent: &AgentId,
    path: &str,
) -> Result<PathBuf, files::FileError> {
    let found = read_agent(shared, agent, |state, agent| {
        (agent.work_dir.clone(), files::virtual_paths(state, &agent.id))
    });
    let Ok((work_dir, names)) = found else {
        return Err(files::FileError::NotFound);
    };
    files::resolve(&work_dir, &files::real_path(&names, path)).await
}

/// `/files/…`.
async fn files_route(
    shared: &Arc<Shared>,
    agent: &AgentId,
    action: &str,
    query: &BTreeMap<String, String>,
) -> HttpResult {
    if action == "debug" {
        let names = read_agent(shared, agent, |state, agent| {
            files::virtual_paths(state, &agent.id)
        })?;
        let names = names
            .into_iter()
            .map(|(name, path)| (name, document!(path.display().to_string())))
            .collect();
        return Ok(json_or_jsonp(&Value::Object(names), query));
    }
    if !["browse", "read", "download"].contains(&action) {
        return Err(not_found());
    }
    let Some(path) = query.get("path") else {
        return Err(rejection(
            StatusCode::BAD_REQUEST,
            "Expecting 'path=value' in query.\n",
        ));
    };
    let to_rejection = |failure| match failure {
        files::FileError::NotFound if action == "download" => not_found(),
        files::FileError::NotFound => rejection(StatusCode::NOT_FOUND, ""),
        files::FileError::BadRequest(why) => rejection(StatusCode::BAD_REQUEST, why + ".\n"),
    };
    let path = sandbox_path(shared, agent, path).await.map_err(to_rejection)?;
    match action {
        "browse" => {
            let entries = files::list(&path).await.map_err(to_rejection)?;
            Ok(json_or_jsonp(
                &entries
                    .iter()
                    .map(|(path, metadata)| files::browse_entry(path, metadata))
                    .collect(),
                query,
            ))
        }
        "read" => read_file(&path, query).await.map_err(to_rejection),
        _ => {
            let data = files::download(&path).await.map_err(to_rejection)?;
            let mut response = with_content_type(StatusCode::OK, "application/octet-stream", data);
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if let Ok(disposition) = HeaderValue::from_str(&format!("attachment; filename={name}")) {
                response
                    .headers_mut()
                    .insert(header::CONTENT_DISPOSITION, disposition);
            }
            Ok(response)
        }
    }
}

/// `/files/read`: an offset of -1 requests only the size.
async fn read_file(
    path: &std::path::Path,
    query: &BTreeMap<String, String>,
) -> Result<Response<Body>, files::FileError> {
    let number = |key: &str| match query.get(key).map(|text| (text, text.parse::<i64>())) {
        None => Ok(None),
        Some((_, Ok(number))) => Ok(Some(number)),
        Some((text, Err(_))) => Err(files::FileError::BadRequest(format!(
            "Failed to parse {key}: '{text}' is not a number"
        ))),
    };
    let (offset, length) = (number("offset")?.unwrap_or(-1), number("length")?);
    let max_length = length.and_then(|length| u64::try_from(length).ok());
    let response = match u64::try_from(offset) {
        Err(_) => {
            let (_, size) = files::read(path, u64::MAX, Some(0)).await?;
            document!({"data": "", "offset": size})
        }
        Ok(offset) => {
            let (data, _) = files::read(path, offset, max_length).await?;
            document!({"data": String::from_utf8_lossy(&data), "offset": offset})
        }
    };
    Ok(json_or_jsonp(&response, query))
}

/// `POST /api/v1`.
async fn call(
    shared: &Arc<Shared>,
    agent: &AgentId,
    method: &Method,
    headers: &HeaderMap,
    body: Incoming,
) -> HttpResult {
    authenticate(&shared.config, headers, "mesos-agent-readwrite")?;
    let call = read_call(&messages::AGENT_CALL, method, headers, body).await?;
    let bad_request = |why: &str| {
        rejection(
            StatusCode::BAD_REQUEST,
            format!("Failed to validate agent::Call: {why}"),
        )
    };
    let kind = doc::text(&call, &["type"]).ok_or_else(|| bad_request("Expecting 'type' to be present"))?;
    if kind == "LAUNCH_NESTED_CONTAINER_SESSION" {
        return session(shared, headers, &call);
    }
    check_accept(headers)?;
    if let Some(document) = read_agent(shared, agent, |state, agent| views::get_call(state, agent, kind))? {
        return Ok(json(&document));
    }
    let field = kind.to_ascii_lowercase();
    let arguments = call
        .get(&field)
        .ok_or_else(|| bad_request(&format!("Expecting '{field}' to be present")))?;
    match kind {
        "LIST_FILES" | "READ_FILE" => file_call(shared, agent, kind, arguments).await,
        _ => container_call(shared, kind, arguments).await,
    }
}

async fn file_call(shared: &Arc<Shared>, agent: &AgentId, kind: &str, arguments: &Value) -> HttpResult {
    let to_rejection = |failure| match failure {
        files::FileError::NotFound => rejection(StatusCode::NOT_FOUND, ""),
        files::FileError::BadRequest(why) => rejection(StatusCode::BAD_REQUEST, why),
    };
    let path = doc::text(arguments, &["path"]).unwrap_or_default();
    let path = sandbox_path(shared, agent, path).await.map_err(to_rejection)?;
    if kind == "LIST_FILES" {
        let entries = files::list(&path).await.map_err(to_rejection)?;
        let infos: Vec<Value> = entries
            .iter()
            .map(|(path, metadata)| files::file_info(path, metadata))
            .collect();
        return Ok(json(
            &document!({"type": kind, "list_files": {"file_infos": infos}}),
        ));
    }
    let offset = arguments["offset"].as_u64().unwrap_or(0);
    let (data, size) = files::read(&path, offset, arguments["length"].as_u64())
        .await
        .map_err(to_rejection)?;
    let data = base64::engine::general_purpose::STANDARD.encode(data);
    Ok(json(
        &document!({"type": kind, "read_file": {"size": size, "data": data}}),
    ))
}

fn nested_rejection(failure: nested::NestedError) -> Rejection {
    match failure {
        nested::NestedError::NotFound(why) => rejection(StatusCode::NOT_FOUND, why),
        nested::NestedError::BadRequest(why) => rejection(StatusCode::BAD_REQUEST, why),
        nested::NestedError::Internal(why) => rejection(StatusCode::INTERNAL_SERVER_ERROR, why),
    }
}

/// `LAUNCH_NESTED_CONTAINER_SESSION`: the records are JSON; the type of the stream depends on
/// `Accept`.
fn session(shared: &Arc<Shared>, headers: &HeaderMap, call: &Value) -> HttpResult {
    let kind = if accepts(headers, "application/json") {
        "application/json"
    } else if accepts(headers, "application/recordio") {
        "application/recordio"
    } else {
        return Err(rejection(
            StatusCode::NOT_ACCEPTABLE,
            "Expecting 'Accept' to allow application/json or application/x-protobuf or application/recordio",
        ));
    };
    let arguments = &call["launch_nested_container_session"];
    if arguments.is_null() {
        let why = "Failed to validate agent::Call: Expecting 'launch_nested_container_session' to be present";
        return Err(rejection(StatusCode::BAD_REQUEST, why));
    }
    let records = shared
        .nested_containers
        .session(&arguments["container_id"], &arguments["command"])
        .map_err(nested_rejection)?;
    let mut response = stream_response(kind, queue_stream(records, || ()).map(Ok), shared);
    if kind == "application/recordio" {
        response.headers_mut().insert(
            "message-content-type",
            HeaderValue::from_static("application/json"),
        );
    }
    Ok(response)
}

/// The other calls for nested containers, under their old and new names.
async fn container_call(shared: &Arc<Shared>, kind: &str, arguments: &Value) -> HttpResult {
    let containers = &shared.nested_containers;
    let id = &arguments["container_id"];
    let outcome = match kind {
        "LAUNCH_NESTED_CONTAINER" | "LAUNCH_CONTAINER" => containers.launch(id, &arguments["command"]),
        "KILL_NESTED_CONTAINER" | "KILL_CONTAINER" => containers.kill(id, arguments["signal"].as_i64()),
        "REMOVE_NESTED_CONTAINER" | "REMOVE_CONTAINER" => containers.remove(id),
        _ => {
            let exit = shared.token.run_until_cancelled(containers.wait(id)).await;
            let Some(status) = exit else {
                return Err(rejection(StatusCode::SERVICE_UNAVAILABLE, "The cluster stops"));
            };
            let status = status.map_err(nested_rejection)?;
            let mut response = doc::object(document!({ "type": kind }));
            response.insert(kind.to_ascii_lowercase(), document!({ "exit_status": status }));
            return Ok(json(&Value::Object(response)));
        }
    };
    outcome.map(|()| empty(StatusCode::OK)).map_err(nested_rejection)
}
