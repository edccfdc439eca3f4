//! Looking up the host names that agents and frameworks are known by, aside from everything else.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::rules::Hosts;

/// Lookups at a time; further ones wait for the next round.
const AT_ONCE: usize = 16;
/// What one lookup may take before its name counts as unknown.
const PATIENCE: Duration = Duration::from_secs(5);

/// Addresses of names as they were last known, and the lookups under way.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) known: Hosts,
    asked: HashMap<String, Instant>,
    running: JoinSet<(String, Vec<IpAddr>)>,
}

impl Names {
    /// Begins to look up what is not known, or was asked for longer ago than `stale`, and forgets names that nobody has
    /// any more.
    pub(crate) fn ask(&mut self, cluster: &Cluster, stale: Duration) {
        let wanted: std::collections::HashSet<&str> = cluster.host_names().collect();
        self.known.retain(|name, _| wanted.contains(name.as_str()));
        self.asked.retain(|name, _| wanted.contains(name.as_str()));
        for name in wanted {
            let due = self.asked.get(name).is_none_or(|at| at.elapsed() > stale);
            if due && self.running.len() < AT_ONCE {
                self.asked.insert(name.to_owned(), Instant::now());
                self.running.spawn(look_up(name.to_owned()));
            }
        }
    }

    /// Waits for a lookup to end. Whether addresses differ from what was known; a name that fails keeps its old ones.
    pub(crate) async fn answered(&mut self) -> bool {
        match self.running.join_next().await {
            Some(Ok((name, ips))) if !ips.is_empty() => {
                let differs = self.known.get(&name) != Some(&ips);
                self.known.insert(name, ips);
                differs
            }
            Some(_) => false,
            None => std::future::pending().await,
        }
    }
}

async fn look_up(name: String) -> (String, Vec<IpAddr>) {
    let asking = async {
        let found = tokio::net::lookup_host((name.as_str(), 0)).await;
        found.map(|addresses| addresses.map(|address| address.ip().to_canonical()).collect())
    };
    let mut ips: Vec<IpAddr> = match tokio::time::timeout(PATIENCE, asking).await {
        Ok(Ok(addresses)) => addresses,
        Ok(Err(error)) => {
            tracing::debug!(name, %error, "a host name has no address");
            Vec::new()
        }
        Err(_) => {
            tracing::debug!(name, "a host name was not looked up in time");
            Vec::new()
        }
    };
    // In the same order every time, so that equal answers are seen to be equal.
    ips.sort_unstable();
    ips.dedup();
    (name, ips)
}
