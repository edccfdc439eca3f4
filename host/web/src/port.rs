//! The settings of a port that several kinds of ports share, and the port once it is bound.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use http::HeaderName;
use ipnet::IpNet;
use tokio_util::sync::CancellationToken;

use crate::access::loopback;
use crate::answers::budgeted;
use crate::bodies::budgeted_bodies;
use crate::compression::compressed;
use crate::concurrency::limited;
use crate::serve::body_limited;
use crate::{
    Access, AccessPolicy, AccessRules, AllowedHost, Certificate, Credentials, DaemonKey, Error, Forwarder,
    Limits, Listener, Origin, Result, TlsPem, guarded, serve,
};

/// The ALPN protocol.
const HTTP_ALPN: &[u8] = b"http/1.1";

/// The files of a port's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, PEM, the server's own first.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
}

/// Where a port's certificate is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// In two files, which are read again when they change.
    Files(TlsFiles),
    /// In memory.
    Pem(TlsPem),
}

/// When requests from this machine need no credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopbackTrust {
    /// Unless both trusted networks and credentials are configured.
    UnlessBoth,
    /// Unless trusted networks are configured.
    UnlessNetworks,
    /// Unless credentials are configured.
    UnlessCredentials,
}

/// The settings of a port. [`PortConfig::new`] has a default for each.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// The port's name in `--port NAME=N`, which is also its section of the configuration.
    pub name: &'static str,
    /// The address to listen on.
    pub listener: IpAddr,
    /// The port to listen on; 0 selects a free one.
    pub port: u16,
    /// The name of this machine for clients and other daemons; not used if empty.
    pub hostname: String,
    /// The certificate; `None`: no TLS. Other daemons need the same certificate, or one issued by a
    /// certificate in the same chain.
    pub tls: Option<Tls>,
    /// The settings of user and password, for messages.
    pub credential_keys: [&'static str; 2],
    /// User and password.
    pub credentials: Option<Credentials>,
    /// A second user, who may only read.
    pub reader: Option<Credentials>,
    /// Networks whose requests need no credentials; `None` if not configured.
    pub trusted_networks: Option<Vec<IpNet>>,
    /// When requests from this machine need no credentials.
    pub loopback_trust: LoopbackTrust,
    /// Host names of the port, in addition to loopback, its address and
    /// [`hostname`](Self::hostname). Requests for other names are rejected.
    pub allowed_hosts: Vec<AllowedHost>,
    /// Origins of other web sites whose pages may use the port.
    pub allowed_origins: Vec<Origin>,
    /// Nothing can be changed through the port: everybody may use it, and host names are checked
    /// only for connections that arrive on loopback, whatever the address to listen on.
    pub read_only: bool,
    /// The key of the daemons that forward requests to this port, which prove with it who sent a
    /// request; `None` if none do.
    pub daemon_key: Option<DaemonKey>,
    /// The limits of its connections.
    pub limits: Limits,
    /// Time for pending requests to finish at shutdown.
    pub grace: Duration,
}

impl PortConfig {
    /// A port on loopback without credentials.
    pub fn new(name: &'static str, port: u16) -> Self {
        Self {
            name,
            listener: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port,
            hostname: String::new(),
            tls: None,
            credential_keys: ["api_username", "api_password"],
            credentials: None,
            reader: None,
            trusted_networks: None,
            loopback_trust: LoopbackTrust::UnlessBoth,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            read_only: false,
            daemon_key: None,
            limits: Limits::default(),
            grace: Duration::from_secs(5),
        }
    }

    /// Checks that a port through which something can be changed is not open to everybody.
    ///
    /// # Errors
    /// [`Error::Exposed`] for an address that other machines can reach, with neither credentials
    /// nor trusted networks.
    pub fn check_exposure(&self) -> Result<()> {
        let networks = self.trusted_networks.as_deref().unwrap_or_default();
        let protected = self.credentials.is_some() || !networks.is_empty() || self.read_only;
        if !protected && !self.listener.is_loopback() {
            return Err(Error::Exposed {
                name: self.name,
                listener: self.listener,
                credential_keys: self.credential_keys,
            });
        }
        Ok(())
    }

