//! Resolves the host names of agents and frameworks in the background.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

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
    /// When a name is due although the cluster has the same names as before.
    due: Option<Instant>,
    /// Whether no name is looked up: a simulation has no DNS, and that of the machine answers at any time.
    pub(crate) is_off: bool,
    running: JoinSet<(String, Vec<IpAddr>)>,
}

impl HostResolver {
    /// Starts lookups of names that are unknown or older than `max_age`, and drops names that the
    /// cluster no longer has. `names_differ`: whether it may have other names than at the last call;
    /// otherwise nothing is done until the first of them is due, so that a change of a task does not
    /// cost as much as there are agents.
    pub(crate) fn refresh(&mut self, cluster: &ClusterModel, max_age: Duration, names_differ: bool) {
        let now = Instant::now();
        if self.is_off || !names_differ && self.due.is_some_and(|due| now < due) {
            return;
        }
        let wanted: std::collections::HashSet<&str> = cluster.host_names().collect();
        self.addresses.retain(|name, _| wanted.contains(name.as_str()));
        self.started_at.retain(|name, _| wanted.contains(name.as_str()));
        let mut due = now + max_age;
        for name in wanted {
            let stale_at = self.started_at.get(name).map_or(now, |at| *at + max_age);
            if stale_at > now {
                due = due.min(stale_at);
            } else if self.running.len() < MAX_CONCURRENT_LOOKUPS {
                self.started_at.insert(name.to_owned(), now);
                self.running.spawn(look_up(name.to_owned()));
            } else {
                due = now;
            }
        }
        self.due = Some(due);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Host, Location};

    fn with_agents(names: &[&str]) -> ClusterModel {
        let mut cluster = ClusterModel::default();
        for name in names {
            let host = Host::Name((*name).to_owned());
            cluster
                .agents
                .insert((*name).into(), Location { host, port: None });
        }
        cluster
    }

    #[tokio::test]
    async fn names_are_not_visited_until_they_differ_or_one_is_due() {
        let mut resolver = HostResolver::default();
        let looked_up = |resolver: &HostResolver| {
            let mut names: Vec<String> = resolver.started_at.keys().cloned().collect();
            names.sort();
            names
        };
        let age = Duration::from_hours(1);
        resolver.refresh(&with_agents(&["127.0.0.1"]), age, false);
        assert_eq!(looked_up(&resolver), ["127.0.0.1"], "the first time");
        let two = with_agents(&["127.0.0.1", "127.0.0.2"]);
        resolver.refresh(&two, age, false);
        assert_eq!(looked_up(&resolver), ["127.0.0.1"], "nothing was visited");
        resolver.refresh(&two, age, true);
        assert_eq!(looked_up(&resolver), ["127.0.0.1", "127.0.0.2"]);
        // Both are due immediately.
        let begun = resolver.started_at["127.0.0.1"];
        resolver.refresh(&two, Duration::ZERO, true);
        resolver.refresh(&two, Duration::ZERO, false);
        assert!(resolver.started_at["127.0.0.1"] > begun);
    }

    #[tokio::test]
    async fn names_beyond_the_limit_of_lookups_are_due_at_the_next_refresh() {
        let names: Vec<String> = (0..=MAX_CONCURRENT_LOOKUPS)
            .map(|n| format!("127.0.0.{n}"))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (cluster, age) = (with_agents(&names), Duration::from_hours(1));
        let mut resolver = HostResolver::default();
        resolver.refresh(&cluster, age, true);
        assert_eq!(resolver.started_at.len(), MAX_CONCURRENT_LOOKUPS);
        resolver.running.join_next().await;
        resolver.refresh(&cluster, age, false);
        assert_eq!(resolver.started_at.len(), MAX_CONCURRENT_LOOKUPS + 1);
    }
}
