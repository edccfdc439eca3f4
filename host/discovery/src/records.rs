//! The records of a cluster: mesos-dns's names, and the `.slave.` forms of its successor.
//!
//! Pure functions of the model, the addresses of host names and the settings, one for each kind of
//! entry, so that a change of one entry changes its own records only. Several entries may share a
//! record; it exists while at least one of them has it.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

use std::net::IpAddr;
use std::sync::Arc;

use transom_cluster::TaskId;

use crate::cluster::{ClusterModel, Discovery, Framework, Host, Location, Task};
use crate::config::IpSource;
use crate::labels::{agent_tail, hash5};
use crate::zone::{Record, Service, Value, ZoneInputs};
use crate::zone_config::{FrameworkLabels, ResolvedHosts, ZoneConfig};

/// The entry should have records, but its data are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidEntry;

/// A record of a task, in the order of the enumeration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RecordOrPtr {
    /// A record of the zone.
    Record(Record),
    /// A PTR name of an address.
    Ptr(Arc<str>, IpAddr),
}

/// Builds the records of one entry.
struct RecordBuilder<'r, 'h> {
    zone_config: &'r ZoneConfig,
    hosts: &'h ResolvedHosts,
    ttl: u32,
}

impl<'h> RecordBuilder<'_, 'h> {
    fn ips<'e: 'h>(&self, endpoint: &'e Location) -> &'h [IpAddr] {
        ips(self.hosts, endpoint)
    }

    fn address(&self, name: &Arc<str>, ip: IpAddr) -> Record {
        Record {
            name: Arc::clone(name),
            value: Value::Address(ip),
            ttl: self.ttl,
        }
    }

    fn service(&self, name: &str, target: &Arc<str>, port: u32, weight: u16) -> Record {
        let target = Arc::clone(target);
        Record {
            name: name.into(),
            value: Value::Service(Service { target, port, weight }),
            ttl: self.ttl,
        }
    }

    fn full(&self, name: &str) -> Arc<str> {
        self.zone_config.full(name).into()
    }
}

fn ips<'h>(hosts: &'h ResolvedHosts, endpoint: &'h Location) -> &'h [IpAddr] {
    match &endpoint.host {
        Host::Ip(ip) => std::slice::from_ref(ip),
        Host::Name(name) => hosts.get(name).map_or(&[], Vec::as_slice),
    }
}

/// A framework's own records.
pub(crate) fn of_framework(
    zone_config: &ZoneConfig,
    hosts: &ResolvedHosts,
    framework: &Framework,
) -> Vec<Record> {
    let Some(endpoint) = &framework.endpoint else {
        return Vec::new();
    };
    let labels = zone_config.framework_labels(&framework.name);
    let builder = RecordBuilder {
        zone_config,
        hosts,
        ttl: labels.ttl,
    };
    let name = builder.full(&labels.labels);
    let addresses = builder.ips(endpoint).iter().map(|ip| builder.address(&name, *ip));
    let mut records: Vec<_> = addresses.collect();
    if let Some(port) = endpoint.port {
        records.push(builder.service(
            &format!("_framework._tcp.{name}"),
            &name,
            port.into(),
            zone_config.weight,
        ));
    }
    records
}

/// An agent's records; an agent without an address is invalid.
pub(crate) fn of_agent(
    zone_config: &ZoneConfig,
    hosts: &ResolvedHosts,
    agent: &Location,
) -> Result<Option<Vec<Record>>, InvalidEntry> {
    let builder = RecordBuilder {
        zone_config,
        hosts,
        ttl: zone_config.ttl,
    };
    let ips = builder.ips(agent);
    if ips.is_empty() {
        return Err(InvalidEntry);
    }
    let name = builder.full("slave");
    let mut records: Vec<_> = ips.iter().map(|ip| builder.address(&name, *ip)).collect();
    if let Some(port) = agent.port {
        records.push(builder.service(
            &zone_config.full("_slave._tcp"),
            &name,
            port.into(),
            zone_config.weight,
        ));
    }
    Ok(Some(records))
}

