//! The master's routes, all of them with and without the prefix `/master`.

use super::{faults, flags, maintenance, metrics, state_views};
use crate::{
    http::{
        Body, HttpResult, Rejection, authenticate, check_accept, check_plain_type, check_post, empty, form,
        json_or_jsonp, not_found, parse_call, query, queue_stream, read_body, read_call, rejection, reply,
        route, stream_response, text,
    },
    shared::Shared,
    state::{
        AgentId, FrameworkId, Reply, State, Subscribed, operator_views, validate_scheduler_call, visibility,
    },
    wire::{json as doc, messages, recordio::Event, schema},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts,
};
use hyper::body::Incoming;
use serde_json::{Map, Value, json as document};
use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Instant};
use tokio::sync::mpsc;

static STREAM_ID: HeaderName = HeaderName::from_static("mesos-stream-id");

/// The answer of the state to a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Complete(Response<Body>),
    Document(Value),
    /// The stream of a framework.
    Framework(Subscribed),
    /// The stream of an operator. It has ended when its receiver is dropped.
    Operator(mpsc::Receiver<Event>),
}

/// An API with calls.
#[derive(Clone, Copy, Debug)]
enum Api {
    Scheduler,
    Operator,
}

impl Api {
    fn at(path: &str) -> Option<Self> {
        match path {
            "/api/v1/scheduler" => Some(Self::Scheduler),
            "/api/v1" => Some(Self::Operator),
            _ => None,
        }
    }

    /// The realm of its credentials, and its calls.
    fn parts(self) -> (&'static str, &'static schema::Message) {
        match self {
            Self::Scheduler => ("mesos-master-scheduler", &messages::SCHEDULER_CALL),
            Self::Operator => ("mesos-master-readwrite", &messages::MASTER_CALL),
        }
    }

    fn answer(
        self,
        state: &mut State,
        headers: &HeaderMap,
        call: &Value,
        principal: Option<&str>,
        now: Instant,
    ) -> Result<Answer, Rejection> {
        match self {
            Self::Scheduler => scheduler(state, headers, call, principal, now),
            Self::Operator => operator(state, headers, call, principal, now),
        }
    }
}

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
    let query_text = parts.uri.query();
    let refusal = shared.with_state(|state| refuse(state, own_addr, path, query_text, Instant::now()));
    if let Some(response) = refusal {
        return response;
    }
    let query = query(&shared.config, &parts.uri);
    let response = match path {
        "/teardown" => teardown(&shared, &parts.method, &parts.headers, body).await,
        "/maintenance/schedule" => {
            maintenance::schedule(&shared, &parts.method, &parts.headers, &query, body).await
        }
        "/maintenance/status" => maintenance::status(&shared, &parts.method, &parts.headers, &query),
        "/machine/down" | "/machine/up" => {
            maintenance::machines(&shared, path, &parts.method, &parts.headers, body).await
        }
        _ => match Api::at(path) {
            Some(api) => call(&shared, api, &parts, body).await,
            None => shared
                .with_state(|state| get(state, own_addr, path, &parts.headers, &query))
                .map(|answer| answer.into_response(&shared, &query)),
        },
    };
    response.unwrap_or_else(Rejection::into_response)
}

/// Answers one request whose body has been read, without those that change the cluster on routes of
/// their own.
pub(crate) fn answer(
    state: &mut State,
    own_addr: SocketAddr,
    parts: &Parts,
    body: &[u8],
    now: Instant,
) -> Result<Answer, Rejection> {
    let path = route(parts.uri.path(), "/master");
    if let Some(response) = refuse(state, own_addr, path, parts.uri.query(), now) {
        return Ok(Answer::Complete(response));
    }
    let Some(api) = Api::at(path) else {
        let query = query(&state.config, &parts.uri);
        return get(state, own_addr, path, &parts.headers, &query);
    };
    let (realm, message) = api.parts();
    let principal = authenticate(&state.config, &parts.headers, realm)?;
    check_post(&parts.method)?;
    let call = parse_call(message, &parts.headers, body)?;
    api.answer(state, &parts.headers, &call, principal.as_deref(), now)
}

