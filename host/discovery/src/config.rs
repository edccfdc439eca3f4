//! The settings of discovery.
//!
//! [`Config`] has every setting with its default; [`check`] validates them and parses the texts of
//! configuration files.

pub mod check;
pub(crate) mod system;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use transom_web::AllowedHost;

use crate::labels::LabelRule;
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
    pub const ALL: [Self; 4] = [Self::Host, Self::Docker, Self::Mesos, Self::Netinfo];

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

impl ForwardPolicy {
    /// Its name in configurations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Parallel => "parallel",
        }
    }
}

/// The settings of discovery. Times are seconds.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // Switches that sites set one by one.
pub struct Config {
    /// The address of DNS, UDP and TCP.
    pub listener: IpAddr,
    /// The DNS port; 0 for any free port.
    pub port: u16,
    /// The address of HTTP.
    pub http_listener: IpAddr,
    /// The HTTP port; 0 for any free port.
    pub http_port: u16,
    /// Host names of the HTTP port for connections that arrive on loopback, in addition to loopback.
    /// Requests for other names are rejected there.
    pub allowed_hosts: Vec<AllowedHost>,
    /// Whether DNS is served.
    pub dns_on: bool,
    /// Whether HTTP is served.
    pub http_on: bool,
    /// The domain of all names, without a leading or trailing dot. A domain with labels of more
    /// than 63 bytes is served only over HTTP.
    pub domain: String,
    /// The TTL of answers, negative ones included.
    pub ttl: u32,
    /// The interval of full comparisons with the cluster, and of polls without an event stream.
    pub refresh_seconds: u64,
    /// Masters as `host:port`, for the `master` names. The cluster reports the leader.
    pub masters: Vec<String>,
    /// Sources of task addresses, in order.
    pub ip_sources: Vec<IpSource>,
    /// Short labels (24 characters, beginning with a letter) instead of the usual ones.
    pub enforce_rfc952: bool,
    /// Whether answers have the RA flag.
    pub recurse_on: bool,
    /// Whether HTTP serves enumeration.
    pub enumeration_on: bool,
    /// The weight of every SRV record.
    pub srv_record_default_weight: u16,
    /// The primary name server of the SOA record.
    pub soa_mname: String,
    /// The mailbox of the SOA record; an `@` becomes a dot.
    pub soa_rname: String,
    /// The refresh interval in the SOA record.
    pub soa_refresh: u32,
    /// The retry interval in the SOA record.
    pub soa_retry: u32,
    /// The expiry time in the SOA record.
    pub soa_expire: u32,

    /// Whether addresses have PTR records, in the reverse zones of the addresses in the zone.
    pub reverse_dns_on: bool,
    /// Whether addresses in the client's own network (/24, /64) come first in answers.
    pub resolv_subnet_first: bool,

    /// Whether external names are forwarded; else they are REFUSED.
    pub external_on: bool,
    /// The resolvers, in this order. Empty: the system's resolvers without this machine's own
    /// addresses.
    pub resolvers: Vec<SocketAddr>,
    /// Resolvers of certain zones, which are written without a leading or trailing dot. No zone
    /// contains another one or the domain, or lies within the domain.
    pub zone_resolvers: BTreeMap<String, Vec<SocketAddr>>,
    /// The timeout of one resolver.
    pub timeout: u64,
    /// How resolvers are queried.
    pub forward_policy: ForwardPolicy,
    /// The size of the cache of resolvers' replies in bytes; 0: no cache.
    pub forward_cache_bytes: usize,
    /// The maximum number of queries that wait for resolvers; further ones are answered with
    /// SERVFAIL.
    pub forward_max_inflight: usize,
    /// The maximum number of open sockets to resolvers.
    pub forward_max_sockets: usize,
    /// Whether truncated answers have the TC flag. Without it clients do not retry over TCP.
    pub set_truncate_bit: bool,
    /// Networks of clients whose queries are forwarded; others are REFUSED.
    pub allow_recursion: Vec<IpNet>,
    /// Answers per second and source network (/24, /56) over UDP and HTTPS. Above it most UDP
    /// answers are dropped, as an attack on that network is assumed, and HTTPS requests are
    /// rejected; 0: no limit.
    pub responses_per_second: u32,

    /// Whether unhealthy tasks have no records.
    pub healthy_only: bool,
    /// Whether staging and starting tasks have records too.
    pub include_staging: bool,
    /// TTLs for the tasks of some frameworks, by framework name.
    pub framework_ttl: BTreeMap<String, u32>,
    /// The task label whose value, 0 to 65535, is the weight of the task's SRV records.
    pub weight_label: Option<String>,

