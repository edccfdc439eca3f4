//! The master's routes, all of them with and without the prefix `/master`.

use super::{faults, flags, maintenance, metrics, state_views};
use crate::{
    http::{
        Body, HttpResult, Rejection, authenticate, check_accept, check_plain_type, empty, form, json,
        json_or_jsonp, not_allowed, not_found, query, queue_stream, read_body, read_call, rejection, reply,
        route, stream_response, text,
    },
    shared::Shared,
    state::{AgentId, FrameworkId, Reply, State, operator_views, validate_scheduler_call, visibility},
    wire::{json as doc, messages},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use serde_json::{Map, Value, json as document};
use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Instant};

static STREAM_ID: HeaderName = HeaderName::from_static("mesos-stream-id");

/// Answers one request.
pub(crate) async fn handle(
    shared: Arc<Shared>,
    own_addr: SocketAddr,
    request: Request<Incoming>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let path = route(parts.uri.path(), "/master");
    if path == "/minicluster/faults" {
        let response = faults::handle(&shared, &parts.method, &parts.headers, body).await;
        return response.unwrap_or_else(Rejection::into_response);
    }
    if shared.with_state(|state| state.is_starting(own_addr, Instant::now())) {
        return not_found().into_response();
    }
    if let Some(response) = redirect_or_unavailable(&shared, own_addr, path, parts.uri.query()) {
        return response;
    }
    let response = match path {
        "/api/v1/scheduler" => scheduler(&shared, &parts.method, &parts.headers, body).await,
        "/api/v1" => operator(&shared, &parts.method, &parts.headers, body).await,
        "/teardown" => teardown(&shared, &parts.method, &parts.headers, body).await,
        "/maintenance/schedule" => {
            maintenance::schedule(
                &shared,
                &parts.method,
                &parts.headers,
                &query(&shared, &parts.uri),
                body,
            )
            .await
        }
        "/maintenance/status" => maintenance::status(
            &shared,
            &parts.method,
            &parts.headers,
            &query(&shared, &parts.uri),
        ),
        "/machine/down" | "/machine/up" => {
            maintenance::machines(&shared, path, &parts.method, &parts.headers, body).await
        }
        _ => get(
            &shared,
            own_addr,
            path,
            &parts.headers,
            &query(&shared, &parts.uri),
        ),
    };
    response.unwrap_or_else(Rejection::into_response)
}

/// Paths that a master answers itself even if it does not lead.
const LOCAL_PATHS: &[&str] = &[
    "/",
    "/health",
    "/version",
    "/flags",
    "/metrics/snapshot",
    "/redirect",
];

/// The response if this master does not lead (a redirect) or still recovers; `None` if it can
/// answer itself.
fn redirect_or_unavailable(
    shared: &Arc<Shared>,
    own_addr: SocketAddr,
    path: &str,
    query: Option<&str>,
) -> Option<Response<Body>> {
    let (leader, hostname, recovering, no_leader) = shared.with_state(|state| {
        let now = Instant::now();
        // Not only with the next tick, so that every request sees one phase of a restart.
        state.recover(now);
        let no_leader = state.has_no_leader(now);
        let master = &state.master;
        (
            master.addr,
            master.hostname.clone(),
            state.is_recovering(),
            no_leader,
        )
    });
    let unavailable = |why: &str| Some(text(StatusCode::SERVICE_UNAVAILABLE, why));
    if no_leader && (path == "/redirect" || !LOCAL_PATHS.contains(&path)) {
        return unavailable("No leader elected");
    }
    if leader == own_addr {
        let rejected = recovering && path.starts_with("/api/v1");
        return rejected
            .then(|| unavailable("Master has not finished recovery"))
            .flatten();
    }
    if LOCAL_PATHS.contains(&path) {
        return None;
    }
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    let location = format!("//{hostname}:{}/master{path}{query}", leader.port());
    Some(redirect(&location))
}

/// `POST /api/v1/scheduler`.
async fn scheduler(shared: &Arc<Shared>, method: &Method, headers: &HeaderMap, body: Incoming) -> HttpResult {
    let principal = authenticate(shared, headers, "mesos-master-scheduler")?;
    let call = read_call(&messages::SCHEDULER_CALL, method, headers, body).await?;
    let bad_request = |why: String| rejection(StatusCode::BAD_REQUEST, why);
    validate_scheduler_call(&call, principal.as_deref()).map_err(bad_request)?;
    let stream_id = headers
        .get(&STREAM_ID)
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    if doc::text(&call, &["type"]) == Some("SUBSCRIBE") {
        check_accept(headers)?;
        if stream_id.is_some() {
            return Err(bad_request(
                "Subscribe calls should not include the 'Mesos-Stream-Id' header".to_owned(),
            ));
        }
        return Ok(subscribe(shared, &call));
    }
    let response = shared.with_state(|state| {
        state.scheduler_call(&call, stream_id.as_deref(), principal.as_deref(), Instant::now())
    });
    Ok(reply(&response))
}

