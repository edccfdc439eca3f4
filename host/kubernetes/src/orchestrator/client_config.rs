//! The client configuration (kubeconfig) that the server writes into its sandbox.
//!
//! The server knows neither its agent's host name nor the mapped port, so the file contains a loopback
//! address. [`ClientConfig::text_for_clients`] returns the text for users, with the reachable address;
//! [`ClientConfig::connect`] creates a client for the daemon itself.
//!
//! The file comes from a container, so it is not trusted on this machine. Only a certificate, a token
//! or a password in the file itself are used as credentials. Commands to execute, references to other
//! files, a proxy, and the option to skip the verification of certificates are ignored.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::client::ClientBuilder;
use kube::config::{AuthInfo, Cluster, Kubeconfig};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use transom_common::{HostPort, text};
use url::{Host, Url};

use super::KubeOrchestrator;

/// The maximum size of the file; real ones have a few thousand bytes.
pub(crate) const MAX_BYTES: usize = 1 << 20;
/// The address that upstream replaces everywhere in the text.
const DEFAULT_API_ADDRESS: &str = "127.0.0.1:6443";

/// Why a client configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClientConfigError {
    /// It is too long.
    #[error("the client configuration has {0} bytes; the maximum is {MAX_BYTES}")]
    TooLarge(usize),
    /// It is not YAML, or a field has the wrong type. The parser's message is left out, because it may
    /// quote a key.
    #[error("the client configuration is not a YAML document with the fields of a kubeconfig")]
    Malformed,
    /// A part is missing.
    #[error("the client configuration lacks {0}")]
    Missing(&'static str),
    /// A part is invalid.
    #[error("{part} in the client configuration is invalid: {why}")]
    Invalid {
        /// Its name in the file.
        part: &'static str,
        /// The reason, without its content.
        why: &'static str,
    },
}

/// The timeouts of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeouts {
    /// For a connection.
    pub(crate) connect: Duration,
    /// For a request with its whole answer.
    pub(crate) request: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            request: Duration::from_secs(10),
        }
    }
}

/// A client configuration with at least one cluster.
#[derive(Clone)]
pub(crate) struct ClientConfig {
    text: String,
    parsed: Kubeconfig,
    /// The addresses to replace, as they are written in the text.
    loopback: BTreeSet<String>,
}

/// Omits the content, whose credentials give access to the whole orchestrator.
impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("bytes", &self.text.len())
            .field("loopback", &self.loopback)
            .finish_non_exhaustive()
    }
}

impl ClientConfig {
    /// Checks that a text is a client configuration whose clusters have addresses. The other parts
    /// that a connection needs are checked by [`ClientConfig::connect`].
    pub(crate) fn parse(text: &str) -> Result<Self, ClientConfigError> {
        if text.len() > MAX_BYTES {
            return Err(ClientConfigError::TooLarge(text.len()));
        }
        if text.trim().is_empty() {
            return Err(ClientConfigError::Missing("all content; the file is empty"));
        }
        let parsed = Kubeconfig::from_yaml(text).map_err(|_| ClientConfigError::Malformed)?;
        if parsed.clusters.is_empty() {
            return Err(ClientConfigError::Missing("`clusters`"));
        }
        let mut loopback = BTreeSet::new();
        for named in &parsed.clusters {
            let cluster = named.cluster.as_ref();
            let cluster = cluster.ok_or(ClientConfigError::Missing("`cluster` in an entry of `clusters`"))?;
            let server = cluster.server.as_deref().filter(|server| !server.is_empty());
            let server = server.ok_or(ClientConfigError::Missing("`server` of a cluster"))?;
            if is_loopback(&api_url(server)?) {
                let written = authority(server);
                // Without a port, the text is replaced only where it follows the `//` of a URL.
                let has_port = written.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
                loopback.insert(if has_port {
                    written.to_owned()
                } else {
                    format!("//{written}")
                });
            }
        }
        loopback.insert(DEFAULT_API_ADDRESS.to_owned());
        Ok(Self {
            text: text.to_owned(),
            parsed,
            loopback,
        })
    }

