//! Validation of settings with pure functions, which follow mesos-dns where it has a rule. Functions
//! that parse texts return the error and the expected form; the caller adds the name of the setting.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use super::{ForwardPolicy, IpSource};
use crate::{Error, Result, Settings};

/// The port of name servers.
pub const DNS_PORT: u16 = 53;
/// The default timeout of a resolver in seconds.
pub const DEFAULT_TIMEOUT: u64 = 5;
/// The maximum size of the cache of replies.
pub const MAX_CACHE_BYTES: usize = 1 << 30;
/// The maximum of `forward_max_inflight` and `forward_max_sockets`; each query may cost some
/// kilobytes.
pub const MAX_FORWARD_LIMIT: usize = 1 << 16;
/// A TTL has 31 bits (RFC 2181).
pub const MAX_TTL: u32 = i32::MAX as u32;

/// A valid value, or the error as text.
pub type Checked<T> = std::result::Result<T, String>;

impl Settings {
    /// Validates the settings and normalizes names: lower case, and one trailing dot on the SOA's.
    pub(crate) fn checked(mut self) -> Result<Self> {
        if let Some((key, what)) = self.faults().into_iter().next() {
            return Err(Error::Config { key, what });
        }
        self.domain = self.domain.to_ascii_lowercase();
        if !is_encodable(&self.domain) {
            tracing::warn!(
                domain = self.domain,
                "the domain is too long for DNS; its names are served over HTTP only"
            );
        }
        self.soa_mname = with_trailing_dot(&self.soa_mname);
        self.soa_rname = soa_mailbox(&self.soa_rname);
        if self.timeout == 0 {
            self.timeout = DEFAULT_TIMEOUT;
        }
        Ok(self)
    }

    /// All invalid settings, one line each.
    pub fn problems(&self) -> Vec<String> {
        let problem = |(keys, what): (&str, String)| {
            let keys: Vec<_> = keys.split(", ").map(|key| format!("`discovery.{key}`")).collect();
            format!("{}: {what}", keys.join(" and "))
        };
        self.faults().into_iter().map(problem).collect()
    }

    /// All invalid settings: the key, or several with commas between them, and what is wrong.
    fn faults(&self) -> Vec<(&'static str, String)> {
        let mut problems = self.invalid_texts();
        let mut add = |key, what: &str| problems.push((key, what.to_owned()));
        if !self.dns_on && !self.http_on {
            add("dns_on, http_on", "both are off; turn on at least one");
        }
        if self.refresh_seconds == 0 {
            add("refresh_seconds", "must be 1 or more");
        }
        if self.ttl > MAX_TTL {
            add("ttl", "must be at most 2147483647 seconds, the maximum of DNS");
        }
        if let Some(ttl) = self.framework_ttl.values().find(|ttl| **ttl > MAX_TTL) {
            let what = format!("{ttl} must be at most 2147483647 seconds, the maximum of DNS");
            add("framework_ttl", &what);
        }
        for (key, name) in [
            ("soa_mname", with_trailing_dot(&self.soa_mname)),
            ("soa_rname", soa_mailbox(&self.soa_rname)),
        ] {
            if name != "." && crate::labels::wire_name(&name).is_none() {
                add(key, "must be a domain name, as in `ns1.mesos`");
            }
        }
        if self.weight_label.as_ref().is_some_and(String::is_empty) {
            add("weight_label", "is empty; set a label name or remove the setting");
        }
        self.forwarding_problems(&mut problems);
        problems.extend(self.tls_problem());
        problems
    }

    /// The texts that cannot be parsed. Resolvers are not used without forwarding.
    fn invalid_texts(&self) -> Vec<(&'static str, String)> {
        let forwarding = self.external_on.then(|| {
            let zones = zone_resolvers(&self.zone_resolvers, &self.domain.to_ascii_lowercase());
            [
                ("resolvers", resolvers(&self.resolvers).err()),
                ("zone_resolvers", zones.err()),
            ]
        });
        let others = [
            ("ip_sources", ip_sources(&self.ip_sources).err()),
            ("forward_policy", forward_policy(&self.forward_policy).err()),
            ("also_notify", resolvers(&self.also_notify).err()),
            ("domain", domain(&self.domain).err()),
        ];
        let texts = forwarding.into_iter().flatten().chain(others);
        texts.filter_map(|(key, what)| Some((key, what?))).collect()
    }

