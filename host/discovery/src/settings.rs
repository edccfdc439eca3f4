//! `[discovery]`: DNS and HTTP lookups (specification, part A).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use transom_common::schema;
use transom_web::AllowedHost;

use crate::config::check::{DEFAULT_TIMEOUT, resolver};
use crate::labels::LabelRule;

transom_common::settings! {
    /// `[discovery]`: DNS and HTTP lookups of running tasks.
    //
    // Texts are validated by `Settings::problems`.
    #[derive(PartialEq)]
    #[schemars(rename = "Discovery")]
    #[allow(
        clippy::struct_excessive_bools,
        reason = "each is a switch of the specification"
    )]
    pub struct Settings {
        /// The address of DNS.
        pub listener: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        /// The port of DNS, UDP and TCP.
        pub port: u16 = 53;
        /// The address of the HTTP API.
        pub http_listener: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        /// The port of the HTTP API.
        pub http_port: u16 = 8123;
        /// Host names of the HTTP API for connections that arrive on loopback, in addition to loopback and
        /// the name of this machine.
        #[schemars(with = "Vec<schema::Host>")]
        pub allowed_hosts: Vec<AllowedHost>;
        /// Whether DNS is served.
        pub dns_on: bool = true;
        /// Whether the HTTP API is served.
        pub http_on: bool = true;
        /// The suffix of all names.
        pub domain: String = "mesos".into();
        /// The TTL of answers in seconds.
        pub ttl: u32 = 60;
        /// Seconds between full comparisons with the cluster's state, each by a second subscription,
        /// and between polls of the state document if the event stream is unavailable.
        pub refresh_seconds: u64 = 60;
        /// The sources of task addresses, in the order of preference: host, docker, mesos, netinfo.
        pub ip_sources: Vec<String> = ["netinfo", "mesos", "host"].map(Into::into).into();
        /// Short labels (24 characters, beginning with a letter) instead of the default ones.
        pub enforce_rfc952: bool;
        /// Whether answers have the flag RA (recursion available).
        pub recurse_on: bool = true;
        /// Whether all records can be listed over HTTP.
        pub enumeration_on: bool = true;
        /// The weight of SRV records.
        pub srv_record_default_weight: u16 = 1;
        /// The task label that overrides the weight.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub weight_label: Option<String>;
        /// The primary name server in the SOA record.
        pub soa_mname: String = "ns1.mesos".into();
        /// The mail address in the SOA record, with a dot in place of the at sign.
        pub soa_rname: String = "root.ns1.mesos".into();
        /// Seconds after which a secondary name server checks for changes, in the SOA record.
        pub soa_refresh: u32 = 60;
        /// Seconds after which a secondary name server retries after a failure, in the SOA record.
        pub soa_retry: u32 = 600;
        /// Seconds without contact after which a secondary name server stops answering for the zone, in the
        /// SOA record.
        pub soa_expire: u32 = 86_400;
        /// Whether addresses have PTR records.
        pub reverse_dns_on: bool;
        /// Whether addresses in the client's own network come first.
        pub resolv_subnet_first: bool;
        /// Whether queries for external names are forwarded.
        pub external_on: bool = true;
        /// The resolvers for external names: addresses with or without a port. Empty: the resolvers of this
        /// machine.
        pub resolvers: Vec<String>;
        /// Zones with other resolvers.
        pub zone_resolvers: BTreeMap<String, Vec<String>>;
        /// The timeout of one resolver, in seconds.
        pub timeout: u64 = DEFAULT_TIMEOUT;
        /// The order of the resolvers: sequential (one after the other) or parallel (four at a time).
        pub forward_policy: String = "sequential".into();
        /// The size of the cache for the resolvers' replies in bytes; 0: no cache.
        pub forward_cache_bytes: usize = 16 << 20;
        /// The maximum number of pending forwarded queries.
        pub forward_max_inflight: usize = 4096;
        /// The maximum number of sockets for forwarding.
        pub forward_max_sockets: usize = 512;
        /// Whether truncated answers have the flag TC.
        pub set_truncate_bit: bool = true;
        /// Networks whose queries are forwarded; by default the private networks.
        #[schemars(with = "Vec<schema::Network>")]
        pub allow_recursion: Vec<IpNet> = private_networks();
        /// Answers per second and source network over UDP and HTTPS; 0: no limit.
        pub responses_per_second: u32;
        /// Whether unhealthy tasks are omitted.
        pub healthy_only: bool;
        /// Whether staging tasks have records too.
        pub include_staging: bool;
        /// The TTL in seconds for the tasks of a framework, by its name.
        pub framework_ttl: BTreeMap<String, u32>;
        /// The port of DNS over TLS.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub tls_port: Option<u16>;
        /// The port of DNS over HTTPS.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub https_port: Option<u16>;
        /// The certificate of `tls_port` and `https_port` (PEM); needs `tls_key`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub tls_certificate: Option<PathBuf>;
        /// The key for `tls_certificate` (PEM).
        #[serde(skip_serializing_if = "Option::is_none")]
        pub tls_key: Option<PathBuf>;
        /// Name servers that receive NOTIFY when the zone changes.
        pub also_notify: Vec<String>;
        /// Networks that may transfer the zone.
        #[schemars(with = "Vec<schema::Network>")]
        pub allow_transfer: Vec<IpNet>;
    }
}

impl Settings {
    /// All paths, which are relative to the folder of their file.
    pub fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [&mut self.tls_certificate, &mut self.tls_key]
            .into_iter()
            .flatten()
    }

    pub(crate) fn label_rule(&self) -> LabelRule {
        if self.enforce_rfc952 {
            LabelRule::Rfc952
        } else {
            LabelRule::Rfc1123
        }
    }

    /// The zones with other resolvers; none if external names are not forwarded.
    pub(crate) fn zone_resolvers(&self) -> BTreeMap<String, Vec<SocketAddr>> {
        let zones = self.zone_resolvers.iter().filter(|_| self.external_on);
        zones
            .map(|(zone, texts)| (zone.to_ascii_lowercase(), addresses(texts)))
            .collect()
    }
}

/// The addresses of name servers; [`Settings::problems`] lists invalid ones.
pub(crate) fn addresses(texts: &[String]) -> Vec<SocketAddr> {
    texts.iter().filter_map(|text| resolver(text)).collect()
}

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
