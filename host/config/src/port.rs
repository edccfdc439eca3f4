//! The settings that the HTTP ports of all sections have in common, with one set of rules and messages.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use transom_common::Secret;
use transom_web::{AllowedHost, Credentials, LoopbackTrust, Origin, PortConfig, Tls, TlsFiles, TlsPem};

use super::Settings;
use super::kubernetes::Kubernetes;
use super::settings::{Admin, Apps};
use super::workflow::Workflow;

/// The port of one section.
pub struct PortSettings<'a> {
    section: &'static str,
    credential_keys: [&'static str; 2],
    reader_keys: [&'static str; 2],
    listener: IpAddr,
    port: u16,
    /// The host name for clients and other daemons; `None` for a port that no daemon forwards to.
    hostname: Option<&'a str>,
    username: Option<&'a str>,
    password: Option<&'a Secret>,
    /// The user who may only read.
    reader_username: Option<&'a str>,
    reader_password: Option<&'a Secret>,
    tls_certificate: Option<&'a PathBuf>,
    tls_key: Option<&'a PathBuf>,
    /// Certificate and key, if the settings contain them instead of the names of files.
    tls_pem: Option<TlsPem>,
    trusted_networks: Option<&'a [IpNet]>,
    loopback_trust: LoopbackTrust,
    allowed_hosts: Vec<AllowedHost>,
    allowed_origins: &'a [Origin],
}

impl Admin {
    fn http_port(&self) -> PortSettings<'_> {
        PortSettings {
            section: "admin",
            credential_keys: ["username", "password"],
            reader_keys: ["read_only_username", "read_only_password"],
            listener: self.listener,
            port: self.port,
            hostname: None,
            username: self.username.as_deref(),
            password: self.password.as_ref(),
            reader_username: self.read_only_username.as_deref(),
            reader_password: self.read_only_password.as_ref(),
            tls_certificate: self.tls_certificate.as_ref(),
            tls_key: self.tls_key.as_ref(),
            tls_pem: None,
            trusted_networks: Some(&self.trusted_networks),
            loopback_trust: LoopbackTrust::UnlessCredentials,
            allowed_hosts: self.allowed_hosts.clone(),
            allowed_origins: &self.allowed_origins,
        }
    }
}

impl Apps {
    /// The HTTP port of the section.
    pub fn http_port(&self) -> PortSettings<'_> {
        PortSettings {
            section: "apps",
            credential_keys: ["api_username", "api_password"],
            reader_keys: ["api_read_only_username", "api_read_only_password"],
            listener: self.listener,
            port: self.port,
            hostname: Some(&self.hostname),
            username: self.api_username.as_deref(),
            password: self.api_password.as_ref(),
            reader_username: self.api_read_only_username.as_deref(),
            reader_password: self.api_read_only_password.as_ref(),
            tls_certificate: self.tls_certificate.as_ref(),
            tls_key: self.tls_key.as_ref(),
            tls_pem: None,
            trusted_networks: self.trusted_networks.as_deref(),
            loopback_trust: LoopbackTrust::UnlessBoth,
            allowed_hosts: self.allowed_hosts.clone(),
            allowed_origins: &self.allowed_origins,
        }
    }
}

impl Kubernetes {
    /// The HTTP port of the section.
    pub fn http_port(&self) -> PortSettings<'_> {
        PortSettings {
            section: self.instance.section,
            credential_keys: ["auth_username", "auth_password"],
            reader_keys: ["auth_read_only_username", "auth_read_only_password"],
            listener: self.listener,
            port: self.port,
            hostname: Some(&self.hostname),
            username: self.auth_username.as_deref(),
            password: self.auth_password.as_ref(),
            reader_username: self.auth_read_only_username.as_deref(),
            reader_password: self.auth_read_only_password.as_ref(),
            tls_certificate: self.tls_certificate.as_ref(),
            tls_key: self.tls_key.as_ref(),
            tls_pem: self.tls_pem(),
            trusted_networks: self.trusted_networks.as_deref(),
            loopback_trust: LoopbackTrust::UnlessCredentials,
            allowed_hosts: self.allowed_hosts.clone(),
            allowed_origins: &self.allowed_origins,
        }
    }
}

impl Workflow {
    /// The HTTP port of the section.
    pub fn http_port(&self) -> PortSettings<'_> {
        let allowed_hosts = self.allowed_hosts.iter().cloned().chain(self.operator_host());
        PortSettings {
            section: "workflow",
            credential_keys: ["api_username", "api_password"],
            reader_keys: ["api_read_only_username", "api_read_only_password"],
            listener: self.listener,
            port: self.port,
            hostname: Some(&self.hostname),
            username: self.api_username.as_deref(),
            password: self.api_password.as_ref(),
            reader_username: self.api_read_only_username.as_deref(),
            reader_password: self.api_read_only_password.as_ref(),
            tls_certificate: self.tls_certificate.as_ref(),
            tls_key: self.tls_key.as_ref(),
            tls_pem: None,
            trusted_networks: self.trusted_networks.as_deref(),
            loopback_trust: LoopbackTrust::UnlessNetworks,
            allowed_hosts: allowed_hosts.collect(),
            allowed_origins: &self.allowed_origins,
        }
    }

    /// The host of `operator_api_url`, the address of the workflow port for clients.
    fn operator_host(&self) -> Option<AllowedHost> {
        let url = reqwest::Url::parse(self.operator_api_url.as_deref()?).ok()?;
        url.host_str()?.parse().ok()
    }
}

