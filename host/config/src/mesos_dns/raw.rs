//! The file before values are checked: every key with its type and default.

use std::collections::BTreeMap;
use std::fmt;

use ipnet::IpNet;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use transom_web::AllowedHost;

use super::super::renamed;
use super::Problems;

/// The keys in mesos-dns's order, then this program's additional keys.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of the file")]
pub(super) struct Raw {
    pub(super) refresh_seconds: i64,
    pub(super) port: i64,
    pub(super) timeout: i64,
    pub(super) state_timeout_seconds: i64,
    pub(super) zk_detection_timeout: i64,
    pub(super) http_port: i64,
    pub(super) ttl: i32,
    pub(super) srv_record_default_weight: u16,
    /// Has no effect, as in mesos-dns.
    soa_serial: u32,
    pub(super) soa_refresh: u32,
    pub(super) soa_retry: u32,
    pub(super) soa_expire: u32,
    /// Has no effect, as in mesos-dns: negative answers have the TTL of other answers.
    soa_minttl: u32,
    pub(super) soa_mname: String,
    pub(super) soa_rname: String,
    pub(super) masters: Vec<String>,
    pub(super) zone_resolvers: BTreeMap<String, Vec<String>>,
    pub(super) resolvers: Vec<String>,
    pub(super) ip_sources: Vec<String>,
    pub(super) zk: String,
    pub(super) domain: String,
    pub(super) listener: String,
    pub(super) http_listener: String,
    pub(super) recurse_on: bool,
    pub(super) dns_on: bool,
    pub(super) http_on: bool,
    pub(super) external_on: bool,
    pub(super) enforce_rfc952: bool,
    pub(super) set_truncate_bit: bool,
    pub(super) enumeration_on: bool,
    pub(super) mesos_https_on: bool,
    pub(super) ca_cert_file: String,
    pub(super) cert_file: String,
    pub(super) key_file: String,
    pub(super) mesos_credentials: Credentials,
    pub(super) mesos_authentication: String,
    pub(super) iam_config_file: String,
    pub(super) reverse_dns_on: bool,
    pub(super) resolv_subnet_first: bool,

    pub(super) allowed_hosts: Vec<AllowedHost>,
    pub(super) allow_recursion: Vec<IpNet>,
    pub(super) forward_policy: String,
    pub(super) forward_cache_bytes: u32,
    pub(super) forward_max_inflight: u32,
    pub(super) forward_max_sockets: u32,
    pub(super) responses_per_second: u32,
    pub(super) healthy_only: bool,
    pub(super) include_staging: bool,
    pub(super) framework_ttl: BTreeMap<String, u32>,
    pub(super) weight_label: String,
    pub(super) tls_port: Option<u16>,
    pub(super) https_port: Option<u16>,
    pub(super) tls_certificate: String,
    pub(super) tls_key: String,
    pub(super) also_notify: Vec<String>,
    pub(super) allow_transfer: Vec<IpNet>,
}

/// Credentials, whose secret is not shown by `Debug`.
#[derive(Default)]
pub(super) struct Credentials {
    pub(super) principal: String,
    pub(super) secret: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials of {:?}", self.principal)
    }
}

impl Default for Raw {
    fn default() -> Self {
        let none = String::new;
        Self {
            refresh_seconds: 60,
            port: 53,
            timeout: 5,
            state_timeout_seconds: 300,
            zk_detection_timeout: 30,
            http_port: 8123,
            ttl: 60,
            srv_record_default_weight: 1,
            soa_serial: 0,
            soa_refresh: 60,
            soa_retry: 600,
            soa_expire: 86_400,
            soa_minttl: 60,
            soa_mname: "ns1.mesos".into(),
            soa_rname: "root.ns1.mesos".into(),
            masters: Vec::new(),
            zone_resolvers: BTreeMap::new(),
            resolvers: vec!["8.8.8.8".into()],
            ip_sources: ["netinfo", "mesos", "host"].map(str::to_owned).into(),
            zk: none(),
            domain: "mesos".into(),
            listener: "0.0.0.0".into(),
            http_listener: "0.0.0.0".into(),
            recurse_on: true,
            dns_on: true,
            http_on: true,
            external_on: true,
            enforce_rfc952: false,
            set_truncate_bit: true,
            enumeration_on: true,
            mesos_https_on: false,
            ca_cert_file: none(),
            cert_file: none(),
            key_file: none(),
            mesos_credentials: Credentials::default(),
            mesos_authentication: none(),
            iam_config_file: none(),
            reverse_dns_on: false,
            resolv_subnet_first: false,
            allowed_hosts: Vec::new(),
            allow_recursion: transom_discovery::settings::private_networks(),
            forward_policy: "sequential".into(),
            forward_cache_bytes: 16 << 20,
            forward_max_inflight: 4096,
            forward_max_sockets: 512,
            responses_per_second: 0,
            healthy_only: false,
            include_staging: false,
            framework_ttl: BTreeMap::new(),
            weight_label: none(),
            tls_port: None,
            https_port: None,
            tls_certificate: none(),
            tls_key: none(),
            also_notify: Vec::new(),
            allow_transfer: Vec::new(),
        }
    }
}

