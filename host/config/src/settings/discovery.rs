//! `[discovery]`: DNS and HTTP lookups (specification, part A).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use transom_common::schema;
use transom_web::AllowedHost;

/// `[discovery]`: DNS and HTTP lookups of running tasks.
//
// Texts are validated when the section is converted to discovery's own configuration.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the specification"
)]
pub struct Discovery {
    /// The address of DNS.
    pub listener: IpAddr,
    /// The port of DNS, UDP and TCP.
    pub port: u16,
    /// The address of the HTTP API.
    pub http_listener: IpAddr,
    /// The port of the HTTP API.
    pub http_port: u16,
    /// Host names of the HTTP API for connections that arrive on loopback, in addition to loopback and
    /// the name of this machine.
    #[schemars(with = "Vec<schema::Host>")]
    pub allowed_hosts: Vec<AllowedHost>,
    /// Whether DNS is served.
    pub dns_on: bool,
    /// Whether the HTTP API is served.
    pub http_on: bool,
    /// The suffix of all names.
    pub domain: String,
    /// The TTL of answers in seconds.
    pub ttl: u32,
    /// Seconds between full comparisons with the cluster's state, each by a second subscription,
    /// and between polls of the state document if the event stream is unavailable.
    pub refresh_seconds: u64,
    /// The sources of task addresses, in the order of preference: host, docker, mesos, netinfo.
    pub ip_sources: Vec<String>,
    /// Short labels (24 characters, beginning with a letter) instead of the default ones.
    pub enforce_rfc952: bool,
    /// Whether answers have the flag RA (recursion available).
    pub recurse_on: bool,
    /// Whether all records can be listed over HTTP.
    pub enumeration_on: bool,
    /// The weight of SRV records.
    pub srv_record_default_weight: u16,
    /// The task label that overrides the weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_label: Option<String>,
    /// The primary name server in the SOA record.
    pub soa_mname: String,
    /// The mail address in the SOA record, with a dot in place of the at sign.
    pub soa_rname: String,
    /// Seconds after which a secondary name server checks for changes, in the SOA record.
    pub soa_refresh: u32,
    /// Seconds after which a secondary name server retries after a failure, in the SOA record.
    pub soa_retry: u32,
    /// Seconds without contact after which a secondary name server stops answering for the zone, in the
    /// SOA record.
    pub soa_expire: u32,
    /// Whether addresses have PTR records.
    pub reverse_dns_on: bool,
    /// Whether addresses in the client's own network come first.
    pub resolv_subnet_first: bool,
    /// Whether queries for external names are forwarded.
    pub external_on: bool,
    /// The resolvers for external names: addresses with or without a port. Empty: the resolvers of this
    /// machine.
    pub resolvers: Vec<String>,
    /// Zones with other resolvers.
    pub zone_resolvers: BTreeMap<String, Vec<String>>,
    /// The timeout of one resolver, in seconds.
    pub timeout: u64,
    /// The order of the resolvers: sequential (one after the other) or parallel (four at a time).
    pub forward_policy: String,
    /// The size of the cache for the resolvers' replies in bytes; 0: no cache.
    pub forward_cache_bytes: usize,
    /// The maximum number of pending forwarded queries.
    pub forward_max_inflight: usize,
    /// The maximum number of sockets for forwarding.
    pub forward_max_sockets: usize,
    /// Whether truncated answers have the flag TC.
    pub set_truncate_bit: bool,
    /// Networks whose queries are forwarded; by default the private networks.
    #[schemars(with = "Vec<schema::Network>")]
    pub allow_recursion: Vec<IpNet>,
    /// Answers per second and source network over UDP and HTTPS; 0: no limit.
    pub responses_per_second: u32,
    /// Whether unhealthy tasks are omitted.
    pub healthy_only: bool,
    /// Whether staging tasks have records too.
    pub include_staging: bool,
    /// The TTL in seconds for the tasks of a framework, by its name.
    pub framework_ttl: BTreeMap<String, u32>,
    /// The port of DNS over TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_port: Option<u16>,
    /// The port of DNS over HTTPS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub https_port: Option<u16>,
    /// The certificate of `tls_port` and `https_port` (PEM); needs `tls_key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_certificate: Option<PathBuf>,
    /// The key for `tls_certificate` (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    /// Name servers that receive NOTIFY when the zone changes.
    pub also_notify: Vec<String>,
    /// Networks that may transfer the zone.
    #[schemars(with = "Vec<schema::Network>")]
    pub allow_transfer: Vec<IpNet>,
}

/// Discovery's own defaults.
impl Default for Discovery {
    fn default() -> Self {
        let defaults = transom_discovery::Config::default();
        Discovery {
            listener: defaults.listener,
            port: defaults.port,
            http_listener: defaults.http_listener,
            http_port: defaults.http_port,
            allowed_hosts: defaults.allowed_hosts,
            dns_on: defaults.dns_on,
            http_on: defaults.http_on,
            domain: defaults.domain,
            ttl: defaults.ttl,
            refresh_seconds: defaults.refresh_seconds,
            ip_sources: defaults
                .ip_sources
                .iter()
                .map(|source| source.as_str().into())
                .collect(),
            enforce_rfc952: defaults.enforce_rfc952,
            recurse_on: defaults.recurse_on,
            enumeration_on: defaults.enumeration_on,
            srv_record_default_weight: defaults.srv_record_default_weight,
            weight_label: defaults.weight_label,
            soa_mname: defaults.soa_mname,
            soa_rname: defaults.soa_rname,
            soa_refresh: defaults.soa_refresh,
            soa_retry: defaults.soa_retry,
            soa_expire: defaults.soa_expire,
            reverse_dns_on: defaults.reverse_dns_on,
            resolv_subnet_first: defaults.resolv_subnet_first,
            external_on: defaults.external_on,
            resolvers: Vec::new(),
            zone_resolvers: BTreeMap::new(),
            timeout: defaults.timeout,
            forward_policy: defaults.forward_policy.as_str().into(),
            forward_cache_bytes: defaults.forward_cache_bytes,
            forward_max_inflight: defaults.forward_max_inflight,
            forward_max_sockets: defaults.forward_max_sockets,
            set_truncate_bit: defaults.set_truncate_bit,
            allow_recursion: defaults.allow_recursion,
            responses_per_second: defaults.responses_per_second,
            healthy_only: defaults.healthy_only,
            include_staging: defaults.include_staging,
            framework_ttl: defaults.framework_ttl,
            tls_port: defaults.tls_port,
            https_port: defaults.https_port,
            tls_certificate: defaults.tls_certificate,
            tls_key: defaults.tls_key,
            also_notify: Vec::new(),
            allow_transfer: defaults.allow_transfer,
        }
    }
}

impl Discovery {
    /// All paths, which `load` resolves against the folder of their file.
    pub fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [&mut self.tls_certificate, &mut self.tls_key]
            .into_iter()
            .flatten()
    }
}
