//! Rows of several plugins.

use reqwest::Method;
use transom_tests::load::cluster::Cluster;
use transom_tests::load::daemon::Daemon;

use crate::apps::{PORTS, Ports, app, deploy, launches, open_streams};
use crate::meter::{Cost, Meter};

/// Maximum of the matchers and of the filters. With those for checks and scripts, 20 plugins are then
/// in use.
pub(crate) const MAX_CHAIN: usize = 8;
const STREAMS: usize = 16;
const UPDATES: u32 = 1_000;

/// Chains of matchers and filters, beside an app with many instances.
pub(crate) async fn chains(chain: usize, instances: usize) -> Vec<Cost> {
    let cluster = Cluster::start(PORTS).await;
    let daemon = Daemon::start_with_plugins(cluster.address, chain).await;
    let body = app("/web", instances, Ports::None);
    deploy((&cluster, &daemon), Method::POST, "/v2/apps", &body, instances).await;
    let launched = launches(&cluster, &daemon, instances).await;
    let _open = open_streams(&daemon, STREAMS, |number| {
        format!("filter=event.taskStatus%20!=%20%22state{number}%22")
    })
    .await;
    let meter = Meter::start(daemon.pid());
    cluster.send_updates(UPDATES.into()).await;
    let updated = meter.stop(UPDATES);
    daemon.stop();
    vec![launched, updated]
}