    /// The text with every loopback address of a cluster's API, and every `127.0.0.1:6443`,
    /// replaced by a reachable address. All other bytes stay as they are.
    pub(crate) fn text_for_clients(&self, address: &HostPort) -> String {
        let mut served = String::with_capacity(self.text.len() + 64);
        let mut remaining = self.text.as_str();
        let mut before = None;
        while let Some(next) = remaining.chars().next() {
            let found = self.loopback.iter().find(|wanted| {
                remaining
                    .strip_prefix(wanted.as_str())
                    .is_some_and(|after| is_end_of_address(after) && is_start_of_address(wanted, before))
            });
            let length = if let Some(found) = found {
                if found.starts_with("//") {
                    served.push_str("//");
                }
                served.push_str(&address.to_string());
                found.len()
            } else {
                served.push(next);
                next.len_utf8()
            };
            before = remaining[..length].chars().next_back();
            remaining = &remaining[length..];
        }
        served
    }

    /// A client of the API at `address`, as the user of the current context. The server's
    /// certificate must be issued for the address's host by the authority in the file. Call it
    /// within a runtime.
    pub(crate) fn connect(
        &self,
        address: &HostPort,
        timeouts: Timeouts,
    ) -> Result<KubeOrchestrator, ClientConfigError> {
        // This fails if a provider is already installed; then that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (cluster, user) = self.current()?;
        let url = format!("https://{address}")
            .parse()
            .map_err(|_| invalid("`server`", "not an address"))?;
        let mut config = kube::Config::new(url);
        config.root_cert = Some(authorities(cluster)?);
        config.auth_info = credentials(user)?;
        config.connect_timeout = Some(timeouts.connect);
        config.read_timeout = Some(timeouts.request);
        config.write_timeout = Some(timeouts.request);
        // Retries are not needed: a drain handles 429 itself, and the next observation follows soon.
        config.default_retry = false;
        let client = ClientBuilder::try_from(config)
            .map_err(|_| invalid("the user's certificate or key", "it cannot be used for TLS"))?
            .build();
        Ok(KubeOrchestrator::new(client, address.clone(), timeouts.request))
    }

    /// Cluster and user of the current context, or of the only context.
    fn current(&self) -> Result<(&Cluster, &AuthInfo), ClientConfigError> {
        let wanted = self
            .parsed
            .current_context
            .as_deref()
            .filter(|name| !name.is_empty());
        let context = match (wanted, self.parsed.contexts.as_slice()) {
            (Some(wanted), contexts) => contexts.iter().find(|named| named.name == wanted),
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        let context = context.and_then(|named| named.context.as_ref());
        let context = context.ok_or(ClientConfigError::Missing("the context of `current-context`"))?;
        let cluster = self
            .parsed
            .clusters
            .iter()
            .find(|named| named.name == context.cluster);
        let cluster = cluster.and_then(|named| named.cluster.as_ref());
        let user = self
            .parsed
            .auth_infos
            .iter()
            .find(|named| Some(&named.name) == context.user.as_ref());
        let user = user.and_then(|named| named.auth_info.as_ref());
        Ok((
            cluster.ok_or(ClientConfigError::Missing("the cluster of its context"))?,
            user.ok_or(ClientConfigError::Missing("the user of its context"))?,
        ))
    }
}

fn invalid(part: &'static str, why: &'static str) -> ClientConfigError {
    ClientConfigError::Invalid { part, why }
}

fn api_url(server: &str) -> Result<Url, ClientConfigError> {
    let not_one = || invalid("`server` of a cluster", "expected a URL, https://HOST:PORT");
    let url = Url::parse(server).map_err(|_| not_one())?;
    (matches!(url.scheme(), "http" | "https") && url.has_host())
        .then_some(url)
        .ok_or_else(not_one)
}

/// Whether a server can be reached at this address only from its own machine.
fn is_loopback(url: &Url) -> bool {
    let is_local = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
        Some(Host::Ipv4(ip)) => is_local(ip.into()),
        Some(Host::Ipv6(ip)) => is_local(IpAddr::from(ip).to_canonical()),
        None => false,
    }
}

/// Host and port of a URL, as they are written in it.
fn authority(server: &str) -> &str {
    let after = server.find("//").map_or(server, |at| &server[at + 2..]);
    let end = after.find(['/', '?', '#']).unwrap_or(after.len());
    let authority = &after[..end];
    authority.rfind('@').map_or(authority, |at| &authority[at + 1..])
}

