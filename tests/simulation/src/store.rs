//! The store that the daemons share: in memory, in the time of the world, with the contract of every
//! store and the worst that it allows. Calls take time, are lost before or after they are carried
//! out, and get no answer while the store is down.
//!
//! A Redis carries out the calls of one connection in their order, so the calls of one daemon are
//! never reordered here.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use transom_store::{Batch, Entry, Error, Feed, Lease, Notice, Result, Store, Watch, limits};

/// How long a call waits for its answer, as with a Redis.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// A breach of the contract of stores, which shows that the invariants find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A lease is granted although another holder has it.
    GrantsTwice,
    /// A commit is acknowledged and forgotten.
    ForgetsCommits,
    /// A lease whose holder has gone never ends.
    NeverExpires,
}

/// What becomes of a call: the time until it is carried out and from then until its answer arrives.
/// `None`: it gets lost there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fate {
    pub(crate) request: Option<Duration>,
    pub(crate) answer: Option<Duration>,
}

#[derive(Debug)]
enum Operation {
    Get(String),
    Scan(String),
    Commit(Batch),
    Acquire {
        name: String,
        holder: String,
        ttl: Duration,
    },
    Renew {
        name: String,
        fencing: u64,
        ttl: Duration,
    },
    Release {
        name: String,
        fencing: u64,
    },
    Read(String),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get(_) => "get",
            Self::Scan(_) => "scan",
            Self::Commit(batch) => {
                let keys: Vec<&str> = batch.changes().iter().map(|change| change.key.as_str()).collect();
                return write!(f, "commit {}", keys.join(", "));
            }
            Self::Acquire { .. } => "acquire",
            Self::Renew { .. } => "renew",
            Self::Release { .. } => "release",
            Self::Read(_) => "read the lease",
        })
    }
}

#[derive(Debug)]
enum Answer {
    Entry(Option<Entry>),
    Entries(Vec<Entry>),
    Versions(Vec<u64>),
    Lease(Option<HeldLease>),
    Done,
}

/// A lease as the store has it; `expires` is in the time of the world.
#[derive(Clone, Debug)]
pub(crate) struct HeldLease {
    pub(crate) holder: String,
    pub(crate) fencing: u64,
    pub(crate) expires: Duration,
    remaining: Duration,
}

type Reply = oneshot::Sender<Result<Answer>>;
/// Messages on their way, by the time at which they arrive and the order in which they were sent.
pub(crate) type Messages<T> = BTreeMap<(Duration, u64), T>;

#[derive(Debug)]
struct Call {
    daemon: usize,
    operation: Operation,
    reply: Reply,
}

/// One daemon's connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    daemon: usize,
    embedded: bool,
    calls: Arc<Mutex<Vec<Call>>>,
    feed: Feed,
}

/// The server.
#[derive(Debug, Default)]
pub(crate) struct Server {
    calls: Arc<Mutex<Vec<Call>>>,
    feed: Feed,
    /// Whether it is part of the only daemon: its calls have no timeout, and its leases end with the
    /// process.
    embedded: bool,
    sabotage: Option<Sabotage>,
    entries: BTreeMap<String, (u64, Bytes)>,
    last_version: u64,
    leases: BTreeMap<String, HeldLease>,
    /// Counts the changes of leases.
    lease_changes: u64,
    last_fencing: u64,
    /// Calls on their way, by the time at which they are carried out.
    requests: Messages<(Call, Option<Duration>)>,
    /// Answers on their way, by the time at which they arrive.
    answers: Messages<(Reply, Result<Answer>)>,
    /// When the last request and the last answer of each daemon arrive.
    order: BTreeMap<(usize, bool), Duration>,
    next: u64,
}

impl Server {
    pub(crate) fn new(sabotage: Option<Sabotage>, embedded: bool) -> Self {
        Self {
            embedded,
            sabotage,
            ..Self::default()
        }
    }

