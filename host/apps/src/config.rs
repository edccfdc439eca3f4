//! Configuration of the apps service.

use std::time::Duration;

use transom_web::{BoundPort, PortConfig};

use crate::bus::PlanForm;
use crate::{Error, Result};

/// Attempts of probes under way at a time, by default.
pub const CONCURRENCY: usize = 1000;

/// Settings of the apps service; all have defaults.
#[derive(Clone, Debug)]
pub struct Config {
    /// The HTTP port. Its host name is the name under which clients reach this daemon, shown by
    /// `/v2/leader` and `X-Marathon-Leader`.
    pub port: PortConfig,
    /// Prefix of the service's keys in the store, without a trailing slash; the scheduler of the
    /// same framework uses the same prefix.
    pub prefix: String,
    /// The framework's name, as `/v2/info` shows it.
    pub framework_name: String,
    /// The framework's role, the default role of apps; `*` is always allowed.
    pub role: String,
    /// Where checks run.
    pub checks: Checks,
    /// How many attempts of checks may be under way at a time.
    pub check_concurrency: usize,
    /// The same of health and readiness checks together.
    pub health_concurrency: usize,
    /// Prefix of the variable `HOST` and of the `PORT` variables of tasks; upstream's
    /// `--env_vars_prefix`.
    pub env_vars_prefix: String,
    /// The event bus.
    pub events: Events,
    /// How long a launched task may stay in one state until it runs; then it is killed and launched
    /// again.
    pub launch_timeout: Duration,
    /// The minimum interval of REVIVE calls for tasks that fit no offer.
    pub revive_interval: Duration,
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
            port: PortConfig {
                hostname: "localhost".to_owned(),
                ..PortConfig::new("apps", 8080)
            },
            prefix: "apps".to_owned(),
            framework_name: "apps".to_owned(),
            role: "*".to_owned(),
            checks: Checks::default(),
            check_concurrency: CONCURRENCY,
            health_concurrency: CONCURRENCY,
            env_vars_prefix: String::new(),
            events: Events::default(),
            launch_timeout: Duration::from_mins(5),
            revive_interval: Duration::from_secs(1),
            store_timeout: transom_store::typed::TIMEOUT,
        }
    }
}

impl Config {
    /// Binds the port.
    ///
    /// # Errors
    /// [`Error::Web`] when the port cannot be bound or would be open to everybody.
    pub async fn bind(&self) -> Result<BoundPort> {
        self.port.clone().bind().await.map_err(Error::Web)
    }
}