impl Answer {
    fn into_response(self, shared: &Arc<Shared>, query: &BTreeMap<String, String>) -> Response<Body> {
        match self {
            Self::Complete(response) => response,
            Self::Document(document) => json_or_jsonp(&document, query),
            Self::Framework(subscribed) => framework_stream(shared, subscribed),
            Self::Operator(events) => {
                stream_response("application/json", queue_stream(events, || ()), shared)
            }
        }
    }
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

/// The response if this master has just started, does not lead (a redirect) or still recovers;
/// `None` if it can answer itself.
fn refuse(
    state: &mut State,
    own_addr: SocketAddr,
    path: &str,
    query: Option<&str>,
    now: Instant,
) -> Option<Response<Body>> {
    // Not only with the next tick, so that every request sees one phase of a restart.
    state.recover(now);
    if state.is_starting(own_addr, now) {
        return Some(not_found().into_response());
    }
    let unavailable = |why: &str| Some(text(StatusCode::SERVICE_UNAVAILABLE, why));
    if state.has_no_leader(now) && (path == "/redirect" || !LOCAL_PATHS.contains(&path)) {
        return unavailable("No leader elected");
    }
    let master = &state.master;
    if master.addr == own_addr {
        let rejected = state.is_recovering() && path.starts_with("/api/v1");
        return rejected
            .then(|| unavailable("Master has not finished recovery"))
            .flatten();
    }
    if LOCAL_PATHS.contains(&path) {
        return None;
    }
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    let location = format!("//{}:{}/master{path}{query}", master.hostname, master.addr.port());
    Some(redirect(&location))
}

/// `POST` to one of the APIs.
async fn call(shared: &Arc<Shared>, api: Api, parts: &Parts, body: Incoming) -> HttpResult {
    let (realm, message) = api.parts();
    let principal = authenticate(&shared.config, &parts.headers, realm)?;
    let call = read_call(message, &parts.method, &parts.headers, body).await?;
    let answer = shared
        .with_state(|state| api.answer(state, &parts.headers, &call, principal.as_deref(), Instant::now()));
    Ok(answer?.into_response(shared, &BTreeMap::new()))
}

/// `POST /api/v1/scheduler`.
fn scheduler(
    state: &mut State,
    headers: &HeaderMap,
    call: &Value,
    principal: Option<&str>,
    now: Instant,
) -> Result<Answer, Rejection> {
    let bad_request = |why: String| rejection(StatusCode::BAD_REQUEST, why);
    validate_scheduler_call(call, principal).map_err(bad_request)?;
    let stream_id = headers
        .get(&STREAM_ID)
        .map(|value| String::from_utf8_lossy(value.as_bytes()));
    if doc::text(call, &["type"]) == Some("SUBSCRIBE") {
        check_accept(headers)?;
        if stream_id.is_some() {
            return Err(bad_request(
                "Subscribe calls should not include the 'Mesos-Stream-Id' header".to_owned(),
            ));
        }
        return Ok(Answer::Framework(state.subscribe(call, now)));
    }
    let response = state.scheduler_call(call, stream_id.as_deref(), principal, now);
    Ok(Answer::Complete(reply(&response)))
}

fn framework_stream(shared: &Arc<Shared>, subscribed: Subscribed) -> Response<Body> {
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
fn operator(
    state: &mut State,
    headers: &HeaderMap,
    call: &Value,
    principal: Option<&str>,
    now: Instant,
) -> Result<Answer, Rejection> {
    let sees_tasks = visibility::sees_tasks(&state.config, principal);
    let bad_request = |why: &str| {
        rejection(
            StatusCode::BAD_REQUEST,
            format!("Failed to validate master::Call: {why}"),
        )
    };
    let kind = doc::text(call, &["type"]).ok_or_else(|| bad_request("Expecting 'type' to be present"))?;
    check_accept(headers)?;
    if kind == "SUBSCRIBE" {
        return Ok(Answer::Operator(state.subscribe_operator(sees_tasks, now)));
    }
    if let Some(response) = change_state(state, kind, call, now) {
        return Ok(Answer::Complete(reply(&response)));
    }
    let mut document = get_call(state, kind);
    if !sees_tasks {
        visibility::hide_tasks(&mut document);
    }
    Ok(Answer::Document(document))
}

/// Operator calls that change the cluster.
fn change_state(state: &mut State, kind: &str, call: &Value, now: Instant) -> Option<Reply> {
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
    Some(match kind {
        "DRAIN_AGENT" => state.drain(&agent, arguments),
        "DEACTIVATE_AGENT" => state.set_deactivated(&agent, true, now),
        "REACTIVATE_AGENT" => state.set_deactivated(&agent, false, now),
        "MARK_AGENT_GONE" => state.mark_gone(&agent),
        "UPDATE_MAINTENANCE_SCHEDULE" => state.update_schedule(&arguments["schedule"], now),
        "START_MAINTENANCE" => state.start_maintenance(doc::list(arguments, &["machines"])),
        "STOP_MAINTENANCE" => state.stop_maintenance(doc::list(arguments, &["machines"]), now),
        _ => remove_framework(
            state,
            doc::text(arguments, &["framework_id", "value"]).unwrap_or_default(),
        ),
    })
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
    authenticate(&shared.config, headers, "mesos-master-readwrite")?;
    check_post(method)?;
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
    state: &State,
    own_addr: SocketAddr,
    path: &str,
    headers: &HeaderMap,
    query: &BTreeMap<String, String>,
) -> Result<Answer, Rejection> {
    match path {
        "/health" => return Ok(Answer::Complete(empty(StatusCode::OK))),
        "/version" => return Ok(Answer::Document(state_views::version())),
        "/redirect" => {
            let master = &state.master;
            let location = format!("//{}:{}", master.hostname, master.addr.port());
            return Ok(Answer::Complete(redirect(&location)));
        }
        _ => {}
    }
    let principal = authenticate(&state.config, headers, "mesos-master-readonly")?;
    let document = match path {
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
    };
    let mut document = document.ok_or_else(not_found)?;
    let shows_tasks = ["/state", "/frameworks", "/tasks", "/state-summary"].contains(&path);
    if shows_tasks && !visibility::sees_tasks(&state.config, principal.as_deref()) {
        visibility::hide_tasks(&mut document);
    }
    Ok(Answer::Document(document))
}

/// A redirect to the leading master. Its location has no scheme.
fn redirect(location: &str) -> Response<Body> {
    let mut response = empty(StatusCode::TEMPORARY_REDIRECT);
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}
