//! Inspection of a store's server without opening the store: whether it accepts this configuration,
//! and how durable it is.

use std::path::PathBuf;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, RedisError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::{Backend, Config};
use crate::redis::connection::field;
use crate::redis::servers::Servers;
use crate::{Cause, Error, Result};

/// Bytes of an answer to `srvr` that are read.
const MAX_SRVR: u64 = 64 << 10;

/// The kind of store that a configuration names.
#[derive(Clone, Debug, PartialEq)]
pub enum Inspection {
    /// The directory of the embedded store, which may be missing.
    File(PathBuf),
    /// A Redis that answers.
    Redis(RedisSettings),
    /// The servers of a ZooKeeper, of which one at least accepts the store's user.
    ZooKeeper(Vec<ZooKeeperServer>),
}

/// What a server of ZooKeeper says of itself (`srvr`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ZooKeeperServer {
    /// `host:port`.
    pub address: String,
    /// `leader`, `follower` or `standalone`. `None`: it does not serve, or does not answer `srvr`.
    pub mode: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// The mean and the longest time of its requests, in milliseconds.
    pub latency: Option<(f64, f64)>,
}

/// The settings of a Redis. A setting is `None` if the user may not read it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RedisSettings {
    /// `redis_version`.
    pub version: Option<String>,
    /// `master`, or `slave` for a replica, which accepts no writes.
    pub role: Option<String>,
    /// Whether the server writes an append-only file.
    pub append_only: Option<bool>,
    /// `appendfsync`: `always`, `everysec` or `no`.
    pub append_fsync: Option<String>,
    /// Whether keys are evicted when the memory is full.
    pub evicts: Option<bool>,
    /// The server's clock, as the time since 1970.
    pub time: Option<Duration>,
    /// The number of connected replicas.
    pub connected: Option<u32>,
    /// The number of replicas that confirm each write; 0: a failover loses writes.
    pub replicas: u32,
    /// Whether the server rejects writes while it has too few replicas (`min-replicas-to-write`).
    pub rejects_alone: Option<bool>,
    /// What each Sentinel answers, by its address: the address of the primary, or an error.
    pub sentinels: Vec<(String, std::result::Result<String, String>)>,
}

impl Config {
    /// Connects to the server once, with the timeout for connections, and reads its settings.
    /// Nothing is written.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the address is invalid, [`Error::Unavailable`] when the server
    /// cannot be reached or rejects the credentials.
    pub async fn inspect(&self) -> Result<Inspection> {
        match self.backend()? {
            Backend::File(dir) => Ok(Inspection::File(dir)),
            Backend::Redis(servers) => self.inspect_redis(&servers).await,
            Backend::ZooKeeper(settings) => {
                let accepted = crate::zookeeper::accepts(&settings).await;
                accepted.map_err(|source| Error::Unavailable {
                    what: "inspect its server",
                    source,
                })?;
                let mut servers = Vec::new();
                for (host, port) in settings.servers() {
                    let answer = timeout(self.connect_timeout, srvr(&host, port)).await;
                    let answer = answer.ok().and_then(std::result::Result::ok).unwrap_or_default();
                    servers.push(of_srvr(format!("{host}:{port}"), &answer));
                }
                Ok(Inspection::ZooKeeper(servers))
            }
        }
    }

    async fn inspect_redis(&self, servers: &Servers) -> Result<Inspection> {
        let unavailable = |source| Error::Unavailable {
            what: "inspect its server",
            source,
        };
        let after = self.connect_timeout;
        let client = servers.primary(after).await.map_err(unavailable)?.client;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(after))
            .set_response_timeout(Some(after));
        let connected = client.get_multiplexed_async_connection_with_config(&config);
        let connected = timeout(after, connected).await;
        let mut connection = connected
            .map_err(|_| unavailable(format!("no connection within {after:?}").into()))?
            .map_err(|error| unavailable(Cause::from(error)))?;
        ::redis::cmd("PING")
            .query_async::<()>(&mut connection)
            .await
            .map_err(|error| unavailable(Cause::from(error)))?;
        Ok(Inspection::Redis(RedisSettings {
            replicas: servers.replicas,
            sentinels: servers.answers(after).await,
            ..settings(&mut connection).await
        }))
    }
}

