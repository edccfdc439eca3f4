//! Configuration: addresses, agents with their resources and attributes, intervals.

use crate::{
    error::{Error, Result},
    wire::resources::Resources,
};
use serde_json::{Value, json};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};
use transom_web::AllowedHost;

/// A cluster: a master and its agents, all in this process.
///
/// The intervals default to those of a real master; tests shorten them.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address of the master; port 0 selects a free one.
    pub listen: SocketAddr,
    /// Address of a second master. It does not lead: it redirects to the leading master until a
    /// fault swaps them.
    pub standby: Option<SocketAddr>,
    /// The host name that the master shows and redirects to.
    pub hostname: String,
    /// The cluster's name in `/state`.
    pub cluster: String,
    /// The agents, in the order of their ids (`…-S0`, `…-S1`, …).
    pub agents: Vec<AgentConfig>,
    /// Directory with the sandboxes and journals, in `agents/<agent id>`. Created if missing.
    pub work_dir: PathBuf,
    /// Interval of `HEARTBEAT` events, as advertised.
    pub heartbeat: Duration,
    /// Interval after which free resources are offered again without another cause.
    pub allocation_interval: Duration,
    /// Delay after which the tasks of a disconnected agent become unreachable.
    pub agent_timeout: Duration,
    /// Where a master keeps its list of agents across a restart.
    pub registry: Registry,
    /// Delay after which the first agent registers again with a new leading master. The others follow
    /// one by one; the last one waits less than twice as long.
    pub reregister: Duration,
    /// Delay after which an unacknowledged update is sent again; doubles each time, up to ten
    /// minutes.
    pub update_retry: Duration,
    /// Time between SIGTERM and SIGKILL, unless the task or the kill sets another.
    pub kill_grace: Duration,
    /// Time in which a custom executor has to subscribe after its start.
    pub executor_registration_timeout: Duration,
    /// Time in which it has to subscribe again after the restart of its agent.
    pub executor_reregistration_timeout: Duration,
    /// Time between SHUTDOWN and SIGKILL of a custom executor, unless its `ExecutorInfo` sets
    /// another.
    pub executor_shutdown_grace: Duration,
    /// Principals and secrets, one of which every call must use; empty: no authentication.
    pub credentials: Vec<(String, String)>,
    /// Those of the principals whose ACLs let them view neither frameworks nor tasks.
    pub blind_principals: Vec<String>,
    /// How tasks that name a container image are run.
    pub images: Images,
    /// Host names by which clients reach the ports, in addition to loopback, the address connected
    /// to, [`hostname`](Self::hostname) and those of the agents. Requests for other names are
    /// rejected, because a web page may have sent them.
    pub allowed_hosts: Vec<AllowedHost>,
    /// Whether `?jsonp=NAME` wraps documents in a call of that function, as real masters and agents
    /// do. Any web page can then read them.
    pub jsonp: bool,
}

/// How tasks that name a container image are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Images {
    /// In containers of Podman, or of Docker if Podman does not work. The search starts with the
    /// first such task. Without a runtime such tasks fail.
    #[default]
    Auto,
    /// In containers of Podman. If Podman cannot run containers, the cluster does not start.
    Podman,
    /// In containers of Docker. If Docker cannot run containers, the cluster does not start.
    Docker,
    /// As processes, without a runtime and without the image. The task's status reports that.
    Process,
    /// Not at all: such tasks fail.
    None,
}

impl Images {
    /// All settings with their names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("auto", Self::Auto),
        ("podman", Self::Podman),
        ("docker", Self::Docker),
        ("process", Self::Process),
        ("none", Self::None),
    ];
}

impl fmt::Display for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, images)| images == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

impl FromStr for Images {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, images)| *images).ok_or_else(|| {
            let names = Self::ALL.map(|(name, _)| name).join(", ");
            format!("`{text}` is not one of {names}")
        })
    }
}

/// Where a master keeps its list of agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registry {
    /// In memory. After a restart the master knows no agents, and reconciliation immediately
    /// reports unknown tasks as unknown.
    InMemory,
    /// In a replicated log. After a restart the master waits for its agents, and does not reconcile
    /// unknown tasks until they have registered.
    ReplicatedLog,
}

/// One agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Address of its HTTP port and of its tasks.
    pub ip: IpAddr,
    /// Its HTTP port; 0 selects a free one.
    pub port: u16,
    /// Its host name in offers.
    pub hostname: String,
    /// CPUs.
    pub cpus: f64,
    /// Memory in MB.
    pub mem: f64,
    /// Disk in MB.
    pub disk: f64,
    /// Further disks.
    pub disks: Vec<Disk>,
    /// First and last host port that it offers. Two agents with the same address must not share a
    /// port.
    pub ports: (u16, u16),
    /// Names and values; a value is a scalar (`4`), ranges (`[1-3, 7-9]`), a set (`{a,b}`) or else
    /// a text.
    pub attributes: Vec<(String, String)>,
}

