//! The settings, one struct per section. Keys are the specification's names in `snake_case`;
//! unknown keys are errors.

mod telemetry;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use transom_common::{Secret, schema, settings};
use transom_web::{AllowedHost, Origin};

use super::log_level::LogLevel;
use super::plugin_bindings::Bindings;
use crate::{Apps, Discovery, Kubernetes, Workflow};
pub use telemetry::Telemetry;

settings! {
    /// All settings. A service runs when its section is present.
    #[allow(missing_docs, reason = "the type of a section describes it")]
    pub struct Settings {
        /// The version of the settings' format. It is only raised for a change that older daemons would
        /// misunderstand.
        pub settings_version: SettingsVersion;
        pub log: Log;
        pub telemetry: Telemetry;
        pub cluster: Cluster;
        pub store: Store;
        pub plugins: Plugins;
        pub admin: Admin;
        #[serde(skip_serializing_if = "Option::is_none")]
        pub apps: Option<Apps>;
        #[serde(skip_serializing_if = "Option::is_none")]
        pub discovery: Option<Discovery>;
        #[serde(skip_serializing_if = "Option::is_none")]
        pub kubernetes: Option<Kubernetes>;
        /// The sections `[kubernetes.NAME]`, by name, with the keys that they inherit from `[kubernetes]`.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        #[schemars(skip)]
        pub kubernetes_instances: BTreeMap<String, Kubernetes>;
        #[serde(skip_serializing_if = "Option::is_none")]
        pub workflow: Option<Workflow>;
    }
}

impl Settings {
    /// All paths, which [`super::load`] resolves against the folder of their file.
    pub(super) fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let (plugins, cluster) = (self.plugins.paths(), self.cluster.paths());
        plugins
            .chain(cluster)
            .chain(self.admin.paths())
            .chain(self.apps.iter_mut().flat_map(Apps::paths))
            .chain(self.discovery.iter_mut().flat_map(Discovery::paths))
            .chain(self.kubernetes.iter_mut().flat_map(Kubernetes::paths))
            .chain(self.kubernetes_instances.values_mut().flat_map(Kubernetes::paths))
            .chain(self.workflow.iter_mut().flat_map(Workflow::paths))
    }
}

/// The names of all sections. `TRANSOM_<SECTION>_<KEY>` sets a key; other `TRANSOM_` variables do not.
pub const SECTIONS: &[&str] = &[
    "log",
    "telemetry",
    "cluster",
    "store",
    "plugins",
    "admin",
    "apps",
    "discovery",
    "kubernetes",
    "workflow",
];

/// `settings_version`. Default: 1.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
#[schemars(with = "u32")]
#[serde(try_from = "u32")]
pub struct SettingsVersion(u32);

impl SettingsVersion {
    const READS: u32 = 1;
}

impl Default for SettingsVersion {
    fn default() -> Self {
        Self(Self::READS)
    }
}

impl TryFrom<u32> for SettingsVersion {
    type Error = String;

    fn try_from(version: u32) -> Result<Self, String> {
        if version == Self::READS {
            return Ok(Self(version));
        }
        Err(format!(
            "version {version} of the settings; this daemon ({}) reads version {}: a higher one needs a newer transom",
            env!("CARGO_PKG_VERSION"),
            Self::READS
        ))
    }
}

settings! {
    /// `[log]`: the log on standard error.
    pub struct Log {
        /// `error`, `warn`, `info`, `debug` or `trace`, or a list of levels and `target=level` directives, such
        /// as `info,transom_apps=debug`.
        pub level: LogLevel;
        /// `text` for people, or `json` with one object per line.
        pub format: LogFormat = LogFormat::Text;
    }
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names of the values say it")]
pub enum LogFormat {
    Text,
    Json,
}

settings! {
    /// `[cluster]`: the cluster manager.
    #[derive(PartialEq)]
    pub struct Cluster {
        /// `host:port`, several separated by commas, or `zk://[user:password@]h1:2181,h2:2181/path`, or
        /// `file:///path` of a file that contains one of these; redirects to the leader are followed.
        pub master: String = "127.0.0.1:5050".into();
        /// Masters as `host:port` that are used until ZooKeeper has named one.
        pub fallback_masters: Vec<String>;
        /// The principal of the frameworks.
        pub principal: Option<String>;
        /// The user of the master's HTTP API, if it requires one; needs `password`.
        pub username: Option<String>;
        /// The password of `username`.
        #[schemars(with = "Option<schema::Secret>")]
        pub password: Option<Secret>;
        /// Use TLS to the master.
        pub ssl: bool;
        /// Do not verify the master's certificate.
        pub skip_ssl: bool;
        /// Root certificates (PEM) to trust instead of the system's.
        pub ca_file: Option<PathBuf>;
        /// The client certificate (PEM) for the master; needs `key_file`.
        pub certificate_file: Option<PathBuf>;
        /// The key for `certificate_file` (PEM).
        pub key_file: Option<PathBuf>;
        /// A service account that logs in for a token, as JSON: `uid`, `private_key`, `login_endpoint`.
        /// Replaces username and password.
        pub iam_config_file: Option<PathBuf>;
        /// The timeout of reading the cluster's state document, in seconds.
        pub state_timeout_seconds: u64 = 300;
        /// `transom discovery` ends if ZooKeeper names no leader within this many seconds after the
        /// start; 0: no limit.
        pub detection_timeout_seconds: u64 = 0;
    }
}

impl Cluster {
    /// All paths, which [`super::load`] resolves against the folder of their file.
    pub(super) fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [
            &mut self.ca_file,
            &mut self.certificate_file,
            &mut self.key_file,
            &mut self.iam_config_file,
        ]
        .into_iter()
        .flatten()
    }
}