    fn forwarding_problems(&self, problems: &mut Vec<(&'static str, String)>) {
        if self.forward_cache_bytes > MAX_CACHE_BYTES {
            let what = format!("must be at most {MAX_CACHE_BYTES} bytes");
            problems.push(("forward_cache_bytes", what));
        }
        for (key, number) in [
            ("forward_max_inflight", self.forward_max_inflight),
            ("forward_max_sockets", self.forward_max_sockets),
        ] {
            if !(1..=MAX_FORWARD_LIMIT).contains(&number) {
                problems.push((key, format!("must be from 1 to {MAX_FORWARD_LIMIT}")));
            }
        }
    }

    fn tls_problem(&self) -> Option<(&'static str, String)> {
        let ports = [("tls_port", self.tls_port), ("https_port", self.https_port)];
        let used = ports.into_iter().find(|(_, port)| port.is_some());
        let (key, what) = match (used, &self.tls_certificate, &self.tls_key) {
            (None, None, None) | (Some(_), Some(_), Some(_)) => return None,
            (Some((key, _)), ..) => (key, "requires tls_certificate and tls_key"),
            (None, ..) => (
                "tls_certificate, tls_key",
                "require each other and one of tls_port, https_port",
            ),
        };
        Some((key, what.to_owned()))
    }
}

/// The mailbox in the SOA record as a domain name.
fn soa_mailbox(text: &str) -> String {
    with_trailing_dot(&text.replace('@', "."))
}

/// A name in lower case with one trailing dot; the root is a single dot.
fn with_trailing_dot(name: &str) -> String {
    format!("{}.", name.trim_end_matches('.').to_ascii_lowercase())
}

/// Whether a domain's labels are as long as DNS allows, with room for names below it.
fn is_encodable(domain: &str) -> bool {
    domain.len() <= 253 && domain.split('.').all(|label| label.len() <= 63)
}

/// The domain, in lower case: labels of letters, digits and `-` with dots between them, however
/// long.
pub fn domain(text: &str) -> Checked<String> {
    if is_domain(text) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(format!(
            "{text:?} must be labels of letters, digits and `-` with dots between them, as in `mesos`"
        ))
    }
}

/// How resolvers are queried: `sequential` or `parallel`.
pub fn forward_policy(text: &str) -> Checked<ForwardPolicy> {
    match text {
        "sequential" => Ok(ForwardPolicy::Sequential),
        "parallel" => Ok(ForwardPolicy::Parallel),
        _ => Err(format!("{text:?} must be sequential or parallel")),
    }
}

fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    text.split('.').all(label)
}

/// Masters as `host:port` without duplicates. Addresses are normalized, host names are not.
pub fn masters<T: AsRef<str>>(texts: &[T]) -> Checked<Vec<String>> {
    let mut masters = Vec::with_capacity(texts.len());
    for text in texts {
        let text = text.as_ref();
        let Some((host, port)) = host_port(text) else {
            return Err(format!(
                "{text:?} must be host:port with a port from 1 to 65535, as in `10.0.0.1:5050`"
            ));
        };
        let master = match host.parse::<IpAddr>() {
            Ok(ip) => SocketAddr::new(ip.to_canonical(), port).to_string(),
            Err(_) => format!("{host}:{port}"),
        };
        if masters.contains(&master) {
            return Err(format!("{text:?} is listed twice"));
        }
        masters.push(master);
    }
    Ok(masters)
}

/// A host, without the brackets of an IPv6 address, and a port.
fn host_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match bracketed {
        Some(host) => host,
        None if host.contains([':', '[', ']']) => return None,
        None => host,
    };
    let port = port.parse().ok().filter(|port| *port != 0)?;
    (!host.is_empty()).then_some((host, port))
}

