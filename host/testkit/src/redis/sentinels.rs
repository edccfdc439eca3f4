//! A primary, two replicas and three Sentinels, which replace a primary that is gone.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::RedisServer;
use crate::WAIT_TIMEOUT;
use crate::proxies::Proxies;

/// The name of the primary at the Sentinels.
const NAME: &str = "transom";
/// The number of servers, and of Sentinels.
const SERVERS: usize = 3;
/// All that connect to a server.
const OTHERS: usize = SERVERS;

/// Three servers, numbered from 0, and three Sentinels, which require passwords. The servers, the
/// Sentinels and their clients reach each server through a proxy. Ends when dropped.
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<RedisServer>,
    observers: Vec<RedisServer>,
    proxies: Proxies,
}

impl Sentinels {
    /// The password of the servers. It has no blanks, which a Sentinel does not quote when it writes its
    /// configuration.
    pub const PASSWORD: &str = "correct-horse";
    /// The password of the Sentinels.
    pub const SENTINEL_PASSWORD: &str = "battery-staple";

    /// Starts all, and waits until the primary has both replicas and the Sentinels know them.
    pub async fn start() -> Self {
        let proxies = Proxies::default();
        let mut servers: Vec<RedisServer> = Vec::new();
        let mut primary: Option<SocketAddr> = None;
        for number in 0..SERVERS {
            let mut server = RedisServer::durable().protected(Self::PASSWORD);
            server.reserve_port();
            let proxy = proxies.proxy((OTHERS, number), server.port).await;
            let replication = primary.map_or(String::new(), |primary| {
                format!("replicaof 127.0.0.1 {}\n", primary.port())
            });
            primary.get_or_insert(proxy);
            let server = server.with_configuration(&format!(
                "masterauth {}\nreplica-announce-ip 127.0.0.1\nreplica-announce-port {}\n\
                 repl-timeout 5\nrepl-ping-replica-period 1\nrepl-diskless-sync-delay 0\n{replication}",
                Self::PASSWORD,
                proxy.port()
            ));
            servers.push(server.started());
        }
        let port = primary.expect("a primary").port();
        let observers = (0..SERVERS).map(|_| {
            let mut sentinel = RedisServer::with_options(&[])
                .protected(Self::SENTINEL_PASSWORD)
                .with_configuration(&format!(
                    "sentinel sentinel-pass {}\n\
                 sentinel monitor {NAME} 127.0.0.1 {port} 2\nsentinel auth-pass {NAME} {}\n\
                 sentinel down-after-milliseconds {NAME} 1000\nsentinel failover-timeout {NAME} 3000\n",
                    Self::SENTINEL_PASSWORD,
                    Self::PASSWORD
                ));
            sentinel.is_sentinel = true;
            sentinel.started()
        });
        let group = Self {
            observers: observers.collect(),
            servers,
            proxies,
        };
        group.ready().await;
        group
    }

    async fn ready(&self) {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            let mut missing = Vec::new();
            for sentinel in &self.observers {
                let words = ["SENTINEL", "MASTER", NAME];
                let fields: Option<HashMap<String, String>> = sentinel.ask(&words).await;
                let fields = fields.unwrap_or_default();
                if ["num-slaves", "num-other-sentinels"]
                    .iter()
                    .any(|name| fields.get(*name).is_none_or(|n| n != "2"))
                {
                    missing.push(fields);
                }
            }
            let replication = self.servers[0].info("replication").await;
            if missing.is_empty() && replication.matches("state=online").count() == 2 {
                return;
            }
            assert!(Instant::now() < deadline, "{replication}, {missing:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// `redis-sentinel://HOST:PORT,…/NAME`.
    pub fn address(&self) -> String {
        let addresses: Vec<_> = self
            .observers
            .iter()
            .map(|sentinel| sentinel.address().to_string())
            .collect();
        format!("redis-sentinel://{}/{NAME}", addresses.join(","))
    }

    /// The address of a server without its proxy, which stays reachable when the server is cut off.
    pub fn direct_address(&self, server: usize) -> SocketAddr {
        self.servers[server].address()
    }

    /// The server that the Sentinels call the primary, once it answers as such with a replica.
    pub async fn primary(&self) -> usize {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            for (number, server) in self.servers.iter().enumerate() {
                if server.child.is_some() {
                    let replication = server.info("replication").await;
                    if replication.contains("role:master") && replication.contains("state=online") {
                        return number;
                    }
                }
            }
            assert!(Instant::now() < deadline, "no server is a primary with a replica");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// A server, to stop, start and freeze it.
    pub fn server(&mut self, number: usize) -> &mut RedisServer {
        &mut self.servers[number]
    }

    /// A Sentinel, to stop and start it.
    pub fn sentinel(&mut self, number: usize) -> &mut RedisServer {
        &mut self.observers[number]
    }

    /// Lets all bytes from and to a server wait, except on connections to its direct address.
    pub fn cut(&self, server: usize) {
        self.proxies.cut(OTHERS, server);
        self.proxies.cut(server, OTHERS);
    }

    /// Lets all bytes pass again.
    pub fn heal(&self) {
        self.proxies.heal();
    }
}
