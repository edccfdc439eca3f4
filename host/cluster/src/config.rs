//! The configuration of the connection to the cluster manager.

use crate::detector::View;
use crate::error::{Error, Result};
use crate::transport::Transport;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use transom_common::{Secret, ZooKeeperPath, masked};
use url::Url;

/// The configuration of the connection to the cluster manager.
#[derive(Clone)]
pub struct Config {
    /// Masters as `host:port`, tried in turn; each leads to the leading master. A prefix `http://`
    /// or `https://` is allowed and must then agree with `tls`.
    ///
    /// Or `zk://[user:password@]host:port,host:port/path`: the masters are those that register
    /// there. An address that was split at its commas is joined again. The user and password
    /// (digest) are sent to ZooKeeper and never shown.
    pub masters: Vec<String>,
    /// The framework's principal. Omitted from `FrameworkInfo` when none; it must equal the
    /// principal of the credentials.
    pub principal: Option<String>,
    /// The credentials of every request, if the cluster requires authentication.
    pub credentials: Option<Credentials>,
    /// The names and the file of the credentials' keys in the operator's configuration; part of the
    /// error after a 401.
    pub credential_keys: String,
    /// The service account that logs in for a token, which requests then carry instead of
    /// credentials.
    pub service_account: Option<ServiceAccount>,
    /// TLS for connections to masters and agents; none: plain HTTP.
    pub tls: Option<Tls>,
    /// Masters as `host:port` that are tried until ZooKeeper has named one.
    pub fallback_masters: Vec<String>,
    /// The timeout of a connection attempt.
    pub connect_timeout: Duration,
    /// The timeout of a complete answer; of a stream: of its beginning.
    pub call_timeout: Duration,
    /// The timeout of the state document, which is large on a large cluster.
    pub state_timeout: Duration,
    /// The session timeout of ZooKeeper; a hanging server is abandoned after two fifths of it.
    pub zookeeper_timeout: Duration,
    /// What takes the place of the network.
    pub transport: Option<Arc<dyn Transport>>,
    /// What takes the place of sessions with ZooKeeper: the registered masters. Used where `masters`
    /// is an address of ZooKeeper.
    pub detected: Option<watch::Receiver<Arc<View>>>,
}

/// Omits secrets.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let masters = self.masters.join(",");
        f.debug_struct("Config")
            .field("masters", &masked(&masters))
            .field("principal", &self.principal)
            .field("credentials", &self.credentials)
            .field("credential_keys", &self.credential_keys)
            .field("service_account", &self.service_account)
            .field("tls", &self.tls)
            .field("fallback_masters", &self.fallback_masters)
            .field("connect_timeout", &self.connect_timeout)
            .field("call_timeout", &self.call_timeout)
            .field("state_timeout", &self.state_timeout)
            .field("zookeeper_timeout", &self.zookeeper_timeout)
            .field("transport", &self.transport)
            .field("detected", &self.detected)
            .finish()
    }
}

/// The source of the masters' addresses.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// These, as URLs without path, in order.
    Listed(Vec<Url>),
    /// The masters that register at this path, and the URLs to try until they are known.
    ZooKeeper(ZooKeeperPath, Vec<Url>),
}

impl Default for Config {
    /// One master on this machine, no TLS, no credentials.
    fn default() -> Self {
        Self {
            masters: vec!["127.0.0.1:5050".to_owned()],
            principal: None,
            credentials: None,
            credential_keys: "`username` and `password` in [cluster]".to_owned(),
            service_account: None,
            tls: None,
            fallback_masters: Vec::new(),
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(30),
            state_timeout: Duration::from_mins(5),
            zookeeper_timeout: Duration::from_secs(10),
            transport: None,
            detected: None,
        }
    }
}

/// A user name and a password for HTTP Basic.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The principal.
    pub username: String,
    /// Its secret.
    pub password: Secret,
}