/// A disk of an agent other than the one with its work directory. Its size is not enforced.
#[derive(Clone, Debug, PartialEq)]
pub struct Disk {
    /// The type of its source.
    pub kind: DiskKind,
    /// Its directory, created if missing; a real agent needs a mount point for `Mount`. Frameworks
    /// see the absolute path.
    pub root: PathBuf,
    /// Size in MB.
    pub size: f64,
}

/// The types of further disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskKind {
    /// `PATH`: several volumes may share it.
    Path,
    /// `MOUNT`: it is reserved and used as a whole.
    Mount,
}

impl Disk {
    /// `DiskInfo.Source`.
    fn source(&self) -> Value {
        let root = self.root.display().to_string();
        match self.kind {
            DiskKind::Path => json!({"type": "PATH", "path": {"root": root}}),
            DiskKind::Mount => json!({"type": "MOUNT", "mount": {"root": root}}),
        }
    }
}

impl Config {
    /// A cluster without agents on a free loopback port, with a real master's intervals.
    pub fn new(work_dir: impl Into<PathBuf>) -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            standby: None,
            hostname: "localhost".to_owned(),
            cluster: "minicluster".to_owned(),
            agents: Vec::new(),
            work_dir: work_dir.into(),
            heartbeat: Duration::from_secs(15),
            allocation_interval: Duration::from_secs(1),
            agent_timeout: Duration::from_secs(75),
            registry: Registry::InMemory,
            reregister: Duration::from_millis(200),
            update_retry: Duration::from_secs(10),
            kill_grace: Duration::from_secs(3),
            executor_registration_timeout: Duration::from_mins(1),
            executor_reregistration_timeout: Duration::from_secs(2),
            executor_shutdown_grace: Duration::from_secs(5),
            credentials: Vec::new(),
            blind_principals: Vec::new(),
            images: Images::Auto,
            allowed_hosts: Vec::new(),
            jsonp: false,
        }
    }

    /// Three agents with addresses 127.0.0.1 to .3, disjoint port ranges, and attributes for
    /// constraints.
    pub fn three_agents(work_dir: impl Into<PathBuf>) -> Self {
        let agent = |index: u8| AgentConfig {
            ip: IpAddr::V4(Ipv4Addr::new(127, 0, 0, index + 1)),
            port: 0,
            hostname: format!("agent{}", index + 1),
            cpus: 4.0,
            mem: 4096.0,
            disk: 8192.0,
            disks: Vec::new(),
            ports: (31000 + 500 * u16::from(index), 31499 + 500 * u16::from(index)),
            attributes: vec![
                ("rack".to_owned(), format!("r{}", index + 1)),
                ("zone".to_owned(), (if index == 0 { "a" } else { "b" }).to_owned()),
            ],
        };
        Self {
            agents: (0..3).map(agent).collect(),
            ..Self::new(work_dir)
        }
    }

    /// Rejects invalid values: overlapping ports on one address, negative amounts, disks without a
    /// size or with the same root, zero intervals.
    pub(crate) fn check(&self) -> Result<()> {
        for (index, agent) in self.agents.iter().enumerate() {
            let amounts = [("cpus", agent.cpus), ("mem", agent.mem), ("disk", agent.disk)];
            if let Some((name, amount)) = amounts.iter().find(|(_, n)| !n.is_finite() || *n < 0.0) {
                return Err(Error::Invalid(format!(
                    "agent {}: {name} is {amount}, expected zero or more",
                    agent.hostname
                )));
            }
            for disk in &agent.disks {
                if !disk.size.is_finite() || disk.size <= 0.0 {
                    return Err(Error::Invalid(format!(
                        "agent {}: the size of disk {} is {}, expected more than zero",
                        agent.hostname,
                        disk.root.display(),
                        disk.size
                    )));
                }
            }
            if agent.ports.0 > agent.ports.1 {
                return Err(Error::Invalid(format!(
                    "agent {}: ports {:?} end before they begin",
                    agent.hostname, agent.ports
                )));
            }
            let clash = self.agents[..index].iter().find(|other| {
                other.ip == agent.ip && agent.ports.0 <= other.ports.1 && other.ports.0 <= agent.ports.1
            });
            if let Some(other) = clash {
                return Err(Error::Invalid(format!(
                    "agents {} and {} share ports on {}: {:?} and {:?}",
                    other.hostname, agent.hostname, agent.ip, other.ports, agent.ports
                )));
            }
        }
        let roots: Vec<&Path> = self
            .agents
            .iter()
            .flat_map(|agent| &agent.disks)
            .map(|disk| disk.root.as_path())
            .collect();
        if let Some((_, root)) = roots
            .iter()
            .enumerate()
            .find(|(index, root)| roots[..*index].contains(*root))
        {
            return Err(Error::Invalid(format!(
                "two disks have the same root, {}",
                root.display()
            )));
        }
        let intervals = [
            ("heartbeat", self.heartbeat),
            ("allocation_interval", self.allocation_interval),
            ("update_retry", self.update_retry),
        ];
        match intervals.iter().find(|(_, interval)| interval.is_zero()) {
            Some((name, _)) => Err(Error::Invalid(format!("{name} must be longer than zero"))),
            None => Ok(()),
        }
    }
}