/// The answer to `srvr`, which servers permit by default.
async fn srvr(host: &str, port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((host, port)).await?;
    stream.write_all(b"srvr").await?;
    let mut answer = String::new();
    stream.take(MAX_SRVR).read_to_string(&mut answer).await?;
    Ok(answer)
}

fn of_srvr(address: String, answer: &str) -> ZooKeeperServer {
    let field = |name: &str| {
        let found = answer
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        found.map(|value| {
            value
                .split([',', '-'])
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned()
        })
    };
    let latency = field("Latency min/avg/max").and_then(|latency| {
        let mut numbers = latency.split('/').map(|number| number.parse().ok());
        let (_, mean, longest) = (numbers.next()?, numbers.next()??, numbers.next()??);
        Some((mean, longest))
    });
    ZooKeeperServer {
        address,
        mode: field("Mode"),
        version: field("Zookeeper version"),
        latency,
    }
}

async fn settings(connection: &mut MultiplexedConnection) -> RedisSettings {
    let info = ::redis::cmd("INFO").query_async::<String>(connection).await;
    let mut settings = info.map_or_else(|_| RedisSettings::default(), |info| of_info(&info));
    let fsync: std::result::Result<Vec<String>, RedisError> = ::redis::cmd("CONFIG")
        .arg("GET")
        .arg("appendfsync")
        .query_async(connection)
        .await;
    settings.append_fsync = fsync.ok().and_then(|pair| pair.into_iter().nth(1));
    let time: std::result::Result<(u64, u64), RedisError> =
        ::redis::cmd("TIME").query_async(connection).await;
    settings.time = time
        .ok()
        .map(|(seconds, micros)| Duration::from_secs(seconds) + Duration::from_micros(micros));
    settings
}

fn of_info(info: &str) -> RedisSettings {
    let field = |name| field(info, name).map(str::to_owned);
    let limited = field("maxmemory").map(|bytes| bytes != "0");
    let policy = field("maxmemory_policy").map(|policy| policy != "noeviction");
    RedisSettings {
        version: field("redis_version"),
        role: field("role"),
        append_only: field("aof_enabled").map(|enabled| enabled == "1"),
        evicts: limited.zip(policy).map(|(limited, evicts)| limited && evicts),
        connected: field("connected_slaves").and_then(|count| count.parse().ok()),
        rejects_alone: field("role").map(|_| field("min_slaves_good_slaves").is_some()),
        ..RedisSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_zookeeper_are_read_from_srvr() {
        let answer = "Zookeeper version: 3.8.0--1, built on 2022-12-20 00:00 UTC\nLatency min/avg/max: 0/1.25/31\n\
                      Received: 10\nMode: follower\nNode count: 5\n";
        let expected = ZooKeeperServer {
            address: "h:1".to_owned(),
            mode: Some("follower".to_owned()),
            version: Some("3.8.0".to_owned()),
            latency: Some((1.25, 31.0)),
        };
        assert_eq!(of_srvr("h:1".to_owned(), answer), expected);
        let silent = of_srvr(
            "h:1".to_owned(),
            "This ZooKeeper instance is not currently serving requests\n",
        );
        assert_eq!((silent.mode, silent.latency), (None, None));
    }

    #[test]
    fn settings_are_read_from_info() {
        let info = "# Server\r\nredis_version:7.0.15\r\nrole:master\r\naof_enabled:0\r\nmaxmemory:1048576\r\n\
                    maxmemory_policy:allkeys-lru\r\nconnected_slaves:2\r\n";
        let expected = RedisSettings {
            version: Some("7.0.15".to_owned()),
            role: Some("master".to_owned()),
            append_only: Some(false),
            evicts: Some(true),
            connected: Some(2),
            rejects_alone: Some(false),
            ..RedisSettings::default()
        };
        assert_eq!(of_info(info), expected);
        assert_eq!(of_info(""), RedisSettings::default());
        assert_eq!(
            of_info("maxmemory:0\r\nmaxmemory_policy:allkeys-lru").evicts,
            Some(false)
        );
    }

    #[tokio::test]
    async fn directory_is_named_and_missing_server_is_unavailable() {
        let file = Config::new("file:/x").inspect().await.unwrap();
        assert_eq!(file, Inspection::File(PathBuf::from("/x")));
        // No process listens on a port that was just closed.
        let free = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let result = Config::new(free.to_string()).inspect().await;
        assert!(matches!(result, Err(Error::Unavailable { .. })), "{result:?}");
    }
}
