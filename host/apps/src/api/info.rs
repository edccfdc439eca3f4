//! `/ping`, `/v2/leader` and `/v2/info`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};
use serde_json::json;
use transom_web::{ApiError, Json};

use super::Api;

/// The version of the implemented API, which clients check.
const API_VERSION: &str = "1.11.0";

/// `GET /ping`
pub(super) async fn ping(headers: HeaderMap) -> Response {
    let json = headers
        .get(header::ACCEPT)
        .is_some_and(|accept| accept.as_bytes() == b"application/json");
    if json {
        Json("pong").into_response()
    } else {
        "pong".into_response()
    }
}

/// `GET /v2/leader`
pub(super) async fn leader(State(api): State<Api>) -> Result<Response, ApiError> {
    let leader = api.0.leader.address();
    let leader = leader.ok_or_else(|| ApiError::not_found("There is no leader"))?;
    Ok(Json(json!({"leader": leader})).into_response())
}

/// `GET /v2/info`: only upstream's keys, because its clients fail on others.
pub(super) async fn info(State(api): State<Api>) -> Response {
    let config = &api.0.config;
    let connection = api.0.leader.subscription();
    let (port, tls) = (api.0.addr.port(), config.port.tls.is_some());
    let ports = if tls { [0, port] } else { [port, 0] };
    let mut info = json!({
        "name": config.framework_name,
        "version": API_VERSION,
        "buildref": env!("CARGO_PKG_VERSION"),
        "elected": connection.is_some(),
        "marathon_config": {
            "checkpoint": true,
            "executor": "//cmd",
            "features": [],
            "framework_name": config.framework_name,
            "ha": false,
            "hostname": config.port.hostname,
            "local_port_min": config.service_ports.start(),
            "local_port_max": config.service_ports.end(),
            "mesos_role": config.role,
            "task_lost_expunge_initial_delay": 300_000,
            "task_lost_expunge_interval": 30_000,
        },
        "zookeeper_config": {
            "zk": "", "zk_connection_timeout": 0, "zk_max_versions": config.max_versions, "zk_session_timeout": 0, "zk_timeout": 0,
        },
        "http_config": {"http_port": ports[0], "https_port": ports[1]},
    });
    if let Some(leader) = api.0.leader.address() {
        info["leader"] = json!(leader);
    }
    let Some(connection) = connection else {
        return Json(info).into_response();
    };
    if let Some(id) = connection.framework_id {
        info["frameworkId"] = json!(id.as_str());
    }
    if let Some(master) = connection.master {
        info["marathon_config"]["master"] = json!(master);
    }
    Json(info).into_response()
}
