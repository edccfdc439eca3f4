//! The address of a store, and the settings to connect to it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};
use transom_common::{Secret, ZooKeeperPath};

use crate::file::FileStore;
use crate::redis::RedisStore;
use crate::redis::servers::{Place, Servers, sentinels};
use crate::zookeeper::{Settings as ZooKeeper, ZooKeeperStore};
use crate::{Error, Result, Store};

/// The prefix of the address of Sentinels.
const SENTINEL: &str = "redis-sentinel://";

/// The configuration of a store. The value in the address, if any, applies to a field that is
/// `None`.
#[derive(Clone)]
pub struct Config {
    /// The address: `file:DIR`, `zk://[USER:PASSWORD@]HOST:PORT,HOST:PORT/PATH`, `HOST:PORT` (a Redis; an
    /// IPv6 address in square brackets), `redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]`, with
    /// `rediss` for TLS, or `redis-sentinel://[USER[:PASSWORD]@]HOST[:PORT],…/NAME[/DATABASE]`.
    pub server: String,
    /// The user of the server; without one the password is that of the default user of a Redis.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<Secret>,
    /// The number of the Redis database, from 0.
    pub database: Option<u16>,
    /// The user at the Sentinels, which do not know those of the Redis.
    pub sentinel_user: Option<String>,
    /// The password at the Sentinels.
    pub sentinel_password: Option<Secret>,
    /// The number of replicas that have to confirm a write before it is acknowledged. `None`: 1 with
    /// Sentinels, and 0 without.
    pub replicas: Option<u32>,
    /// TLS to the server; `rediss://` alone means TLS with the system's root certificates.
    pub tls: Option<Tls>,
    /// Whether a state in ZooKeeper may be one that anyone can read and change, as all nodes are that
    /// are created without a user.
    pub world_access: bool,
    /// The timeout of one call to a server, including the wait for the connection.
    pub call_timeout: Duration,
    /// The timeout of one attempt to connect to a server.
    pub connect_timeout: Duration,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("server", &without_secrets(&self.server))
            .field("user", &self.user)
            .field("password", &self.password)
            .field("database", &self.database)
            .field("sentinel_user", &self.sentinel_user)
            .field("sentinel_password", &self.sentinel_password)
            .field("replicas", &self.replicas)
            .field("tls", &self.tls)
            .field("world_access", &self.world_access)
            .field("call_timeout", &self.call_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .finish()
    }
}

/// TLS to a server.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Whether the server's certificate and its name are verified. Without verification the
    /// connection is open to man-in-the-middle attacks.
    pub verify: bool,
    /// The root certificates to trust, as PEM; without them those of the system.
    pub authorities: Option<Vec<u8>>,
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            verify: true,
            authorities: None,
        }
    }
}

