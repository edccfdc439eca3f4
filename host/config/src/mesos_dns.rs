//! Converts mesos-dns's configuration file to the equivalent settings.
//!
//! The file is one JSON object. Keys are case-insensitive. If several keys differ only in case, the
//! last one is used. `null` is treated as a missing value, and unknown keys are ignored. Values are
//! checked by mesos-dns's rules, so every file that mesos-dns accepts is accepted. All errors are
//! reported together, each with its key.
//!
//! In addition: `Email` and `Mname`, the former names of `SOARname` and `SOAMname`, and keys for
//! functions that only this program has, which mesos-dns ignores.

mod raw;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::path::PathBuf;

use transom_discovery::config::check;

use super::{Cluster, Discovery};
use raw::Raw;

/// The converted settings of a file.
#[derive(Debug)]
pub struct Import {
    /// `[cluster]`
    pub cluster: Cluster,
    /// `[discovery]`
    pub discovery: Discovery,
    /// Notes for the author of the file.
    pub notes: Vec<String>,
}

/// All errors of a file.
#[derive(Debug, Default)]
pub struct Problems(Vec<String>);

impl Problems {
    fn add(&mut self, key: &str, problem: impl fmt::Display) {
        self.0.push(format!("{key}: {problem}"));
    }

    /// The checked value; an error is added to the problems.
    fn ok_or_record<T>(&mut self, key: &str, checked: Result<T, String>) -> Option<T> {
        checked.map_err(|problem| self.add(key, problem)).ok()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n  "))
    }
}

impl std::error::Error for Problems {}

/// Parses a file's content.
pub fn read(content: &[u8]) -> Result<Import, Problems> {
    let mut problems = Problems::default();
    let mut notes = Vec::new();
    let raw = Raw::read(content, &mut problems, &mut notes)?;
    let cluster = cluster(&raw, &mut problems, &mut notes);
    let discovery = discovery(raw, &mut problems, &mut notes);
    if problems.0.is_empty() {
        Ok(Import {
            cluster,
            discovery,
            notes,
        })
    } else {
        Err(problems)
    }
}

/// The settings of the connection to the cluster.
fn cluster(raw: &Raw, problems: &mut Problems, notes: &mut Vec<String>) -> Cluster {
    let masters = problems
        .ok_or_record("Masters", check::masters(&raw.masters))
        .unwrap_or_default();
    if raw.masters.is_empty() && raw.zk.is_empty() {
        problems.add("Masters, Zk", "one of them must be set");
    }
    let mut cluster = Cluster {
        master: masters.join(","),
        ssl: raw.mesos_https_on,
        // Without configured root certificates mesos-dns verifies nothing.
        skip_ssl: raw.ca_cert_file.is_empty() && (raw.mesos_https_on || raw.mesos_authentication == "iam"),
        ca_file: path(&raw.ca_cert_file),
        certificate_file: path(&raw.cert_file),
        key_file: path(&raw.key_file),
        ..Cluster::default()
    };
    if !raw.zk.is_empty() {
        cluster.master.clone_from(&raw.zk);
        cluster.fallback_masters = masters;
    }
    if cluster.ssl && cluster.skip_ssl {
        notes
            .push("MesosHTTPSOn without CACertFile: the certificates of the masters are not verified".into());
    }
    match (raw.cert_file.is_empty(), raw.key_file.is_empty()) {
        (true, false) => problems.add("CertFile", "is missing; it goes with KeyFile"),
        (false, true) => problems.add("KeyFile", "is missing; it goes with CertFile"),
        _ => {}
    }
    match u64::try_from(raw.state_timeout_seconds) {
        Ok(seconds) if seconds > 0 => cluster.state_timeout_seconds = seconds,
        _ => problems.add("StateTimeoutSeconds", "must be 1 or more"),
    }
    cluster.detection_timeout_seconds = u64::try_from(raw.zk_detection_timeout).unwrap_or_default();
    authentication(&mut cluster, raw, problems, notes);
    cluster
}

fn authentication(cluster: &mut Cluster, raw: &Raw, problems: &mut Problems, notes: &mut Vec<String>) {
    let credentials = &raw.mesos_credentials;
    let has_credentials = !credentials.principal.is_empty() || !credentials.secret.is_empty();
    match raw.mesos_authentication.as_str() {
        "" => {
            if has_credentials {
                cluster.principal = Some(credentials.principal.clone());
                notes.push("MesosCredentials are not used: MesosAuthentication is not set".into());
            }
        }
        "basic" if has_credentials => {
            cluster.username = Some(credentials.principal.clone());
            cluster.password = Some(credentials.secret.clone().into());
        }
        "basic" => problems.add(
            "MesosCredentials",
            "MesosAuthentication basic needs a Principal and a Secret",
        ),
        "iam" => match path(&raw.iam_config_file) {
            Some(file) => cluster.iam_config_file = Some(file),
            None => problems.add("IAMConfigFile", "MesosAuthentication iam needs it"),
        },
        other => problems.add(
            "MesosAuthentication",
            format_args!("{other:?} must be basic, iam or nothing"),
        ),
    }
}

fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| text.into())
}

/// The settings of the served records.
fn discovery(raw: Raw, problems: &mut Problems, notes: &mut Vec<String>) -> Discovery {
    if !raw.dns_on && !raw.http_on {
        problems.add("DnsOn, HttpOn", "both are off; turn on at least one");
    }
    let domain = problems
        .ok_or_record("Domain", check::domain(&raw.domain))
        .unwrap_or_default();
    problems.ok_or_record("IPSources", check::ip_sources(&raw.ip_sources));
    if raw.external_on {
        problems.ok_or_record("Resolvers", check::resolvers(&raw.resolvers));
        let zones = check::zone_resolvers(&raw.zone_resolvers, &domain);
        problems.ok_or_record("ZoneResolvers", zones);
    }
    problems.ok_or_record("ForwardPolicy", check::forward_policy(&raw.forward_policy));
    let refresh_seconds = u64::try_from(raw.refresh_seconds).unwrap_or_default();
    if refresh_seconds == 0 {
        problems.add("RefreshSeconds", "must be 1 or more");
    }
    if raw.ttl < 0 {
        notes.push(format!("TTL is {}: using 0, so answers are not cached", raw.ttl));
    }
    let defaults = Discovery::default();
    let listener = raw.listener.parse().unwrap_or_else(|_| {
        problems.add(
            "Listener",
            format_args!("{:?} must be an address, as in `0.0.0.0`", raw.listener),
        );
        defaults.listener
    });
    let http_listener = match http_listener(&raw.http_listener) {
        Ok(listener) => listener,
        Err(_) if !raw.http_on => defaults.http_listener,
        Err(problem) => {
            problems.add("HTTPListener", problem);
            defaults.http_listener
        }
    };
    Discovery {
        listener,
        port: port("Port", raw.port, raw.dns_on, problems),
        http_listener,
        http_port: port("HttpPort", raw.http_port, raw.http_on, problems),
        allowed_hosts: raw.allowed_hosts,
        dns_on: raw.dns_on,
        http_on: raw.http_on,
        domain,
        ttl: u32::try_from(raw.ttl).unwrap_or_default(),
        refresh_seconds,
        ip_sources: raw.ip_sources,
        enforce_rfc952: raw.enforce_rfc952,
        recurse_on: raw.recurse_on,
        enumeration_on: raw.enumeration_on,
        srv_record_default_weight: raw.srv_record_default_weight,
        weight_label: Some(raw.weight_label).filter(|label| !label.is_empty()),
        soa_mname: raw.soa_mname,
        soa_rname: raw.soa_rname,
        soa_refresh: raw.soa_refresh,
        soa_retry: raw.soa_retry,
        soa_expire: raw.soa_expire,
        reverse_dns_on: raw.reverse_dns_on,
        resolv_subnet_first: raw.resolv_subnet_first,
        external_on: raw.external_on,
        resolvers: raw.resolvers,
        zone_resolvers: raw.zone_resolvers,
        timeout: u64::try_from(raw.timeout)
            .ok()
            .filter(|it| *it > 0)
            .unwrap_or(check::DEFAULT_TIMEOUT),
        set_truncate_bit: raw.set_truncate_bit,
        allow_recursion: raw.allow_recursion,
        forward_policy: raw.forward_policy,
        forward_cache_bytes: raw.forward_cache_bytes as usize,
        forward_max_inflight: raw.forward_max_inflight as usize,
        forward_max_sockets: raw.forward_max_sockets as usize,
        responses_per_second: raw.responses_per_second,
        healthy_only: raw.healthy_only,
        include_staging: raw.include_staging,
        framework_ttl: raw.framework_ttl,
        tls_port: raw.tls_port,
        https_port: raw.https_port,
        tls_certificate: path(&raw.tls_certificate),
        tls_key: path(&raw.tls_key),
        also_notify: raw.also_notify,
        allow_transfer: raw.allow_transfer,
    }
}

/// Converts a port. A used port must be valid; an unused one is not checked.
fn port(key: &str, number: i64, used: bool, problems: &mut Problems) -> u16 {
    u16::try_from(number).unwrap_or_else(|_| {
        if used {
            problems.add(key, format_args!("{number} must be from 0 to 65535"));
        }
        0
    })
}

/// The listener's address. An empty text is all addresses; a host name is resolved.
fn http_listener(text: &str) -> Result<IpAddr, String> {
    if text.is_empty() {
        return Ok(Ipv4Addr::UNSPECIFIED.into());
    }
    if let Ok(ip) = text.parse() {
        return Ok(ip);
    }
    let mut addresses: Vec<IpAddr> = match (text, 0).to_socket_addrs() {
        Ok(resolved) => resolved.map(|address| address.ip()).collect(),
        Err(error) => {
            return Err(format!(
                "{text:?} must be an address or a name that has one: {error}"
            ));
        }
    };
    addresses.sort_by_key(IpAddr::is_ipv6);
    let first = addresses.first().copied();
    first.ok_or_else(|| format!("{text:?} must be an address or a name that has one"))
}

#[cfg(test)]
mod tests;
