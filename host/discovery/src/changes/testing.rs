//! Zones for tests, built from models of a cluster.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Changes, apply};
use crate::cluster::ClusterModel;
use crate::zone::{Zone, ZoneInputs};
use crate::zone_config::{ResolvedHosts, ZoneConfig};

/// Builds the zone of a model from scratch.
pub(crate) fn zone_of(cluster: &ClusterModel, hosts: &ResolvedHosts, zone_config: &ZoneConfig) -> Zone {
    let zone_config = Arc::new(zone_config.clone());
    let to = ZoneInputs {
        cluster: cluster.clone(),
        hosts: Arc::new(hosts.clone()),
        zone_config: Arc::clone(&zone_config),
    };
    apply(&Zone::empty(zone_config), to, Changes::everything(), 1, 0)
}

/// The records of a zone by name, the number of records, and the number of invalid entries.
pub(crate) fn flat_zone(zone: &Zone) -> (BTreeMap<String, Vec<String>>, usize, u64) {
    let texts = |node: &crate::zone::Node| {
        let a = node.a().iter().map(|ip| IpAddr::V4(*ip).to_string());
        let aaaa = node.aaaa().iter().map(|ip| IpAddr::V6(*ip).to_string());
        let srv = node
            .srv()
            .iter()
            .map(|srv| format!("{}:{} {}", srv.target, srv.port, srv.weight));
        let mut texts: Vec<_> = a.chain(aaaa).chain(srv).collect();
        texts.sort();
        texts
    };
    let nodes = zone.iter().map(|(name, node)| (name.to_string(), texts(node)));
    (nodes.collect(), zone.records(), zone.invalid_entries())
}
