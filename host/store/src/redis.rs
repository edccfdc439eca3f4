//! The store in a Redis server, version 6 or later, shared by any number of daemons.
//!
//! A value is stored under its own key as text that `redis-cli` can show, so all keys of a
//! framework begin with its name. A lease is the hash `NAME:lease`, which expires by the server's
//! clock. Further keys are the hash `transom:versions` by key, the sorted set `transom:index` with
//! the keys in byte order, and the counters `transom:version` and `transom:fencing`. Each call is
//! one Lua script (`redis/lua`) and therefore atomic; only a long scan takes several, and still
//! returns a snapshot. The store needs its own server or its own database. Redis Cluster is not
//! supported, because its scripts see one slot.
//!
//! One connection carries all calls and watches: scripts publish their changes on a channel of
//! their database. A lost connection is restored with a growing backoff for as long as the store
//! exists; see `redis/connection.rs`. Until then calls return [`Error::Unavailable`]; every call
//! has a timeout. A commit without a reply may still be applied.
//!
//! **Durability** depends on the server: with `appendonly yes` and `appendfsync always` an
//! acknowledged batch is on disk; with weaker settings a crash of the server may lose the last
//! batches. The store logs a warning about these settings and about a `maxmemory-policy` that
//! evicts keys. Versions and fencing numbers follow the server's clock, in microseconds, so that
//! even a server that lost its data assigns none twice.
//!
//! **Failover**: with Sentinels (`redis/servers.rs`), or a number of replicas in the configuration,
//! no call is answered before so many replicas have confirmed what it wrote or read, and a replica
//! that became the primary begins an epoch (`redis/replication.rs`).

pub(crate) mod connection;
mod outage;
mod replication;
mod scan;
mod scripts;
pub(crate) mod servers;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::redis::{ProtocolVersion, ScriptInvocation};
use async_trait::async_trait;
use tokio::time::Instant;

use crate::watch::Feed;
use crate::{Batch, Cause, Durability, Entry, Error, Expect, Lease, Result, Store, Watch, limits};
use connection::Link;
use outage::Outage;
use scripts::{Reply, SCRIPTS};
use servers::Servers;

const VERSIONS: &str = "transom:versions";
const INDEX: &str = "transom:index";
const COUNTER: &str = "transom:version";
const FENCING: &str = "transom:fencing";
/// The epoch, the longest time to live of a lease, and a key that exists while no lease is granted
/// (`replication`).
const EPOCH: &str = "transom:epoch";
const LONGEST: &str = "transom:longest-lease";
const WAITING: &str = "transom:leases-wait";

fn lease_key(name: &str) -> String {
    format!("{name}:lease")
}

/// The store in a Redis. Dropping it closes the connection and ends every watch.
#[derive(Debug)]
pub struct RedisStore {
    link: Link,
    feed: Feed,
    /// The channel of the scripts. Channels are shared by all databases, so its name contains the
    /// database's number.
    channel: Arc<str>,
    call_timeout: Duration,
    /// The latest lease of each name that was granted here.
    granted: Mutex<HashMap<String, Lease>>,
}

impl RedisStore {
    /// Starts connecting and returns immediately. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// The certificates in the configuration are invalid.
    pub(crate) fn open(
        mut servers: Servers,
        call_timeout: Duration,
        connect_timeout: Duration,
    ) -> std::result::Result<Self, Cause> {
        // Fails if the process already has a crypto provider, which is then used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        servers.settings = servers
            .settings
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        servers.check_tls()?;
        let channel: Arc<str> = format!("transom:{}:changes", servers.settings.db()).into();
        let feed = Feed::default();
        let link = Link::start(servers, Arc::clone(&channel), feed.clone(), connect_timeout);
        Ok(Self {
            link,
            feed,
            channel,
            call_timeout,
            granted: Mutex::default(),
        })
    }

    /// Runs a script with a timeout, and waits until replicas have confirmed what it saw. `what` ends
    /// the sentence "the store cannot …".
    async fn run(&self, what: &'static str, script: &ScriptInvocation<'_>) -> Result<Reply> {
        let call = async {
            let mut live = self.link.connection().await?;
            let reply = script.invoke_async::<::redis::Value>(&mut live.connection).await;
            let reply = reply.map_err(|source| {
                self.link.report_error(&source);
                Cause::from(source)
            })?;
            live.confirmed()
                .await
                .inspect_err(|_| self.link.report_replaced())?;
            Ok(reply)
        };
        match tokio::time::timeout(self.call_timeout, call).await {
            Ok(Ok(value)) => Reply::new(value),
            Ok(Err(source)) => Err(Error::Unavailable { what, source }),
            Err(_) => {
                self.link.report_silence();
                let source = Outage::Silent {
                    address: self.link.address(),
                    after: self.call_timeout,
                };
                Err(Error::Unavailable {
                    what,
                    source: source.into(),
                })
            }
        }
    }