fn subscribe(shared: &Arc<Shared>, call: &Value) -> Response<Body> {
    let subscribed = shared.with_state(|state| state.subscribe(call, Instant::now()));
    let (owner, stream_id) = (Arc::clone(shared), subscribed.stream_id.clone());
    let framework = subscribed.framework;
    let chunks = queue_stream(subscribed.events, move || {
        if let Some(id) = framework {
            owner.with_state(|state| state.stream_closed(&id, &stream_id, Instant::now()));
        }
    });
    let mut response = stream_response("application/json", chunks, shared);
    if let Ok(id) = HeaderValue::from_str(&subscribed.stream_id) {
        response.headers_mut().insert(STREAM_ID.clone(), id);
    }
    response
}

/// `POST /api/v1`.
async fn operator(shared: &Arc<Shared>, method: &Method, headers: &HeaderMap, body: Incoming) -> HttpResult {
    let principal = authenticate(shared, headers, "mesos-master-readwrite")?;
    let sees_tasks = visibility::sees_tasks(&shared.config, principal.as_deref());
    let call = read_call(&messages::MASTER_CALL, method, headers, body).await?;
    let bad_request = |why: &str| {
        rejection(
            StatusCode::BAD_REQUEST,
            format!("Failed to validate master::Call: {why}"),
        )
    };
    let kind = doc::text(&call, &["type"]).ok_or_else(|| bad_request("Expecting 'type' to be present"))?;
    check_accept(headers)?;
    if kind == "SUBSCRIBE" {
        let events = shared.with_state(|state| state.subscribe_operator(sees_tasks, Instant::now()));
        return Ok(stream_response(
            "application/json",
            queue_stream(events, || ()),
            shared,
        ));
    }
    if let Some(response) = change_state(shared, kind, &call) {
        return Ok(reply(&response));
    }
    let mut document = shared.with_state(|state| get_call(state, kind));
    if !sees_tasks {
        visibility::hide_tasks(&mut document);
    }
    Ok(json(&document))
}

/// Operator calls that change the cluster.
fn change_state(shared: &Arc<Shared>, kind: &str, call: &Value) -> Option<Reply> {
    let field = kind.to_ascii_lowercase();
    let change_calls = [
        "DRAIN_AGENT",
        "DEACTIVATE_AGENT",
        "REACTIVATE_AGENT",
        "MARK_AGENT_GONE",
        "UPDATE_MAINTENANCE_SCHEDULE",
        "START_MAINTENANCE",
        "STOP_MAINTENANCE",
        "TEARDOWN",
    ];
    if !change_calls.contains(&kind) {
        return None;
    }
    let Some(arguments) = call.get(&field) else {
        return Some(Reply::bad_request(format!(
            "Failed to validate master::Call: Expecting '{field}' to be present"
        )));
    };
    let agent = AgentId::from(doc::text(arguments, &["agent_id", "value"]).unwrap_or_default());
    Some(shared.with_state(|state| match kind {
        "DRAIN_AGENT" => state.drain(&agent, arguments),
        "DEACTIVATE_AGENT" => state.set_deactivated(&agent, true, Instant::now()),
        "REACTIVATE_AGENT" => state.set_deactivated(&agent, false, Instant::now()),
        "MARK_AGENT_GONE" => state.mark_gone(&agent),
        "UPDATE_MAINTENANCE_SCHEDULE" => state.update_schedule(&arguments["schedule"], Instant::now()),
        "START_MAINTENANCE" => state.start_maintenance(doc::list(arguments, &["machines"])),
        "STOP_MAINTENANCE" => state.stop_maintenance(doc::list(arguments, &["machines"]), Instant::now()),
        _ => remove_framework(
            state,
            doc::text(arguments, &["framework_id", "value"]).unwrap_or_default(),
        ),
    }))
}

fn remove_framework(state: &mut State, id: &str) -> Reply {
    let id = FrameworkId::from(id);
    if !state.frameworks.contains_key(&id) {
        return Reply::bad_request("No framework found with specified ID");
    }
    state.remove_framework(&id);
    Reply::ok()
}

