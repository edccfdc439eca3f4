//! How the job is set up.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ipnet::IpNet;
use transom_web::{AllowedHost, Origin};

use crate::bus::PlanForm;

/// Settings of the job; all have defaults.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address of the HTTP port. Nobody is asked for credentials, so one that other machines reach needs
    /// [`trusted_networks`](Self::trusted_networks).
    pub listener: IpAddr,
    /// The networks whose requests are answered, besides this machine's.
    pub trusted_networks: Vec<IpNet>,
    /// Host names by which clients reach the port, beside loopback, its address and [`hostname`](Self::hostname). Requests
    /// for other names are refused.
    pub allowed_hosts: Vec<AllowedHost>,
    /// Other sites whose web pages may use the port.
    pub allowed_origins: Vec<Origin>,
    /// The HTTP port; 0 takes a free one.
    pub port: u16,
    /// The name under which clients reach this daemon; shown by `/v2/leader` and `X-Marathon-Leader`.
    pub hostname: String,
    /// Prefix of the job's keys in the store, without a slash at its end; the scheduler's of the same framework.
    pub prefix: String,
    /// The framework's name, as `/v2/info` shows it.
    pub framework_name: String,
    /// The framework's role, which apps get unless they say otherwise; `*` is always allowed.
    pub role: String,
    /// Who makes checks.
    pub checks: Checks,
    /// What the names of `HOST` and of the `PORT` variables of tasks begin with; upstream's `--env_vars_prefix`.
    pub env_vars_prefix: String,
    /// The event bus.
    pub events: Events,
    /// How long requests that are being answered may take when the daemon stops.
    pub grace: Duration,
}

/// Who makes checks: this daemon, or the agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// `http` and `tcp` checks.
    pub network: Network,
    /// `exec` checks.
    pub exec: Exec,
}

/// Who makes `http` and `tcp` checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// This daemon, through the check-probe components.
    #[default]
    Host,
    /// The agents, for networks that this daemon cannot reach.
    Cluster,
}

/// Who makes `exec` checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exec {
    /// The agents: a COMMAND check in the launched task.
    #[default]
    Cluster,
    /// This daemon, through the check-command component and the agents' API, where agents allow it.
    Host,
}

/// Settings of the event bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// How plans in deployment events are written.
    pub plan_format: PlanForm,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listener: IpAddr::V4(Ipv4Addr::LOCALHOST),
            trusted_networks: Vec::new(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            port: 8080,
            hostname: "localhost".to_owned(),
            prefix: "apps".to_owned(),
            framework_name: "apps".to_owned(),
            role: "*".to_owned(),
            checks: Checks::default(),
            env_vars_prefix: String::new(),
            events: Events::default(),
            grace: Duration::from_secs(5),
        }
    }
}
