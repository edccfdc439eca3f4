//! The configuration of the workflow service.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use transom_web::{AllowedHost, Credentials, Origin};

/// Settings of the service; all have defaults.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address of the HTTP port. An address other than loopback requires
    /// [`credentials`](Self::credentials) or [`trusted_networks`](Self::trusted_networks).
    pub listener: IpAddr,
    /// The HTTP port; 0 selects a free one.
    pub port: u16,
    /// The host name under which other daemons reach this one.
    pub hostname: String,
    /// Certificate and key (PEM files) of the port; `None`: no TLS. Other daemons need the same
    /// certificate, or one issued by a certificate in the same file.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Required on every path if set; `/v0/dags` always requires them.
    pub credentials: Option<Credentials>,
    /// Networks that may queue jobs and look them up without credentials; `None`: loopback.
    pub trusted_networks: Option<Vec<IpNet>>,
    /// Host names of the port, in addition to loopback, its address and
    /// [`hostname`](Self::hostname). Requests for other names are rejected.
    pub allowed_hosts: Vec<AllowedHost>,
    /// Origins of other web sites that may use the port.
    pub allowed_origins: Vec<Origin>,
    /// Prefix of the keys in the store, without a trailing slash; the scheduler of the framework
    /// has the same.
    pub prefix: String,
    /// Defaults of jobs.
    pub defaults: Defaults,
    /// How long an agent may be unreachable before its jobs become `TASK_UNREACHABLE`.
    pub unreachable_grace: Duration,
    /// How long completed jobs are kept.
    pub completed_retention: Duration,
    /// Maximum number of active jobs; more are rejected.
    pub max_jobs: usize,
    /// How long requests in progress may take during shutdown.
    pub grace: Duration,
    /// Timeout of one call of the store.
    pub store_timeout: Duration,
}

/// Defaults of jobs, and what all of them get.
#[derive(Clone, PartialEq)]
pub struct Defaults {
    /// Whether jobs run in containers. On a cluster without containers (the embedded one) commands
    /// run as processes of its agents, and images are ignored.
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
    /// The container runtime's socket, for jobs that request it, and the group that may use it.
    pub sock: Option<String>,
    /// See `sock`.
    pub user_group_id: Option<String>,
    /// Constraints of every job, in addition to its own.
    pub attributes: Vec<String>,
    /// A file that is fetched into every sandbox.
    pub fetch_uri: Option<String>,
    /// The user of the host that fetches it.
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
            listener: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 11000,
            hostname: "localhost".to_owned(),
            tls: None,
            credentials: None,
            trusted_networks: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            prefix: "Airflow".to_owned(),
            defaults: Defaults::default(),
            unreachable_grace: Duration::from_mins(1),
            completed_retention: Duration::from_hours(24),
            max_jobs: 100_000,
            grace: Duration::from_secs(5),
            store_timeout: transom_store::typed::TIMEOUT,
        }
    }
}
