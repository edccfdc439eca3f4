//! The configuration of the workflow service.

use std::fmt;
use std::time::Duration;

use transom_web::{BoundPort, LoopbackTrust, PortConfig};

use crate::{Error, Result};

/// Maximum bytes of a request's body; usual jobs have a few kilobytes.
const MAX_BODY_BYTES: usize = 1 << 20;

/// Settings of the service; all have defaults.
#[derive(Clone, Debug)]
pub struct Config {
    /// The HTTP port. `/v0/dags` always requires credentials; other paths require them from
    /// networks that are not trusted, and killing a job from any network.
    pub port: PortConfig,
    /// Prefix of the keys in the store, without a trailing slash; the framework's scheduler uses
    /// the same prefix.
    pub prefix: String,
    /// Defaults of jobs.
    pub defaults: Defaults,
    /// How long an agent may be unreachable before its jobs become `TASK_UNREACHABLE`.
    pub unreachable_grace: Duration,
    /// How long completed jobs are kept.
    pub completed_retention: Duration,
    /// Maximum number of active jobs; more are rejected.
    pub max_jobs: usize,
    /// Maximum bytes of the definitions of all active jobs; more are rejected.
    pub max_jobs_bytes: usize,
    /// The minimum interval of REVIVE calls for tasks that fit no offer: short, because jobs are
    /// short and their start delay matters.
    pub revive_interval: Duration,
    /// Timeout of one call of the store.
    pub store_timeout: Duration,
}

/// Defaults of jobs, and settings that apply to all jobs.
#[derive(Clone, PartialEq)]
pub struct Defaults {
    /// Whether jobs run in containers. On a cluster without containers, commands run as processes
    /// of its agents, and images are ignored.
    pub containers: bool,
    /// CPUs of a job.
    pub cpus: f64,
    /// Memory of a job in MB.
    pub mem: f64,
    /// Disk of a job in MB.
    pub disk: f64,
    /// The default image.
    pub image: Option<String>,
    /// Whether a command that is one string runs in the agent's shell instead of the image's.
    pub command_shell: bool,
    /// `HOST`, `BRIDGE`, `NONE`, or the name of a network.
    pub network_mode: String,
    /// Environment variables of every container; a job's own override them.
    pub environment: Vec<(String, String)>,
    /// Volumes of every container: name and path in the container.
    pub volumes: Vec<(String, String)>,
    /// The driver of named volumes.
    pub volume_driver: Option<String>,
    /// The container runtime's socket, for jobs that request it.
    pub sock: Option<String>,
    /// The group that may use the socket.
    pub user_group_id: Option<String>,
    /// Constraints of every job, in addition to its own.
    pub attributes: Vec<String>,
    /// A file that is fetched into every sandbox.
    pub fetch_uri: Option<String>,
    /// The user of the agent's host who fetches the file.
    pub fetch_user: Option<String>,
}

/// Variables may contain secrets: only their names are shown.
impl fmt::Debug for Defaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.environment.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Defaults")
            .field("containers", &self.containers)
            .field("image", &self.image)
            .field("environment", &names)
            .field("attributes", &self.attributes)
            .finish_non_exhaustive()
    }
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            containers: true,
            cpus: 0.1,
            mem: 256.0,
            disk: 1000.0,
            image: None,
            command_shell: true,
            network_mode: "HOST".to_owned(),
            environment: Vec::new(),
            volumes: Vec::new(),
            volume_driver: None,
            sock: None,
            user_group_id: None,
            attributes: Vec::new(),
            fetch_uri: None,
            fetch_user: None,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            port: PortConfig {
                hostname: "localhost".to_owned(),
                loopback_trust: LoopbackTrust::UnlessNetworks,
                ..PortConfig::new("workflow", 11000)
            },
            prefix: "Airflow".to_owned(),
            defaults: Defaults::default(),
            unreachable_grace: Duration::from_mins(1),
            completed_retention: Duration::from_hours(24),
            max_jobs: 100_000,
            max_jobs_bytes: 128 << 20,
            revive_interval: Duration::from_millis(200),
            store_timeout: transom_store::typed::TIMEOUT,
        }
    }
}

impl Config {
    /// Binds the port.
    ///
    /// # Errors
    /// [`Error::Web`] if the port cannot be bound or would be open to everybody.
    pub async fn bind(&self) -> Result<BoundPort> {
        let mut port = self.port.clone();
        port.limits.max_body = MAX_BODY_BYTES;
        port.bind().await.map_err(Error::Web)
    }
}
