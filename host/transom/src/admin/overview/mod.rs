//! `GET /v1/overview`: one document about the whole daemon, for `transom status` and the dashboard.
//!
//! A request reads snapshots only. [`background`] polls the parts that publish none: the cluster
//! manager, the store and the process. [`problems`] finds problems, and adds advice.

mod background;
mod problems;

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use jiff::Timestamp;
use transom_cli::overview::{self as document, Attention, Framework, Overview, Point, Port, Service};
use transom_cluster::Client;
use transom_plugin_host::{AdmissionOutcome, Plugins, RolloutKind, State as PluginState, Status};
use transom_store::Durability;

use self::background::Observed;
pub(crate) use self::background::ObservedStore;
use super::plugins::EscapedJson;
use crate::process;
use crate::service::Services;

/// The version of the document.
const API: u32 = 1;
/// The maximum number of plugins that need attention in the document.
const MAX_ATTENTION: usize = 20;

/// The sources of the overview. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Overviews(Arc<Sources>);

struct Sources {
    started: Timestamp,
    hostname: String,
    services: Services,
    plugins: Option<Plugins>,
    cluster: Client,
    store: Option<ObservedStore>,
    observed: Observed,
}

impl Overviews {
    /// `cluster`: the client of the cluster manager; `store`: `None` if no service needs one.
    pub(crate) fn new(
        services: Services,
        plugins: Option<Plugins>,
        cluster: Client,
        store: Option<ObservedStore>,
    ) -> Self {
        Self(Arc::new(Sources {
            started: Timestamp::now(),
            hostname: process::hostname(),
            services,
            plugins,
            observed: Observed::new(&cluster, store.as_ref()),
            cluster,
            store,
        }))
    }

    /// Polls the cluster manager, the store and the process, until it is dropped.
    pub(super) async fn keep_current(&self) -> Infallible {
        let Sources {
            observed,
            cluster,
            store,
            ..
        } = &*self.0;
        observed.keep_current(cluster, store.as_ref()).await
    }

    /// What a failure of the store can lose, at its last connection. `None` without a store.
    pub(super) fn durability(&self) -> Option<Durability> {
        let store = self.0.store.as_ref()?;
        Some(store.store.durability())
    }

    /// The cluster manager, as it was last polled.
    pub(super) fn cluster(&self) -> Arc<document::Cluster> {
        self.0.observed.cluster.load_full()
    }

    /// The present state.
    pub(super) fn read(&self) -> Overview {
        let sources = &*self.0;
        let now = Timestamp::now();
        let uptime = now.duration_since(sources.started).as_secs();
        let services: Vec<Service> = sources.services.iter().map(|one| service(&**one)).collect();
        let store = sources.observed.store.load_full().map(|snapshot| {
            let mut store = document::Store::clone(&snapshot);
            if let Some(observed) = &sources.store {
                let durability = observed.store.durability();
                durability.as_str().clone_into(&mut store.durability);
                store.may_lose = durability.may_lose().map(str::to_owned);
            }
            store
        });
        let plugins = sources
            .plugins
            .as_ref()
            .map(|host| plugins(host, &sources.services));
        let mut overview = Overview {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api: API,
            hostname: sources.hostname.clone(),
            started: sources.started,
            now,
            uptime_seconds: u64::try_from(uptime).unwrap_or_default(),
            ready: services.iter().all(|service| service.ready),
            services,
            cluster: document::Cluster::clone(&sources.observed.cluster.load()),
            store,
            plugins,
            process: sources.observed.process.load_full().map(|process| *process),
            problems: Vec::new(),
        };
        overview.problems = problems::find(&overview);
        overview
    }
}

pub(super) fn routes(overviews: Overviews) -> Router {
    Router::new()
        .route("/v1/overview", get(overview))
        .with_state(overviews)
}

async fn overview(State(overviews): State<Overviews>) -> EscapedJson<Overview> {
    EscapedJson(overviews.read())
}