/// The records of the name server and of `leader`, `master`, `master0` and so on. A leader whose
/// host name is not resolved yet has none.
///
/// The masters are those registered in ZooKeeper, else those of the configuration.
pub(crate) fn of_masters(
    zone_config: &ZoneConfig,
    hosts: &ResolvedHosts,
    cluster: &ClusterModel,
) -> Vec<Record> {
    let leader = cluster.leader.as_ref();
    let builder = RecordBuilder {
        zone_config,
        hosts,
        ttl: zone_config.ttl,
    };
    let (name_server, addresses) = &zone_config.name_server;
    let name_server = Arc::from(name_server.as_str());
    let mut records: Vec<_> = addresses
        .iter()
        .map(|ip| builder.address(&name_server, *ip))
        .collect();
    let masters_name = builder.full("master");
    let mut masters: Vec<IpAddr> = Vec::new();
    let mut leading = None;
    if let Some(endpoint) = leader {
        let ips = builder.ips(endpoint);
        let name = builder.full("leader");
        records.extend(ips.iter().map(|ip| builder.address(&name, *ip)));
        masters.extend(ips);
        if let (Some(port), false) = (endpoint.port, ips.is_empty()) {
            for service in ["_leader._tcp", "_leader._udp"] {
                records.push(builder.service(
                    &zone_config.full(service),
                    &name,
                    port.into(),
                    zone_config.weight,
                ));
            }
            leading = Some((ips, port));
        }
    }
    let mut numbered = Vec::new();
    let mut has_leader = false;
    let listed = if cluster.masters.is_empty() {
        &zone_config.masters
    } else {
        &cluster.masters
    };
    for master in listed {
        let Some((Host::Ip(ip), port)) = host_port(master) else {
            continue;
        };
        let leads = leading.is_some_and(|(ips, leading)| ips.contains(&ip) && leading == port);
        if leads && has_leader || !leads && masters.contains(&ip) {
            continue;
        }
        if !leads {
            masters.push(ip);
        }
        has_leader |= leads;
        numbered.push(ip);
    }
    if let (Some((ips, _)), false) = (leading, has_leader) {
        numbered.extend(ips);
    }
    records.extend(masters.iter().map(|ip| builder.address(&masters_name, *ip)));
    let of_number = |(n, ip)| builder.address(&builder.full(&format!("master{n}")), ip);
    records.extend(numbered.into_iter().enumerate().map(of_number));
    records
}

/// A task's records; a task on an unknown agent is invalid.
pub(crate) fn of_task(
    from: &ZoneInputs,
    labels: &FrameworkLabels,
    id: &TaskId,
    task: &Task,
) -> Result<Option<Vec<RecordOrPtr>>, InvalidEntry> {
    let ZoneInputs {
        cluster,
        hosts,
        zone_config,
    } = from;
    let runs = task.running || zone_config.include_staging && task.is_staging;
    if !runs || zone_config.healthy_only && task.healthy == Some(false) {
        return Ok(None);
    }
    let Some(agent) = cluster.agents.get(&task.agent) else {
        return Err(InvalidEntry);
    };
    let builder = RecordBuilder {
        zone_config,
        hosts,
        ttl: labels.ttl,
    };
    let mut of_task = TaskRecords {
        agent: builder.ips(agent),
        weight: zone_config
            .weight_label
            .as_deref()
            .and_then(|label| task.weight(label))
            .unwrap_or(zone_config.weight),
        builder,
        framework: &labels.labels,
        suffix: format!(
            "-{}-{}",
            hash5(task.id(id).as_str()),
            agent_tail(task.agent.as_str())
        ),
        task,
        records: Vec::new(),
    };
    of_task.add_all();
    Ok(Some(of_task.records))
}

struct TaskRecords<'r, 'h, 't> {
    builder: RecordBuilder<'r, 'h>,
    /// The agent's addresses.
    agent: &'h [IpAddr],
    /// The weight of its SRV records.
    weight: u16,
    /// `marathon`
    framework: &'t str,
    /// `-hash5-tail`
    suffix: String,
    task: &'t Task,
    records: Vec<RecordOrPtr>,
}

/// Names of a task, and the targets of its SRV records.
struct TaskNames {
    /// `web`, or the discovery name.
    short: String,
    /// `web.marathon.mesos.`, `web-hash5-tail.marathon.mesos.`
    in_framework: [Arc<str>; 2],
    /// `web.marathon.slave.mesos.`, `web-hash5-tail.marathon.slave.mesos.`
    on_agent: [Arc<str>; 2],
}

