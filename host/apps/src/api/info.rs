//! `/ping`, `/v2/leader`, `/v2/info`, and the place of `/metrics`.

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};
use serde_json::{Value, json};
use transom_web::{ApiError, Forwarder, Json};

use super::Api;
use super::query::Query;
use crate::Config;

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

/// The enabled features. The one for `TASK_KILLING` is always on.
fn features(config: &Config) -> Vec<&'static str> {
    let enabled = config.features.iter().map(|feature| feature.name());
    std::iter::once("task_killing").chain(enabled).collect()
}

/// `DELETE /v2/leader`: the daemon stays and stands by. A daemon that leads alone leads again after
/// the time of a lease.
pub(super) async fn abdicate(State(api): State<Api>, query: Query) -> Result<Response, ApiError> {
    for (name, command) in [("backup", "export"), ("restore", "import")] {
        if query.get(name).is_some() {
            let text = format!(
                "The parameter {name} is not supported: the state is not saved with a change of leader; use \
                 `transom apps {command}`"
            );
            return Err(ApiError::bad_request(text));
        }
    }
    api.lead()?.abdication.abdicate();
    Ok(Json(json!({"message": "Leadership abdicated"})).into_response())
}

/// `GET /metrics`
pub(super) async fn metrics() -> ApiError {
    ApiError::not_found(
        "This port has no metrics: they are at /metrics of the daemon's admin port (`admin.port`, 9990).",
    )
}

/// `GET /v2/info`: only upstream's keys, because its clients fail on others. Settings that have no
/// counterpart here are absent, except those that upstream always sends.
pub(super) async fn info(State(api): State<Api>) -> Response {
    let config = &api.0.config;
    let connection = api.0.leader.subscription();
    let leader = api.0.leader.address();
    let (port, tls) = (api.0.addr.port(), config.port.tls.is_some());
    let ports = if tls { [0, port] } else { [port, 0] };
    let mut info = json!({
        "name": config.framework_name,
        "version": API_VERSION,
        "buildref": env!("CARGO_PKG_VERSION"),
        // Upstream's other daemons forward this request, so clients of any daemon learn whether
        // there is a leader.
        "elected": leader.is_some(),
        "marathon_config": marathon_config(config, api.0.scheme, port),
        "zookeeper_config": {
            "zk": "",
            "zk_connection_timeout": 0,
            "zk_max_versions": config.max_versions,
            "zk_session_timeout": 0,
            "zk_timeout": 0,
        },
        "http_config": {"http_port": ports[0], "https_port": ports[1]},
    });
    if let Some(leader) = leader {
        info["leader"] = json!(leader);
    }
    if let Some(connection) = connection {
        if let Some(id) = connection.framework_id {
            info["frameworkId"] = json!(id.as_str());
        }
        if let Some(master) = connection.master {
            info["marathon_config"]["master"] = json!(master);
        }
    }
    Json(info).into_response()
}

/// The settings by upstream's names, times in upstream's units.
fn marathon_config(config: &Config, scheme: &str, port: u16) -> Value {
    let (hostname, origins) = (&config.port.hostname, &config.port.allowed_origins);
    let mut shown = json!({
        "checkpoint": true,
        "executor": "//cmd",
        "failover_timeout": config.failover_timeout.as_secs(),
        "features": features(config),
        "framework_name": config.framework_name,
        "ha": config.shared_store,
        "hostname": hostname,
        "leader_proxy_connection_timeout_ms": millis(Forwarder::CONNECT_TIMEOUT),
        "leader_proxy_read_timeout_ms": millis(Forwarder::ANSWER_TIMEOUT),
        "local_port_min": config.service_ports.start(),
        "local_port_max": config.service_ports.end(),
        "mesos_role": config.role,
        "mesos_user": config.user,
        "min_revive_offers_interval": millis(config.revive_interval),
        "task_launch_timeout": millis(config.launch_timeout),
        // Always sent by upstream; lost tasks are given up by `unreachableStrategy` alone.
        "task_lost_expunge_initial_delay": 300_000,
        "task_lost_expunge_interval": 30_000,
        "webui_url": format!("{scheme}://{hostname}:{port}"),
    });
    if !origins.is_empty() {
        let origins: Vec<String> = origins.iter().map(ToString::to_string).collect();
        shown["access_control_allow_origin"] = json!(origins);
    }
    if let Some(name) = &config.default_network_name {
        shown["default_network_name"] = json!(name);
    }
    if !config.env_vars_prefix.is_empty() {
        shown["env_vars_prefix"] = json!(config.env_vars_prefix);
    }
    shown
}

fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}
