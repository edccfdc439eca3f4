//! How the job is set up.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use transom_web::{AllowedHost, Credentials, Origin};

/// Settings of the job; all have defaults.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address of the HTTP port. One that other machines reach needs [`credentials`](Self::credentials) or
    /// [`trusted_networks`](Self::trusted_networks) of its own.
    pub listener: IpAddr,
    /// The HTTP port; 0 takes a free one.
    pub port: u16,
    /// The name under which other daemons reach this one.
    pub hostname: String,
    /// Certificate and key (PEM files) with which the port speaks TLS; `None`: it does not. Other daemons are to have one
    /// that is the same or issued by a certificate in the same file.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Asked for on every path where they are set; `/v0/dags` needs them in any case.
    pub credentials: Option<Credentials>,
    /// Networks whose requests may queue and look up without credentials; `None`: this machine.
    pub trusted_networks: Option<Vec<IpNet>>,
    /// Host names by which clients reach the port, beside loopback, its address and [`hostname`](Self::hostname). Requests
    /// for other names are refused.
    pub allowed_hosts: Vec<AllowedHost>,
    /// Other sites whose web pages may use the port.
    pub allowed_origins: Vec<Origin>,
    /// Prefix of the job's keys in the store, without a slash at its end; the scheduler's of the same framework.
    pub prefix: String,
    /// What jobs get that say nothing else.
    pub defaults: Defaults,
    /// How long an agent may be unreachable before its jobs are.
    pub unreachable_grace: Duration,
    /// How long ended jobs are remembered.
    pub completed_retention: Duration,
    /// Jobs that may wait and run at a time; more are refused.
    pub max_jobs: usize,
    /// How long requests that are being answered may take when the daemon stops.
    pub grace: Duration,
}

/// What jobs get that say nothing else, and what all of them get.
#[derive(Clone, PartialEq)]
pub struct Defaults {
    /// Whether jobs are run in containers. Where the cluster has none (the embedded one), their commands are run as
    /// processes of its agents, and images are left aside.
    pub containers: bool,
    /// CPUs of a job.
    pub cpus: f64,
    /// Memory of a job in MB.
    pub mem: f64,
    /// Disk of a job in MB.
    pub disk: f64,
    /// The image of a job that names none.
    pub image: Option<String>,
    /// Whether a command that is one text is run by the agent's shell instead of the image's.
    pub command_shell: bool,
    /// `HOST`, `BRIDGE`, `NONE`, or the name of a network.
    pub network_mode: String,
    /// What every container finds in its environment; a job's own variables win.
    pub environment: Vec<(String, String)>,
    /// Volumes that every container gets: name and path within it.
    pub volumes: Vec<(String, String)>,
    /// The driver of volumes that are named.
    pub volume_driver: Option<String>,
    /// The container runtime's socket, for jobs that ask for it, and the group that may use it.
    pub sock: Option<String>,
    /// See `sock`.
    pub user_group_id: Option<String>,
    /// Conditions of every job, beside its own.
    pub attributes: Vec<String>,
    /// A file that is fetched into every sandbox.
    pub fetch_uri: Option<String>,
    /// The user of the host that fetches it.
    pub fetch_user: Option<String>,
}

/// Variables may hold secrets: only their names are shown.
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
        }
    }
}
