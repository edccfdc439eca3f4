//! Which records a cluster has: mesos-dns's names, and the `.slave.` forms of its successor.
//!
//! Pure functions of the model, the addresses of host names, and the rules of the site: one for each kind of entry, so that a
//! change of one entry changes its records and no others. Entries may have a record in common; it is there for as long as one of
//! them has it.

use std::net::IpAddr;
use std::sync::Arc;

use transom_cluster::TaskId;

use crate::cluster::{Cluster, Discovery, Endpoint, Framework, Host, Task};
use crate::config::IpSource;
use crate::labels::{agent_tail, hash5};
use crate::rules::{Hosts, Part, Rules};
use crate::zone::{MadeFrom, Record, Service, Value};

/// What there is of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made<T> {
    /// Its records.
    Records(T),
    /// It is not to have any.
    Nothing,
    /// It should have some and makes no sense.
    Nonsense,
}

/// A record of a task, in the order in which they are listed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Line {
    /// In the zone.
    Record(Record),
    /// A name of an address.
    Pointer(Arc<str>, IpAddr),
}

/// Makes records of one kind of entry.
struct Make<'r, 'h> {
    rules: &'r Rules,
    hosts: &'h Hosts,
    ttl: u32,
}

impl<'h> Make<'_, 'h> {
    fn ips<'e: 'h>(&self, endpoint: &'e Endpoint) -> &'h [IpAddr] {
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
        self.rules.full(name).into()
    }
}

fn ips<'h>(hosts: &'h Hosts, endpoint: &'h Endpoint) -> &'h [IpAddr] {
    match &endpoint.host {
        Host::Ip(ip) => std::slice::from_ref(ip),
        Host::Name(name) => hosts.get(name).map_or(&[], Vec::as_slice),
    }
}

/// A framework's own records.
pub(crate) fn of_framework(rules: &Rules, hosts: &Hosts, framework: &Framework) -> Vec<Record> {
    let Some(endpoint) = &framework.endpoint else {
        return Vec::new();
    };
    let part = rules.part(&framework.name);
    let make = Make {
        rules,
        hosts,
        ttl: part.ttl,
    };
    let name = make.full(&part.labels);
    let addresses = make.ips(endpoint).iter().map(|ip| make.address(&name, *ip));
    let mut records: Vec<_> = addresses.collect();
    if let Some(port) = endpoint.port {
        records.push(make.service(
            &format!("_framework._tcp.{name}"),
            &name,
            port.into(),
            rules.weight,
        ));
    }
    records
}

/// An agent's records; one without address makes no sense.
pub(crate) fn of_agent(rules: &Rules, hosts: &Hosts, agent: &Endpoint) -> Made<Vec<Record>> {
    let make = Make {
        rules,
        hosts,
        ttl: rules.ttl,
    };
    let ips = make.ips(agent);
    if ips.is_empty() {
        return Made::Nonsense;
    }
    let name = make.full("slave");
    let mut records: Vec<_> = ips.iter().map(|ip| make.address(&name, *ip)).collect();
    if let Some(port) = agent.port {
        records.push(make.service(&rules.full("_slave._tcp"), &name, port.into(), rules.weight));
    }
    Made::Records(records)
}

/// The name server, `leader`, `master` and `master0` …; a leader that is no address yet has none of them.
///
/// Masters are those that ZooKeeper tells, else those of the configuration.
pub(crate) fn of_masters(rules: &Rules, hosts: &Hosts, cluster: &Cluster) -> Vec<Record> {
    let leader = cluster.leader.as_ref();
    let make = Make {
        rules,
        hosts,
        ttl: rules.ttl,
    };
    let (own, addresses) = &rules.name_server;
    let own = Arc::from(own.as_str());
    let mut records: Vec<_> = addresses.iter().map(|ip| make.address(&own, *ip)).collect();
    let all = make.full("master");
    let mut masters: Vec<IpAddr> = Vec::new();
    let mut leading = None;
    if let Some(endpoint) = leader {
        let ips = make.ips(endpoint);
        let name = make.full("leader");
        records.extend(ips.iter().map(|ip| make.address(&name, *ip)));
        masters.extend(ips);
        if let (Some(port), false) = (endpoint.port, ips.is_empty()) {
            for service in ["_leader._tcp", "_leader._udp"] {
                records.push(make.service(&rules.full(service), &name, port.into(), rules.weight));
            }
            leading = Some((ips, port));
        }
    }
    let mut numbered = Vec::new();
    let mut has_leader = false;
    let listed = if cluster.masters.is_empty() {
        &rules.masters
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
    records.extend(masters.iter().map(|ip| make.address(&all, *ip)));
    let of_number = |(n, ip)| make.address(&make.full(&format!("master{n}")), ip);
    records.extend(numbered.into_iter().enumerate().map(of_number));
    records
}

/// A task's records; one on an agent that nobody knows runs nowhere that could be told.
pub(crate) fn of_task(from: &MadeFrom, part: &Part, id: &TaskId, task: &Task) -> Made<Vec<Line>> {
    let MadeFrom {
        cluster,
        hosts,
        rules,
    } = from;
    let runs = task.running || rules.include_staging && task.about_to_run;
    if !runs || rules.healthy_only && task.healthy == Some(false) {
        return Made::Nothing;
    }
    let Some(agent) = cluster.agents.get(&task.agent) else {
        return Made::Nonsense;
    };
    let make = Make {
        rules,
        hosts,
        ttl: part.ttl,
    };
    let mut of_task = OfTask {
        agent: make.ips(agent),
        weight: rules
            .weight_label
            .as_deref()
            .and_then(|label| task.weight(label))
            .unwrap_or(rules.weight),
        make,
        framework: &part.labels,
        suffix: format!(
            "-{}-{}",
            hash5(task.id(id).as_str()),
            agent_tail(task.agent.as_str())
        ),
        task,
        lines: Vec::new(),
    };
    of_task.all();
    Made::Records(of_task.lines)
}

struct OfTask<'r, 'h, 't> {
    make: Make<'r, 'h>,
    /// The agent's addresses.
    agent: &'h [IpAddr],
    /// Of its services.
    weight: u16,
    /// `marathon`
    framework: &'t str,
    /// `-hash5-tail`
    suffix: String,
    task: &'t Task,
    lines: Vec<Line>,
}

