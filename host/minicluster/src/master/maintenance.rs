//! The older routes for maintenance. Unlike the calls of the operator API, they need no
//! `Content-Type` (a real master reads none; here another type than JSON is rejected), and their documents and errors have no envelope.

use crate::{
    http::{
        HttpResult, authenticate, check_plain_type, json_or_jsonp, not_allowed, read_body, rejection, reply,
    },
    shared::Shared,
    wire::{
        messages,
        schema::{read_plain, read_plain_list},
    },
};
use http::{HeaderMap, Method, StatusCode};
use hyper::body::Incoming;
use std::{collections::BTreeMap, sync::Arc, time::Instant};

/// `GET` and `POST /maintenance/schedule`.
pub(super) async fn schedule(
    shared: &Arc<Shared>,
    method: &Method,
    headers: &HeaderMap,
    query: &BTreeMap<String, String>,
    body: Incoming,
) -> HttpResult {
    authenticate(&shared.config, headers, "mesos-master-readwrite")?;
    if method == Method::GET {
        let schedule = shared.with_state(|state| state.maintenance.schedule());
        return Ok(json_or_jsonp(&schedule, query));
    }
    if method != Method::POST {
        return Err(not_allowed(method, &["GET", "POST"]));
    }
    check_plain_type(headers, "application/json")?;
    let body = read_body(body).await?;
    let schedule = read_plain(&messages::SCHEDULE, &body).map_err(bad_request)?;
    let outcome = shared.with_state(|state| state.update_schedule(&schedule, Instant::now()));
    Ok(reply(&outcome))
}

/// `GET /maintenance/status`.
pub(super) fn status(
    shared: &Arc<Shared>,
    method: &Method,
    headers: &HeaderMap,
    query: &BTreeMap<String, String>,
) -> HttpResult {
    authenticate(&shared.config, headers, "mesos-master-readonly")?;
    if method != Method::GET {
        return Err(not_allowed(method, &["GET"]));
    }
    let status = shared.with_state(|state| state.maintenance_status());
    Ok(json_or_jsonp(&status, query))
}

/// `POST /machine/down` and `POST /machine/up`.
pub(super) async fn machines(
    shared: &Arc<Shared>,
    path: &str,
    method: &Method,
    headers: &HeaderMap,
    body: Incoming,
) -> HttpResult {
    authenticate(&shared.config, headers, "mesos-master-readwrite")?;
    if method != Method::POST {
        return Err(not_allowed(method, &["POST"]));
    }
    check_plain_type(headers, "application/json")?;
    let body = read_body(body).await?;
    let machines = read_plain_list(&messages::MACHINE, &body).map_err(bad_request)?;
    let outcome = shared.with_state(|state| match path {
        "/machine/down" => state.start_maintenance(&machines),
        _ => state.stop_maintenance(&machines, Instant::now()),
    });
    Ok(reply(&outcome))
}

fn bad_request(why: String) -> crate::http::Rejection {
    rejection(StatusCode::BAD_REQUEST, why)
}
