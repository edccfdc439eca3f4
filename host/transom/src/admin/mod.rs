//! The admin port: health, readiness, metrics and plugins. On loopback by default; [`guard`] controls access.
//!
//! | path | answer |
//! |---|---|
//! | `GET /health` | 200 while the process serves |
//! | `GET /ready` | 200 when every service can answer, else 503; the body has the state of each service and framework |
//! | `GET /metrics` | OpenMetrics |
//! | `GET /v1/plugins` | every plugin with its state |
//! | `GET /v1/plugins/{name}` | one of them |
//! | `GET /v1/plugins/{name}/history` | its admission records, newest first |
//! | `POST /v1/plugins/{name}/rollback` | rolls back to an earlier version; the body names it:
//! `{"record": 3}` |
//! | `POST /v1/plugins/{name}/promote` | promotes the shadow version |
//! | `POST /v1/plugins/rescan` | scans the plugin directory now; returns the changes |

mod guard;
mod plugins;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transom_apps::Apps;
use transom_discovery::Discovery;
use transom_plugin_host::Plugins;
use transom_scheduler::SubscriptionStatus;
use transom_web::{Limits, Listener};
use transom_workflow::Workflow;

pub(crate) use guard::Guard;

/// The services that the admin port reports on.
#[derive(Clone)]
pub(crate) struct Admin {
    registry: Arc<Registry>,
    /// None where no plugins are hosted.
    plugins: Option<Plugins>,
    apps: Option<Apps>,
    discovery: Option<Discovery>,
    workflow: Option<Workflow>,
}

impl Admin {
    pub(crate) fn new(
        registry: Registry,
        plugins: Option<Plugins>,
        apps: Option<Apps>,
        discovery: Option<Discovery>,
        workflow: Option<Workflow>,
    ) -> Admin {
        Admin {
            registry: Arc::new(registry),
            plugins,
            apps,
            discovery,
            workflow,
        }
    }
}

/// Serves the admin port until `token` is cancelled.
pub(crate) fn serve(
    listener: Listener,
    admin: Admin,
    guard: Guard,
    token: CancellationToken,
) -> JoinHandle<transom_web::Result<()>> {
    let plugins = admin.plugins.clone();
    let mut router = Router::new()
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .with_state(admin);
    if let Some(plugins) = plugins {
        router = router.merge(plugins::routes().with_state(plugins));
    }
    let router = guard.protect(transom_web::json_errors(transom_web::with_fallbacks(router)));
    tokio::spawn(transom_web::serve(
        listener,
        router,
        Limits::default(),
        token,
        Duration::from_secs(5),
    ))
}

async fn health() -> Json<serde_json::Value> {
    Json(serde_json::json!({"status": "ok"}))
}

/// The readiness of each service.
#[derive(Serialize)]
struct Readiness {
    ready: bool,
    /// The frameworks that this daemon is configured with.
    #[serde(skip_serializing_if = "Frameworks::is_empty")]
    frameworks: Frameworks,
    #[serde(skip_serializing_if = "Option::is_none")]
    apps: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    discovery: Option<bool>,
    /// The present source of discovery's records: `stream`, `polling`, or `none` while no master can be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    discovery_source: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow: Option<bool>,
}

/// The framework of each service that has one.
#[derive(Serialize)]
struct Frameworks {
    #[serde(skip_serializing_if = "Option::is_none")]
    apps: Option<Framework>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow: Option<Framework>,
}

impl Frameworks {
    fn is_empty(&self) -> bool {
        self.apps.is_none() && self.workflow.is_none()
    }
}

#[derive(Clone, Copy, Serialize)]
struct Framework {
    /// Whether this daemon is the framework's leader.
    leader: bool,
    /// Whether the leader is subscribed with the cluster manager; absent on a standby.
    #[serde(skip_serializing_if = "Option::is_none")]
    subscribed: Option<bool>,
}

impl Framework {
    /// `subscription`: none on a standby.
    fn new(subscription: Option<SubscriptionStatus>) -> Framework {
        Framework {
            leader: subscription.is_some(),
            subscribed: subscription.map(|subscription| subscription.connected),
        }
    }
}

async fn ready(State(admin): State<Admin>) -> Response {
    let frameworks = Frameworks {
        apps: admin.apps.as_ref().map(|it| Framework::new(it.subscription())),
        workflow: admin
            .workflow
            .as_ref()
            .map(|it| Framework::new(it.subscription())),
    };
    let apps = admin.apps.as_ref().map(Apps::ready);
    let discovery = admin.discovery.as_ref().map(Discovery::ready);
    let discovery_source = admin.discovery.as_ref().map(|it| it.source().as_str());
    let workflow = admin.workflow.as_ref().map(Workflow::ready);
    let subscribed = [frameworks.apps, frameworks.workflow].map(|framework| framework?.subscribed);
    let ready = [apps, discovery, workflow]
        .into_iter()
        .chain(subscribed)
        .flatten()
        .all(|part| part);
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (
        status,
        Json(Readiness {
            ready,
            frameworks,
            apps,
            discovery,
            discovery_source,
            workflow,
        }),
    )
        .into_response()
}

async fn metrics(State(admin): State<Admin>) -> Response {
    transom_web::metrics::response(&admin.registry)
}
