//! What discovery is told.
//!
//! [`Config`] has every setting with its default; [`check`] makes sure that they make sense, and has the rules by which
//! texts in configuration files become values, for whoever reads such a file.

pub mod check;
pub(crate) mod system;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;

use crate::dns::forward::ForwardPolicy;
use crate::labels::Rule;
use crate::source::Patience;

/// Where a task's own addresses are taken from; the first source that has one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpSource {
    /// The agent's addresses.
    Host,
    /// Labels that the Docker containerizer leaves in a status.
    Docker,
    /// Labels that the cluster's own containerizer leaves in a status.
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

/// The settings of discovery. Times are seconds.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // Switches that sites set one by one.
pub struct Config {
    /// Where DNS listens, UDP and TCP.
    pub listener: IpAddr,
    /// The DNS port; 0 takes a free one.
    pub port: u16,
    /// Where HTTP listens.
    pub http_listener: IpAddr,
    /// The HTTP port; 0 takes a free one.
    pub http_port: u16,
    /// Whether there is DNS.
    pub dns_on: bool,
    /// Whether there is HTTP.
    pub http_on: bool,
    /// The domain that names end with, without dots around it. DNS cannot carry one with labels of more than 63 bytes;
    /// HTTP answers nevertheless.
    pub domain: String,
    /// How long answers may be kept, missing names included.
    pub ttl: u32,
    /// Between full comparisons with the cluster, and between polls where its stream of events is not to be had.
    pub refresh_seconds: u64,
    /// Masters as `host:port`, for the `master` names. The leader is learnt from the cluster.
    pub masters: Vec<String>,
    /// Where task addresses come from, in order.
    pub ip_sources: Vec<IpSource>,
    /// Short labels (24 characters, beginning with a letter) instead of the usual ones.
    pub enforce_rfc952: bool,
    /// Whether answers say that recursion is available.
    pub recurse_on: bool,
    /// Whether everything can be listed over HTTP.
    pub enumeration_on: bool,
    /// The weight of every SRV record.
    pub srv_record_default_weight: u16,
    /// The primary name server, as the SOA record names it.
    pub soa_mname: String,
    /// Whom to write to, as the SOA record says it; an `@` becomes a dot.
    pub soa_rname: String,
    /// Of the SOA record.
    pub soa_refresh: u32,
    /// Of the SOA record.
    pub soa_retry: u32,
    /// Of the SOA record.
    pub soa_expire: u32,

    /// Whether addresses lead back to names (PTR). The reverse zones of the addresses in the zone are then answered for.
    pub reverse_dns_on: bool,
    /// Whether addresses in the client's own network (/24, /64) come first in answers.
    pub resolv_subnet_first: bool,

    /// Whether names outside the domain are looked up elsewhere; else they are REFUSED.
    pub external_on: bool,
    /// Where they are looked up, tried in this order. None: the name servers that this machine itself uses, less those
    /// that are this machine.
    pub resolvers: Vec<SocketAddr>,
    /// Zones, without dots around them, that are looked up somewhere else than the rest. None lies within another or
    /// within the domain, nor the domain within one of them.
    pub zone_resolvers: BTreeMap<String, Vec<SocketAddr>>,
    /// How long one resolver may take.
    pub timeout: u64,
    /// In which order resolvers are asked.
    pub forward_policy: ForwardPolicy,
    /// Bytes of resolvers' replies that are kept, to be given again for as long as they say; 0: none are.
    pub forward_cache_bytes: usize,
    /// Questions that may be waiting for resolvers; further ones are answered with SERVFAIL.
    pub forward_max_inflight: usize,
    /// Sockets to resolvers that may be open.
    pub forward_max_sockets: usize,
    /// Whether answers that were cut say so. Without it clients do not come back over TCP.
    pub set_truncate_bit: bool,
    /// Whose questions are looked up elsewhere; others are REFUSED, so that nobody else's questions are.
    pub allow_recursion: Vec<IpNet>,
    /// Answers over UDP a second and source network (/24, /56), above which questions are taken for an attack on that
    /// network and most get no answer; 0: no limit.
    pub responses_per_second: u32,

    /// Whether tasks that are known to be unhealthy are left out.
    pub healthy_only: bool,
    /// Whether tasks that are about to run (staging, starting) have records too.
    pub include_staging: bool,
    /// For names of a framework's tasks, by the framework's name as given, another time than `ttl`.
    pub framework_ttl: BTreeMap<String, u32>,
    /// The task label whose value, 0 to 65535, is the weight of the task's SRV records.
    pub weight_label: Option<String>,

    /// The port of DNS over TLS on `listener`; none: there is no such.
    pub tls_port: Option<u16>,
    /// The certificate chain for it, a PEM file; read again when it changes.
    pub tls_certificate: Option<PathBuf>,
    /// The certificate's key, a PEM file; read again when it changes.
    pub tls_key: Option<PathBuf>,

    /// Name servers that are told (NOTIFY) when the zone has changed.
    pub also_notify: Vec<SocketAddr>,
    /// Who may have the whole zone over DNS (AXFR, IXFR); none: nobody.
    pub allow_transfer: Vec<IpNet>,

    /// How long a master is given that answers 404 instead of its stream. Not a setting: the default suits every site.
    pub patience: Patience,
    /// What `/v1/config` tells of how the cluster is reached.
    pub told: Told,
}

/// What `/v1/config` tells of settings that are somebody else's: how the cluster is reached, and what was read. Secrets
/// have no place here.
#[derive(Clone, Debug)]
pub struct Told {
    /// The configuration file.
    pub file: String,
    /// The address of ZooKeeper, without its password.
    pub zk: String,
    /// Seconds that a state document may take.
    pub state_timeout_seconds: u64,
    /// Seconds after which a leader must be known.
    pub zk_detection_timeout: u64,
    /// Whether masters are spoken to with TLS.
    pub mesos_https_on: bool,
    /// The file of authorities for it.
    pub ca_cert_file: String,
    /// The file of the certificate shown to masters.
    pub cert_file: String,
    /// The file of that certificate's key.
    pub key_file: String,
    /// Who is named to masters.
    pub principal: String,
    /// `basic`, `iam` or nothing.
    pub mesos_authentication: String,
    /// The file of the service account.
    pub iam_config_file: String,
}

impl Default for Told {
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
            timeout: check::USUAL_TIMEOUT,
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
            tls_certificate: None,
            tls_key: None,
            also_notify: Vec::new(),
            allow_transfer: Vec::new(),
            patience: Patience::default(),
            told: Told::default(),
        }
    }
}

impl Config {
    /// Loopback, private, link-local and unique-local networks: where questions come from that are not those of
    /// strangers.
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

    pub(crate) fn label_rule(&self) -> Rule {
        if self.enforce_rfc952 {
            Rule::Rfc952
        } else {
            Rule::Rfc1123
        }
    }
}
