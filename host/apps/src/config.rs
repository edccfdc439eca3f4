//! Configuration of the apps service.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ipnet::IpNet;
use transom_web::{AllowedHost, Origin};

use crate::bus::PlanForm;

/// Settings of the apps service; all have defaults.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address of the HTTP port. The port has no authentication, so an address that other machines
    /// can reach requires [`trusted_networks`](Self::trusted_networks).
    pub listener: IpAddr,
    /// Networks whose requests are accepted, in addition to this machine.
    pub trusted_networks: Vec<IpNet>,
    /// Host names by which clients may reach the port, in addition to loopback, its address and
    /// [`hostname`](Self::hostname). Requests for other names are rejected.
    pub allowed_hosts: Vec<AllowedHost>,
    /// Origins of other sites whose web pages may use the port.
    pub allowed_origins: Vec<Origin>,
    /// The HTTP port; 0 selects a free one.
    pub port: u16,
    /// The name under which clients reach this daemon, shown by `/v2/leader` and
    /// `X-Marathon-Leader`.
    pub hostname: String,
    /// Prefix of the service's keys in the store, without a trailing slash; the scheduler of the
    /// same framework uses the same prefix.
    pub prefix: String,
    /// The framework's name, as `/v2/info` shows it.
    pub framework_name: String,
    /// The framework's role, the default role of apps; `*` is always allowed.
    pub role: String,
    /// Where checks run.
    pub checks: Checks,
    /// Prefix of the variable `HOST` and of the `PORT` variables of tasks; upstream's
    /// `--env_vars_prefix`.
    pub env_vars_prefix: String,
    /// The event bus.
    pub events: Events,
    /// Time for open requests to finish when the daemon stops.
    pub grace: Duration,
    /// Timeout of one call of the store.
    pub store_timeout: Duration,
}

/// Where checks run: in this daemon or in the agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// `http` and `tcp` checks.
    pub network: Network,
    /// `exec` checks.
    pub exec: Exec,
}

/// Where `http` and `tcp` checks run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// In this daemon, with the check-probe components.
    #[default]
    Host,
    /// In the agents, for networks that this daemon cannot reach.
    Cluster,
}

/// Where `exec` checks run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exec {
    /// In the agents: a COMMAND check in the launched task.
    #[default]
    Cluster,
    /// In this daemon, with the check-command component and the agents' API, if the agents allow
    /// it.
    Host,
}

/// Settings of the event bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// The form of plans in deployment events.
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
            store_timeout: transom_store::typed::TIMEOUT,
        }
    }
}
