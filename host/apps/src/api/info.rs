//! `/ping`, `/v2/leader`, `/v2/info`, and the error at `/metrics` that names the admin port.

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};
use schemars::JsonSchema;
use serde::Serialize;
use transom_web::{ApiError, Forwarder, Json};

use super::Api;
use super::query::Query;
use crate::Config;

/// The version of the implemented API, which clients check.
const API_VERSION: &str = "1.11.0";

/// The framework and its settings.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct MarathonInfo<'a> {
    /// The name of the framework.
    name: &'a str,
    /// The version of the implemented API.
    version: &'static str,
    /// The version of the daemon.
    buildref: &'static str,
    /// Whether there is a leader.
    elected: bool,
    /// Its host and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<String>,
    #[serde(rename = "frameworkId", skip_serializing_if = "Option::is_none")]
    framework_id: Option<String>,
    marathon_config: MarathonConfig<'a>,
    zookeeper_config: ZooKeeperConfig,
    http_config: HttpConfig,
}

/// The settings by Marathon's names, times in Marathon's units.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct MarathonConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    access_control_allow_origin: Option<Vec<String>>,
    checkpoint: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_network_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    env_vars_prefix: Option<&'a str>,
    executor: &'static str,
    failover_timeout: u64,
    features: Vec<&'static str>,
    framework_name: &'a str,
    /// Whether other daemons can share the store.
    ha: bool,
    hostname: &'a str,
    leader_proxy_connection_timeout_ms: u64,
    leader_proxy_read_timeout_ms: u64,
    local_port_max: u16,
    local_port_min: u16,
    /// The leading master.
    #[serde(skip_serializing_if = "Option::is_none")]
    master: Option<String>,
    mesos_role: &'a str,
    mesos_user: &'a str,
    min_revive_offers_interval: u64,
    task_launch_timeout: u64,
    task_lost_expunge_initial_delay: u64,
    task_lost_expunge_interval: u64,
    webui_url: String,
}

/// The members that Marathon always sends. There is no ZooKeeper here.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ZooKeeperConfig {
    zk: &'static str,
    zk_connection_timeout: u64,
    /// How many definitions of an app or pod are kept.
    zk_max_versions: u64,
    zk_session_timeout: u64,
    zk_timeout: u64,
}

/// The port; 0 for the scheme that is not used.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct HttpConfig {
    http_port: u16,
    https_port: u16,
}

/// The leading daemon.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct LeaderInfo {
    /// Its host and port.
    leader: String,
}

/// A text about what was done.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Message {
    message: &'static str,
}

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
    Ok(Json(LeaderInfo { leader }).into_response())
}

/// The enabled features. The one for `TASK_KILLING` is always on.
fn features(config: &Config) -> Vec<&'static str> {
    let enabled = config.settings.features();
    let names = enabled.iter().map(|feature| feature.name());
    std::iter::once("task_killing").chain(names).collect()
}

/// `DELETE /v2/leader`: the daemon stops leading and becomes a standby. If there is no other
/// daemon, it leads again after the duration of a lease.
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
    let message = "Leadership abdicated";
    Ok(Json(Message { message }).into_response())
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
    let (framework_id, master) = connection.map_or((None, None), |it| (it.framework_id, it.master));
    let info = MarathonInfo {
        name: &config.settings.framework_name,
        version: API_VERSION,
        buildref: env!("CARGO_PKG_VERSION"),
        // As in upstream, where standbys forward this request: clients of any daemon learn whether
        // there is a leader.
        elected: leader.is_some(),
        leader,
        framework_id: framework_id.map(|id| id.to_string()),
        marathon_config: marathon_config(config, api.0.scheme, port, master),
        zookeeper_config: ZooKeeperConfig {
            zk: "",
            zk_connection_timeout: 0,
            zk_max_versions: config.settings.max_versions as u64,
            zk_session_timeout: 0,
            zk_timeout: 0,
        },
        http_config: HttpConfig {
            http_port: ports[0],
            https_port: ports[1],
        },
    };
    Json(info).into_response()
}

/// The settings by upstream's names, times in upstream's units.
fn marathon_config<'a>(
    config: &'a Config,
    scheme: &str,
    port: u16,
    master: Option<String>,
) -> MarathonConfig<'a> {
    let hostname = &config.port.hostname;
    let origins: Vec<String> = config
        .port
        .allowed_origins
        .iter()
        .map(ToString::to_string)
        .collect();
    MarathonConfig {
        access_control_allow_origin: Some(origins).filter(|origins| !origins.is_empty()),
        checkpoint: true,
        default_network_name: config.settings.default_network(),
        env_vars_prefix: Some(&*config.settings.env_vars_prefix).filter(|prefix| !prefix.is_empty()),
        executor: "//cmd",
        failover_timeout: config.settings.failover_timeout,
        features: features(config),
        framework_name: &config.settings.framework_name,
        ha: config.shared_store,
        hostname,
        leader_proxy_connection_timeout_ms: millis(Forwarder::CONNECT_TIMEOUT),
        leader_proxy_read_timeout_ms: millis(Forwarder::ANSWER_TIMEOUT),
        local_port_max: config.settings.local_port_max,
        local_port_min: config.settings.local_port_min,
        master,
        mesos_role: &config.settings.role,
        mesos_user: &config.settings.user,
        min_revive_offers_interval: millis(crate::Settings::REVIVE_INTERVAL),
        task_launch_timeout: millis(config.settings.launch_timeout()),
        // Upstream always sends these two. Here `unreachableStrategy` alone decides when lost tasks
        // are given up.
        task_lost_expunge_initial_delay: 300_000,
        task_lost_expunge_interval: 30_000,
        webui_url: format!("{scheme}://{hostname}:{port}"),
    }
}

fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}