fn service(service: &dyn crate::service::Service) -> Service {
    let readiness = service.readiness();
    let ports = service.addresses().into_iter().map(|(name, address)| Port {
        name: name.to_owned(),
        address: address.to_string(),
    });
    Service {
        name: service.name().to_owned(),
        ready: readiness.ready,
        ports: ports.collect(),
        framework: readiness.framework.map(|framework| Framework {
            name: framework.name,
            leader: framework.leader,
            leading: framework.leading,
            subscribed: framework.subscribed,
        }),
        source: readiness.source.map(str::to_owned),
        state: service.summary(),
    }
}

/// The plugins, and which of their extension points the services use.
fn plugins(host: &Plugins, services: &Services) -> document::Plugins {
    let list = host.list();
    let count = |which: fn(&Status) -> bool| list.iter().filter(|status| which(status)).count() as u64;
    let has_rollout = |status: &Status, kind| status.rollout.as_ref().is_some_and(|it| it.kind == kind);
    let mut attention = Vec::new();
    let mut quarantined = 0;
    for status in &list {
        let quarantine_reason = quarantine_reason(host, status);
        quarantined += u64::from(quarantine_reason.is_some());
        let entry = if status.state == PluginState::Disabled {
            Some(("disabled", status.disabled_reason.clone()))
        } else if let Some(reason) = quarantine_reason {
            Some(("quarantined", Some(reason)))
        } else {
            status
                .refusal
                .as_ref()
                .map(|reason| ("refused", Some(reason.clone())))
        };
        attention.extend(entry.map(|(state, reason)| Attention {
            name: status.name.clone(),
            state: state.to_owned(),
            serving: status.state == PluginState::Serving,
            reason: reason.unwrap_or_default(),
        }));
    }
    attention.truncate(MAX_ATTENTION);
    let dir = std::path::absolute(host.dir()).unwrap_or_else(|_| host.dir().to_owned());
    document::Plugins {
        dir: dir.display().to_string(),
        total: list.len() as u64,
        serving: count(|status| status.state == PluginState::Serving),
        rejected: count(|status| status.refusal.is_some()),
        disabled: count(|status| status.state == PluginState::Disabled),
        quarantined,
        shadows: list
            .iter()
            .filter(|status| has_rollout(status, RolloutKind::Shadow))
            .count() as u64,
        canaries: list
            .iter()
            .filter(|status| has_rollout(status, RolloutKind::Canary))
            .count() as u64,
        points: points(host, &list, services),
        attention,
    }
}

/// Why the files of a plugin are ignored until they change: its newest record is a rollback, or the
/// abort of a shadow or canary.
fn quarantine_reason(host: &Plugins, status: &Status) -> Option<String> {
    let newest = host.history(&status.name).0.into_iter().next()?;
    let is_quarantined = matches!(
        newest.outcome,
        AdmissionOutcome::RolledBack | AdmissionOutcome::Aborted
    );
    is_quarantined.then(|| {
        newest
            .reason
            .unwrap_or_else(|| format!("rolled back by {}", newest.by))
    })
}

fn points(host: &Plugins, list: &[Status], services: &Services) -> Vec<Point> {
    let bindings = host.bindings();
    let single = |name: &String| vec![name.clone()];
    let used_by = |point| {
        let users = services
            .iter()
            .filter(|service| service.extension_points().contains(&point));
        users.map(|service| service.name().to_owned()).collect()
    };
    let is_serving = |name: &String| {
        list.iter()
            .any(|status| status.name == *name && status.state == PluginState::Serving)
    };
    let points = [
        ("matcher", bindings.matchers.clone()),
        ("filter", bindings.filters.clone()),
        ("bootstrap", single(&bindings.bootstrap)),
        ("http checks", single(&bindings.http)),
        ("tcp checks", single(&bindings.tcp)),
        ("exec checks", single(&bindings.exec)),
    ];
    let points = points.into_iter().map(|(point, plugins)| Point {
        point: point.to_owned(),
        missing: plugins.iter().filter(|name| !is_serving(name)).cloned().collect(),
        used_by: used_by(point),
        plugins,
    });
    points.collect()
}
