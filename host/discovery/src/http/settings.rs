//! `/v1/config`: the specification's keys and mesos-dns's, in its order; never a secret.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Serialize;

use crate::Config;

/// Keys of what this daemon does not do yet show that it does not.
#[derive(Clone, Serialize)]
#[serde(rename_all = "PascalCase")]
#[allow(clippy::struct_excessive_bools)] // The shape is mesos-dns's.
pub(super) struct Shown {
    refresh_seconds: u64,
    port: u16,
    timeout: u32,
    state_timeout_seconds: u32,
    zk_detection_timeout: u32,
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
    ip_sources: Vec<&'static str>,
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

/// Always empty: readers expect the key, nobody needs what was in it.
#[derive(Clone, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Credentials {
    principal: String,
    secret: String,
}

impl Shown {
    pub(super) fn of(config: &Config, dns: Option<SocketAddr>, http: Option<SocketAddr>) -> Self {
        Self {
            refresh_seconds: config.refresh_seconds,
            port: dns.map_or(config.port, |addr| addr.port()),
            timeout: 5,
            state_timeout_seconds: 300,
            zk_detection_timeout: 30,
            http_port: http.map_or(config.http_port, |addr| addr.port()),
            ttl: config.ttl,
            srv_record_default_weight: config.srv_record_default_weight,
            soa_serial: 0,
            soa_refresh: config.soa_refresh,
            soa_retry: config.soa_retry,
            soa_expire: config.soa_expire,
            soa_minttl: config.ttl,
            soa_mname: config.soa_mname.clone(),
            soa_rname: config.soa_rname.clone(),
            masters: Some(config.masters.clone()).filter(|masters| !masters.is_empty()),
            zone_resolvers: BTreeMap::new(),
            resolvers: Vec::new(),
            ip_sources: config.ip_sources.iter().map(|source| source.as_str()).collect(),
            zk: String::new(),
            domain: config.domain.clone(),
            file: String::new(),
            listener: config.listener.to_string(),
            http_listener: config.http_listener.to_string(),
            recurse_on: config.recurse_on,
            dns_on: config.dns_on,
            http_on: config.http_on,
            external_on: false,
            enforce_rfc952: config.enforce_rfc952,
            set_truncate_bit: true,
            enumeration_on: config.enumeration_on,
            mesos_https_on: false,
            ca_cert_file: String::new(),
            cert_file: String::new(),
            key_file: String::new(),
            mesos_credentials: Credentials::default(),
            iam_config_file: String::new(),
            mesos_authentication: String::new(),
            reverse_dns_on: false,
            resolv_subnet_first: false,
            email: config.soa_rname.clone(),
            mname: config.soa_mname.clone(),
        }
    }

    pub(super) fn with_serial(&self, serial: u32) -> Self {
        Self {
            soa_serial: serial,
            ..self.clone()
        }
    }
}
