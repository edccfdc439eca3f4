//! Which records a cluster has: mesos-dns's names, and the `.slave.` forms of its successor.
//!
//! A pure function of the model, the addresses of host names, and the rules of the site. It is called anew for every
//! zone; the order in which records are made decides only which task is listed as the owner of a shared one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use transom_cluster::{AgentId, TaskId};

use crate::cluster::{Cluster, Discovery, Endpoint, Framework, Host, Ordered, Task};
use crate::config::IpSource;
use crate::labels::{Rule, agent_tail, hash5};
use crate::zone::{Builder, Listed, ListedFramework, ListedTask};

/// Addresses of host names, as far as they are known.
pub type Hosts = HashMap<String, Vec<IpAddr>>;

/// What a site decides about its records.
#[derive(Clone, Debug)]
pub struct Rules {
    /// What every name ends with, without dots around it.
    pub domain: String,
    /// How texts become labels.
    pub labels: Rule,
    /// Where task addresses come from, in order.
    pub ip_sources: Vec<IpSource>,
    /// Masters as `host:port`, in order.
    pub masters: Vec<String>,
    /// The name server's own name, with its trailing dot, and addresses.
    pub name_server: (String, Vec<IpAddr>),
}

/// Makes every record of a cluster.
pub fn make(cluster: &Cluster, hosts: &Hosts, rules: &Rules) -> Builder {
    let mut make = Make {
        zone: Builder::new(),
        cluster,
        hosts,
        rules,
    };
    make.frameworks();
    make.agents();
    make.name_server();
    make.masters();
    make.tasks();
    make.zone
}

struct Make<'c> {
    zone: Builder,
    cluster: &'c Cluster,
    hosts: &'c Hosts,
    rules: &'c Rules,
}

/// The parts of a task's names.
struct Names<'t> {
    /// `web`, or the discovery name.
    short: String,
    /// `web-hash5-tail`
    canonical: String,
    /// `.marathon`
    framework: &'t str,
}

impl<'c> Make<'c> {
    /// `name.domain.`
    fn full(&self, name: &str) -> String {
        format!("{name}.{}.", self.rules.domain)
    }

