//! What a site decides about its records.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use crate::config::IpSource;
use crate::labels::Rule;

/// Addresses of host names, as far as they are known.
pub type Hosts = HashMap<String, Vec<IpAddr>>;

/// What a site decides about its records.
#[derive(Clone, Debug)]
pub struct Rules {
    /// What every name ends with, without dots around it.
    pub domain: String,
    /// How texts become labels.
    pub labels: Rule,
    /// Where task addresses come from, in order.
    pub ip_sources: Vec<IpSource>,
    /// Masters as `host:port`, in order.
    pub masters: Vec<String>,
    /// The name server's own name, with its trailing dot, and addresses.
    pub name_server: (String, Vec<IpAddr>),
    /// How long records may be kept, in seconds.
    pub ttl: u32,
    /// Another time for the tasks of some frameworks, by their names as given.
    pub framework_ttl: BTreeMap<String, u32>,
    /// The weight of services.
    pub weight: u16,
    /// The task label whose value is the weight of the task's own services.
    pub weight_label: Option<String>,
    /// Whether tasks that are known to be unhealthy have no records.
    pub healthy_only: bool,
    /// Whether tasks that are about to run have records.
    pub include_staging: bool,
    /// Whether addresses have names.
    pub reverse: bool,
}

/// A framework's part of its tasks' names, and how long their records may be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Labels with dots between them, `group.marathon`.
    pub labels: String,
    /// In seconds.
    pub ttl: u32,
}

impl Rules {
    /// `name.domain.`
    pub fn full(&self, name: &str) -> String {
        format!("{name}.{}.", self.domain)
    }

    /// A framework's part of names.
    pub fn part(&self, framework: &str) -> Part {
        Part {
            labels: self.labels.fragment(framework),
            ttl: self.framework_ttl.get(framework).copied().unwrap_or(self.ttl),
        }
    }
}
