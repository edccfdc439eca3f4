//! The older routes for maintenance. Unlike the calls of the operator API, they need no
//! `Content-Type`, and their documents and errors have no envelope.

use crate::{
    http::{Answer, authenticate, not_allowed, read_body, refusal, reply, shown},
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
) -> Answer {
    authenticate(shared, headers, "mesos-master-readwrite")?;
    if method == Method::GET {
        let schedule = shared.with(|state| state.maintenance.schedule());
        return Ok(shown(&schedule, query));
    }
    if method != Method::POST {
        return Err(not_allowed(method, &["GET", "POST"]));
    }
    let body = read_body(body).await?;
    let schedule = read_plain(&messages::SCHEDULE, &body).map_err(bad)?;
    let updated = shared.with(|state| state.update_schedule(&schedule, Instant::now()));
    Ok(reply(&updated))
}

/// `GET /maintenance/status`.
pub(super) fn status(
    shared: &Arc<Shared>,
    method: &Method,
    headers: &HeaderMap,
    query: &BTreeMap<String, String>,
) -> Answer {
    authenticate(shared, headers, "mesos-master-readonly")?;
    if method != Method::GET {
        return Err(not_allowed(method, &["GET"]));
    }
    let status = shared.with(|state| state.maintenance_status());
    Ok(shown(&status, query))
}

/// `POST /machine/down` and `POST /machine/up`.
pub(super) async fn machines(
    shared: &Arc<Shared>,
    path: &str,
    method: &Method,
    headers: &HeaderMap,
    body: Incoming,
) -> Answer {
    authenticate(shared, headers, "mesos-master-readwrite")?;
    if method != Method::POST {
        return Err(not_allowed(method, &["POST"]));
    }
    let body = read_body(body).await?;
    let machines = read_plain_list(&messages::MACHINE, &body).map_err(bad)?;
    let done = shared.with(|state| match path {
        "/machine/down" => state.start_maintenance(&machines),
        _ => state.stop_maintenance(&machines, Instant::now()),
    });
    Ok(reply(&done))
}

fn bad(why: String) -> crate::http::Refusal {
    refusal(StatusCode::BAD_REQUEST, why)
}