/// A service account: its login is signed with its key and returns a token.
#[derive(Clone)]
pub struct ServiceAccount {
    /// Its name.
    pub uid: String,
    /// Its RSA key, PEM.
    pub private_key: Vec<u8>,
    /// The URL where it logs in.
    pub login_endpoint: String,
    /// TLS for that URL, where it is `https`.
    pub tls: Tls,
}

/// Omits secrets.
impl fmt::Debug for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAccount")
            .field("uid", &self.uid)
            .field("private_key", &"***")
            .field("login_endpoint", &self.login_endpoint)
            .field("tls", &self.tls)
            .finish()
    }
}

/// TLS. Certificates are verified unless that is disabled.
#[derive(Clone)]
pub struct Tls {
    /// Whether the server's certificate is verified.
    pub verify: bool,
    /// Root certificates (PEM, one or more) to trust instead of the system's.
    pub authorities: Option<Vec<u8>>,
    /// A client certificate (PEM, with its chain) and its key (PEM), for servers that require one.
    pub identity: Option<Vec<u8>>,
}

/// Omits secrets.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authorities = self.authorities.as_ref().map(|pem| String::from_utf8_lossy(pem));
        f.debug_struct("Tls")
            .field("verify", &self.verify)
            .field("authorities", &authorities)
            .field("identity", &self.identity.as_ref().map(|_| "***"))
            .finish()
    }
}

impl Default for Tls {
    /// Verified against the system's root certificates.
    fn default() -> Self {
        Self {
            verify: true,
            authorities: None,
            identity: None,
        }
    }
}

impl Config {
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Checks the masters' addresses, without any connection.
    ///
    /// # Errors
    /// [`Error::Config`]: an address is invalid.
    pub fn check_masters(&self) -> Result<()> {
        self.source().map(drop)
    }

    /// The source of the masters' addresses.
    pub(crate) fn source(&self) -> Result<Source> {
        if self.masters.is_empty() {
            return Err(Error::Config {
                what: "no master is configured; expected host:port".to_owned(),
            });
        }
        if self
            .masters
            .iter()
            .any(|master| master.trim().starts_with(ZooKeeperPath::SCHEME))
        {
            let masters = self.masters.join(",");
            let zookeeper = ZooKeeperPath::parse(masters.trim()).map_err(|why| Error::Config {
                what: format!(
                    "master {:?}: {why}; expected {}[user:password@]host:port,host:port/path",
                    masked(masters.trim()),
                    ZooKeeperPath::SCHEME
                ),
            })?;
            return Ok(Source::ZooKeeper(zookeeper, self.urls(&self.fallback_masters)?));
        }
        self.urls(&self.masters).map(Source::Listed)
    }

    fn urls(&self, masters: &[String]) -> Result<Vec<Url>> {
        masters.iter().map(|master| self.url(master.trim())).collect()
    }