settings! {
    /// `[store]`: the durable state of the daemon.
    pub struct Store {
        /// `file:DIR` for the embedded store; `zk://HOST:PORT,HOST:PORT,HOST:PORT/PATH` for ZooKeeper;
        /// `HOST:PORT`, `redis://HOST:PORT/DATABASE` or `rediss://…` for a Redis;
        /// `redis-sentinel://HOST:PORT,HOST:PORT,HOST:PORT/NAME` for the Redis that Sentinels know by
        /// that name.
        pub server: String = "127.0.0.1:6379".into();
        /// The user of the Redis, if it has users, or of ZooKeeper (scheme `digest`).
        pub user: Option<String>;
        /// The user's password.
        #[schemars(with = "Option<schema::Secret>")]
        pub password: Option<Secret>;
        /// The number of the Redis database.
        pub database: Option<u16>;
        /// The number of replicas of the Redis that have to confirm a write before it is acknowledged.
        /// By default 1 with Sentinels, and 0 without, where a failover would lose writes.
        pub replicas: Option<u32>;
        /// The user of the Sentinels, if they have users.
        pub sentinel_user: Option<String>;
        /// The password of the Sentinels.
        #[schemars(with = "Option<schema::Secret>")]
        pub sentinel_password: Option<Secret>;
        /// Use TLS to the server.
        pub ssl: bool;
        /// Do not verify the certificate of a Redis.
        pub skip_ssl: bool;
        /// Use ZooKeeper without a user: anyone who reaches it can then read and change the state,
        /// secrets included.
        pub world_access: bool;
        /// The time to live of leases, in seconds. A daemon that is unreachable for this long stops
        /// leading.
        pub lease_seconds: u64 = 5, in 1..=600, " seconds";
    }
}

settings! {
    /// `[plugins]`: the components that make the services' decisions.
    #[allow(missing_docs, reason = "the type of a section describes it")]
    pub struct Plugins {
        /// The watched directory of `NAME.wasm` and `NAME.toml` pairs.
        pub dir: PathBuf = "plugins".into();
        /// A private directory for compiled components, versions for rollbacks, fetched images and
        /// recorded calls. Default: `.transom` in `dir`.
        pub state_dir: Option<PathBuf>;
        /// Whether users of the admin port may write files to `dir` (`transom plugin upload`, the
        /// dashboard). Such a file may grant its plugin whatever a manifest can.
        pub uploads: bool;
        /// The limit of processor time for compiling one component, in seconds of all threads together.
        pub compile_timeout_seconds: u64 = 120, in 1..=3600, " seconds";
        /// The memory limit of compiling one component, in bytes.
        pub compile_memory_bytes: u64 = 2 << 30, in 256 << 20..=64 << 30, " bytes";
        #[serde(rename = "use")]
        pub bindings: Bindings;
        pub oci: Oci;
        pub recording: Recording;
        pub signatures: Signatures;
    }
}

impl Plugins {
    /// All paths, which [`super::load`] resolves against the folder of their file.
    pub(super) fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let oci = &mut self.oci;
        [&mut self.dir]
            .into_iter()
            .chain(&mut self.state_dir)
            .chain(&mut oci.ca_file)
            .chain(&mut oci.docker_config)
            .chain(
                oci.credentials
                    .iter_mut()
                    .filter_map(|it| it.password_file.as_mut()),
            )
            .chain(&mut self.recording.dir)
            .chain(&mut self.signatures.keys)
    }
}