impl Raw {
    /// Parses the text. Fails if it is not a JSON object; values of the wrong type are added to
    /// `problems`.
    pub(super) fn read(
        content: &[u8],
        problems: &mut Problems,
        notes: &mut Vec<String>,
    ) -> Result<Self, Problems> {
        let text = String::from_utf8_lossy(content);
        let entries: Option<Entries> = serde_json::from_str(&text).map_err(|error| {
            // The parser reports its finding and the position, and quotes no value except one at
            // the top level.
            Problems(vec![format!("expected a JSON object: {error}")])
        })?;
        let mut raw = Self::default();
        let (mut mname, mut rname) = (None, None);
        for (key, value) in entries.unwrap_or_default().0 {
            match key.to_ascii_lowercase().as_str() {
                "email" => rname = value.as_str().map(str::to_owned),
                "mname" => mname = value.as_str().map(str::to_owned),
                "mesoscredentials" => raw.mesos_credentials.read(&key, value, problems),
                lowercase_key => raw.set(
                    lowercase_key,
                    &mut Entry {
                        key: &key,
                        value,
                        problems,
                        notes,
                    },
                ),
            }
        }
        // The present names take precedence if both are given.
        let defaults = Self::default();
        for (old, current, default) in [
            (mname, &mut raw.soa_mname, defaults.soa_mname),
            (rname, &mut raw.soa_rname, defaults.soa_rname),
        ] {
            if let Some(old) = old.filter(|_| *current == default) {
                *current = old;
            }
        }
        Ok(raw)
    }

    /// Sets one value; `lowercase_key` is its key in lower case.
    fn set(&mut self, lowercase_key: &str, entry: &mut Entry<'_>) {
        match lowercase_key {
            "refreshseconds" => entry.assign(&mut self.refresh_seconds),
            "port" => entry.assign(&mut self.port),
            "timeout" => entry.assign(&mut self.timeout),
            "statetimeoutseconds" => entry.assign(&mut self.state_timeout_seconds),
            "zkdetectiontimeout" => entry.assign(&mut self.zk_detection_timeout),
            "httpport" => entry.assign(&mut self.http_port),
            "ttl" => entry.assign(&mut self.ttl),
            "srvrecorddefaultweight" => entry.assign(&mut self.srv_record_default_weight),
            "soaserial" => entry.assign(&mut self.soa_serial),
            "soarefresh" => entry.assign(&mut self.soa_refresh),
            "soaretry" => entry.assign(&mut self.soa_retry),
            "soaexpire" => entry.assign(&mut self.soa_expire),
            "soaminttl" => entry.assign(&mut self.soa_minttl),
            "soamname" => entry.assign(&mut self.soa_mname),
            "soarname" => entry.assign(&mut self.soa_rname),
            "masters" => entry.assign(&mut self.masters),
            "zoneresolvers" => entry.assign(&mut self.zone_resolvers),
            "resolvers" => entry.assign(&mut self.resolvers),
            "ipsources" => entry.assign(&mut self.ip_sources),
            "zk" => entry.assign(&mut self.zk),
            "domain" => entry.assign(&mut self.domain),
            "listener" => entry.assign(&mut self.listener),
            "httplistener" => entry.assign(&mut self.http_listener),
            "recurseon" => entry.assign(&mut self.recurse_on),
            "dnson" => entry.assign(&mut self.dns_on),
            "httpon" => entry.assign(&mut self.http_on),
            "externalon" => entry.assign(&mut self.external_on),
            "enforcerfc952" => entry.assign(&mut self.enforce_rfc952),
            "settruncatebit" => entry.assign(&mut self.set_truncate_bit),
            "enumerationon" => entry.assign(&mut self.enumeration_on),
            "mesoshttpson" => entry.assign(&mut self.mesos_https_on),
            "cacertfile" => entry.assign(&mut self.ca_cert_file),
            "certfile" => entry.assign(&mut self.cert_file),
            "keyfile" => entry.assign(&mut self.key_file),
            "mesosauthentication" => entry.assign(&mut self.mesos_authentication),
            "iamconfigfile" => entry.assign(&mut self.iam_config_file),
            "reversednson" => entry.assign(&mut self.reverse_dns_on),
            "resolvsubnetfirst" => entry.assign(&mut self.resolv_subnet_first),
            _ => self.set_own_key(lowercase_key, entry),
        }
    }