    fn granted<T>(&self, with: impl FnOnce(&mut HashMap<String, Lease>) -> T) -> T {
        with(&mut self.granted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn committing<'s>(&self, batch: &Batch) -> ScriptInvocation<'s> {
        let mut script = SCRIPTS.commit.prepare_invoke();
        script.key(VERSIONS).key(INDEX).key(COUNTER).key(EPOCH);
        script.arg(&*self.channel).arg(batch.fences().len());
        for fence in batch.fences() {
            script.key(lease_key(&fence.lease)).arg(fence.fencing);
        }
        for change in batch.changes() {
            let (action, value) = match &change.value {
                Some(value) => ("put", value.as_ref()),
                None => ("delete", [].as_slice()),
            };
            script.arg(change.key.as_bytes()).arg(action);
            match change.expect {
                Expect::Any => script.arg("any"),
                Expect::Absent => script.arg("absent"),
                Expect::Version(version) => script.arg(version),
            };
            script.arg(value);
        }
        script
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        limits::key(key)?;
        let mut script = SCRIPTS.get.prepare_invoke();
        script.key(key).key(VERSIONS);
        let mut reply = self.run("read", &script).await?;
        scripts::entry(key.to_owned(), reply.next()?, reply.next()?)
    }

    async fn scan(&self, prefix: &str) -> Result<Vec<Entry>> {
        limits::prefix(prefix)?;
        scan::scan(self, prefix, scan::PAGE_LIMITS).await
    }

    async fn commit(&self, batch: Batch) -> Result<Vec<u64>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        limits::batch(&batch)?;
        let mut reply = self.run("write", &self.committing(&batch)).await?;
        match reply.text()?.as_str() {
            "ok" => {
                let versions: Vec<u64> = batch
                    .changes()
                    .iter()
                    .map(|_| reply.number())
                    .collect::<Result<_>>()?;
                self.link.acknowledged(versions.iter().copied().max());
                Ok(versions)
            }
            "conflict" => Err(Error::Conflict {
                key: reply.text()?,
                found: reply.optional_number()?,
            }),
            "fenced" => {
                let at = reply.number()?;
                let fence = usize::try_from(at).ok().and_then(|at| batch.fences().get(at - 1));
                let fence =
                    fence.ok_or_else(|| scripts::unreadable("the fence number in the reply of a commit"))?;
                Err(Error::Fenced {
                    lease: fence.lease.clone(),
                    fencing: fence.fencing,
                    current: reply.optional_number()?,
                })
            }
            _ => Err(scripts::unreadable("the outcome in the reply of a commit")),
        }
    }

    async fn acquire(&self, name: &str, holder: &str, ttl: Duration) -> Result<Lease> {
        limits::acquire(name, holder, ttl)?;
        let mut script = SCRIPTS.acquire.prepare_invoke();
        script.key(lease_key(name)).key(FENCING);
        script.key(EPOCH).key(LONGEST).key(WAITING);
        script.arg(holder).arg(milliseconds(ttl));
        let holds = self.granted(|granted| {
            let lease = granted.get(name).filter(|lease| lease.holder == holder);
            lease.is_some_and(|lease| !lease.remaining().is_zero())
        });
        script.arg(if holds { "holds" } else { "" });
        let expires = Instant::now() + ttl;
        let mut reply = self.run("grant a lease", &script).await?;
        match reply.text()?.as_str() {
            "ok" => {
                let lease = Lease {
                    name: name.to_owned(),
                    holder: holder.to_owned(),
                    fencing: reply.number()?,
                    ttl,
                    expires,
                };
                self.granted(|granted| granted.insert(name.to_owned(), lease.clone()));
                Ok(lease)
            }
            "held" => Err(Error::Held {
                lease: name.to_owned(),
                holder: reply.text()?,
                remaining: Duration::from_millis(reply.number()?),
            }),
            _ => Err(scripts::unreadable("the outcome in the reply of an acquisition")),
        }
    }

    async fn renew(&self, lease: &Lease) -> Result<Lease> {
        limits::acquire(&lease.name, &lease.holder, lease.ttl)?;
        let mut script = SCRIPTS.renew.prepare_invoke();
        script.key(lease_key(&lease.name)).key(EPOCH);
        script.arg(lease.fencing).arg(milliseconds(lease.ttl));
        let expires = Instant::now() + lease.ttl;
        let mut reply = self.run("renew a lease", &script).await?;
        match reply.text()?.as_str() {
            "ok" => {
                let renewed = Lease {
                    expires,
                    ..lease.clone()
                };
                self.granted(|granted| granted.insert(lease.name.clone(), renewed.clone()));
                Ok(renewed)
            }
            "fenced" => Err(Error::Fenced {
                lease: lease.name.clone(),
                fencing: lease.fencing,
                current: reply.optional_number()?,
            }),
            _ => Err(scripts::unreadable("the outcome in the reply of a renewal")),
        }
    }

    async fn release(&self, lease: &Lease) -> Result<()> {
        limits::lease(&lease.name)?;
        let mut script = SCRIPTS.release.prepare_invoke();
        script.key(lease_key(&lease.name)).arg(lease.fencing);
        self.granted(|granted| granted.remove(&lease.name));
        self.run("release a lease", &script).await.map(drop)
    }

    async fn lease(&self, name: &str) -> Result<Option<Lease>> {
        limits::lease(name)?;
        let mut script = SCRIPTS.read_lease.prepare_invoke();
        script.key(lease_key(name)).key(EPOCH).key(WAITING);
        let mut reply = self.run("read a lease", &script).await?;
        let Some(holder) = reply.optional_text()? else {
            return Ok(None);
        };
        let fencing = reply.number()?;
        let ttl = Duration::from_millis(reply.number()?);
        Ok(Some(Lease {
            name: name.to_owned(),
            holder,
            fencing,
            ttl,
            expires: Instant::now() + ttl,
        }))
    }

    async fn watch(&self, prefix: &str) -> Result<Watch> {
        limits::prefix(prefix)?;
        Ok(self.feed.watch(prefix))
    }

    fn durability(&self) -> Durability {
        self.link.durability()
    }
}

/// Rounded up, so that the server never expires a lease before its holder expects it.
fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
