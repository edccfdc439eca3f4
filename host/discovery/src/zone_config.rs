//! The settings that decide which records a cluster has.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use crate::config::IpSource;
use crate::labels::LabelRule;

/// Known addresses of host names.
pub type ResolvedHosts = HashMap<String, Vec<IpAddr>>;

/// The settings that decide which records a cluster has.
#[derive(Clone, Debug)]
pub struct ZoneConfig {
    /// The domain of all names, without a leading or trailing dot.
    pub domain: String,
    /// How names become DNS labels.
    pub labels: LabelRule,
    /// Where task addresses come from, in order.
    pub ip_sources: Vec<IpSource>,
    /// Masters as `host:port`, in order.
    pub masters: Vec<String>,
    /// The name server's own name, with its trailing dot, and addresses.
    pub name_server: (String, Vec<IpAddr>),
    /// The TTL of records in seconds.
    pub ttl: u32,
    /// TTLs for the tasks of some frameworks, by framework name.
    pub framework_ttl: BTreeMap<String, u32>,
    /// The weight of SRV records.
    pub weight: u16,
    /// The task label that overrides it.
    pub weight_label: Option<String>,
    /// Whether tasks that are known to be unhealthy have no records.
    pub healthy_only: bool,
    /// Whether staging and starting tasks have records.
    pub include_staging: bool,
    /// Whether addresses have PTR records.
    pub reverse: bool,
}

/// The labels that a framework adds to its tasks' names, and the TTL of their records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameworkLabels {
    /// Labels with dots between them, `group.marathon`.
    pub labels: String,
    /// In seconds.
    pub ttl: u32,
}

impl ZoneConfig {
    /// `name.domain.`
    pub fn full(&self, name: &str) -> String {
        format!("{name}.{}.", self.domain)
    }

    /// The labels and TTL of a framework.
    pub fn framework_labels(&self, framework: &str) -> FrameworkLabels {
        FrameworkLabels {
            labels: self.labels.fragment(framework),
            ttl: self.framework_ttl.get(framework).copied().unwrap_or(self.ttl),
        }
    }
}