impl AgentConfig {
    /// All resources, without reservations.
    pub(crate) fn resources(&self) -> Resources {
        let ports = (u64::from(self.ports.0), u64::from(self.ports.1));
        let mut resources = Resources::total(self.cpus, self.mem, self.disk, ports);
        for disk in &self.disks {
            resources.add(&Resources::disk(&disk.source(), disk.size));
        }
        resources
    }

    /// The attributes as `Attribute` messages and as the plain object of `/state`.
    pub(crate) fn attribute_documents(&self) -> (Vec<Value>, Value) {
        let messages = self
            .attributes
            .iter()
            .map(|(name, value)| attribute(name, value))
            .collect();
        let plain = self
            .attributes
            .iter()
            .map(|(name, value)| {
                let number = value.parse::<f64>().ok().filter(|number| number.is_finite());
                (
                    name.clone(),
                    number.map_or_else(|| json!(value), |number| json!(number)),
                )
            })
            .collect();
        (messages, Value::Object(plain))
    }
}

/// An attribute whose type follows from the syntax of its value, as for the agent's flag
/// `--attributes`.
fn attribute(name: &str, value: &str) -> Value {
    let value = value.trim();
    if let Some(ranges) = value
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .and_then(ranges)
    {
        return json!({"name": name, "type": "RANGES", "ranges": {"range": ranges}});
    }
    if let Some(items) = value.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        let items: Vec<&str> = items
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .collect();
        return json!({"name": name, "type": "SET", "set": {"item": items}});
    }
    match value.parse::<f64>() {
        Ok(number) if number.is_finite() => {
            json!({"name": name, "type": "SCALAR", "scalar": {"value": number}})
        }
        _ => json!({"name": name, "type": "TEXT", "text": {"value": value}}),
    }
}

fn ranges(text: &str) -> Option<Vec<Value>> {
    text.split(',')
        .map(|range| {
            let (begin, end) = range.trim().split_once('-')?;
            let (begin, end): (u64, u64) = (begin.trim().parse().ok()?, end.trim().parse().ok()?);
            Some(json!({"begin": begin, "end": end}))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attributes_kind_follows_from_its_syntax() {
        let cases = [
            (
                "r1",
                json!({"name": "x", "type": "TEXT", "text": {"value": "r1"}}),
            ),
            (
                "4.5",
                json!({"name": "x", "type": "SCALAR", "scalar": {"value": 4.5}}),
            ),
            (
                "[1-3, 7-9]",
                json!({"name": "x", "type": "RANGES", "ranges": {"range": [{"begin": 1, "end": 3}, {"begin": 7, "end": 9}]}}),
            ),
            (
                "{a, b}",
                json!({"name": "x", "type": "SET", "set": {"item": ["a", "b"]}}),
            ),
            (
                "[odd]",
                json!({"name": "x", "type": "TEXT", "text": {"value": "[odd]"}}),
            ),
        ];
        for (value, expected) in cases {
            assert_eq!(attribute("x", value), expected, "{value}");
        }
    }

    #[test]
    fn settings_for_images_are_read_by_their_names() {
        for (name, images) in Images::ALL {
            assert_eq!(name.parse(), Ok(images));
            assert_eq!(images.to_string(), name);
        }
        let rejected = "runc".parse::<Images>().unwrap_err();
        assert_eq!(
            rejected,
            "`runc` is not one of auto, podman, docker, process, none"
        );
    }

    #[test]
    fn disks_have_a_separate_size_and_root() {
        let mut config = Config::three_agents("unused");
        let disk = |root: &str, size| Disk {
            kind: DiskKind::Mount,
            root: PathBuf::from(root),
            size,
        };
        config.agents[0].disks = vec![disk("/a", 1.0)];
        config.agents[1].disks = vec![disk("/b", 1.0)];
        config.check().unwrap();
        let cases = [
            (disk("/a", 1.0), "two disks have the same root, /a"),
            (disk("/c", 0.0), "size of disk /c is 0, expected more than zero"),
        ];
        for (disk, why) in cases {
            config.agents[1].disks = vec![disk];
            assert!(config.check().unwrap_err().to_string().contains(why));
        }
    }

    #[test]
    fn agents_may_not_share_ports_on_one_address() {
        let mut config = Config::three_agents("unused");
        config.check().unwrap();
        config.agents[1].ip = config.agents[0].ip;
        config.check().unwrap();
        config.agents[1].ports = (31499, 31600);
        assert!(config.check().unwrap_err().to_string().contains("share ports"));
    }
}