/// Whether an address may end before this text: `127.0.0.1:6443` is no part of `127.0.0.1:64430`.
fn is_end_of_address(after: &str) -> bool {
    let mut next = after.chars();
    match next.next() {
        // A full stop may follow the address, at the end of a sentence in a comment.
        Some('.' | '-' | ':') => !next.next().is_some_and(char::is_alphanumeric),
        Some(c) => !c.is_alphanumeric(),
        None => true,
    }
}

/// Whether an address may begin after this character: `127.0.0.1:6443` is no part of
/// `10.127.0.0.1:6443`.
fn is_start_of_address(wanted: &str, before: Option<char>) -> bool {
    wanted.starts_with("//") || before.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '.' | '-' | ']'))
}

/// The certificates of the cluster's authority.
fn authorities(cluster: &Cluster) -> Result<Vec<Vec<u8>>, ClientConfigError> {
    const PART: &str = "`certificate-authority-data`";
    let data = cluster
        .certificate_authority_data
        .as_deref()
        .filter(|data| !data.is_empty());
    let data = data.ok_or(ClientConfigError::Missing(PART))?;
    let pem = STANDARD
        .decode(data.trim())
        .map_err(|_| invalid(PART, "it is not base64"))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|_| invalid(PART, "it is not PEM"))?;
    if certificates.is_empty() {
        return Err(invalid(PART, "it has no certificate"));
    }
    Ok(certificates.into_iter().map(|one| one.to_vec()).collect())
}

/// The credentials that the file itself contains.
fn credentials(user: &AuthInfo) -> Result<AuthInfo, ClientConfigError> {
    let certificate = user.client_certificate_data.is_some() && user.client_key_data.is_some();
    if !certificate && user.token.is_none() && user.password.is_none() {
        return Err(ClientConfigError::Missing(
            "the user's `client-certificate-data` with `client-key-data`, or `token`",
        ));
    }
    let mut allowed = AuthInfo {
        token: user.token.clone(),
        ..AuthInfo::default()
    };
    if certificate {
        allowed
            .client_certificate_data
            .clone_from(&user.client_certificate_data);
        allowed.client_key_data.clone_from(&user.client_key_data);
    }
    if allowed.token.is_none() && user.password.is_some() {
        allowed.username.clone_from(&user.username);
        allowed.password.clone_from(&user.password);
    }
    Ok(allowed)
}

/// Shortens a text to one line for a log or a message.
pub(super) fn bounded(text: &str) -> String {
    text::one_line(&text::clip(text, 400))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_for_clients(server: &str) -> String {
        let text = format!("clusters:\n- cluster:\n    server: {server}\n  name: default # kept\n");
        ClientConfig::parse(&text)
            .unwrap()
            .text_for_clients(&HostPort::new("agent1.test", 31000))
    }

    #[test]
    fn loopback_addresses_are_replaced_and_others_stay() {
        for (server, expected) in [
            ("https://127.0.0.1:6443", "https://agent1.test:31000"),
            ("\"https://localhost:6443/\"", "\"https://agent1.test:31000/\""),
            ("https://[::1]:6443", "https://agent1.test:31000"),
            ("https://0.0.0.0:7443", "https://agent1.test:31000"),
            ("https://localhost", "https://agent1.test:31000"),
            ("https://10.0.0.1:6443", "https://10.0.0.1:6443"),
            (
                "https://10.0.0.1:6443 # 127.0.0.1:64430",
                "https://10.0.0.1:6443 # 127.0.0.1:64430",
            ),
            (
                "https://10.0.0.1:6443 # 127.0.0.1:6443",
                "https://10.0.0.1:6443 # agent1.test:31000",
            ),
        ] {
            let text = format!("clusters:\n- cluster:\n    server: {expected}\n  name: default # kept\n");
            assert_eq!(text_for_clients(server), text, "{server}");
        }
    }

    #[test]
    fn unusable_configurations_are_rejected_with_the_missing_setting() {
        for (text, expected) in [
            ("", "empty"),
            ("kind: Config\n", "`clusters`"),
            ("clusters:\n- name: a\n", "`cluster` in"),
            ("clusters:\n- name: a\n  cluster: {}\n", "`server`"),
            ("clusters:\n- name: a\n  cluster: {server: nonsense}\n", "URL"),
            ("clusters: [", "YAML"),
        ] {
            let error = ClientConfig::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
        let long = "#".repeat(MAX_BYTES + 1);
        assert_eq!(
            ClientConfig::parse(&long).unwrap_err(),
            ClientConfigError::TooLarge(long.len())
        );
    }
}