    /// The port of DNS over TLS on `listener`, if any.
    pub tls_port: Option<u16>,
    /// The port of DNS over HTTPS on `listener`, if any.
    pub https_port: Option<u16>,
    /// The certificate chain of these three, a PEM file; reloaded when it changes.
    pub tls_certificate: Option<PathBuf>,
    /// The certificate's key, a PEM file; reloaded when it changes.
    pub tls_key: Option<PathBuf>,

    /// Secondaries that get a NOTIFY when the zone changes.
    pub also_notify: Vec<SocketAddr>,
    /// Networks of clients that may transfer the zone (AXFR, IXFR).
    pub allow_transfer: Vec<IpNet>,

    /// How long a master may answer 404 in place of its stream. Not configurable.
    pub stream_timeouts: StreamTimeouts,
    /// The settings of the cluster connection, for `/v1/config`.
    pub cluster_settings: ClusterSettings,
}

/// The settings of the cluster connection and the configuration file, for `/v1/config`. No secrets.
#[derive(Clone, Debug)]
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

impl Default for ClusterSettings {
    fn default() -> Self {
        Self {
            file: String::new(),
            zk: String::new(),
            state_timeout_seconds: 300,
            zk_detection_timeout: 30,
            mesos_https_on: false,
            ca_cert_file: String::new(),
            cert_file: String::new(),
            key_file: String::new(),
            principal: String::new(),
            mesos_authentication: String::new(),
            iam_config_file: String::new(),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listener: Ipv4Addr::UNSPECIFIED.into(),
            port: 53,
            http_listener: Ipv4Addr::UNSPECIFIED.into(),
            http_port: 8123,
            allowed_hosts: Vec::new(),
            dns_on: true,
            http_on: true,
            domain: "mesos".into(),
            ttl: 60,
            refresh_seconds: 60,
            masters: Vec::new(),
            ip_sources: vec![IpSource::Netinfo, IpSource::Mesos, IpSource::Host],
            enforce_rfc952: false,
            recurse_on: true,
            enumeration_on: true,
            srv_record_default_weight: 1,
            soa_mname: "ns1.mesos".into(),
            soa_rname: "root.ns1.mesos".into(),
            soa_refresh: 60,
            soa_retry: 600,
            soa_expire: 86400,
            reverse_dns_on: false,
            resolv_subnet_first: false,
            external_on: true,
            resolvers: Vec::new(),
            zone_resolvers: BTreeMap::new(),
            timeout: check::DEFAULT_TIMEOUT,
            forward_policy: ForwardPolicy::default(),
            forward_cache_bytes: 16 << 20,
            forward_max_inflight: 4096,
            forward_max_sockets: 512,
            set_truncate_bit: true,
            allow_recursion: Self::private_networks(),
            responses_per_second: 0,
            healthy_only: false,
            include_staging: false,
            framework_ttl: BTreeMap::new(),
            weight_label: None,
            tls_port: None,
            https_port: None,
            tls_certificate: None,
            tls_key: None,
            also_notify: Vec::new(),
            allow_transfer: Vec::new(),
            stream_timeouts: StreamTimeouts::default(),
            cluster_settings: ClusterSettings::default(),
        }
    }
}

impl Config {
    /// Loopback, private, link-local and unique-local networks: the default for `allow_recursion`.
    pub fn private_networks() -> Vec<IpNet> {
        let v4 = [
            ([127_u8, 0, 0, 0], 8),
            ([10, 0, 0, 0], 8),
            ([172, 16, 0, 0], 12),
            ([192, 168, 0, 0], 16),
            ([169, 254, 0, 0], 16),
            // Addresses that providers share among their customers (RFC 6598).
            ([100, 64, 0, 0], 10),
        ];
        let v6 = [
            ([0_u16, 0, 0, 0, 0, 0, 0, 1], 128),
            ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),
            ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
        ];
        let v4 = v4
            .into_iter()
            .map(|(ip, length)| IpNet::new_assert(ip.into(), length));
        let v6 = v6
            .into_iter()
            .map(|(ip, length)| IpNet::new_assert(ip.into(), length));
        v4.chain(v6).collect()
    }

    pub(crate) fn label_rule(&self) -> LabelRule {
        if self.enforce_rfc952 {
            LabelRule::Rfc952
        } else {
            LabelRule::Rfc1123
        }
    }
}
