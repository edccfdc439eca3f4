//! The settings of discovery, and what they refer to. [`check`] validates them and parses their texts.

pub mod check;
pub(crate) mod system;

use crate::Settings;
use crate::source::StreamTimeouts;

/// A source of a task's own addresses; the first source that has one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpSource {
    /// The agent's addresses.
    Host,
    /// Labels of the Docker containerizer in a status.
    Docker,
    /// Labels of the Mesos containerizer in a status.
    Mesos,
    /// The container's networks in a status.
    Netinfo,
}

impl IpSource {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Host, Self::Docker, Self::Mesos, Self::Netinfo];

    /// Its name in configurations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Docker => "docker",
            Self::Mesos => "mesos",
            Self::Netinfo => "netinfo",
        }
    }
}

/// How the resolvers of a zone are queried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardPolicy {
    /// One after the other in the configured order, those that fail last. The first reply of any
    /// kind is used.
    #[default]
    Sequential,
    /// Four at the same time; the first reply that is neither SERVFAIL nor REFUSED is used.
    Parallel,
}

/// The settings of the service, and what they refer to.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The section.
    pub settings: Settings,
    /// Masters as `host:port`, for the `master` names. The cluster reports the leader.
    pub masters: Vec<String>,
    /// How long a master may answer 404 in place of its stream. Not configurable.
    pub stream_timeouts: StreamTimeouts,
    /// The settings of the cluster connection, for `/v1/config`.
    pub cluster_settings: ClusterSettings,
}

impl From<Settings> for Config {
    fn from(settings: Settings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }
}

/// The settings of the cluster connection and the configuration file, for `/v1/config`. No secrets.
#[derive(Clone, Debug, Default)]
pub struct ClusterSettings {
    /// The configuration file.
    pub file: String,
    /// The address of ZooKeeper, without its password.
    pub zk: String,
    /// The timeout of state documents in seconds.
    pub state_timeout_seconds: u64,
    /// Seconds after which a leader must be known.
    pub zk_detection_timeout: u64,
    /// Whether connections to masters use TLS.
    pub mesos_https_on: bool,
    /// The file with the certificate authorities.
    pub ca_cert_file: String,
    /// The file with the client certificate.
    pub cert_file: String,
    /// The file of that certificate's key.
    pub key_file: String,
    /// The principal.
    pub principal: String,
    /// `basic`, `iam` or nothing.
    pub mesos_authentication: String,
    /// The file of the service account.
    pub iam_config_file: String,
}
