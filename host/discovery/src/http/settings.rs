//! `/v1/config`: the specification's keys and mesos-dns's, in its order; never a secret.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Config;
use crate::config::check::DNS_PORT;
use crate::settings::addresses;

/// The effective settings, with the bound ports: the keys of the specification and of mesos-dns.
#[derive(Clone, JsonSchema, Serialize)]
#[serde(rename_all = "PascalCase")]
#[allow(clippy::struct_excessive_bools)] // The shape is mesos-dns's.
#[schemars(rename = "Config")]
pub(super) struct ConfigDocument {
    refresh_seconds: u64,
    port: u16,
    timeout: u64,
    state_timeout_seconds: u64,
    zk_detection_timeout: u64,
    http_port: u16,
    #[serde(rename = "TTL")]
    ttl: u32,
    #[serde(rename = "SRVRecordDefaultWeight")]
    srv_record_default_weight: u16,
    #[serde(rename = "SOASerial")]
    soa_serial: u32,
    #[serde(rename = "SOARefresh")]
    soa_refresh: u32,
    #[serde(rename = "SOARetry")]
    soa_retry: u32,
    #[serde(rename = "SOAExpire")]
    soa_expire: u32,
    #[serde(rename = "SOAMinttl")]
    soa_minttl: u32,
    #[serde(rename = "SOAMname")]
    soa_mname: String,
    #[serde(rename = "SOARname")]
    soa_rname: String,
    masters: Option<Vec<String>>,
    zone_resolvers: BTreeMap<String, Vec<String>>,
    resolvers: Vec<String>,
    #[serde(rename = "IPSources")]
    ip_sources: Vec<String>,
    zk: String,
    domain: String,
    file: String,
    listener: String,
    #[serde(rename = "HTTPListener")]
    http_listener: String,
    recurse_on: bool,
    dns_on: bool,
    http_on: bool,
    external_on: bool,
    #[serde(rename = "EnforceRFC952")]
    enforce_rfc952: bool,
    set_truncate_bit: bool,
    enumeration_on: bool,
    #[serde(rename = "MesosHTTPSOn")]
    mesos_https_on: bool,
    #[serde(rename = "CACertFile")]
    ca_cert_file: String,
    cert_file: String,
    key_file: String,
    mesos_credentials: Credentials,
    #[serde(rename = "IAMConfigFile")]
    iam_config_file: String,
    mesos_authentication: String,
    reverse_dns_on: bool,
    resolv_subnet_first: bool,
    email: String,
    mname: String,
}

/// The credentials for the cluster manager. The secret is always empty; clients expect the key.
#[derive(Clone, Default, JsonSchema, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Credentials {
    principal: String,
    secret: String,
}

impl ConfigDocument {
    pub(super) fn of(config: &Config, dns: Option<SocketAddr>, http: Option<SocketAddr>) -> Self {
        let (settings, cluster_settings) = (&config.settings, config.cluster_settings.clone());
        Self {
            refresh_seconds: settings.refresh_seconds,
            port: dns.map_or(settings.port, |addr| addr.port()),
            timeout: settings.timeout,
            state_timeout_seconds: cluster_settings.state_timeout_seconds,
            zk_detection_timeout: cluster_settings.zk_detection_timeout,
            http_port: http.map_or(settings.http_port, |addr| addr.port()),
            ttl: settings.ttl,
            srv_record_default_weight: settings.srv_record_default_weight,
            soa_serial: 0,
            soa_refresh: settings.soa_refresh,
            soa_retry: settings.soa_retry,
            soa_expire: settings.soa_expire,
            soa_minttl: settings.ttl,
            soa_mname: settings.soa_mname.clone(),
            soa_rname: settings.soa_rname.clone(),
            masters: Some(config.masters.clone()).filter(|masters| !masters.is_empty()),
            zone_resolvers: settings
                .zone_resolvers()
                .into_iter()
                .map(|(zone, resolvers)| (zone, to_strings(&resolvers)))
                .collect(),
            resolvers: to_strings(&addresses(&settings.resolvers)),
            ip_sources: settings.ip_sources.clone(),
            zk: transom_common::masked(&cluster_settings.zk).into_owned(),
            domain: settings.domain.clone(),
            file: cluster_settings.file,
            listener: settings.listener.to_string(),
            http_listener: settings.http_listener.to_string(),
            recurse_on: settings.recurse_on,
            dns_on: settings.dns_on,
            http_on: settings.http_on,
            external_on: settings.external_on,
            enforce_rfc952: settings.enforce_rfc952,
            set_truncate_bit: settings.set_truncate_bit,
            enumeration_on: settings.enumeration_on,
            mesos_https_on: cluster_settings.mesos_https_on,
            ca_cert_file: cluster_settings.ca_cert_file,
            cert_file: cluster_settings.cert_file,
            key_file: cluster_settings.key_file,
            mesos_credentials: Credentials {
                principal: cluster_settings.principal,
                secret: String::new(),
            },
            iam_config_file: cluster_settings.iam_config_file,
            mesos_authentication: cluster_settings.mesos_authentication,
            reverse_dns_on: settings.reverse_dns_on,
            resolv_subnet_first: settings.resolv_subnet_first,
            email: settings.soa_rname.clone(),
            mname: settings.soa_mname.clone(),
        }
    }

    pub(super) fn with_serial(&self, serial: u32) -> Self {
        Self {
            soa_serial: serial,
            ..self.clone()
        }
    }
}

/// Addresses as in configuration files, without the default port.
fn to_strings(resolvers: &[SocketAddr]) -> Vec<String> {
    let one = |resolver: &SocketAddr| match resolver.port() {
        DNS_PORT => resolver.ip().to_string(),
        _ => resolver.to_string(),
    };
    resolvers.iter().map(one).collect()
}
