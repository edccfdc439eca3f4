//! The small daemon: discovery alone, and the admin port where somebody asks for it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use transom_cluster::Client;

use super::{DRAIN, parts};
use crate::admin::{self, Admin, Guard};
use crate::config::Import;

/// Serves lookups until `token` is cancelled, then waits until everything has stopped.
///
/// # Errors
/// Files that the configuration names and that cannot be used, a port that is taken; a leader that ZooKeeper did not name
/// in the time that the configuration gives it. Once a leader was known nothing ends the lookups: what was known last is
/// answered until somebody knows better.
pub(crate) async fn serve_discovery(
    import: Import,
    file: &Path,
    admin: Option<SocketAddr>,
    token: CancellationToken,
) -> anyhow::Result<()> {
    // Whatever was started before a later part failed is stopped again.
    let guard = token.clone().drop_guard();
    let section = import.cluster;
    let mut cluster = parts::cluster_config(&section)?;
    if cluster.service_account.is_none() {
        "MesosAuthentication and MesosCredentials".clone_into(&mut cluster.credential_keys);
    }
    let config = parts::discovery_config(import.discovery, &section, &cluster.masters, file)?;
    let cluster = Client::new(cluster)?;
    let admin = match admin {
        Some(addr) => Some(transom_web::Listener::bind("admin", addr)?),
        None => None,
    };
    let mut registry = Registry::default();
    let discovery = config
        .start(cluster.clone(), &mut registry, token.child_token())
        .await?;
    let admin = admin.map(|listener| {
        let guard = Guard::read_only(listener.local_addr().ip());
        let told = Admin::new(registry, None, None, Some(discovery.clone()), None);
        admin::serve(listener, told, guard, token.child_token())
    });

    let limit = Duration::from_secs(section.detection_timeout_seconds);
    let ended = tokio::select! {
        biased;
        () = token.cancelled() => Ok(()),
        () = discovery.stopped() => Err(anyhow::anyhow!("lookups ended by themselves; the log says why")),
        error = nobody_leads(&cluster, limit) => Err(error),
    };
    drop(guard);
    let all = async {
        discovery.stopped().await;
        cluster.close().await;
        if let Some(admin) = admin {
            admin.await.context("the admin port ended badly")??;
        }
        anyhow::Ok(())
    };
    match tokio::time::timeout(DRAIN, all).await {
        Ok(stopped) => ended.and(stopped),
        Err(_) if ended.is_ok() => bail!("not every part stopped within {DRAIN:?}"),
        Err(_) => ended,
    }
}

/// Waits until it is certain that ZooKeeper names no leader in time; for ever where that does not matter.
async fn nobody_leads(cluster: &Client, limit: Duration) -> anyhow::Error {
    let mut changes = cluster.leader_changes();
    let expected = cluster.follows_zookeeper() && !limit.is_zero();
    if !expected || cluster.leader().is_some() || tokio::time::timeout(limit, changes.next()).await.is_ok() {
        return std::future::pending().await;
    }
    anyhow::anyhow!(
        "ZooKeeper has named no leading master within {} s (ZkDetectionTimeout); check its address and path",
        limit.as_secs()
    )
}
