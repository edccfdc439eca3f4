//! The admin port: dashboard, health, readiness, metrics and plugins. On loopback by default; [`access`]
//! controls access.
//!
//! | path | answer |
//! |---|---|
//! | `GET /`, `GET /ui/` | the dashboard ([`ui`]) |
//! | `GET /health` | 200 while the process serves |
//! | `GET /ready` | 200 when every service can answer, else 503; the body has the state of each service and framework |
//! | `GET /metrics` | OpenMetrics |
//! | `GET /v1/overview` | services, cluster, store, plugins and process in one document, and what is wrong |
//! | `GET /v1/overview/stream` | the overview as server-sent events ([`stream`]) |
//! | `GET /v1/history` | the last hour of some series ([`history`]) |
//! | `GET /v1/user` | the user as the port knows it: `{"user": "ann", "read_only": false}` |
//! | `/v1/services/{service}/…` | the API of a service ([`services`]) |
//! | `GET /v1/cluster/agents` | the agents with attributes, resources and state |
//! | `GET /v1/cluster/log?agent=A&framework=F&task=T&stream=stdout` | the end of a task's output, or a piece of it
//! from `offset`; `Transom-Next-Offset` is where to continue |
//! | `GET /v1/plugins` | every plugin with its state, and the plugin directory |
//! | `GET /v1/plugins/{name}` | one of them |
//! | `GET /v1/plugins/{name}/log?after=N` | the newest lines of its log |
//! | `GET /v1/plugins/{name}/history` | its admission records, newest first |
//! | `GET /v1/plugins/{name}/calls` | its recorded calls: `?since=2h&max=1000` |
//! | `POST /v1/plugins/{name}/rollback` | rolls back to an earlier version; the body names it:
//! `{"record": 3}` |
//! | `POST /v1/plugins/{name}/promote` | promotes the shadow or the canary |
//! | `POST /v1/plugins/{name}/abort` | stops the shadow or the canary |
//! | `GET /v1/plugins/explain/matcher?app=/x` | which agents may run an app or pod, and why others may not; with
//! `job=ID` a pending workflow job, with `member=server/0` a pending member of a Kubernetes cluster |
//! | `GET /v1/plugins/explain/filter?query=event_type%3Da&since=1h` | which past events pass a query, and which
//! filter drops or replaces others |
//! | `POST /v1/plugins/explain/probe` | makes one attempt of a task's probe: `{"task": "…", "check": 0}` |
//! | `POST /v1/plugins/rescan` | scans the plugin directory now; returns the changes |
//! | `PUT /v1/plugins/{name}/files` | writes a plugin's files to the plugin directory ([`uploads`]) |

mod access;
mod cluster;
mod explain;
mod history;
pub(crate) mod overview;
mod plugins;
mod services;
mod stream;
mod ui;
mod uploads;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transom_cluster::Client;
use transom_plugin_host::Plugins;
use transom_web::{BoundPort, Caller, Limits, RequestMetrics};

use self::history::History;
pub(crate) use self::overview::ObservedStore;
use self::overview::Overviews;
pub(crate) use self::uploads::MAX_BODY;
use crate::service::{Explained, Readiness, Services};

/// The plugin host, and what the settings and services say about its routes.
#[derive(Clone)]
pub(crate) struct HostedPlugins {
    pub(crate) plugins: Plugins,
    /// `plugins.uploads`.
    pub(crate) uploads: bool,
    pub(crate) explained: Arc<[Explained]>,
}

/// The state that the admin port shows.
#[derive(Clone)]
pub(crate) struct Admin {
    registry: Arc<Registry>,
    /// `None` in a daemon that hosts no plugins.
    plugins: Option<HostedPlugins>,
    services: Services,
    cluster: Client,
    overviews: Overviews,
    requests: RequestMetrics,
}

impl Admin {
    /// `cluster`: the client of the cluster manager; `store`: `None` if no
    /// service needs one.
    pub(crate) fn new(
        mut registry: Registry,
        plugins: Option<HostedPlugins>,
        services: Services,
        cluster: Client,
        store: Option<ObservedStore>,
    ) -> Admin {
        Admin {
            overviews: Overviews::new(
                Arc::clone(&services),
                plugins.as_ref().map(|hosted| hosted.plugins.clone()),
                cluster.clone(),
                store,
            ),
            requests: RequestMetrics::register(&mut registry, "transom_admin"),
            registry: Arc::new(registry),
            plugins,
            services,
            cluster,
        }
    }
}

/// Serves the admin port until `token` is cancelled.
pub(crate) fn serve(
    port: BoundPort,
    admin: Admin,
    token: CancellationToken,
) -> JoinHandle<transom_web::Result<()>> {
    let (plugins, requests) = (admin.plugins.clone(), admin.requests.clone());
    let cluster = admin.cluster.clone();
    let services = Arc::clone(&admin.services);
    let overviews = admin.overviews.clone();
    let (history, registry) = (History::new(), Arc::clone(&admin.registry));
    let mut router = Router::new()
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/v1/user", get(user))
        .with_state(admin)
        .merge(ui::routes())
        .merge(cluster::routes(cluster))
        .merge(overview::routes(overviews.clone()))
        .merge(stream::routes(overviews.clone()))
        .merge(history.routes());
    if let Some(hosted) = &plugins {
        router = router
            .merge(plugins::routes(hosted.plugins.clone(), hosted.uploads))
            .merge(explain::routes(&services, Arc::clone(&hosted.explained)));
    }
    // The limit of the port itself is that of uploads, so the other routes get a lower one here.
    router = transom_web::body_limited(router, Limits::default().max_body);
    if let Some(hosted) = plugins {
        router = router.merge(uploads::routes(hosted.plugins, hosted.uploads));
    }
    let router = requests.around(transom_web::json_errors(transom_web::with_fallbacks(router)));
    let router = services::with_service_routes(router, &services);
    tokio::spawn(async move {
        tokio::select! {
            served = port.serve(router, access::RULES, token) => served,
            never = overviews.keep_current() => match never {},
            never = history.keep_current(registry, overviews.clone()) => match never {},
        }
    })
}

async fn health() -> Json<serde_json::Value> {
    Json(serde_json::json!({"status": "ok"}))
}

/// The user of a request.
#[derive(Serialize)]
struct User {
    /// Null for a request without credentials.
    user: Option<String>,
    read_only: bool,
}

async fn user(caller: Option<Extension<Caller>>) -> Json<User> {
    let Extension(caller) = caller.unwrap_or_default();
    Json(User {
        user: caller.user,
        read_only: caller.read_only,
    })
}

/// The readiness of the daemon: that of all its services.
#[derive(Serialize)]
struct AllReady {
    ready: bool,
    services: BTreeMap<&'static str, Readiness>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<StoreReadiness>,
}

/// The guarantee of the store, for those who decide whether a site is ready for a failure.
#[derive(Serialize)]
struct StoreReadiness {
    durability: &'static str,
    may_lose: Option<&'static str>,
}

async fn ready(State(admin): State<Admin>) -> Response {
    let services = admin.services.iter();
    let services: BTreeMap<_, _> = services
        .map(|service| (service.name(), service.readiness()))
        .collect();
    let ready = services.values().all(|service| service.ready);
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let store = admin.overviews.durability().map(|durability| StoreReadiness {
        durability: durability.as_str(),
        may_lose: durability.may_lose(),
    });
    let body = AllReady {
        ready,
        services,
        store,
    };
    (status, Json(body)).into_response()
}

async fn metrics(State(admin): State<Admin>, headers: HeaderMap) -> Response {
    transom_web::metrics::response(&admin.registry, &headers)
}
