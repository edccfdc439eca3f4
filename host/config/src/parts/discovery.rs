//! The configuration of discovery, from `[discovery]` and `[cluster]`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::bail;
use transom_discovery::config::check;

use super::cluster::ZOOKEEPER;
use crate::renamed::value as renamed_value;
use crate::{Cluster, Discovery};

/// The configuration. `masters`: the resolved addresses of the masters; `file`: the file with the
/// settings; `hostname`: the name of this machine.
///
/// # Errors
/// The faults of the section, one line each.
pub fn config(
    section: Discovery,
    cluster: &Cluster,
    masters: &[String],
    file: &Path,
    hostname: &str,
) -> anyhow::Result<transom_discovery::Config> {
    let mut problems = Vec::new();
    let zookeeper = masters.first().filter(|master| master.starts_with(ZOOKEEPER));
    // The masters for the zone's `master` names. With ZooKeeper, these are the masters that it names,
    // and the fallback masters before that.
    let named_masters = if zookeeper.is_some() {
        &cluster.fallback_masters[..]
    } else {
        masters
    };
    let resolvers = if section.external_on {
        valid(&mut problems, "resolvers", check::resolvers(&section.resolvers))
    } else {
        // The resolvers are not used without forwarding. They are only shown.
        section
            .resolvers
            .iter()
            .filter_map(|text| check::resolver(text))
            .collect()
    };
    let zones = section.zone_resolvers.iter();
    let zones = zones.map(|(zone, resolvers)| (zone.as_str(), resolvers.as_slice()));
    let zone_resolvers = if section.external_on {
        let zones = check::zone_resolvers(zones, &section.domain.to_ascii_lowercase());
        valid(&mut problems, "zone_resolvers", zones)
    } else {
        BTreeMap::new()
    };
    let masters = check::masters(named_masters).unwrap_or_else(|problem| {
        problems.push(format!("`cluster.master`: {problem}"));
        Vec::new()
    });
    let ip_sources = valid(
        &mut problems,
        "ip_sources",
        check::ip_sources(&section.ip_sources),
    );
    let forward_policy = forward_policy(&section.forward_policy).unwrap_or_else(|problem| {
        problems.push(problem);
        transom_discovery::Config::default().forward_policy
    });
    let also_notify = valid(
        &mut problems,
        "also_notify",
        check::resolvers(&section.also_notify),
    );
    let config = transom_discovery::Config {
        listener: section.listener,
        port: section.port,
        http_listener: section.http_listener,
        http_port: section.http_port,
        allowed_hosts: section
            .allowed_hosts
            .into_iter()
            .chain(hostname.parse())
            .collect(),
        dns_on: section.dns_on,
        http_on: section.http_on,
        domain: section.domain,
        ttl: section.ttl,
        refresh_seconds: section.refresh_seconds,
        masters,
        ip_sources,
        enforce_rfc952: section.enforce_rfc952,
        recurse_on: section.recurse_on,
        enumeration_on: section.enumeration_on,
        srv_record_default_weight: section.srv_record_default_weight,
        weight_label: section.weight_label,
        soa_mname: section.soa_mname,
        soa_rname: section.soa_rname,
        soa_refresh: section.soa_refresh,
        soa_retry: section.soa_retry,
        soa_expire: section.soa_expire,
        reverse_dns_on: section.reverse_dns_on,
        resolv_subnet_first: section.resolv_subnet_first,
        external_on: section.external_on,
        resolvers,
        zone_resolvers,
        timeout: section.timeout,
        forward_policy,
        forward_cache_bytes: section.forward_cache_bytes,
        forward_max_inflight: section.forward_max_inflight,
        forward_max_sockets: section.forward_max_sockets,
        set_truncate_bit: section.set_truncate_bit,
        allow_recursion: section.allow_recursion,
        responses_per_second: section.responses_per_second,
        healthy_only: section.healthy_only,
        include_staging: section.include_staging,
        framework_ttl: section.framework_ttl,
        tls_port: section.tls_port,
        https_port: section.https_port,
        tls_certificate: section.tls_certificate,
        tls_key: section.tls_key,
        also_notify,
        allow_transfer: section.allow_transfer,
        stream_timeouts: transom_discovery::source::StreamTimeouts::default(),
        cluster_settings: cluster_settings(cluster, zookeeper, file),
    };
    add_problems(&mut problems, &config);
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    Ok(config)
}

/// Adds the problems of the configuration, except for keys that have one already.
fn add_problems(problems: &mut Vec<String>, config: &transom_discovery::Config) {
    let invalid_keys: Vec<String> = problems.iter().map(|text| key_of(text).to_owned()).collect();
    let others = config.problems().into_iter().map(|(keys, what)| {
        let keys: Vec<_> = keys.split(", ").map(|key| format!("`discovery.{key}`")).collect();
        format!("{}: {what}", keys.join(" and "))
    });
    problems.extend(others.filter(|text| !invalid_keys.iter().any(|key| key == key_of(text))));
}

/// The key at the beginning of a problem.
fn key_of(problem: &str) -> &str {
    problem.split('`').nth(1).unwrap_or_default()
}

/// The value, or the default and a problem of this key of `[discovery]`.
fn valid<T: Default>(problems: &mut Vec<String>, key: &str, checked: check::Checked<T>) -> T {
    checked.unwrap_or_else(|problem| {
        problems.push(format!("`discovery.{key}`: {problem}"));
        T::default()
    })
}

fn forward_policy(text: &str) -> Result<transom_discovery::ForwardPolicy, String> {
    check::forward_policy(text).map_err(|problem| match renamed_value("discovery.forward_policy", text) {
        Some(new) => format!("`discovery.forward_policy`: {problem}; `{text}` is now `{new}`"),
        None => format!("`discovery.forward_policy`: {problem}"),
    })
}

fn cluster_settings(
    cluster: &Cluster,
    zookeeper: Option<&String>,
    file: &Path,
) -> transom_discovery::ClusterSettings {
    let path_text = |path: &Option<PathBuf>| {
        path.as_ref()
            .map(|path| path.display().to_string())
            .unwrap_or_default()
    };
    let principal = cluster.username.as_ref().or(cluster.principal.as_ref());
    transom_discovery::ClusterSettings {
        file: std::path::absolute(file)
            .map(|file| file.display().to_string())
            .unwrap_or_default(),
        zk: zookeeper.cloned().unwrap_or_default(),
        state_timeout_seconds: cluster.state_timeout_seconds,
        zk_detection_timeout: cluster.detection_timeout_seconds,
        mesos_https_on: cluster.ssl,
        ca_cert_file: path_text(&cluster.ca_file),
        cert_file: path_text(&cluster.certificate_file),
        key_file: path_text(&cluster.key_file),
        principal: principal.cloned().unwrap_or_default(),
        mesos_authentication: match (&cluster.username, &cluster.iam_config_file) {
            (Some(_), _) => "basic".to_owned(),
            (None, Some(_)) => "iam".to_owned(),
            (None, None) => String::new(),
        },
        iam_config_file: path_text(&cluster.iam_config_file),
    }
}