/// Resolvers as addresses with or without a port, without duplicates.
pub fn resolvers<T: AsRef<str>>(texts: &[T]) -> Checked<Vec<SocketAddr>> {
    let resolvers = texts.iter().map(|text| {
        let text = text.as_ref();
        resolver(text).ok_or_else(|| {
            format!(
                "{text:?} must be an address, with or without a port, as in `10.0.0.2` or `10.0.0.2:5353`"
            )
        })
    });
    let resolvers = resolvers.collect::<Checked<Vec<_>>>()?;
    no_duplicates(&resolvers)?;
    Ok(resolvers)
}

/// An address with or without a port; the default is 53.
pub fn resolver(text: &str) -> Option<SocketAddr> {
    let with_default_port = |ip| SocketAddr::new(ip, DNS_PORT);
    let resolver = text
        .parse()
        .map(with_default_port)
        .or_else(|_| text.parse::<SocketAddr>());
    let resolver = resolver.ok().filter(|resolver| resolver.port() != 0)?;
    Some(SocketAddr::new(resolver.ip().to_canonical(), resolver.port()))
}

fn no_duplicates(resolvers: &[SocketAddr]) -> Checked<()> {
    let mut seen = HashSet::new();
    match resolvers.iter().find(|resolver| !seen.insert(**resolver)) {
        Some(resolver) => Err(format!("{resolver} is listed twice")),
        None => Ok(()),
    }
}

/// Zones with their own resolvers, next to the served domain.
pub fn zone_resolvers<T: AsRef<str>>(zones: &BTreeMap<String, Vec<T>>, domain: &str) -> Checked<()> {
    let mut read = BTreeMap::new();
    for (zone, texts) in zones {
        let resolvers = resolvers(texts).map_err(|what| format!("zone {zone:?}: {what}"))?;
        if read.insert(zone.to_ascii_lowercase(), resolvers).is_some() {
            return Err(format!("zone {zone:?} is listed twice"));
        }
    }
    no_overlaps(&read, domain)
}

/// Every zone is a domain with resolvers; zones and the served domain do not overlap.
fn no_overlaps(zones: &BTreeMap<String, Vec<SocketAddr>>, domain: &str) -> Checked<()> {
    for (zone, resolvers) in zones {
        if !is_domain(zone) {
            return Err(format!(
                "zone {zone:?} must be labels of letters, digits and `-` with dots between them, as in `weave`"
            ));
        }
        if resolvers.is_empty() {
            return Err(format!("zone {zone:?} has no resolver"));
        }
        if zone == domain {
            return Err(format!(
                "zone {zone:?} is the served domain; it cannot be forwarded"
            ));
        }
    }
    let all_zones: Vec<&str> = zones.keys().map(String::as_str).chain([domain]).collect();
    for inner in &all_zones {
        if let Some(outer) = all_zones.iter().find(|outer| is_subdomain(inner, outer)) {
            return Err(format!("{inner:?} lies within {outer:?}; zones must not overlap"));
        }
    }
    Ok(())
}

fn is_subdomain(inner: &str, outer: &str) -> bool {
    inner.strip_suffix(outer).is_some_and(|rest| rest.ends_with('.'))
}

/// Sources of addresses: at least one, without duplicates, in lower case.
pub fn ip_sources<T: AsRef<str>>(texts: &[T]) -> Checked<Vec<IpSource>> {
    let mut sources = Vec::with_capacity(texts.len());
    for text in texts {
        let text = text.as_ref();
        let Some(&source) = IpSource::ALL.iter().find(|source| source.as_str() == text) else {
            return Err(format!("{text:?} must be one of host, docker, mesos, netinfo"));
        };
        if sources.contains(&source) {
            return Err(format!("{text:?} is listed twice"));
        }
        sources.push(source);
    }
    if sources.is_empty() {
        return Err("needs at least one of host, docker, mesos, netinfo".to_owned());
    }
    Ok(sources)
}

#[cfg(test)]
mod tests;
