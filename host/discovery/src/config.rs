//! What discovery is told.

use std::net::{IpAddr, Ipv4Addr};

use crate::labels::Rule;
use crate::{Error, Result};

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
    /// The domain that names end with, without dots around it.
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
        }
    }
}

impl Config {
    /// Checks the settings and brings names into the form the rest relies on: lower case, one trailing dot on the SOA's.
    pub(crate) fn checked(mut self) -> Result<Self> {
        let wrong = |key, what: &str| {
            Err(Error::Config {
                key,
                what: what.to_owned(),
            })
        };
        self.domain = self.domain.to_ascii_lowercase();
        let label = |label: &str| {
            (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        if !self.domain.split('.').all(label) || self.domain.len() > 200 {
            return wrong(
                "domain",
                "must be labels of letters, digits and `-` with dots between them, as in `mesos`",
            );
        }
        if !self.dns_on && !self.http_on {
            return wrong("dns_on, http_on", "both are off, so there is nothing to serve");
        }
        if self.refresh_seconds == 0 {
            return wrong("refresh_seconds", "must be 1 or more");
        }
        if self.ip_sources.is_empty() {
            return wrong("ip_sources", "needs at least one of host, docker, mesos, netinfo");
        }
        self.soa_mname = dotted(&self.soa_mname);
        self.soa_rname = dotted(&self.soa_rname.replace('@', "."));
        for (key, name) in [("soa_mname", &self.soa_mname), ("soa_rname", &self.soa_rname)] {
            if crate::zone::wire_name(name).is_none() {
                return wrong(key, "must be a domain name, as in `ns1.mesos`");
            }
        }
        Ok(self)
    }

    pub(crate) fn label_rule(&self) -> Rule {
        if self.enforce_rfc952 {
            Rule::Rfc952
        } else {
            Rule::Rfc1123
        }
    }
}

fn dotted(name: &str) -> String {
    format!("{}.", name.trim_end_matches('.').to_ascii_lowercase())
}