impl Config {
    /// The configuration for the address `server`, with default timeouts.
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            user: None,
            password: None,
            database: None,
            sentinel_user: None,
            sentinel_password: None,
            replicas: None,
            tls: None,
            world_access: false,
            call_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(2),
        }
    }

    /// Opens the store.
    ///
    /// An unreachable server is not an error: the store logs the failure and reconnects. It returns
    /// [`Error::Unavailable`] until it is connected.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the address is invalid; from the embedded store
    /// [`Error::Locked`] when another process has it open, and the other errors of
    /// [`FileStore::open`].
    pub async fn open(self) -> Result<Arc<dyn Store>> {
        match self.backend()? {
            Backend::File(dir) => Ok(Arc::new(FileStore::open(dir).await?)),
            Backend::Redis(servers) => {
                let (call, connect) = (self.call_timeout, self.connect_timeout);
                let store = RedisStore::open(*servers, call, connect);
                Ok(Arc::new(
                    store.map_err(|reason| self.unsupported(&reason.to_string()))?,
                ))
            }
            Backend::ZooKeeper(settings) => Ok(Arc::new(ZooKeeperStore::open(settings, self.call_timeout))),
        }
    }

    /// Whether the store exists. If it does not, opening the embedded store creates it. One on servers
    /// always exists.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the address is invalid.
    pub fn exists(&self) -> Result<bool> {
        Ok(match self.backend()? {
            Backend::File(dir) => FileStore::exists(&dir),
            Backend::Redis(_) | Backend::ZooKeeper(_) => true,
        })
    }

    /// Host and port of the store's servers; none for the embedded store.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the address is invalid.
    pub fn addresses(&self) -> Result<Vec<(String, u16)>> {
        Ok(match self.backend()? {
            Backend::File(_) => Vec::new(),
            Backend::Redis(servers) => servers.addresses(),
            Backend::ZooKeeper(settings) => settings.servers().collect(),
        })
    }

    /// The address for display, without user and password.
    pub fn shown_server(&self) -> String {
        without_secrets(&self.server)
    }

    /// The parsed address, without any connection.
    pub(crate) fn backend(&self) -> Result<Backend> {
        let server = self.server.trim();
        if let Some(dir) = server.strip_prefix("file:") {
            if dir.trim().is_empty() {
                return Err(self.unsupported("the directory name is missing"));
            }
            return Ok(Backend::File(PathBuf::from(dir)));
        }
        if server.starts_with(ZooKeeperPath::SCHEME) {
            return self.zookeeper(server).map(Backend::ZooKeeper);
        }
        let (place, from_url) = if let Some(rest) = server.strip_prefix(SENTINEL) {
            sentinels(rest).map_err(|reason| self.unsupported(&reason))?
        } else if server.contains("://") {
            let info = server
                .into_connection_info()
                .map_err(|source| self.unsupported(&source.to_string()))?;
            (Place::Address(info.addr().clone()), info.redis_settings().clone())
        } else {
            let (host, port) = host_and_port(server).map_err(|reason| self.unsupported(reason))?;
            (
                Place::Address(ConnectionAddr::Tcp(host, port)),
                RedisConnectionInfo::default(),
            )
        };
        self.redis(place, from_url).map(Box::new).map(Backend::Redis)
    }

    fn redis(&self, mut place: Place, from_url: RedisConnectionInfo) -> Result<Servers> {
        let replicas = match &mut place {
            Place::Address(ConnectionAddr::Unix(_)) => return Err(self.unsupported("it is a socket file")),
            Place::Address(_) if self.sentinel_user.is_some() || self.sentinel_password.is_some() => {
                return Err(self.unsupported("the credentials of Sentinels need an address of Sentinels"));
            }
            Place::Address(_) => self.replicas.unwrap_or(0),
            Place::Sentinels { settings, .. } => {
                let (user, password) = (self.sentinel_user.as_deref(), self.sentinel_password.as_ref());
                *settings = self.settings(std::mem::take(settings), user, password)?;
                self.replicas.unwrap_or(1)
            }
        };
        if replicas == 0 && matches!(place, Place::Sentinels { .. }) {
            return Err(self.unsupported("without a replica that confirms writes a failover would lose them"));
        }
        let mut settings = self.settings(from_url, self.user.as_deref(), self.password.as_ref())?;
        if let Some(database) = self.database {
            settings = settings.set_db(database.into());
        }
        if u16::try_from(settings.db()).is_err() {
            return Err(self.unsupported("the number of the database is out of range"));
        }
        Ok(Servers {
            place,
            settings,
            tls: self.tls.clone(),
            replicas,
        })
    }

    fn zookeeper(&self, server: &str) -> Result<ZooKeeper> {
        let path = ZooKeeperPath::parse(server).map_err(|reason| self.unsupported(reason))?;
        if self.database.is_some() || self.replicas.is_some() {
            return Err(self.unsupported("a database and replicas belong to a Redis"));
        }
        if self.tls.as_ref().is_some_and(|tls| !tls.verify) {
            return Err(self.unsupported(
                "the certificates of ZooKeeper servers are always verified; add their issuer to the root certificates \
                 of this machine",
            ));
        }
        let digest = match (&self.user, &self.password) {
            (Some(user), Some(password)) => Some(format!("{user}:{}", password.reveal())),
            (None, None) => path.digest,
            _ => return Err(self.unsupported("it needs both a user and a password")),
        };
        if digest.is_none() && !self.world_access {
            return Err(self.unsupported(
                "without a user and a password anyone can read and change the state; add them, or set \
                 store.world_access",
            ));
        }
        Ok(ZooKeeper {
            servers: path.servers,
            root: path.path,
            digest,
            world_access: self.world_access,
            tls: self.tls.clone(),
            connect_timeout: self.connect_timeout,
        })
    }

    fn settings(
        &self,
        mut settings: RedisConnectionInfo,
        user: Option<&str>,
        password: Option<&Secret>,
    ) -> Result<RedisConnectionInfo> {
        if let Some(user) = user {
            settings = settings.set_username(user);
        }
        if let Some(password) = password {
            settings = settings.set_password(password.reveal());
        }
        if settings.username().is_some() && settings.password().is_none() {
            return Err(self.unsupported("it has a user without a password"));
        }
        Ok(settings)
    }

    fn unsupported(&self, reason: &str) -> Error {
        Error::Unsupported {
            server: without_secrets(&self.server),
            reason: reason.to_owned(),
        }
    }
}

/// The kind of store that an address names.
pub(crate) enum Backend {
    File(PathBuf),
    Redis(Box<Servers>),
    ZooKeeper(ZooKeeper),
}

