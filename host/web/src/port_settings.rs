//! The settings that the HTTP ports of all sections have in common, with one set of rules and messages.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use transom_common::Secret;

use crate::{AllowedHost, Credentials, LoopbackTrust, Origin, PortConfig, Tls, TlsFiles, TlsPem};

/// The port of one section. [`port_settings!`](crate::port_settings!) takes it from the section.
pub struct PortSettings<'a> {
    /// The section, which is also the name of the port.
    pub section: &'static str,
    /// The keys of user and password.
    pub credential_keys: [&'static str; 2],
    /// The keys of the user who may only read, and of its password.
    pub reader_keys: [&'static str; 2],
    /// The address to listen on.
    pub listener: IpAddr,
    /// The port to listen on.
    pub port: u16,
    /// The host name for clients and other daemons; `None` for a port that no daemon forwards to.
    pub hostname: Option<&'a str>,
    /// The user.
    pub username: Option<&'a str>,
    /// The password of the user.
    pub password: Option<&'a Secret>,
    /// The user who may only read.
    pub reader_username: Option<&'a str>,
    /// The password of that user.
    pub reader_password: Option<&'a Secret>,
    /// The PEM file of the certificate.
    pub tls_certificate: Option<&'a PathBuf>,
    /// The PEM file of its key.
    pub tls_key: Option<&'a PathBuf>,
    /// Certificate and key, if the settings contain them instead of the names of files.
    pub tls_pem: Option<TlsPem>,
    /// Networks whose requests need no credentials.
    pub trusted_networks: Option<&'a [IpNet]>,
    /// When requests from this machine need no credentials.
    pub loopback_trust: LoopbackTrust,
    /// Further host names of the port.
    pub allowed_hosts: Vec<AllowedHost>,
    /// Origins of other web sites whose pages may use the port.
    pub allowed_origins: &'a [Origin],
}

/// The [`PortSettings`] of a section whose fields for the port have the usual names. The arguments are
/// the section, its name, the host name, the trusted networks, when requests from this machine need no
/// credentials, and the fields of the two users.
#[macro_export]
macro_rules! port_settings {
    (
        $section:ident, $name:expr, $hostname:expr, $networks:expr, $trust:expr,
        [$user:ident, $password:ident], [$reader:ident, $reader_password:ident]
    ) => {
        $crate::PortSettings {
            section: $name,
            credential_keys: [stringify!($user), stringify!($password)],
            reader_keys: [stringify!($reader), stringify!($reader_password)],
            listener: $section.listener,
            port: $section.port,
            hostname: $hostname,
            username: $section.$user.as_deref(),
            password: $section.$password.as_ref(),
            reader_username: $section.$reader.as_deref(),
            reader_password: $section.$reader_password.as_ref(),
            tls_certificate: $section.tls_certificate.as_ref(),
            tls_key: $section.tls_key.as_ref(),
            tls_pem: None,
            trusted_networks: $networks,
            loopback_trust: $trust,
            allowed_hosts: $section.allowed_hosts.clone(),
            allowed_origins: &$section.allowed_origins,
        }
    };
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
    pub fn problems(&self) -> Vec<String> {
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