    pub(crate) fn connect(&mut self, daemon: usize) -> Connection {
        if self.embedded {
            self.leases.clear();
            self.lease_changes += 1;
        }
        Connection {
            daemon,
            embedded: self.embedded,
            calls: Arc::clone(&self.calls),
            feed: self.feed.clone(),
        }
    }

    /// The holder of a lease that has not expired.
    pub(crate) fn holder(&self, lease: &str, now: Duration) -> Option<&HeldLease> {
        self.leases.get(lease).filter(|held| held.expires > now)
    }

    pub(crate) fn contains(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// The number of changes of leases until now. They also end by themselves.
    pub(crate) fn lease_changes(&self) -> u64 {
        self.lease_changes
    }

    /// When the next lease ends that has not.
    pub(crate) fn next_expiry(&self, now: Duration) -> Option<Duration> {
        let expiries = self.leases.values().map(|held| held.expires);
        expiries.filter(|expires| *expires > now).min()
    }

    /// The host of the daemon that holds a lease.
    pub(crate) fn lease_holder(&self, lease: &str, now: Duration) -> Option<&str> {
        let held = self.holder(lease, now)?;
        held.holder.split_once(' ')?.1.split(':').next()
    }

    /// The values of all keys with a prefix.
    pub(crate) fn values(&self, prefix: &str) -> impl Iterator<Item = &Bytes> {
        let from = self.entries.range(prefix.to_owned()..);
        let found = from.take_while(move |(key, _)| key.starts_with(prefix));
        found.map(|(_, (_, value))| value)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Bytes> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Takes new calls, carries out those that are due, and delivers answers. Reports each call that
    /// is carried out, with its daemon, and the keys of an accepted write.
    pub(crate) fn step(
        &mut self,
        now: Duration,
        mut fate: impl FnMut(usize) -> Fate,
        mut report: impl FnMut(usize, &str, &[&str]),
    ) {
        let calls = std::mem::take(&mut *lock(&self.calls));
        for call in calls {
            let fate = fate(call.daemon);
            // Without an answer the caller waits until its timeout, as on a lost connection.
            let Some(request) = fate.request else {
                self.keep_silent(now, call.reply);
                continue;
            };
            let key = self.in_order(call.daemon, false, now + request);
            self.requests.insert(key, (call, fate.answer));
        }
        while let Some((call, answer_delay)) = take_due(&mut self.requests, now) {
            let result = self.carry_out(&call.operation, now);
            let outcome = match &result {
                Ok(Answer::Lease(Some(held))) => format!("number {}", held.fencing),
                Ok(_) => "ok".to_owned(),
                Err(Error::Held { .. }) => "held by another".to_owned(),
                Err(Error::Fenced { .. }) => "fenced".to_owned(),
                Err(error) => error.to_string(),
            };
            let written: Vec<&str> = match &call.operation {
                Operation::Commit(batch) if result.is_ok() => {
                    batch.changes().iter().map(|change| change.key.as_str()).collect()
                }
                _ => Vec::new(),
            };
            report(call.daemon, &format!("{}: {outcome}", call.operation), &written);
            match answer_delay {
                Some(delay) => {
                    let key = self.in_order(call.daemon, true, now + delay);
                    self.answers.insert(key, (call.reply, result));
                }
                None => self.keep_silent(now, call.reply),
            }
        }
        while let Some((reply, result)) = take_due(&mut self.answers, now) {
            // The caller may have died or given up.
            let _ = reply.send(result);
        }
    }

    fn in_order(&mut self, daemon: usize, is_answer: bool, at: Duration) -> (Duration, u64) {
        let last = self.order.entry((daemon, is_answer)).or_default();
        *last = at.max(*last);
        self.next += 1;
        (*last, self.next)
    }

    /// Lets a caller wait until its timeout.
    fn keep_silent(&mut self, now: Duration, reply: Reply) {
        self.next += 1;
        let key = (now + 2 * CALL_TIMEOUT, self.next);
        self.answers.insert(key, (reply, Err(lost())));
    }

    fn carry_out(&mut self, operation: &Operation, now: Duration) -> Result<Answer> {
        let keeps_leases = matches!(
            operation,
            Operation::Get(_) | Operation::Scan(_) | Operation::Commit(_) | Operation::Read(_)
        );
        self.lease_changes += u64::from(!keeps_leases);
        Ok(match operation {
            Operation::Get(key) => Answer::Entry(self.entries.get(key).map(|found| entry(key, found))),
            Operation::Scan(prefix) => {
                let from = self.entries.range(prefix.clone()..);
                let found = from.take_while(|(key, _)| key.starts_with(prefix));
                Answer::Entries(found.map(|(key, found)| entry(key, found)).collect())
            }
            Operation::Commit(batch) => Answer::Versions(self.commit(batch, now)?),
            Operation::Acquire { name, holder, ttl } => {
                let held = self.holder(name, now).filter(|held| held.holder != *holder);
                if let Some(held) = held.filter(|_| self.sabotage != Some(Sabotage::GrantsTwice)) {
                    return Err(Error::Held {
                        lease: name.clone(),
                        holder: held.holder.clone(),
                        remaining: held.expires.saturating_sub(now),
                    });
                }
                self.last_fencing += 1;
                let lasts = match self.sabotage {
                    Some(Sabotage::NeverExpires) => Duration::MAX / 2,
                    _ => *ttl,
                };
                let held = HeldLease {
                    holder: holder.clone(),
                    fencing: self.last_fencing,
                    expires: now + lasts,
                    remaining: *ttl,
                };
                self.leases.insert(name.clone(), held.clone());
                Answer::Lease(Some(held))
            }
            Operation::Renew { name, fencing, ttl } => {
                let expires = now + *ttl;
                self.check(name, *fencing, now)?;
                if let Some(held) = self.leases.get_mut(name) {
                    held.expires = held.expires.max(expires);
                }
                Answer::Done
            }
            Operation::Release { name, fencing } => {
                if self.check(name, *fencing, now).is_ok() {
                    self.leases.remove(name);
                }
                Answer::Done
            }
            Operation::Read(name) => Answer::Lease(self.holder(name, now).map(|held| HeldLease {
                remaining: held.expires.saturating_sub(now),
                ..held.clone()
            })),
        })
    }

    fn check(&self, lease: &str, fencing: u64, now: Duration) -> Result<()> {
        let current = self.holder(lease, now).map(|held| held.fencing);
        if current == Some(fencing) {
            return Ok(());
        }
        Err(Error::Fenced {
            lease: lease.to_owned(),
            fencing,
            current,
        })
    }

    fn commit(&mut self, batch: &Batch, now: Duration) -> Result<Vec<u64>> {
        for fence in batch.fences() {
            self.check(&fence.lease, fence.fencing, now)?;
        }
        let (mut entries, mut last_version) = (BTreeMap::new(), self.last_version);
        let (mut versions, mut notices) = (Vec::new(), Vec::new());
        for change in batch.changes() {
            let stored = || self.entries.get(&change.key).map(|(version, _)| *version);
            let changed = entries.get(&change.key);
            let found = changed.map_or_else(stored, |changed: &Option<(u64, Bytes)>| {
                changed.as_ref().map(|(version, _)| *version)
            });
            if !change.expect.accepts(found) {
                let key = change.key.clone();
                return Err(Error::Conflict { key, found });
            }
            last_version += u64::from(change.value.is_some());
            let put = change.value.clone().map(|value| (last_version, value));
            versions.push(put.as_ref().map_or(0, |(version, _)| *version));
            notices.push(Notice::Changed {
                key: change.key.clone(),
                version: put.as_ref().map(|(version, _)| *version),
            });
            entries.insert(change.key.clone(), put);
        }
        self.last_version = last_version;
        if self.sabotage == Some(Sabotage::ForgetsCommits) {
            return Ok(versions);
        }
        for (key, put) in entries {
            match put {
                Some(put) => drop(self.entries.insert(key, put)),
                None => drop(self.entries.remove(&key)),
            }
        }
        self.feed.publish(notices);
        Ok(versions)
    }
}

/// Takes out the first message that has arrived.
pub(crate) fn take_due<T>(messages: &mut Messages<T>, now: Duration) -> Option<T> {
    let first = messages.first_entry().filter(|first| first.key().0 <= now)?;
    Some(first.remove())
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn entry(key: &str, (version, value): &(u64, Bytes)) -> Entry {
    Entry {
        key: key.to_owned(),
        value: value.clone(),
        version: *version,
    }
}

fn lost() -> Error {
    Error::Unavailable {
        what: "answer in time",
        source: "the call or its answer was lost".into(),
    }
}

impl Connection {
    async fn ask(&self, operation: Operation) -> Result<Answer> {
        let (reply, answer) = oneshot::channel();
        lock(&self.calls).push(Call {
            daemon: self.daemon,
            operation,
            reply,
        });
        if self.embedded {
            return answer.await.map_err(|_| Error::Closed)?;
        }
        match timeout(CALL_TIMEOUT, answer).await {
            Ok(Ok(result)) => result,
            _ => Err(lost()),
        }
    }
}

#[async_trait]
impl Store for Connection {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        limits::key(key)?;
        match self.ask(Operation::Get(key.to_owned())).await? {
            Answer::Entry(entry) => Ok(entry),
            _ => Err(Error::Closed),
        }
    }

    async fn scan(&self, prefix: &str) -> Result<Vec<Entry>> {
        limits::prefix(prefix)?;
        match self.ask(Operation::Scan(prefix.to_owned())).await? {
            Answer::Entries(entries) => Ok(entries),
            _ => Err(Error::Closed),
        }
    }

    async fn commit(&self, batch: Batch) -> Result<Vec<u64>> {
        limits::batch(&batch)?;
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        match self.ask(Operation::Commit(batch)).await? {
            Answer::Versions(versions) => Ok(versions),
            _ => Err(Error::Closed),
        }
    }

    async fn acquire(&self, name: &str, holder: &str, ttl: Duration) -> Result<Lease> {
        limits::acquire(name, holder, ttl)?;
        let expires = Instant::now() + ttl;
        let operation = Operation::Acquire {
            name: name.to_owned(),
            holder: holder.to_owned(),
            ttl,
        };
        let Answer::Lease(Some(held)) = self.ask(operation).await? else {
            return Err(Error::Closed);
        };
        Ok(Lease {
            name: name.to_owned(),
            holder: held.holder,
            fencing: held.fencing,
            ttl,
            expires,
        })
    }

    async fn renew(&self, lease: &Lease) -> Result<Lease> {
        limits::acquire(&lease.name, &lease.holder, lease.ttl)?;
        let expires = Instant::now() + lease.ttl;
        let operation = Operation::Renew {
            name: lease.name.clone(),
            fencing: lease.fencing,
            ttl: lease.ttl,
        };
        self.ask(operation).await?;
        Ok(Lease {
            expires,
            ..lease.clone()
        })
    }

    async fn release(&self, lease: &Lease) -> Result<()> {
        limits::lease(&lease.name)?;
        let (name, fencing) = (lease.name.clone(), lease.fencing);
        self.ask(Operation::Release { name, fencing }).await.map(drop)
    }

    async fn lease(&self, name: &str) -> Result<Option<Lease>> {
        limits::lease(name)?;
        match self.ask(Operation::Read(name.to_owned())).await? {
            Answer::Lease(held) => Ok(held.map(|held| Lease {
                name: name.to_owned(),
                holder: held.holder,
                fencing: held.fencing,
                ttl: held.remaining,
                expires: Instant::now() + held.remaining,
            })),
            _ => Err(Error::Closed),
        }
    }

    async fn watch(&self, prefix: &str) -> Result<Watch> {
        limits::prefix(prefix)?;
        Ok(self.feed.watch(prefix))
    }

    fn is_exclusive(&self) -> bool {
        self.embedded
    }
}