    fn set_own_key(&mut self, lowercase_key: &str, entry: &mut Entry<'_>) {
        match lowercase_key {
            "allowedhosts" => entry.assign(&mut self.allowed_hosts),
            "allowrecursion" => entry.assign(&mut self.allow_recursion),
            "forwardpolicy" => entry.assign(&mut self.forward_policy),
            "forwardcachebytes" => entry.assign(&mut self.forward_cache_bytes),
            "forwardmaxinflight" => entry.assign(&mut self.forward_max_inflight),
            "forwardmaxsockets" => entry.assign(&mut self.forward_max_sockets),
            "responsespersecond" => entry.assign(&mut self.responses_per_second),
            "healthyonly" => entry.assign(&mut self.healthy_only),
            "includestaging" => entry.assign(&mut self.include_staging),
            "frameworkttl" => entry.assign(&mut self.framework_ttl),
            "weightlabel" => entry.assign(&mut self.weight_label),
            "tlsport" => entry.optional_port(&mut self.tls_port),
            "httpsport" => entry.optional_port(&mut self.https_port),
            "tlscertificate" => entry.assign(&mut self.tls_certificate),
            "tlskey" => entry.assign(&mut self.tls_key),
            "alsonotify" => entry.assign(&mut self.also_notify),
            "allowtransfer" => entry.assign(&mut self.allow_transfer),
            // The file's own path, which mesos-dns adds to its output.
            "file" => {}
            _ => match renamed::mesos_dns_key(entry.key) {
                Some(new) => entry.problems.add(entry.key, format_args!("is now {new}")),
                None => entry
                    .notes
                    .push(format!("`{}` is not a known key and is ignored", entry.key)),
            },
        }
    }
}

impl Credentials {
    fn read(&mut self, key: &str, value: Value, problems: &mut Problems) {
        match value {
            Value::Null => {}
            Value::Object(fields) => {
                for (name, value) in fields {
                    let slot = match name.to_ascii_lowercase().as_str() {
                        "principal" => &mut self.principal,
                        "secret" => &mut self.secret,
                        _ => continue,
                    };
                    assign_value(slot, &format!("{key}.{name}"), value, problems);
                }
            }
            other => problems.add(key, format_args!("is {}, expected an object", kind(&other))),
        }
    }
}

/// A key with its value.
struct Entry<'e> {
    key: &'e str,
    value: Value,
    problems: &'e mut Problems,
    notes: &'e mut Vec<String>,
}

impl Entry<'_> {
    fn assign<T: Expected>(&mut self, slot: &mut T) {
        assign_value(slot, self.key, self.value.take(), self.problems);
    }

    /// Sets a port; `None` if it is missing in the file, or 0.
    fn optional_port(&mut self, slot: &mut Option<u16>) {
        let mut port = 0_u16;
        self.assign(&mut port);
        *slot = Some(port).filter(|port| *port != 0);
    }
}

/// Sets a value, unless its type is wrong.
fn assign_value<T: Expected>(slot: &mut T, key: &str, value: Value, problems: &mut Problems) {
    if value.is_null() {
        return;
    }
    // A number is not a secret, so the error may quote it.
    let actual = match &value {
        Value::Number(number) => number.to_string(),
        other => kind(other).to_owned(),
    };
    match T::deserialize(value) {
        Ok(read) => *slot = read,
        Err(_) => problems.add(key, format_args!("is {actual}, expected {}", T::EXPECTED)),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The name of a JSON type.
trait Expected: DeserializeOwned {
    const EXPECTED: &'static str;
}

macro_rules! expected {
    ($($type:ty: $what:literal)*) => {$(
        impl Expected for $type {
            const EXPECTED: &'static str = $what;
        }
    )*};
}

expected! {
    i64: "a whole number"
    i32: "a whole number up to 2147483647"
    u16: "a whole number from 0 to 65535"
    u32: "a whole number from 0 to 4294967295"
    bool: "true or false"
    String: "a text"
    Vec<String>: "a list of texts"
    Vec<IpNet>: "a list of networks, as in [\"10.0.0.0/8\"]"
    Vec<AllowedHost>: "a list of host names without scheme and port, as in [\"dns.example.com\"]"
    BTreeMap<String, Vec<String>>: "an object with a list of texts for each name"
    BTreeMap<String, u32>: "an object with a whole number for each name"
}

/// The entries of an object in order, including duplicates.
#[derive(Default)]
struct Entries(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Each)
    }
}