    /// Reads the certificate and binds the port.
    ///
    /// # Errors
    /// [`Error::Exposed`], [`Error::Certificate`], and the errors of [`Listener::bind`].
    pub async fn bind(self) -> Result<BoundPort> {
        self.check_exposure()?;
        let (mut certificate, mut issuers) = (None, None);
        if let Some(tls) = &self.tls {
            let read = match tls {
                Tls::Files(files) => Certificate::read(&files.certificate, &files.key, HTTP_ALPN).await?,
                Tls::Pem(pem) => Certificate::from_pem(pem, HTTP_ALPN)?,
            };
            issuers = Some(read.issuers().await?);
            certificate = Some(read);
        }
        let mut listener = Listener::bind(self.name, SocketAddr::new(self.listener, self.port))?;
        if let Some(certificate) = certificate {
            listener = listener.with_certificate(certificate);
        }
        Ok(BoundPort {
            config: self,
            listener,
            issuers,
        })
    }

    /// Which requests need credentials.
    pub fn policy(&self) -> AccessPolicy {
        let (networks, credentials) = (self.trusted_networks.is_some(), self.credentials.is_some());
        let trusts_loopback = match self.loopback_trust {
            LoopbackTrust::UnlessBoth => !(networks && credentials),
            LoopbackTrust::UnlessNetworks => !networks,
            LoopbackTrust::UnlessCredentials => !credentials,
        };
        let configured = self.trusted_networks.iter().flatten().copied();
        AccessPolicy {
            section: self.name,
            credential_keys: self.credential_keys,
            credentials: self.credentials.clone(),
            reader: self.reader.clone(),
            networks: configured.chain(loopback().filter(|_| trusts_loopback)).collect(),
            daemon_key: self.daemon_key.clone(),
        }
    }

    /// The router behind every check of the port: host names and origins, then credentials and
    /// networks, then the number of requests and the memory of their bodies and answers. Its
    /// responses are compressed for clients that accept that.
    pub fn protect(&self, router: Router, rules: AccessRules) -> Router {
        compressed(self.checked(router, rules))
    }

    fn checked(&self, router: Router, rules: AccessRules) -> Router {
        let router = budgeted_bodies(router, self.name, self.limits.max_body);
        let router = budgeted(router, self.name);
        // Without a limit of its own, a user could still keep all connections busy.
        let max_requests = self.limits.max_requests.unwrap_or(self.limits.max_connections);
        let router = limited(router, self.name, max_requests, rules.is_stream);
        let router = if self.read_only {
            router
        } else {
            self.policy().protect(router, rules)
        };
        let mut access = Access::new(
            self.name,
            self.allowed_hosts.clone(),
            self.allowed_origins.clone(),
        )
        .with_changes(rules.changes);
        if !self.hostname.is_empty() {
            access = access.named(&self.hostname);
        }
        if self.read_only {
            access = access.on_loopback();
        }
        guarded(router, access)
    }
}

/// A bound port that serves nothing yet: its address is known, and connections queue.
#[derive(Debug)]
pub struct BoundPort {
    config: PortConfig,
    listener: Listener,
    /// The trust anchors for other daemons' certificates.
    issuers: Option<Vec<u8>>,
}

impl BoundPort {
    /// The settings.
    pub fn config(&self) -> &PortConfig {
        &self.config
    }

    /// Sets [`PortConfig::daemon_key`], which is in the store and thus known later than the port.
    #[must_use]
    pub fn with_daemon_key(mut self, key: DaemonKey) -> Self {
        self.config.daemon_key = Some(key);
        self
    }

    /// The bound address, with the actual port.
    pub fn addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Host and port under which clients and other daemons reach this one.
    pub fn advertised(&self) -> String {
        format!("{}:{}", self.config.hostname, self.addr().port())
    }

    /// The router behind the port's limits on the number of requests and on their bodies. Code that
    /// calls the returned router directly shares these limits with the port's clients;
    /// [`Self::serve`] does not count the clients' requests a second time.
    #[must_use = "the port no longer limits the number of requests"]
    pub fn limited(&mut self, router: Router, rules: AccessRules) -> Router {
        let limits = &mut self.config.limits;
        let router = body_limited(router, limits.max_body);
        match limits.max_requests.take() {
            Some(max) => limited(router, self.config.name, max, rules.is_stream),
            None => router,
        }
    }

