//! Host and service records of one name.

use std::net::IpAddr;

use rand::seq::{IndexedRandom, SliceRandom};
use schemars::JsonSchema;
use serde::Serialize;

use crate::zone::Zone;

/// A host record (specification, part A).
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
pub(super) struct Host {
    host: String,
    ip: String,
}

/// A service record (specification, part A).
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[allow(clippy::struct_field_names)] // The specification's names.
pub(super) struct Service {
    /// As it was requested.
    service: String,
    host: String,
    ip: String,
    /// A number as text.
    port: String,
}

/// The name as the zone stores it.
fn normalized(name: &str) -> String {
    let mut name = name.to_ascii_lowercase().replace(".*", "");
    if !name.ends_with('.') {
        name.push('.');
    }
    name
}

fn ips(zone: &Zone, name: &str) -> (Vec<IpAddr>, Vec<IpAddr>) {
    zone.node(name).map_or_else(Default::default, |node| {
        let v4 = node.a().iter().map(|ip| (*ip).into());
        let v6 = node.aaaa().iter().map(|ip| (*ip).into());
        (v4.collect(), v6.collect())
    })
}

/// The addresses of a host: IPv4 before IPv6, each in random order.
pub(super) fn hosts(zone: &Zone, requested: &str) -> Vec<Host> {
    let name = normalized(requested);
    let (mut v4, mut v6) = ips(zone, &name);
    v4.shuffle(&mut rand::rng());
    v6.shuffle(&mut rand::rng());
    let host = |ip: IpAddr| Host {
        host: name.clone(),
        ip: ip.to_string(),
    };
    v4.into_iter().chain(v6).map(host).collect()
}

/// One random address of each kind for each target; targets without addresses are skipped.
pub(super) fn services(zone: &Zone, requested: &str) -> Vec<Service> {
    service_records(zone, requested, |ips| {
        ips.choose(&mut rand::rng()).copied().into_iter().collect()
    })
}

/// All addresses of a host, in order.
pub(super) fn all_hosts(zone: &Zone, requested: &str) -> Vec<Host> {
    let name = normalized(requested);
    let (mut v4, mut v6) = ips(zone, &name);
    v4.sort_unstable();
    v6.sort_unstable();
    let host = |ip: IpAddr| Host {
        host: name.clone(),
        ip: ip.to_string(),
    };
    v4.into_iter().chain(v6).map(host).collect()
}

/// All addresses of all targets, in order.
pub(super) fn all_services(zone: &Zone, requested: &str) -> Vec<Service> {
    let mut records = service_records(zone, requested, <[IpAddr]>::to_vec);
    records.sort_by(|a, b| (&a.host, &a.port, &a.ip).cmp(&(&b.host, &b.port, &b.ip)));
    records
}

fn service_records(zone: &Zone, requested: &str, select: impl Fn(&[IpAddr]) -> Vec<IpAddr>) -> Vec<Service> {
    let services = zone
        .node(&normalized(requested))
        .map_or(&[][..], |node| node.srv());
    let mut records = Vec::with_capacity(services.len());
    for service in services {
        let (v4, v6) = ips(zone, &service.target);
        records.extend(select(&v4).into_iter().chain(select(&v6)).map(|ip| Service {
            service: requested.to_owned(),
            host: service.target.to_string(),
            ip: ip.to_string(),
            port: service.port.to_string(),
        }));
    }
    records
}