    fn url(&self, master: &str) -> Result<Url> {
        let invalid = |why: &str| Error::Config {
            what: format!("master {:?}: {why}", masked(master)),
        };
        let scheme = self.scheme();
        let authority = match master.split_once("://") {
            Some((written, rest)) if written == scheme => rest.trim_end_matches('/'),
            Some(("https", _)) => return Err(invalid("https:// needs TLS to be configured")),
            Some(("http", _)) => return Err(invalid("http:// contradicts the configured TLS")),
            Some(_) => return Err(invalid("expected host:port")),
            None => master,
        };
        let has_port = authority
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0));
        if !has_port || authority.contains(['/', '@', '?', '#']) {
            return Err(invalid("expected host:port, such as 127.0.0.1:5050"));
        }
        Url::parse(&format!("{scheme}://{authority}/")).map_err(|error| invalid(&error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(master: &str, tls: Option<Tls>) -> std::result::Result<String, String> {
        let config = Config {
            masters: vec![master.to_owned()],
            tls,
            ..Config::default()
        };
        match config.source() {
            Ok(Source::Listed(urls)) => Ok(urls[0].to_string()),
            Ok(Source::ZooKeeper(zookeeper, _)) => Ok(zookeeper.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn masters_are_host_and_port() {
        for (master, url) in [
            ("127.0.0.1:5050", "http://127.0.0.1:5050/"),
            (" leader.mesos:5050 ", "http://leader.mesos:5050/"),
            ("[::1]:5050", "http://[::1]:5050/"),
            ("http://h:5050/", "http://h:5050/"),
        ] {
            assert_eq!(urls(master, None).as_deref(), Ok(url));
        }
        assert_eq!(
            urls("h:5050", Some(Tls::default())).as_deref(),
            Ok("https://h:5050/")
        );
        assert_eq!(
            urls("https://h:5050", Some(Tls::default())).as_deref(),
            Ok("https://h:5050/")
        );
    }

    #[test]
    fn invalid_master_addresses_are_rejected_with_reason() {
        for (master, why) in [
            ("h", "expected host:port"),
            ("", "expected host:port"),
            (":5050", "expected host:port"),
            ("h:99999", "expected host:port"),
            ("h:0", "expected host:port"),
            ("h:5050/path", "expected host:port"),
            ("u@h:5050", "expected host:port"),
            ("ftp://h:5050", "expected host:port"),
            ("https://h:5050", "needs TLS"),
            ("zk://h:2181", "the path is missing"),
        ] {
            let error = urls(master, None).unwrap_err();
            assert!(
                error.contains(why) && error.contains(&format!("{master:?}")),
                "{master}: {error}"
            );
        }
        assert!(
            urls("http://h:5050", Some(Tls::default()))
                .unwrap_err()
                .contains("contradicts")
        );
        assert!(
            Config {
                masters: Vec::new(),
                ..Config::default()
            }
            .source()
            .is_err()
        );
    }

    #[test]
    fn zookeeper_address_split_at_commas_is_joined() {
        let whole = "zk://u:p,q@h:1,i:2/mesos";
        let cut: Vec<_> = whole.split(',').collect();
        for masters in [vec![whole], cut] {
            let config = Config {
                masters: masters.iter().map(ToString::to_string).collect(),
                ..Config::default()
            };
            let Ok(Source::ZooKeeper(zookeeper, _)) = config.source() else {
                panic!("{masters:?} is ZooKeeper");
            };
            assert_eq!(zookeeper.digest.as_deref(), Some("u:p,q"));
            assert_eq!(zookeeper.to_string(), "zk://u:***@h:1,i:2/mesos");
            assert!(!format!("{config:?}").contains("p,q"), "{config:?}");
        }
        for mixed in [
            ["zk://h:1/mesos", "h:5050"],
            ["h:5050", "zk://h:1/mesos"],
            ["zk://h:1/mesos", "zk://i:1/mesos"],
        ] {
            let masters = mixed.map(str::to_owned).to_vec();
            let config = Config {
                masters,
                ..Config::default()
            };
            assert!(config.source().is_err(), "{mixed:?}");
        }
    }

    #[test]
    fn secrets_are_masked() {
        let credentials = Credentials {
            username: "ops".into(),
            password: "s3cret".into(),
        };
        let config = Config {
            credentials: Some(credentials),
            ..Config::default()
        };
        let text = format!("{config:?}");
        assert!(text.contains("ops") && !text.contains("s3cret"), "{text}");
        for invalid in [
            "zk://ops:s3cret@h/m",
            "zk://ops:s3/cret@h:1/m",
            "zk://s3cret@h:1/m",
        ] {
            let config = Config {
                masters: vec![invalid.to_owned()],
                ..Config::default()
            };
            let error = config.source().map(drop).unwrap_err().to_string();
            assert!(error.contains("***") && !error.contains("s3"), "{error}");
        }
        let account = ServiceAccount {
            uid: "ops".into(),
            private_key: b"s3cret".to_vec(),
            login_endpoint: "https://h/login".into(),
            tls: Tls {
                identity: Some(b"s3cret".to_vec()),
                ..Tls::default()
            },
        };
        let text = format!("{account:?}");
        assert!(text.contains("ops") && !text.contains("115, 51"), "{text}");
    }
}
