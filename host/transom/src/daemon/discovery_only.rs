//! The small daemon: discovery alone, and an optional admin port.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use transom_cluster::Client;
use transom_config::{Import, parts};
use transom_web::PortConfig;

use super::{SHUTDOWN_TIMEOUT, metrics};
use crate::admin::{self, Admin};
use crate::process;
use crate::service::Services;

/// Serves lookups until `token` is cancelled, then waits until everything has stopped.
///
/// # Errors
/// Invalid files in the configuration, a port in use, or no leader from ZooKeeper within the configured
/// time. After the first leader was known, discovery serves the last records during any outage.
pub(crate) async fn serve_discovery(
    import: Import,
    file: &Path,
    admin: Option<SocketAddr>,
    token: CancellationToken,
) -> anyhow::Result<()> {
    // Stops the parts that have started if a later part fails.
    let guard = token.clone().drop_guard();
    let section = import.cluster;
    let mut cluster = parts::cluster::config(&section)?;
    if cluster.service_account.is_none() {
        "MesosAuthentication and MesosCredentials".clone_into(&mut cluster.credential_keys);
    }
    let config = parts::discovery::config(
        import.discovery,
        &section,
        &cluster.masters,
        file,
        &process::hostname(),
    )?;
    let cluster = Client::new(cluster)?;
    let admin = match admin {
        Some(addr) => Some(read_only_port(addr).bind().await?),
        None => None,
    };
    let mut registry = Registry::default();
    let discovery = config
        .start(cluster.clone(), &mut registry, token.child_token())
        .await?;
    let admin = admin.map(|port| {
        let services: Services = Arc::new([Box::new(discovery.clone())]);
        metrics::register(&mut registry, &services);
        admin::serve(
            port,
            Admin::new(registry, None, services, cluster.clone(), None),
            token.child_token(),
        )
    });

    let limit = Duration::from_secs(section.detection_timeout_seconds);
    let ended = tokio::select! {
        biased;
        () = token.cancelled() => Ok(()),
        () = discovery.stopped() => Err(anyhow::anyhow!("discovery stopped unexpectedly; see the log")),
        error = leader_detection_timeout(&cluster, limit) => Err(error),
    };
    drop(guard);
    let all = async {
        discovery.stopped().await;
        cluster.close().await;
        if let Some(admin) = admin {
            admin.await.context("panic in the admin port")??;
        }
        anyhow::Ok(())
    };
    match tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await {
        Ok(stopped) => ended.and(stopped),
        Err(_) if ended.is_ok() => {
            bail!("shutdown timeout: not every service stopped within {SHUTDOWN_TIMEOUT:?}")
        }
        Err(_) => ended,
    }
}

/// An admin port through which nothing can be changed. Any client may read, as on discovery's own
/// ports.
fn read_only_port(address: SocketAddr) -> PortConfig {
    PortConfig {
        listener: address.ip(),
        read_only: true,
        ..PortConfig::new("admin", address.port())
    }
}

/// Returns an error if ZooKeeper names no leader in time. Never returns if it does, or without a limit.
async fn leader_detection_timeout(cluster: &Client, limit: Duration) -> anyhow::Error {
    let mut changes = cluster.leader_changes();
    let expected = cluster.follows_zookeeper() && !limit.is_zero();
    if !expected || cluster.leader().is_some() || tokio::time::timeout(limit, changes.next()).await.is_ok() {
        return std::future::pending().await;
    }
    anyhow::anyhow!(
        "timeout: ZooKeeper named no leading master within {} s (ZkDetectionTimeout); check its address and path",
        limit.as_secs()
    )
}