impl Settings {
    /// The admin port. The host names in the services' sections are names of this port too.
    pub fn admin_port(&self) -> PortConfig {
        let kubernetes = self.kubernetes_ports();
        let services = self.apps.iter().map(Apps::http_port);
        let services = services.chain(kubernetes.iter().map(|section| section.http_port()));
        let services = services.chain(self.workflow.iter().map(Workflow::http_port));
        let names = services.map(|port| port.hostname());
        let mut admin = self.admin.http_port().config();
        admin.hostname = String::new();
        admin
            .allowed_hosts
            .extend(names.filter_map(|name| name.parse().ok()));
        admin
    }

    /// Problems of the ports of `[admin]`, `[apps]` and `[kubernetes]`, one line each. Those of
    /// `[workflow]` are reported with the other problems of that section.
    pub(super) fn port_problems(&self) -> Vec<String> {
        let kubernetes = self.kubernetes_ports();
        let ports = [self.admin.http_port()].into_iter();
        let ports = ports.chain(self.apps.iter().map(Apps::http_port));
        let ports = ports.chain(kubernetes.iter().map(|section| section.http_port()));
        ports.flat_map(|port| port.problems()).collect()
    }
}

impl PortSettings<'_> {
    /// The host name for other daemons: the listener's address if none is configured.
    pub fn hostname(&self) -> String {
        match self.hostname {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => self.listener.to_string(),
        }
    }

    /// The number of the port.
    pub fn number(&self) -> u16 {
        self.port
    }

    /// The prefix of this daemon's own keys in the store, below the prefix of the framework.
    pub fn daemon_prefix(&self, framework: &str) -> String {
        format!("{framework}/daemons/{}:{}", self.hostname(), self.port)
    }

    /// `https` with a certificate, otherwise `http`.
    pub fn scheme(&self) -> &'static str {
        if self.tls_certificate.is_some() || self.tls_pem.is_some() {
            "https"
        } else {
            "http"
        }
    }

    /// The configuration of the port.
    pub fn config(&self) -> PortConfig {
        let tls = self.tls_certificate.zip(self.tls_key);
        let credentials = |(username, password): (&str, &Secret)| Credentials {
            username: username.to_owned(),
            password: password.clone(),
        };
        PortConfig {
            listener: self.listener,
            hostname: self.hostname(),
            tls: match tls {
                Some((certificate, key)) => Some(Tls::Files(TlsFiles {
                    certificate: certificate.clone(),
                    key: key.clone(),
                })),
                None => self.tls_pem.clone().map(Tls::Pem),
            },
            credential_keys: self.credential_keys,
            credentials: self.username.zip(self.password).map(credentials),
            reader: self.reader_username.zip(self.reader_password).map(credentials),
            trusted_networks: self.trusted_networks.map(<[IpNet]>::to_vec),
            loopback_trust: self.loopback_trust,
            allowed_hosts: self.allowed_hosts.clone(),
            allowed_origins: self.allowed_origins.to_vec(),
            ..PortConfig::new(self.section, self.port)
        }
    }

    /// All missing and invalid settings, one line each.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let section = self.section;
        let ([user, password], [reader, reader_password]) = (self.credential_keys, self.reader_keys);
        for ((one, has_one), (other, has_other)) in [
            (
                ("tls_certificate", self.tls_certificate.is_some()),
                ("tls_key", self.tls_key.is_some()),
            ),
            (
                (user, self.username.is_some()),
                (password, self.password.is_some()),
            ),
            (
                (reader, self.reader_username.is_some()),
                (reader_password, self.reader_password.is_some()),
            ),
        ] {
            let (missing, present) = match (has_one, has_other) {
                (true, false) => (other, one),
                (false, true) => (one, other),
                _ => continue,
            };
            problems.push(format!(
                "`{section}.{missing}` is missing: `{section}.{present}` is set, and each needs the other"
            ));
        }
        for (user, name, password, secret) in [
            (user, self.username, password, self.password),
            (
                reader,
                self.reader_username,
                reader_password,
                self.reader_password,
            ),
        ] {
            let (Some(name), Some(secret)) = (name, secret) else {
                continue;
            };
            if name.is_empty() || name.contains(':') {
                problems.push(format!(
                    "`{section}.{user}` is {name:?}: expected a name without a colon"
                ));
            }
            if secret.reveal().is_empty() {
                problems.push(format!("`{section}.{password}` is empty: expected a password"));
            }
        }
        if let Some(name) = self.reader_username {
            if self.username.is_none() && self.password.is_none() {
                problems.push(format!(
                    "`{section}.{reader}` is set and `{section}.{user}` is not: a read-only user requires a \
                     user with write access"
                ));
            } else if self.username == Some(name) {
                problems.push(format!(
                    "`{section}.{reader}` is {name:?}, the same as `{section}.{user}`: the two users need \
                     different names"
                ));
            }
        }
        let incomplete = self.username.is_some() != self.password.is_some();
        if !incomplete && let Err(error) = self.config().check_exposure() {
            problems.push(error.to_string());
        }
        if self.listener.is_unspecified() && self.hostname.is_some_and(str::is_empty) {
            problems.push(format!(
                "`{section}.hostname` is missing: `{section}.listener` is {}, and clients and other daemons need an \
                 address to reach this daemon; set it to the name or address of this machine",
                self.listener
            ));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        toml::from_str(text).expect("settings")
    }

    #[test]
    fn the_same_rules_apply_to_every_port() {
        for (section, prefix) in [("admin", ""), ("apps", "api_"), ("workflow", "api_")] {
            let (user, password) = (format!("{prefix}username"), format!("{prefix}password"));
            let reader = format!("{prefix}read_only_username");
            let reader_password = format!("{prefix}read_only_password");
            let with_both = format!("{user} = \"u\"\n{password} = \"p\"\n");
            let exposed = "listener = \"10.0.0.1\"\n";
            for (text, expected) in [
                (String::new(), None),
                (with_both.clone(), None),
                (format!("{exposed}{with_both}"), None),
                (format!("{exposed}trusted_networks = [\"10.0.0.0/8\"]\n"), None),
                (
                    exposed.to_owned(),
                    Some(format!("`{section}.listener` is 10.0.0.1")),
                ),
                (
                    format!("{user} = \"u\"\n"),
                    Some(format!("`{section}.{password}` is missing")),
                ),
                (
                    format!("{password} = \"p\"\n"),
                    Some(format!("`{section}.{user}` is missing")),
                ),
                (
                    format!("{exposed}{user} = \"u\"\n"),
                    Some(format!("`{section}.{password}` is missing")),
                ),
                (
                    format!("{user} = \"u:v\"\n{password} = \"p\"\n"),
                    Some(format!("`{section}.{user}` is \"u:v\"")),
                ),
                (
                    format!("{user} = \"u\"\n{password} = \"\"\n"),
                    Some(format!("`{section}.{password}` is empty")),
                ),
                (
                    format!("{with_both}{reader} = \"r\"\n{reader_password} = \"q\"\n"),
                    None,
                ),
                (
                    format!("{with_both}{reader} = \"r\"\n"),
                    Some(format!("`{section}.{reader_password}` is missing")),
                ),
                (
                    format!("{with_both}{reader} = \"r\"\n{reader_password} = \"\"\n"),
                    Some(format!("`{section}.{reader_password}` is empty")),
                ),
                (
                    format!("{with_both}{reader} = \"u\"\n{reader_password} = \"q\"\n"),
                    Some("the two users need different names".to_owned()),
                ),
                (
                    format!("{reader} = \"r\"\n{reader_password} = \"q\"\n"),
                    Some(format!(
                        "`{section}.{reader}` is set and `{section}.{user}` is not"
                    )),
                ),
                (
                    "tls_key = \"key.pem\"\n".to_owned(),
                    Some(format!("`{section}.tls_certificate` is missing")),
                ),
            ] {
                let settings = settings(&format!("[{section}]\n{text}"));
                let mut problems = settings.port_problems();
                problems.extend(settings.workflow.iter().flat_map(|it| it.http_port().problems()));
                let all = problems.join("\n");
                match expected {
                    None => assert!(problems.is_empty(), "[{section}] {text}: {all}"),
                    Some(expected) => {
                        assert_eq!(problems.len(), 1, "[{section}] {text}: {all}");
                        assert!(all.contains(&expected), "[{section}] {text}: {all}");
                    }
                }
            }
        }
    }

    #[test]
    fn apps_port_on_all_addresses_needs_a_host_name() {
        let with = |section: &str, more: &str| {
            settings(&format!(
                "[{section}]\nlistener = \"0.0.0.0\"\ntrusted_networks = [\"10.0.0.0/8\"]\n{more}"
            ))
        };
        let problems = with("apps", "").port_problems();
        assert!(problems[0].contains("`apps.hostname` is missing"), "{problems:?}");
        assert!(with("apps", "hostname = \"a\"\n").port_problems().is_empty());
        assert!(with("admin", "").port_problems().is_empty());
    }

    #[test]
    fn the_admin_port_accepts_the_host_names_of_the_services() {
        let settings = settings(
            "[apps]\nhostname = \"a.example\"\n[workflow]\nhostname = \"b.example\"\n\
             [admin]\nallowed_hosts = [\"c.example\"]\n",
        );
        let hosts = settings.admin_port().allowed_hosts;
        let names: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["c.example", "a.example", "b.example"]);
    }
}
