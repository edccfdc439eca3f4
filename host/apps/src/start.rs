//! Starts the service.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use http::HeaderName;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use transom_framework::{Leader, ServiceHandle};
use transom_store::typed::TypedStore;
use transom_store::{Leadership, Store};
use transom_web::{BoundPort, Forwarder};

use crate::api::{self, Api, Isolators, Shared};
use crate::core::format;
use crate::core::mirror::Mirror;
use crate::core::persist::Repository;
use crate::core::term::{Dependencies, Handles};
use crate::runner::Runner;
use crate::{Config, Error, Result};

/// Capacity of the queue of requests that wait for the mirror to catch up.
const SYNC_QUEUE_CAPACITY: usize = 256;
/// The header in which upstream lists the daemons that forwarded a request.
pub(crate) const VIA: HeaderName = HeaderName::from_static("x-marathon-via");

/// Reads the stored state and serves it at `port` until `token` is cancelled. The caller must run
/// the framework with the returned [`Runner`]. `election` reports the current leader.
///
/// # Errors
/// [`Error::State`] when the store cannot be read, [`Error::Format`] and [`Error::Incomplete`] when
/// its records cannot be used, [`Error::Web`] when the configured hostname is
/// invalid.
pub async fn start(
    config: Config,
    port: BoundPort,
    store: Arc<dyn Store>,
    dependencies: Dependencies,
    election: watch::Receiver<Leadership>,
    token: CancellationToken,
) -> Result<(ServiceHandle, Runner)> {
    let forwarder = port.forwarder(VIA).map_err(Error::Web)?;
    let leader = Leader::new(port.advertised(), election);
    let name = config.settings.framework_name.clone();
    let address = (port.addr(), port.scheme());
    let (router, runner) = assemble(config, forwarder, address, store, dependencies, &leader).await?;
    let service = transom_framework::serve(port, router, api::RULES, leader, name, token);
    Ok((service, runner))
}

/// The routes and the runner. `address`: that of the port, and its scheme.
pub(crate) async fn assemble(
    config: Config,
    forwarder: Forwarder,
    (addr, scheme): (SocketAddr, &'static str),
    store: Arc<dyn Store>,
    dependencies: Dependencies,
    leader: &Leader<Handles>,
) -> Result<(Router, Runner)> {
    let snapshot = Arc::clone(&dependencies.snapshot);
    let records = TypedStore::new(Arc::clone(&store), &config.settings.framework_name)
        .with_timeout(config.store_timeout);
    format::check(&records).await?;
    let mut mirror = Mirror::new(store, &config.settings.framework_name, Arc::clone(&snapshot));
    mirror.load().await?;
    let (syncs, syncs_in) = mpsc::channel(SYNC_QUEUE_CAPACITY);
    let api = Api(Arc::new(Shared {
        config: config.clone(),
        addr,
        scheme,
        snapshot: Arc::clone(&snapshot),
        policies: Arc::clone(&dependencies.policies),
        repository: Repository::new(records),
        leader: leader.clone(),
        agents: dependencies.agents.clone(),
        isolators: dependencies.agents.clone().map(Isolators::new),
    }));
    let router = api::router(&api, forwarder, syncs, dependencies.metrics.requests.clone());
    let runner = Runner {
        config,
        snapshot,
        dependencies,
        leader: leader.clone(),
        mirror,
        syncs: syncs_in,
    };
    Ok((router, runner))
}
