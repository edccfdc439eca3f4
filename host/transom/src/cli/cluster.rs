//! `transom cluster`: the embedded cluster manager alone.

mod attributes;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tokio_util::sync::CancellationToken;
use transom_cli::{
    exit::{Misconfigured, Unavailable},
    output::print_line,
    signals::stop_on_signal,
};
use transom_config::{LogFormat, LogLevel};
use transom_minicluster::{AgentConfig, AllowedHost, Disk, DiskKind, Images, Minicluster};

use crate::telemetry;
use attributes::Attributes;

/// Run a one-node cluster manager for tests and demos: a master and several agents that run tasks
/// as local processes, and those with an image through Podman or Docker.
///
/// It serves the cluster manager's HTTP API v1, so clients and frameworks for a real cluster work
/// with it.
#[derive(Debug, Args)]
pub(super) struct ClusterCommand {
    #[command(flatten)]
    shape: Shape,
    /// Address and port of the master; port 0 picks a free port and prints it.
    #[arg(long, default_value = "127.0.0.1:5050")]
    listen: SocketAddr,
    /// Directory for task sandboxes and agent journals.
    #[arg(long, default_value = ".transom/cluster")]
    work_dir: PathBuf,
    /// Address and port of a standby master; `POST /minicluster/faults` makes it the leader.
    #[arg(long)]
    standby: Option<SocketAddr>,
    /// Seconds without contact until an agent and its tasks count as unreachable.
    #[arg(long, default_value_t = 75.0)]
    agent_timeout: f64,
    /// Log level: error, warn, info, debug or trace.
    #[arg(long, env = "TRANSOM_LOG_LEVEL", default_value = "info")]
    log_level: LogLevel,
}

/// The options for the size and the agents of the cluster.
#[derive(Clone, Debug, Args)]
pub(super) struct Shape {
    /// Number of agents.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=32))]
    agents: u8,
    /// Attributes of the first agent; each repetition sets those of the next agent. Further agents get
    /// the given attributes in turn. Default: a separate rack for each agent (`rack:r1`), and the zones
    /// `a` and `b` in turn.
    #[arg(long, value_name = "NAME:VALUE;...")]
    attributes: Vec<Attributes>,
    /// Port range offered to tasks, split evenly among the agents.
    #[arg(long, default_value = "31000-32499", value_name = "FIRST-LAST")]
    ports: PortRange,
    /// CPUs per agent.
    #[arg(long, default_value_t = 4.0)]
    cpus: f64,
    /// Memory per agent, in MB.
    #[arg(long, default_value_t = 4096.0)]
    mem: f64,
    /// Disk per agent, in MB.
    #[arg(long, default_value_t = 8192.0)]
    disk: f64,
    /// A further disk of each agent, with its size in MB, for persistent volumes of type path or
    /// mount, for example `mount:1024`; may be repeated.
    #[arg(long, value_name = "KIND:MB")]
    extra_disk: Vec<ExtraDisk>,
    /// What runs tasks with a container image: auto (podman, else docker), podman, docker, process
    /// (the command without its image) or none.
    #[arg(long, default_value_t = Images::Auto, value_name = "RUNTIME")]
    images: Images,
    /// A host name by which clients reach the cluster manager, such as `host.containers.internal` or
    /// `*.example.com`; may be repeated. Loopback and its own addresses are always accepted; requests
    /// for other names get 421, because a web page may have sent them.
    #[arg(long, value_name = "NAME")]
    allowed_host: Vec<AllowedHost>,
    /// Let the cluster manager answer `?jsonp=NAME` as a real one does; any web page can then read its
    /// documents.
    #[arg(long)]
    jsonp: bool,
}

/// An inclusive range of ports.
#[derive(Clone, Copy, Debug)]
pub(super) struct PortRange {
    first: u16,
    last: u16,
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = text.split_once('-').and_then(|(first, last)| {
            Some(PortRange {
                first: first.parse().ok()?,
                last: last.parse().ok()?,
            })
        });
        match range {
            Some(range) if range.first > 0 && range.first <= range.last => Ok(range),
            _ => Err(format!("`{text}` is not a range of ports such as 31000-32499")),
        }
    }
}

/// A further disk of each agent.
#[derive(Clone, Copy, Debug)]
struct ExtraDisk {
    kind: DiskKind,
    /// In MB.
    size: f64,
}

impl FromStr for ExtraDisk {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let disk = text.split_once(':').and_then(|(kind, size)| {
            let kind = match kind {
                "path" => DiskKind::Path,
                "mount" => DiskKind::Mount,
                _ => return None,
            };
            let size = size.parse().ok().filter(|size| *size > 0.0)?;
            Some(Self { kind, size })
        });
        disk.ok_or_else(|| format!("`{text}` is not a disk such as path:4096 or mount:1024"))
    }
}