/// Names by which a task is found, and those that services point at.
struct Names {
    /// `web`, or the discovery name.
    short: String,
    /// `web.marathon.mesos.`, `web-hash5-tail.marathon.mesos.`
    own: [Arc<str>; 2],
    /// `web.marathon.slave.mesos.`, `web-hash5-tail.marathon.slave.mesos.`
    on_agent: [Arc<str>; 2],
}

impl OfTask<'_, '_, '_> {
    fn all(&mut self) {
        let labels = self.make.rules.labels;
        let task = self.task;
        match &task.discovery {
            None => self.names(&self.named(labels.label(&task.name))),
            Some(discovery) => {
                // First the name as it stands, which is how it once was; then as a label.
                for short in [discovery.name.clone(), labels.label(&discovery.name)] {
                    let names = self.named(short);
                    self.names(&names);
                    self.discovery_ports(&names, discovery);
                }
            }
        }
    }

    fn named(&self, short: String) -> Names {
        let Self {
            make,
            framework,
            suffix,
            ..
        } = self;
        Names {
            own: [
                make.full(&format!("{short}.{framework}")),
                make.full(&format!("{short}{suffix}.{framework}")),
            ],
            on_agent: [
                make.full(&format!("{short}.{framework}.slave")),
                make.full(&format!("{short}{suffix}.{framework}.slave")),
            ],
            short,
        }
    }

    /// Where the task's own addresses are taken from: the first source that has any.
    fn ips(&self) -> &[IpAddr] {
        let sources = self.make.rules.ip_sources.iter().map(|source| match source {
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

    /// Addresses of the task and of its agent, and its ports on the agent.
    fn names(&mut self, names: &Names) {
        let mut lines = Vec::new();
        for ip in self.ips() {
            lines.extend(
                names
                    .own
                    .iter()
                    .map(|name| Line::Record(self.make.address(name, *ip))),
            );
            if self.make.rules.reverse {
                lines.push(Line::Pointer(Arc::clone(&names.own[0]), *ip));
            }
        }
        for ip in self.agent {
            lines.extend(
                names
                    .on_agent
                    .iter()
                    .map(|name| Line::Record(self.make.address(name, *ip))),
            );
        }
        self.lines.append(&mut lines);
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
                    self.service(&name, &names.on_agent[1], port);
                }
            }
        }
    }

    /// Ports that the task says it has: on its own addresses, and the same on its agent's.
    fn discovery_ports(&mut self, names: &Names, discovery: &Discovery) {
        let labels = self.make.rules.labels;
        for port in &discovery.ports {
            let protocol = labels.label(&port.protocol);
            let protocols = if port.protocol.is_empty() {
                vec!["tcp", "udp"]
            } else {
                vec![protocol.as_str()]
            };
            let port_name = labels.label(&port.name);
            for (suffix, target) in [("", &names.own[1]), (".slave", &names.on_agent[1])] {
                for protocol in &protocols {
                    let name = format!("_{}._{protocol}.{}{suffix}", names.short, self.framework);
                    self.service(&name, target, port.number);
                    if !port.name.is_empty() {
                        self.service(&format!("_{port_name}.{name}"), target, port.number);
                    }
                }
            }
        }
    }

    fn service(&mut self, name: &str, target: &Arc<str>, port: u32) {
        let name = self.make.rules.full(name);
        let record = self.make.service(&name, target, port, self.weight);
        self.lines.push(Line::Record(record));
    }
}

/// The ports of a range; a range that reaches beyond what ports there are is cut.
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
