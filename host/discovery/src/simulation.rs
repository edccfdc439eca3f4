//! The zone without ports, for simulations (feature `simulation`).

use std::sync::Arc;

use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use transom_cluster::Client;

use crate::Config;
use crate::cluster_follower::ClusterFollower;
use crate::handle::zone_config;
use crate::metrics::Metrics;
use crate::shared::Shared;
use crate::zone::Zone;

/// The zone that lookups would read.
#[derive(Clone, Debug)]
pub struct Reader(Arc<Shared>);

impl Reader {
    /// None before the first one.
    pub fn zone(&self) -> Option<Arc<Zone>> {
        self.0.zone.load_full()
    }
}

/// Follows the cluster without end.
pub fn start(config: &Config, client: Client) -> Reader {
    let shared = Arc::new(Shared::new());
    let mut follower = ClusterFollower::new(
        client,
        zone_config(config),
        config.settings.refresh_seconds,
        config.stream_timeouts,
        Arc::clone(&shared),
        Metrics::register(&mut Registry::default(), &shared),
    );
    follower.resolver.is_off = true;
    tokio::spawn(follower.run(CancellationToken::new()));
    Reader(shared)
}