/// Splits `HOST:PORT`.
fn host_and_port(server: &str) -> std::result::Result<(String, u16), &'static str> {
    let (host, port) = server.rsplit_once(':').ok_or("the port is missing")?;
    let port = port
        .parse()
        .ok()
        .filter(|port| *port != 0)
        .ok_or("the text after the last colon is not a valid port")?;
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match bracketed {
        Some(host) if host.parse::<std::net::Ipv6Addr>().is_ok() => host,
        Some(_) => return Err("the text in brackets is not a valid IPv6 address"),
        None if host.is_empty() => return Err("the host is missing"),
        None if host.chars().all(|c| c.is_alphanumeric() || "-._".contains(c)) => host,
        None => return Err("the text before the last colon is not a valid host"),
    };
    Ok((host.to_owned(), port))
}

/// The address without the part before the last `@`, which may contain a user and a password.
fn without_secrets(server: &str) -> String {
    match server.rsplit_once('@') {
        None => server.to_owned(),
        Some((before, after)) => {
            let scheme = before.split_once("://").map_or("", |(scheme, _)| scheme);
            format!(
                "{scheme}{}***@{after}",
                if scheme.is_empty() { "" } else { "://" }
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use ::redis::ConnectionInfo;

    use super::*;

    fn servers(config: &Config) -> Servers {
        match config.backend() {
            Ok(Backend::Redis(servers)) => *servers,
            Ok(_) => panic!("{config:?} is no Redis"),
            Err(rejected) => panic!("{rejected}"),
        }
    }

    fn redis(config: &Config) -> ConnectionInfo {
        let servers = servers(config);
        match &servers.place {
            Place::Address(address) => servers.info(address.clone(), &servers.settings).unwrap(),
            Place::Sentinels { .. } => panic!("{config:?} has Sentinels"),
        }
    }

    #[test]
    fn addresses_of_sentinels_are_parsed() {
        let config = Config {
            sentinel_password: Some("s".into()),
            ..Config::new("redis-sentinel://me:se%40cret@h1:1,[::1]:2,h3/transom/3")
        };
        let found = servers(&config);
        let Place::Sentinels {
            servers,
            name,
            settings,
        } = &found.place
        else {
            panic!("{config:?} has no Sentinels");
        };
        let expected = [
            ("h1".to_owned(), 1),
            ("::1".to_owned(), 2),
            ("h3".to_owned(), 26379),
        ];
        assert_eq!((&servers[..], &**name), (&expected[..], "transom"));
        assert_eq!(config.addresses().unwrap(), expected);
        assert_eq!((settings.username(), settings.password()), (None, Some("s")));
        let settings = &found.settings;
        assert_eq!(
            (
                settings.username(),
                settings.password(),
                settings.db(),
                found.replicas
            ),
            (Some("me"), Some("se@cret"), 3, 1)
        );
        for config in [
            Config {
                replicas: Some(0),
                ..config.clone()
            },
            Config {
                server: "h:1".to_owned(),
                ..config
            },
        ] {
            assert!(
                matches!(config.addresses(), Err(Error::Unsupported { .. })),
                "{config:?}"
            );
        }
    }

    #[test]
    fn zookeeper_addresses_are_parsed() {
        let with = |user: Option<&str>, password: Option<&str>| Config {
            user: user.map(str::to_owned),
            password: password.map(Into::into),
            ..Config::new("zk://a:b@h1:1,h2:2/t")
        };
        let digest = |config: &Config| match config.backend() {
            Ok(Backend::ZooKeeper(settings)) => settings.digest,
            _ => panic!("{config:?} is not on ZooKeeper"),
        };
        assert_eq!(digest(&with(None, None)).as_deref(), Some("a:b"));
        assert_eq!(digest(&with(Some("c"), Some("d"))).as_deref(), Some("c:d"));
        assert!(with(Some("c"), None).backend().is_err());
        let open = Config {
            world_access: true,
            ..Config::new("zk://h1:1,[::1]:2/t")
        };
        assert_eq!(digest(&open), None);
        let addresses = [("h1".to_owned(), 1), ("::1".to_owned(), 2)];
        assert_eq!(open.addresses().unwrap(), addresses);
        for config in [
            Config {
                database: Some(1),
                ..with(None, None)
            },
            Config {
                tls: Some(Tls {
                    verify: false,
                    ..Tls::default()
                }),
                ..with(None, None)
            },
        ] {
            assert!(matches!(config.addresses(), Err(Error::Unsupported { .. })));
            assert!(!format!("{config:?}").contains(":b@"));
        }
    }

    #[test]
    fn redis_addresses_are_parsed() {
        for (server, address, user, password, database) in [
            ("127.0.0.1:6379", "127.0.0.1:6379", None, None, 0),
            (" store.example:1 ", "store.example:1", None, None, 0),
            ("[::1]:6380", "::1:6380", None, None, 0),
            ("redis://h", "h:6379", None, None, 0),
            ("redis://:se%40cret@h:1/3", "h:1", None, Some("se@cret"), 3),
            ("redis://me:secret@h:1", "h:1", Some("me"), Some("secret"), 0),
        ] {
            let info = redis(&Config::new(server));
            assert!(matches!(info.addr(), ConnectionAddr::Tcp(..)), "{server}");
            let settings = info.redis_settings();
            assert_eq!(
                (
                    info.addr().to_string().as_str(),
                    settings.username(),
                    settings.password(),
                    settings.db()
                ),
                (address, user, password, database),
                "{server}"
            );
        }
    }

    #[test]
    fn settings_override_the_address() {
        let mut config = Config::new("redis://a:b@h:1/3");
        config.user = Some("me".to_owned());
        config.password = Some("se@cret/".into());
        config.database = Some(7);
        let info = redis(&config);
        let settings = info.redis_settings();
        assert_eq!(
            (settings.username(), settings.password(), settings.db()),
            (Some("me"), Some("se@cret/"), 7)
        );
    }

    #[test]
    fn tls_certificate_is_verified_unless_switched_off() {
        let insecure = |config: &Config| match redis(config).addr() {
            ConnectionAddr::TcpTls { insecure, .. } => *insecure,
            other => panic!("{other} without TLS"),
        };
        let with = |server: &str, tls: Option<Tls>| Config {
            tls,
            ..Config::new(server)
        };
        let unchecked = Tls {
            verify: false,
            authorities: None,
        };
        assert!(!insecure(&with("rediss://h", None)));
        assert!(!insecure(&with("h:1", Some(Tls::default()))));
        assert!(!insecure(&with("redis://h", Some(Tls::default()))));
        assert!(!insecure(&with("rediss://h/#insecure", Some(Tls::default()))));
        assert!(insecure(&with("rediss://h", Some(unchecked.clone()))));
        assert!(insecure(&with("h:1", Some(unchecked))));
    }

    #[test]
    fn invalid_addresses_are_rejected_with_reason() {
        for (server, reason) in [
            ("", "port is missing"),
            ("file:", "directory name is missing"),
            ("file: ", "directory name is missing"),
            ("localhost", "port is missing"),
            ("localhost:0", "not a valid port"),
            ("localhost:65536", "not a valid port"),
            (":6379", "host is missing"),
            ("a b:6379", "not a valid host"),
            ("::1:6379", "not a valid host"),
            ("[::g]:6379", "not a valid IPv6 address"),
            ("http://h:1", "did not parse"),
            ("unix:///run/redis.sock", "socket file"),
            ("redis://h:1/x", "database number"),
            ("redis://h:1/-1", "out of range"),
            ("redis://h:1/70000", "out of range"),
            ("redis://me@h:1", "without a password"),
            ("redis-sentinel://h1:1,h2:2", "with the name of the primary"),
            ("redis-sentinel://h1:1,h2:2/", "with the name of the primary"),
            ("redis-sentinel://h1:1,/transom", "with the name of the primary"),
            ("redis-sentinel://h1:1/a b", "with the name of the primary"),
            ("redis-sentinel://h1:1/transom/x", "database number"),
            ("zk://h:2181", "the path is missing"),
            ("zk://h:2181/", "the root of ZooKeeper"),
            ("zk://h/transom", "not host:port"),
            ("zk://h:2181/transom", "anyone can read and change"),
        ] {
            let Err(rejected) = Config::new(server).backend() else {
                panic!("`{server}` is an address")
            };
            assert!(
                matches!(&rejected, Error::Unsupported { reason: found, .. }
                    if found.to_lowercase().contains(&reason.to_lowercase())),
                "`{server}`: {rejected}"
            );
            assert!(rejected.to_string().contains("file:DIR"), "{rejected}");
        }
    }

    #[test]
    fn passwords_are_never_shown() {
        for server in ["redis://me:secret@h:1/x", "http://:secret@h", "me:secret@h"] {
            let Err(rejected) = Config::new(server).backend() else {
                panic!("`{server}` is an address")
            };
            assert!(
                !format!("{rejected} {rejected:?}").contains("secret"),
                "{rejected}"
            );
        }
        let mut config = Config::new("redis://me:secret@h:1");
        config.password = Some("secret".into());
        assert!(!format!("{config:?}").contains("secret"), "{config:?}");
    }
}