    /// `https` with a certificate, otherwise `http`.
    pub fn scheme(&self) -> &'static str {
        if self.issuers.is_some() { "https" } else { "http" }
    }

    /// Forwards requests to the same port of other daemons, over TLS if this port uses it. The
    /// header `via` lists the daemons that forwarded a request.
    ///
    /// # Errors
    /// [`Error::Forwarder`] if the configured host name is no valid header value.
    pub fn forwarder(&self, via: HeaderName) -> Result<Forwarder> {
        let forwarder = match &self.issuers {
            None => Forwarder::new(via, &self.advertised()),
            Some(issuers) => Forwarder::secured(via, &self.advertised(), issuers),
        }?;
        Ok(match &self.config.daemon_key {
            Some(key) => forwarder.proving(key.clone(), self.config.name),
            None => forwarder,
        })
    }

    /// Serves `router` behind every check of the port until `token` is cancelled; see
    /// [`crate::serve`].
    ///
    /// # Errors
    /// [`Error::Bind`] if the socket cannot be used.
    pub async fn serve(self, router: Router, rules: AccessRules, token: CancellationToken) -> Result<()> {
        let router = self.config.protect(router, rules);
        serve(
            self.listener,
            router,
            self.config.limits,
            token,
            self.config.grace,
        )
        .await
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::extract::Request;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;
    use crate::connections::LocalAddr;

    #[tokio::test]
    async fn read_only_port_checks_host_names_of_connections_that_arrive_on_loopback() {
        for (listener, local, expected) in [
            ("127.0.0.1", "127.0.0.1:1", 421),
            ("0.0.0.0", "127.0.0.1:1", 421),
            ("0.0.0.0", "127.1.2.3:1", 421),
            ("::", "[::1]:1", 421),
            ("::", "[::ffff:127.0.0.1]:1", 421),
            ("0.0.0.0", "10.1.2.3:1", 200),
            ("::", "[fd00::1]:1", 200),
            ("::", "[::ffff:10.1.2.3]:1", 200),
        ] {
            let port = PortConfig {
                listener: listener.parse().unwrap(),
                read_only: true,
                ..PortConfig::new("admin", 0)
            };
            let router = port.protect(
                Router::new().route("/metrics", get(async || "metrics")),
                AccessRules::DEFAULT,
            );
            for (host, expected) in [("prometheus.test", expected), ("localhost", 200)] {
                let local: SocketAddr = local.parse().unwrap();
                let request = Request::builder().uri("/metrics").header("host", host);
                let request = request.extension(LocalAddr(local)).body(Body::empty()).unwrap();
                let answer = router.clone().oneshot(request).await.unwrap();
                assert_eq!(answer.status().as_u16(), expected, "{listener} {local} {host}");
            }
        }
    }

    #[test]
    fn exposed_port_needs_credentials_or_networks_unless_read_only() {
        let credentials = || Credentials {
            username: "u".to_owned(),
            password: "p".into(),
        };
        let network = || vec![IpNet::from(IpAddr::from([10, 0, 0, 1]))];
        for (listener, credentials, networks, read_only, exposed) in [
            ("127.0.0.1", None, None, false, false),
            ("::1", None, None, false, false),
            ("0.0.0.0", None, None, false, true),
            ("10.0.0.1", None, None, false, true),
            ("::", None, None, false, true),
            ("0.0.0.0", Some(credentials()), None, false, false),
            ("0.0.0.0", None, Some(network()), false, false),
            ("0.0.0.0", None, Some(Vec::new()), false, true),
            ("0.0.0.0", None, None, true, false),
        ] {
            for name in ["admin", "apps", "workflow"] {
                let port = PortConfig {
                    listener: listener.parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
                    credentials: credentials.clone(),
                    trusted_networks: networks.clone(),
                    read_only,
                    ..PortConfig::new(name, 0)
                };
                let found = port.check_exposure();
                assert_eq!(found.is_err(), exposed, "{listener} {credentials:?} {networks:?}");
                if let Err(error) = found {
                    let text = error.to_string();
                    let expected = format!("`{name}.listener` is {listener}: other machines can reach");
                    assert!(text.starts_with(&expected), "{text}");
                    assert!(text.contains(&format!("set {name}.api_username and {name}.api_password")));
                }
            }
        }
    }
}