settings! {
    /// `[plugins.oci]`: the registries of components whose manifests have a `source`.
    pub struct Oci {
        /// Seconds after which a tag is resolved again.
        pub refresh_seconds: u64 = 300, in 1..=86_400, " seconds";
        /// The timeout of fetching one component, in seconds.
        pub timeout_seconds: u64 = 120, in 1..=86_400, " seconds";
        /// Registries, `host` or `host:port`, that are used without TLS. All others need TLS, even on
        /// loopback.
        pub insecure_registries: Vec<String>;
        /// Root certificates in addition to the system's, PEM.
        pub ca_file: Option<PathBuf>;
        /// A file in the format of `docker login`; its passwords are used for registries without an
        /// entry in `credentials`.
        pub docker_config: Option<PathBuf>;
        /// Logins, one for each registry.
        pub credentials: Vec<OciCredentials>;
    }
}

/// `[[plugins.oci.credentials]]`: user and password for one registry.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OciCredentials {
    /// `host` or `host:port`, as sources name it.
    pub registry: String,
    /// The user at the registry.
    pub user: String,
    /// The password of `user`; or `password_file`.
    #[schemars(with = "Option<schema::Secret>")]
    pub password: Option<Secret>,
    /// Instead of `password`: a file that contains only the password, with or without a line end.
    pub password_file: Option<PathBuf>,
    /// The host of the registry's token service, if it differs from the registry. The password is only
    /// sent to these two hosts.
    pub auth_server: Option<String>,
}

settings! {
    /// `[plugins.recording]`: the log of calls and answers, with which new versions are tested.
    pub struct Recording {
        /// Whether calls are recorded.
        pub enabled: bool = true;
        /// The private directory of the log. Default: `calls` in `plugins.state_dir`.
        pub dir: Option<PathBuf>;
        /// The percentage of calls that are recorded.
        pub sample_percent: u64 = 10, in 1..=100;
        /// The maximum size of the log on disk for each plugin, in bytes; the oldest calls are deleted
        /// first.
        pub max_bytes: u64 = 64 << 20, in transom_plugin_host::Recording::MIN_SIZE..=1 << 40;
        /// The age in seconds after which calls are deleted.
        pub max_age_seconds: u64 = 86_400, in 60..=31_536_000;
    }
}

settings! {
    /// `[plugins.signatures]`: the keys that components must be signed with.
    pub struct Signatures {
        /// Public keys, PEM files, of ECDSA on P-256 or Ed25519: each component must be signed with one
        /// of them. None: signatures are not verified.
        pub keys: Vec<PathBuf>;
        /// Whether an unsigned component is rejected.
        pub required: bool = true;
    }
}

/// The default of `admin.port`, where `transom plugin` looks for a daemon.
pub const ADMIN_PORT: u16 = 9990;

settings! {
    /// `[admin]`: health, metrics and plugins.
    pub struct Admin {
        /// The address of the port; others than loopback need credentials or `trusted_networks`.
        pub listener: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
        /// The port of health, readiness, metrics and plugins.
        pub port: u16 = ADMIN_PORT;
        /// The user that every request but `/health` and `/ready` needs; needs `password`.
        pub username: Option<String>;
        /// The password of `username`.
        #[schemars(with = "Option<schema::Secret>")]
        pub password: Option<Secret>;
        /// A second user, who may only read; needs `read_only_password`.
        pub read_only_username: Option<String>;
        /// The password of `read_only_username`.
        #[schemars(with = "Option<schema::Secret>")]
        pub read_only_password: Option<Secret>;
        /// The PEM file of the port's certificate, for TLS; needs `tls_key`.
        pub tls_certificate: Option<PathBuf>;
        /// The key for `tls_certificate` (PEM).
        pub tls_key: Option<PathBuf>;
        /// Networks such as `10.0.0.0/8` whose requests need no credentials. Without networks and
        /// credentials the port only accepts requests from this machine.
        #[schemars(with = "Vec<schema::Network>")]
        pub trusted_networks: Vec<IpNet>;
        /// Host names of the port for clients, in addition to loopback, its address and the host names
        /// of the services.
        #[schemars(with = "Vec<schema::Host>")]
        pub allowed_hosts: Vec<AllowedHost>;
        /// Other sites whose web pages may use the port, such as `https://ui.example.com`.
        #[schemars(with = "Vec<schema::Origin>")]
        pub allowed_origins: Vec<Origin>;
    }
}

impl Admin {
    /// All paths, which [`super::load`] resolves against the folder of their file.
    pub(super) fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [&mut self.tls_certificate, &mut self.tls_key]
            .into_iter()
            .flatten()
    }
}