impl TaskRecords<'_, '_, '_> {
    fn add_all(&mut self) {
        let labels = self.builder.zone_config.labels;
        let task = self.task;
        match &task.discovery {
            None => self.add_names(&self.task_names(labels.label(&task.name))),
            Some(discovery) => {
                // The name as given, for compatibility, then as a label.
                for short in [discovery.name.clone(), labels.label(&discovery.name)] {
                    let names = self.task_names(short);
                    self.add_names(&names);
                    self.add_discovery_ports(&names, discovery);
                }
            }
        }
    }

    fn task_names(&self, short: String) -> TaskNames {
        let Self {
            builder,
            framework,
            suffix,
            ..
        } = self;
        TaskNames {
            in_framework: [
                builder.full(&format!("{short}.{framework}")),
                builder.full(&format!("{short}{suffix}.{framework}")),
            ],
            on_agent: [
                builder.full(&format!("{short}.{framework}.slave")),
                builder.full(&format!("{short}{suffix}.{framework}.slave")),
            ],
            short,
        }
    }

    /// The task's own addresses, from the first source that has any.
    fn ips(&self) -> &[IpAddr] {
        let sources = self
            .builder
            .zone_config
            .ip_sources
            .iter()
            .map(|source| match source {
                IpSource::Host => self.agent,
                IpSource::Docker => &self.task.addresses.docker,
                IpSource::Mesos => &self.task.addresses.mesos,
                IpSource::Netinfo => &self.task.addresses.netinfo,
            });
        sources
            .into_iter()
            .find(|ips| !ips.is_empty())
            .unwrap_or_default()
    }

    /// Records of the addresses of the task and its agent, and of its ports on the agent.
    fn add_names(&mut self, names: &TaskNames) {
        let mut records = Vec::new();
        for ip in self.ips() {
            records.extend(
                names
                    .in_framework
                    .iter()
                    .map(|name| RecordOrPtr::Record(self.builder.address(name, *ip))),
            );
            if self.builder.zone_config.reverse {
                records.push(RecordOrPtr::Ptr(Arc::clone(&names.in_framework[0]), *ip));
            }
        }
        for ip in self.agent {
            records.extend(
                names
                    .on_agent
                    .iter()
                    .map(|name| RecordOrPtr::Record(self.builder.address(name, *ip))),
            );
        }
        self.records.append(&mut records);
        let suffixes: &[&str] = if self.task.discovery.is_some() {
            &[".slave"]
        } else {
            &[".slave", ""]
        };
        let task = self.task;
        for port in task.ports.iter().flat_map(|(first, last)| ports(*first, *last)) {
            for suffix in suffixes {
                for protocol in ["tcp", "udp"] {
                    let name = format!("_{}._{protocol}.{}{suffix}", names.short, self.framework);
                    self.add_service(&name, &names.on_agent[1], port);
                }
            }
        }
    }

    /// Records of the ports in the task's discovery information, on its own and its agent's
    /// addresses.
    fn add_discovery_ports(&mut self, names: &TaskNames, discovery: &Discovery) {
        let labels = self.builder.zone_config.labels;
        for port in &discovery.ports {
            let protocol = labels.label(&port.protocol);
            let protocols = if port.protocol.is_empty() {
                vec!["tcp", "udp"]
            } else {
                vec![protocol.as_str()]
            };
            let port_name = labels.label(&port.name);
            for (suffix, target) in [("", &names.in_framework[1]), (".slave", &names.on_agent[1])] {
                for protocol in &protocols {
                    let name = format!("_{}._{protocol}.{}{suffix}", names.short, self.framework);
                    self.add_service(&name, target, port.number);
                    if !port.name.is_empty() {
                        self.add_service(&format!("_{port_name}.{name}"), target, port.number);
                    }
                }
            }
        }
    }

    fn add_service(&mut self, name: &str, target: &Arc<str>, port: u32) {
        let name = self.builder.zone_config.full(name);
        let record = self.builder.service(&name, target, port, self.weight);
        self.records.push(RecordOrPtr::Record(record));
    }
}

/// The ports of a range, up to the highest valid port.
fn ports(first: u64, last: u64) -> impl Iterator<Item = u32> {
    let last = last.min(u16::MAX.into());
    (first..=last).map(|port| port as u32)
}

fn host_port(text: &str) -> Option<(Host, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    Some((Host::parse(host), port.parse().ok()?))
}

#[cfg(test)]
mod tests;
