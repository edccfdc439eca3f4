//! An agent's routes, with and without the prefix `/slave(1)`.

use super::{executor_api, files, nested, views};
use crate::{
    http::{
        Answer, Body, Refusal, accepts, authenticate, check_accept, empty, json, not_found, query, queue,
        read_call, refusal, route, shown, streamed, with_type,
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

/// Answers one request to the agent with this address. `first` is the agent's first id.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    addr: SocketAddr,
    first: AgentId,
    request: Request<Incoming>,
) -> Response<Body> {
    let agent = shared.with(|state| state.agent_id_at(addr)).unwrap_or(first);
    let (parts, body) = request.into_parts();
    let path = route(parts.uri.path(), "/slave(1)");
    let query = query(&parts.uri);
    let answer = if path == "/api/v1" {
        call(&shared, &agent, &parts.method, &parts.headers, body).await
    } else if path == "/api/v1/executor" {
        executor_api::call(&shared, &agent, &parts.method, &parts.headers, body).await
    } else if let Some(what) = path.strip_prefix("/files/") {
        match authenticate(&shared, &parts.headers, "mesos-agent-readonly") {
            Ok(_) => file(&shared, &agent, what, &query).await,
            Err(refusal) => Err(refusal),
        }
    } else {
        get(&shared, &agent, path, &parts.headers, &query)
    };
    answer.unwrap_or_else(Refusal::into_response)
}

/// Reads from the agent's state. An agent that was marked gone is an error.
fn look<R>(
    shared: &Arc<Shared>,
    agent: &AgentId,
    view: impl FnOnce(&State, &Agent) -> R,
) -> Result<R, Refusal> {
    let seen = shared.with(|state| {
        let state: &State = state;
        state.agent(agent).map(|agent| view(state, agent))
    });
    seen.ok_or_else(|| refusal(StatusCode::SERVICE_UNAVAILABLE, "Agent has been marked gone"))
}

fn get(
    shared: &Arc<Shared>,
    agent: &AgentId,
    path: &str,
    headers: &HeaderMap,
    query: &BTreeMap<String, String>,
) -> Answer {
    match path {
        "/health" => return Ok(empty(StatusCode::OK)),
        "/version" => return Ok(shown(&state_views::version(), query)),
        _ => {}
    }
    authenticate(shared, headers, "mesos-agent-readonly")?;
    let document = look(shared, agent, |state, agent| match path {
        "/state" => Some(views::state(state, agent)),
        "/containers" => Some(views::containers(state, agent, true)),
        "/monitor/statistics" => Some(views::containers(state, agent, false)),
        "/flags" => Some(document!({"flags": flags::agent(state, agent)})),
        "/metrics/snapshot" => Some(views::metrics(state, agent)),
        _ => None,
    })?;
    document
        .map(|document| shown(&document, query))
        .ok_or_else(not_found)
}

/// The path from a query, if it is inside the sandboxes.
async fn sandbox_path(shared: &Arc<Shared>, agent: &AgentId, path: &str) -> Result<PathBuf, files::Failure> {
    let found = look(shared, agent, |state, agent| {
        (agent.work_dir.clone(), files::virtual_paths(state, &agent.id))
    });
    let Ok((work_dir, names)) = found else {
        return Err(files::Failure::NotFound);
    };
    files::resolve(&work_dir, &files::real_path(&names, path)).await
}

/// `/files/…`.
async fn file(shared: &Arc<Shared>, agent: &AgentId, what: &str, query: &BTreeMap<String, String>) -> Answer {
    if what == "debug" {
        let names = look(shared, agent, |state, agent| {
            files::virtual_paths(state, &agent.id)
        })?;
        let names = names
            .into_iter()
            .map(|(name, path)| (name, document!(path.display().to_string())))
            .collect();
        return Ok(shown(&Value::Object(names), query));
    }
    if !["browse", "read", "download"].contains(&what) {
        return Err(not_found());
    }
    let Some(path) = query.get("path") else {
        return Err(refusal(
            StatusCode::BAD_REQUEST,
            "Expecting 'path=value' in query.\n",
        ));
    };
    let refuse = |failure| match failure {
        files::Failure::NotFound if what == "download" => not_found(),
        files::Failure::NotFound => refusal(StatusCode::NOT_FOUND, ""),
        files::Failure::Bad(why) => refusal(StatusCode::BAD_REQUEST, why + ".\n"),
    };
    let path = sandbox_path(shared, agent, path).await.map_err(refuse)?;
    match what {
        "browse" => {
            let entries = files::list(&path).await.map_err(refuse)?;
            Ok(shown(
                &entries
                    .iter()
                    .map(|(path, metadata)| files::browsed(path, metadata))
                    .collect(),
                query,
            ))
        }
        "read" => read_file(&path, query).await.map_err(refuse),
        _ => {
            let data = files::download(&path).await.map_err(refuse)?;
            let mut response = with_type(StatusCode::OK, "application/octet-stream", data);
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
) -> Result<Response<Body>, files::Failure> {
    let number = |key: &str| match query.get(key).map(|text| (text, text.parse::<i64>())) {
        None => Ok(None),
        Some((_, Ok(number))) => Ok(Some(number)),
        Some((text, Err(_))) => Err(files::Failure::Bad(format!(
            "Failed to parse {key}: '{text}' is not a number"
        ))),
    };
    let (offset, length) = (number("offset")?.unwrap_or(-1), number("length")?);
    let wanted = length.and_then(|length| u64::try_from(length).ok());
    let answer = match u64::try_from(offset) {
        Err(_) => {
            let (_, size) = files::read(path, u64::MAX, Some(0)).await?;
            document!({"data": "", "offset": size})
        }
        Ok(offset) => {
            let (data, _) = files::read(path, offset, wanted).await?;
            document!({"data": String::from_utf8_lossy(&data), "offset": offset})
        }
    };
    Ok(shown(&answer, query))
}

/// `POST /api/v1`.
async fn call(
    shared: &Arc<Shared>,
    agent: &AgentId,
    method: &Method,
    headers: &HeaderMap,
    body: Incoming,
) -> Answer {
    authenticate(shared, headers, "mesos-agent-readwrite")?;
    let call = read_call(&messages::AGENT_CALL, method, headers, body).await?;
    let bad = |why: &str| {
        refusal(
            StatusCode::BAD_REQUEST,
            format!("Failed to validate agent::Call: {why}"),
        )
    };
    let kind = doc::text(&call, &["type"]).ok_or_else(|| bad("Expecting 'type' to be present"))?;
    if kind == "LAUNCH_NESTED_CONTAINER_SESSION" {
        return session(shared, headers, &call);
    }
    check_accept(headers)?;
    if let Some(answer) = look(shared, agent, |state, agent| views::get_call(state, agent, kind))? {
        return Ok(json(&answer));
    }
    let part = kind.to_ascii_lowercase();
    let arguments = call
        .get(&part)
        .ok_or_else(|| bad(&format!("Expecting '{part}' to be present")))?;
    match kind {
        "LIST_FILES" | "READ_FILE" => file_call(shared, agent, kind, arguments).await,
        _ => container_call(shared, kind, arguments).await,
    }
}

async fn file_call(shared: &Arc<Shared>, agent: &AgentId, kind: &str, arguments: &Value) -> Answer {
    let refuse = |failure| match failure {
        files::Failure::NotFound => refusal(StatusCode::NOT_FOUND, ""),
        files::Failure::Bad(why) => refusal(StatusCode::BAD_REQUEST, why),
    };
    let path = doc::text(arguments, &["path"]).unwrap_or_default();
    let path = sandbox_path(shared, agent, path).await.map_err(refuse)?;
    if kind == "LIST_FILES" {
        let entries = files::list(&path).await.map_err(refuse)?;
        let infos: Vec<Value> = entries
            .iter()
            .map(|(path, metadata)| files::listed(path, metadata))
            .collect();
        return Ok(json(
            &document!({"type": kind, "list_files": {"file_infos": infos}}),
        ));
    }
    let offset = arguments["offset"].as_u64().unwrap_or(0);
    let (data, size) = files::read(&path, offset, arguments["length"].as_u64())
        .await
        .map_err(refuse)?;
    let data = base64::engine::general_purpose::STANDARD.encode(data);
    Ok(json(
        &document!({"type": kind, "read_file": {"size": size, "data": data}}),
    ))
}

fn refuse_container(failure: nested::Failure) -> Refusal {
    match failure {
        nested::Failure::Unknown(why) => refusal(StatusCode::NOT_FOUND, why),
        nested::Failure::Bad(why) => refusal(StatusCode::BAD_REQUEST, why),
        nested::Failure::Failed(why) => refusal(StatusCode::INTERNAL_SERVER_ERROR, why),
    }
}

/// `LAUNCH_NESTED_CONTAINER_SESSION`: the records are JSON; the type of the stream depends on
/// `Accept`.
fn session(shared: &Arc<Shared>, headers: &HeaderMap, call: &Value) -> Answer {
    let kind = if accepts(headers, "application/json") {
        "application/json"
    } else if accepts(headers, "application/recordio") {
        "application/recordio"
    } else {
        return Err(refusal(
            StatusCode::NOT_ACCEPTABLE,
            "Expecting 'Accept' to allow application/json or application/x-protobuf or application/recordio",
        ));
    };
    let arguments = &call["launch_nested_container_session"];
    if arguments.is_null() {
        let why = "Failed to validate agent::Call: Expecting 'launch_nested_container_session' to be present";
        return Err(refusal(StatusCode::BAD_REQUEST, why));
    }
    let records = shared
        .sessions
        .session(&arguments["container_id"], &arguments["command"])
        .map_err(refuse_container)?;
    let mut response = streamed(kind, queue(records, || ()).map(Ok), shared);
    if kind == "application/recordio" {
        response.headers_mut().insert(
            "message-content-type",
            HeaderValue::from_static("application/json"),
        );
    }
    Ok(response)
}

/// The other calls for nested containers, under their old and new names.
async fn container_call(shared: &Arc<Shared>, kind: &str, arguments: &Value) -> Answer {
    let containers = &shared.sessions;
    let id = &arguments["container_id"];
    let done = match kind {
        "LAUNCH_NESTED_CONTAINER" | "LAUNCH_CONTAINER" => containers.launch(id, &arguments["command"]),
        "KILL_NESTED_CONTAINER" | "KILL_CONTAINER" => containers.kill(id, arguments["signal"].as_i64()),
        "REMOVE_NESTED_CONTAINER" | "REMOVE_CONTAINER" => containers.remove(id),
        _ => {
            let waited = shared.token.run_until_cancelled(containers.wait(id)).await;
            let Some(status) = waited else {
                return Err(refusal(StatusCode::SERVICE_UNAVAILABLE, "The cluster stops"));
            };
            let status = status.map_err(refuse_container)?;
            let mut answer = doc::object(document!({ "type": kind }));
            answer.insert(kind.to_ascii_lowercase(), document!({ "exit_status": status }));
            return Ok(json(&Value::Object(answer)));
        }
    };
    done.map(|()| empty(StatusCode::OK)).map_err(refuse_container)
}