impl Shape {
    /// The configurations of the agents. Each agent has a loopback address, from 127.0.0.1 on. Further
    /// disks are directories in `work_dir`.
    fn agents(&self, work_dir: &Path) -> anyhow::Result<Vec<AgentConfig>> {
        let total = u32::from(self.ports.last - self.ports.first) + 1;
        let share = total / u32::from(self.agents);
        anyhow::ensure!(share > 0, "{total} ports are too few for {} agents", self.agents);
        anyhow::ensure!(
            self.attributes.len() <= usize::from(self.agents),
            "--attributes is given {} times for {} agents; --agents sets their number",
            self.attributes.len(),
            self.agents
        );
        (0..self.agents)
            .map(|index| {
                let first = u32::from(self.ports.first) + u32::from(index) * share;
                let ip = IpAddr::V4(Ipv4Addr::new(127, 0, 0, index + 1));
                Ok(AgentConfig {
                    ip,
                    port: 0,
                    hostname: ip.to_string(),
                    cpus: self.cpus,
                    mem: self.mem,
                    disk: self.disk,
                    disks: self.disks(&work_dir.join(format!("disks/agent{}", index + 1))),
                    ports: (u16::try_from(first)?, u16::try_from(first + share - 1)?),
                    attributes: self.attributes(index),
                })
            })
            .collect()
    }

    /// The attributes of an agent; `index` starts at 0.
    fn attributes(&self, index: u8) -> Vec<(String, String)> {
        let mut attribute_sets = self.attributes.iter().cycle();
        if let Some(Attributes(attributes)) = attribute_sets.nth(usize::from(index)) {
            return attributes.clone();
        }
        let zone = if index.is_multiple_of(2) { "a" } else { "b" };
        vec![
            ("rack".to_owned(), format!("r{}", index + 1)),
            ("zone".to_owned(), zone.to_owned()),
        ]
    }

    fn disks(&self, dir: &Path) -> Vec<Disk> {
        let disks = self.extra_disk.iter().enumerate();
        let disk = |(index, disk): (usize, &ExtraDisk)| Disk {
            kind: disk.kind,
            root: dir.join(format!("disk{}", index + 1)),
            size: disk.size,
        };
        disks.map(disk).collect()
    }

    /// The cluster's configuration.
    pub(super) fn config(
        &self,
        listen: SocketAddr,
        work_dir: PathBuf,
    ) -> anyhow::Result<transom_minicluster::Config> {
        Ok(transom_minicluster::Config {
            listen,
            agents: self.agents(&work_dir).context(Misconfigured)?,
            images: self.images,
            allowed_hosts: self.allowed_host.clone(),
            jsonp: self.jsonp,
            ..transom_minicluster::Config::new(work_dir)
        })
    }

    /// Starts the cluster.
    pub(super) async fn start(
        &self,
        listen: SocketAddr,
        work_dir: PathBuf,
        token: CancellationToken,
    ) -> anyhow::Result<Minicluster> {
        let config = self.config(listen, work_dir)?;
        config.start(token).await.context(Unavailable)
    }
}

impl ClusterCommand {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        telemetry::start(&self.log_level, LogFormat::Text).context(Misconfigured)?;
        let token = CancellationToken::new();
        stop_on_signal(token.clone())?;
        let agent_timeout = Duration::try_from_secs_f64(self.agent_timeout)
            .context("--agent-timeout")
            .context(Misconfigured)?;
        let config = transom_minicluster::Config {
            standby: self.standby,
            agent_timeout,
            ..self.shape.config(self.listen, self.work_dir)?
        };
        let cluster = config.start(token.clone()).await.context(Unavailable)?;
        print_line(format_args!("cluster master on {}", cluster.master()))?;
        if let Some(standby) = cluster.standby() {
            print_line(format_args!("cluster standby on {standby}"))?;
        }
        for agent in cluster.agents() {
            print_line(format_args!("cluster agent on {agent}"))?;
        }
        token.cancelled().await;
        cluster.stopped().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        shape: Shape,
    }

    fn racks(arguments: &[&str]) -> anyhow::Result<Vec<String>> {
        let line = CommandLine::try_parse_from([&["x"], arguments].concat())?;
        let agents = line.shape.agents(Path::new("work"))?;
        let rack = |agent: &AgentConfig| {
            let attributes = agent
                .attributes
                .iter()
                .map(|(name, value)| format!("{name}:{value}"));
            attributes.collect::<Vec<_>>().join(";")
        };
        Ok(agents.iter().map(rack).collect())
    }

    #[test]
    fn agents_get_the_given_attributes_in_turn() {
        assert_eq!(
            racks(&[]).unwrap(),
            ["rack:r1;zone:a", "rack:r2;zone:b", "rack:r3;zone:a"]
        );
        let specs = [
            "--agents",
            "5",
            "--attributes",
            "rack:a;disk:ssd",
            "--attributes",
            "rack:b",
        ];
        let expected = [
            "rack:a;disk:ssd",
            "rack:b",
            "rack:a;disk:ssd",
            "rack:b",
            "rack:a;disk:ssd",
        ];
        assert_eq!(racks(&specs).unwrap(), expected);
        assert_eq!(racks(&["--attributes", ""]).unwrap(), ["", "", ""]);
        for (specs, message) in [
            (
                &["--agents", "1", "--attributes", "a:1", "--attributes", "a:2"][..],
                "--attributes is given 2 times for 1 agents",
            ),
            (&["--attributes", "rack"], "`rack` is not an attribute"),
            (&["--agents", "33"], "33"),
        ] {
            let error = racks(specs).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
