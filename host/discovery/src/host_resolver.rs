//! Resolves the host names of agents and frameworks in the background.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::cluster::ClusterModel;
use crate::zone_config::ResolvedHosts;

/// The maximum number of lookups in progress; further ones wait for the next refresh.
const MAX_CONCURRENT_LOOKUPS: usize = 16;
/// The timeout of a lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The last known addresses of names, and the lookups in progress.
#[derive(Debug, Default)]
pub(crate) struct HostResolver {
    pub(crate) addresses: ResolvedHosts,
    started_at: HashMap<String, Instant>,
    running: JoinSet<(String, Vec<IpAddr>)>,
}

impl HostResolver {
    /// Starts lookups of names that are unknown or older than `max_age`, and drops names that the
    /// cluster no longer has.
    pub(crate) fn refresh(&mut self, cluster: &ClusterModel, max_age: Duration) {
        let wanted: std::collections::HashSet<&str> = cluster.host_names().collect();
        self.addresses.retain(|name, _| wanted.contains(name.as_str()));
        self.started_at.retain(|name, _| wanted.contains(name.as_str()));
        for name in wanted {
            let is_stale = self.started_at.get(name).is_none_or(|at| at.elapsed() > max_age);
            if is_stale && self.running.len() < MAX_CONCURRENT_LOOKUPS {
                self.started_at.insert(name.to_owned(), Instant::now());
                self.running.spawn(look_up(name.to_owned()));
            }
        }
    }

    /// Waits for a lookup to end and returns whether addresses changed. A failed lookup keeps the
    /// old addresses.
    pub(crate) async fn addresses_changed(&mut self) -> bool {
        match self.running.join_next().await {
            Some(Ok((name, ips))) if !ips.is_empty() => {
                let differs = self.addresses.get(&name) != Some(&ips);
                self.addresses.insert(name, ips);
                differs
            }
            Some(_) => false,
            None => std::future::pending().await,
        }
    }
}

async fn look_up(name: String) -> (String, Vec<IpAddr>) {
    let lookup = async {
        let found = tokio::net::lookup_host((name.as_str(), 0)).await;
        found.map(|addresses| addresses.map(|address| address.ip().to_canonical()).collect())
    };
    let mut ips: Vec<IpAddr> = match tokio::time::timeout(LOOKUP_TIMEOUT, lookup).await {
        Ok(Ok(addresses)) => addresses,
        Ok(Err(error)) => {
            tracing::debug!(name, %error, "cannot resolve a host name");
            Vec::new()
        }
        Err(_) => {
            tracing::debug!(name, "timeout resolving a host name");
            Vec::new()
        }
    };
    // Sorted, so that equal answers compare equal.
    ips.sort_unstable();
    ips.dedup();
    (name, ips)
}