    fn ips(&self, endpoint: &'c Endpoint) -> &'c [IpAddr] {
        match &endpoint.host {
            Host::Ip(ip) => std::slice::from_ref(ip),
            Host::Name(name) => self.hosts.get(name).map_or(&[], Vec::as_slice),
        }
    }

    fn addresses(&mut self, name: &str, ips: &[IpAddr]) {
        for ip in ips {
            self.zone.address(name, *ip);
        }
    }

    fn frameworks(&mut self) {
        for (_, Framework { name, endpoint }) in self.cluster.frameworks.iter() {
            let Some(endpoint) = endpoint else { continue };
            let name = self.full(&self.rules.labels.fragment(name));
            self.addresses(&name, self.ips(endpoint));
            if let Some(port) = endpoint.port {
                self.zone.service(
                    &format!("_framework._tcp.{name}"),
                    &Arc::from(name.as_str()),
                    port.into(),
                );
            }
        }
    }

    fn agents(&mut self) {
        let (name, service) = (self.full("slave"), self.full("_slave._tcp"));
        let target = Arc::from(name.as_str());
        for (_, agent) in self.cluster.agents.iter() {
            let ips = self.ips(agent);
            if ips.is_empty() {
                self.zone.skipped += 1;
                continue;
            }
            self.addresses(&name, ips);
            if let Some(port) = agent.port {
                self.zone.service(&service, &target, port.into());
            }
        }
    }

    fn name_server(&mut self) {
        let (name, ips) = &self.rules.name_server;
        self.addresses(name, ips);
    }

    /// `leader`, `master` and `master0` …; a leader that is no address yet has none of them.
    fn masters(&mut self) {
        let mut leader = None;
        if let Some(endpoint) = &self.cluster.leader {
            let ips = self.ips(endpoint);
            let name = self.full("leader");
            self.addresses(&name, ips);
            self.addresses(&self.full("master"), ips);
            if let (Some(port), false) = (endpoint.port, ips.is_empty()) {
                let target = Arc::from(name.as_str());
                for protocol in ["tcp", "udp"] {
                    self.zone
                        .service(&self.full(&format!("_leader._{protocol}")), &target, port.into());
                }
                leader = Some((ips, port));
            }
        }
        let mut numbered = Vec::new();
        let mut has_leader = false;
        for master in &self.rules.masters {
            let Some((Host::Ip(ip), port)) = host_port(master) else {
                continue;
            };
            let leads = leader.is_some_and(|(ips, leading)| ips.contains(&ip) && leading == port);
            if leads && has_leader || !leads && !self.zone.address(&self.full("master"), ip) {
                continue;
            }
            has_leader |= leads;
            numbered.push(ip);
        }
        if let (Some((ips, _)), false) = (leader, has_leader) {
            numbered.extend(ips);
        }
        for (n, ip) in numbered.into_iter().enumerate() {
            self.zone.address(&self.full(&format!("master{n}")), ip);
        }
    }

    fn tasks(&mut self) {
        for (id, framework) in self.cluster.frameworks.iter() {
            let fragment = self.rules.labels.fragment(&framework.name);
            let tasks = self.cluster.tasks.get(id);
            let running = tasks
                .into_iter()
                .flat_map(Ordered::iter)
                .filter(|(_, task)| task.running);
            let mut listed = Vec::new();
            for (id, task) in running {
                // A task on an agent that nobody knows runs nowhere that could be told.
                let Some(agent) = self.cluster.agents.get(&task.agent) else {
                    self.zone.skipped += 1;
                    continue;
                };
                let records = self.task(id, task, self.ips(agent), &fragment);
                listed.push(ListedTask {
                    name: task.name.clone(),
                    id: id.to_string(),
                    records,
                });
            }
            self.zone.list(ListedFramework {
                name: framework.name.clone(),
                tasks: listed,
            });
        }
    }

    fn task(&mut self, id: &TaskId, task: &Task, agent_ips: &[IpAddr], framework: &str) -> Vec<Listed> {
        let names = |short: String| {
            let canonical = format!("{short}-{}-{}", hash5(id.as_str()), tail(&task.agent));
            Names {
                short,
                canonical,
                framework,
            }
        };
        let labels = self.rules.labels;
        let mut listed = Vec::new();
        match &task.discovery {
            None => self.task_names(&names(labels.label(&task.name)), task, agent_ips, &mut listed),
            Some(discovery) => {
                // First the name as it stands, which is how it once was; then as a label.
                let raw = names(discovery.name.clone());
                let label = names(labels.label(&discovery.name));
                for names in [&raw, &label] {
                    self.task_names(names, task, agent_ips, &mut listed);
                    self.discovery_ports(names, discovery, &mut listed);
                }
            }
        }
        listed
    }

    fn task_ips<'t>(&self, task: &'t Task, agent_ips: &'t [IpAddr]) -> &'t [IpAddr] {
        let sources = self.rules.ip_sources.iter().map(|source| match source {
            IpSource::Host => agent_ips,
            IpSource::Docker => &task.addresses.docker,
            IpSource::Mesos => &task.addresses.mesos,
            IpSource::Netinfo => &task.addresses.netinfo,
        });
        sources
            .into_iter()
            .find(|ips| !ips.is_empty())
            .unwrap_or_default()
    }

    /// Addresses of the task and of its agent, and its ports on the agent.
    fn task_names(&mut self, names: &Names<'_>, task: &Task, agent_ips: &[IpAddr], listed: &mut Vec<Listed>) {
        let Names {
            short,
            canonical,
            framework,
        } = names;
        let own = [
            self.full(&format!("{short}.{framework}")),
            self.full(&format!("{canonical}.{framework}")),
        ];
        let on_agent = [
            self.full(&format!("{short}.{framework}.slave")),
            self.full(&format!("{canonical}.{framework}.slave")),
        ];
        for (names, ips) in [(&own, self.task_ips(task, agent_ips)), (&on_agent, agent_ips)] {
            for ip in ips {
                for name in names {
                    listed.extend(self.zone.listed_address(name, *ip));
                }
            }
        }
        let target = Arc::from(on_agent[1].as_str());
        let suffixes: &[&str] = if task.discovery.is_some() {
            &[".slave"]
        } else {
            &[".slave", ""]
        };
        for port in task.ports.iter().flat_map(|(first, last)| ports(*first, *last)) {
            for suffix in suffixes {
                for protocol in ["tcp", "udp"] {
                    let service = self.full(&format!("_{short}._{protocol}.{framework}{suffix}"));
                    listed.extend(self.zone.listed_service(&service, &target, port));
                }
            }
        }
    }

    /// Ports that the task says it has: on its own addresses, and the same on its agent's.
    fn discovery_ports(&mut self, names: &Names<'_>, discovery: &Discovery, listed: &mut Vec<Listed>) {
        let Names {
            short,
            canonical,
            framework,
        } = names;
        let own = Arc::from(self.full(&format!("{canonical}.{framework}")).as_str());
        let on_agent = Arc::from(self.full(&format!("{canonical}.{framework}.slave")).as_str());
        for port in &discovery.ports {
            let protocol = self.rules.labels.label(&port.protocol);
            let protocols = if port.protocol.is_empty() {
                vec!["tcp", "udp"]
            } else {
                vec![protocol.as_str()]
            };
            let name = self.rules.labels.label(&port.name);
            for (suffix, target) in [("", &own), (".slave", &on_agent)] {
                for protocol in &protocols {
                    let service = format!("_{short}._{protocol}.{framework}{suffix}");
                    listed.extend(
                        self.zone
                            .listed_service(&self.full(&service), target, port.number),
                    );
                    if !port.name.is_empty() {
                        let by_port = self.full(&format!("_{name}.{service}"));
                        listed.extend(self.zone.listed_service(&by_port, target, port.number));
                    }
                }
            }
        }
    }
}

fn tail(agent: &AgentId) -> String {
    agent_tail(agent.as_str())
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