/// Operator calls that only read. The response's field is named like the call.
fn get_call(state: &State, kind: &str) -> Value {
    let body = match kind {
        "GET_HEALTH" => document!({"healthy": true}),
        "GET_FLAGS" => flags::to_list(&flags::master(state)),
        "GET_VERSION" => document!({"version_info": state_views::version()}),
        "GET_METRICS" => metrics::to_list(&metrics::master(state, true)),
        "GET_LOGGING_LEVEL" => document!({"level": 0}),
        "GET_STATE" => operator_views::state(state),
        "GET_AGENTS" => operator_views::agents(state),
        "GET_FRAMEWORKS" => operator_views::frameworks(state),
        "GET_EXECUTORS" => operator_views::executors(state),
        "GET_TASKS" => operator_views::tasks(state),
        "GET_ROLES" => operator_views::roles(state),
        "GET_MASTER" => document!({
            "master_info": state.master_info(), "start_time": state.master.started, "elected_time": state.master.started,
        }),
        "GET_MAINTENANCE_STATUS" => document!({"status": state.maintenance_status()}),
        "GET_MAINTENANCE_SCHEDULE" => document!({"schedule": state.maintenance.schedule()}),
        "GET_QUOTA" => document!({"status": {}}),
        // No operation is ever pending, and no weight is ever set.
        "GET_OPERATIONS" => document!({}),
        _ => return document!({"type": kind}),
    };
    let mut response = Map::new();
    response.insert("type".to_owned(), document!(kind));
    response.insert(kind.to_ascii_lowercase(), body);
    Value::Object(response)
}

/// `POST /teardown`, a form with `frameworkId`. Pages of other sites can post forms too; their origin
/// gives them away.
async fn teardown(shared: &Arc<Shared>, method: &Method, headers: &HeaderMap, body: Incoming) -> HttpResult {
    authenticate(shared, headers, "mesos-master-readwrite")?;
    if method != Method::POST {
        return Err(not_allowed(method, &["POST"]));
    }
    check_plain_type(headers, "application/x-www-form-urlencoded")?;
    let body = read_body(body).await?;
    let form = form(&String::from_utf8_lossy(&body));
    let Some(id) = form.get("frameworkId") else {
        return Err(rejection(
            StatusCode::BAD_REQUEST,
            "Missing 'frameworkId' query parameter in the request body",
        ));
    };
    Ok(reply(&shared.with_state(|state| remove_framework(state, id))))
}

/// The other documents. As with a real master, any method returns them.
fn get(
    shared: &Arc<Shared>,
    own_addr: SocketAddr,
    path: &str,
    headers: &HeaderMap,
    query: &BTreeMap<String, String>,
) -> HttpResult {
    match path {
        "/health" => return Ok(empty(StatusCode::OK)),
        "/version" => return Ok(json_or_jsonp(&state_views::version(), query)),
        "/redirect" => {
            let master = shared.with_state(|state| state.master.clone());
            return Ok(redirect(&format!("//{}:{}", master.hostname, master.addr.port())));
        }
        _ => {}
    }
    let principal = authenticate(shared, headers, "mesos-master-readonly")?;
    let document = shared.with_state(|state| match path {
        "/state" => Some(state_views::state(state)),
        "/state-summary" => Some(state_views::summary(state)),
        "/slaves" => Some(state_views::slaves(
            state,
            query.get("slave_id").map(String::as_str),
        )),
        "/frameworks" => Some(Value::Object(state_views::frameworks(state))),
        "/tasks" => Some(state_views::tasks(state, query)),
        "/roles" => Some(state_views::roles(state)),
        "/flags" => Some(document!({"flags": flags::master(state)})),
        "/metrics/snapshot" => Some(metrics::master(state, own_addr == state.master.addr)),
        "/quota" => Some(document!({})),
        "/weights" => Some(document!([])),
        _ => None,
    });
    let mut document = document.ok_or_else(not_found)?;
    let shows_tasks = ["/state", "/frameworks", "/tasks", "/state-summary"].contains(&path);
    if shows_tasks && !visibility::sees_tasks(&shared.config, principal.as_deref()) {
        visibility::hide_tasks(&mut document);
    }
    Ok(json_or_jsonp(&document, query))
}

/// A redirect to the leading master. Its location has no scheme.
fn redirect(location: &str) -> Response<Body> {
    let mut response = empty(StatusCode::TEMPORARY_REDIRECT);
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}
