//! The connection to the server, and the task that maintains it.
//!
//! The task finds the primary, connects, subscribes to the channel of changes, probes the server every few seconds,
//! and reconnects after a failure. A call depends on the state of the connection. If it is
//! connected, the call uses it. During the first attempt after a loss, the call waits. If it is
//! unavailable, the call fails immediately.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Client, ErrorKind, PushInfo, PushKind, RedisError, ServerErrorKind, Value,
};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use transom_common::{Backoff, error_chain};

use super::outage::Outage;
use super::replication::{Live, Quorum};
use super::scripts;
use super::servers::Servers;
use crate::watch::Feed;
use crate::{Cause, Durability, Notice};

/// The interval of probes on an idle connection.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The delay between failed attempts, with jitter, so that daemons that lost the same server do not
/// reconnect at the same time.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
/// A connection that ended sooner counts as a failed attempt.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// How long a primary that was started waits for all replicas.
const SETTLING: Duration = Duration::from_secs(10);

#[derive(Clone)]
enum State {
    Connecting,
    Up(Live),
    Down(Outage),
}

/// A report of a call to the task that maintains the connection.
#[derive(Debug)]
enum Report {
    /// A call received no reply: the task probes the server.
    Silent,
    /// The server has become a replica, or its replicas confirm nothing: the task reconnects, to find
    /// the server that accepts writes.
    Replaced,
}

/// The connection. Dropping it ends its task.
#[derive(Debug)]
pub(super) struct Link {
    address: Arc<str>,
    state: watch::Receiver<State>,
    reports: mpsc::Sender<Report>,
    durability: watch::Receiver<Durability>,
    /// The latest version of an acknowledged commit.
    acknowledged: Arc<AtomicU64>,
    reconnector: JoinHandle<()>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connecting => f.write_str("Connecting"),
            Self::Up(_) => f.write_str("Up"),
            Self::Down(outage) => f.debug_tuple("Down").field(outage).finish(),
        }
    }
}

impl Link {
    pub(super) fn start(servers: Servers, channel: Arc<str>, feed: Feed, connect_timeout: Duration) -> Self {
        let address: Arc<str> = servers.to_string().into();
        let acknowledged = Arc::new(AtomicU64::new(0));
        let (state, state_receiver) = watch::channel(State::Connecting);
        // One pending report is enough.
        let (reports, reported) = mpsc::channel(1);
        let (durability_sender, durability) = watch::channel(Durability::Unknown);
        let reconnector = Reconnector {
            servers,
            address: Arc::clone(&address),
            channel,
            feed,
            connect_timeout,
            state,
            reported,
            durability: durability_sender,
            acknowledged: Arc::clone(&acknowledged),
            epoch: None,
            warned: false,
        };
        Self {
            address,
            state: state_receiver,
            reports,
            durability,
            acknowledged,
            reconnector: tokio::spawn(reconnector.run()),
        }
    }

    pub(super) fn address(&self) -> Arc<str> {
        Arc::clone(&self.address)
    }

    /// The data that a crash of the server loses, by its settings at the last connection.
    pub(super) fn durability(&self) -> Durability {
        *self.durability.borrow()
    }

    /// The connection, after a pending attempt has ended; the caller sets the timeout.
    pub(super) async fn connection(&self) -> Result<Live, Outage> {
        let mut state = self.state.clone();
        let settled = state
            .wait_for(|state| !matches!(state, State::Connecting))
            .await
            .map_err(|_| Outage::Closed)?;
        match &*settled {
            State::Up(live) => Ok(live.clone()),
            State::Down(outage) => Err(outage.clone()),
            State::Connecting => Err(Outage::Closed),
        }
    }

    /// Reports that a call received no reply.
    pub(super) fn report_silence(&self) {
        // A full channel means that a probe is already pending.
        let _ = self.reports.try_send(Report::Silent);
    }

    /// Reports that the server may not be the primary any more.
    pub(super) fn report_replaced(&self) {
        let _ = self.reports.try_send(Report::Replaced);
    }

    /// Notes the version of an acknowledged commit, which a new primary has to know.
    pub(super) fn acknowledged(&self, version: Option<u64>) {
        if let Some(version) = version {
            self.acknowledged.fetch_max(version, Ordering::Relaxed);
        }
    }

    /// Reports an error reply. The task notices a broken connection without a report.
    pub(super) fn report_error(&self, error: &RedisError) {
        if error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly) {
            self.report_replaced();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.reconnector.abort();
    }
}

/// The state of the task.
struct Reconnector {
    servers: Servers,
    address: Arc<str>,
    channel: Arc<str>,
    feed: Feed,
    connect_timeout: Duration,
    state: watch::Sender<State>,
    reported: mpsc::Receiver<Report>,
    durability: watch::Sender<Durability>,
    acknowledged: Arc<AtomicU64>,
    /// The epoch of the last connection.
    epoch: Option<String>,
    /// Whether warnings about the server's configuration have been logged.
    warned: bool,
}

impl Reconnector {
    async fn run(mut self) {
        let mut failures = 0_u32;
        loop {
            let push_receiver = Arc::new(PushReceiver::new(self.feed.clone()));
            match self.connect(Arc::clone(&push_receiver)).await {
                Ok(live) => {
                    tracing::info!(address = %self.address, "connected to the store");
                    let since = Instant::now();
                    // Changes published before the subscription were missed; later ones are
                    // received. The notice is sent before calls succeed, so that a watch that
                    // begins afterwards receives no notice of earlier changes.
                    self.feed.publish([Notice::Lagged]);
                    self.state.send_replace(State::Up(live.clone()));
                    let why = self.monitor(live, &push_receiver.lost).await;
                    tracing::warn!(address = %self.address, why, "lost the connection to the store");
                    push_receiver.is_closed.store(true, Ordering::Release);
                    self.state.send_replace(State::Connecting);
                    failures = if since.elapsed() < STABLE_AFTER {
                        failures + 1
                    } else {
                        0
                    };
                }
                Err(outage) => {
                    failures = failures.saturating_add(1);
                    if failures.is_power_of_two() {
                        let error = Cause::from(outage.clone());
                        tracing::warn!(error = &*error, failures, "the store is unavailable; retrying");
                    }
                    self.state.send_replace(State::Down(outage));
                }
            }
            if let Some(earlier) = failures.checked_sub(1) {
                sleep(BACKOFF.jittered(earlier)).await;
            }
        }
    }

    /// One attempt: find the primary, connect, authenticate, subscribe, check the server.
    async fn connect(&mut self, push_receiver: Arc<PushReceiver>) -> Result<Live, Outage> {
        let located = self.servers.primary(self.connect_timeout).await;
        let primary = located.map_err(|error| Outage::Unlocated {
            why: error_chain(&*error).into(),
        })?;
        let address: Arc<str> = primary.address.into();
        let limit = self.connect_timeout;
        let silent = || Outage::Silent {
            address: Arc::clone(&address),
            after: limit,
        };
        let opened = timeout(limit, opened(primary.client, &self.channel, limit, push_receiver));
        let (connection, info) = opened
            .await
            .map_err(|_| silent())?
            .map_err(|source| Outage::Rejected {
                address: Arc::clone(&address),
                source,
            })?;
        let replicas = self.servers.replicas;
        let info = match info {
            Ok(info) => info,
            Err(source) if replicas > 0 => return Err(Outage::Rejected { address, source }),
            // The user may lack the permission. The settings are then unknown, which is not an
            // error.
            Err(error) => {
                tracing::debug!(
                    error = error_chain(&error),
                    "cannot read the configuration of the Redis"
                );
                return Ok(Live::alone(connection));
            }
        };
        self.check_server(&info, &address)?;
        if replicas == 0 {
            return Ok(Live::alone(connection));
        }
        let run = field(&info, "run_id").zip(field(&info, "master_replid"));
        let (run, replication) = run.ok_or_else(|| Outage::Unfit {
            address: Arc::clone(&address),
            why: "does not say which run it is (`run_id`, `master_replid`)",
        })?;
        let epoch = format!("{run}/{replication}");
        let to_begin = match (is_settling(&info), primary.replicas) {
            (false, _) => replicas,
            (true, Some(known)) => known.max(replicas),
            (true, None) => {
                return Err(Outage::Unfit {
                    address,
                    why: "was started a few seconds ago: its replicas have to follow it first",
                });
            }
        };
        let quorum = Quorum {
            address: Arc::clone(&address),
            replicas,
            to_begin,
            limit,
            epoch: epoch.clone(),
        };
        let joined = timeout(3 * limit, quorum.join(connection));
        let (live, from) = joined.await.map_err(|_| silent())??;
        let acknowledged = self.acknowledged.load(Ordering::Relaxed);
        let earlier = self.epoch.replace(epoch.clone());
        if acknowledged > from && earlier.is_some_and(|earlier| earlier != epoch) {
            tracing::error!(%address, acknowledged, from, "acknowledged writes are lost: the new primary of the Redis \
                had not received them");
        }
        Ok(live)
    }

    /// Reads the server's settings: rejects an unsuitable server, and logs risky settings once.
    fn check_server(&mut self, info: &str, address: &Arc<str>) -> Result<(), Outage> {
        let has = |line: &str| info.lines().any(|info_line| info_line == line);
        let address = Arc::clone(address);
        let unfit = |why| {
            let address = Arc::clone(&address);
            Outage::Unfit { address, why }
        };
        if has("loading:1") {
            return Err(unfit("is still loading its dataset"));
        }
        if has("role:slave") {
            return Err(unfit("is a replica, which cannot be written to"));
        }
        if has("cluster_enabled:1") {
            return Err(unfit(
                "belongs to a Redis Cluster, whose scripts see a part of the keys; use one Redis, or Sentinels",
            ));
        }
        let replicas = self.servers.replicas;
        let connected = field(info, "connected_slaves")
            .and_then(|count| count.parse().ok())
            .unwrap_or(0);
        // Two groups that can confirm, each with its primary, have a server in common.
        if replicas > 0 && 2 * (replicas + 1) <= connected + 1 {
            return Err(Outage::Minority {
                address,
                replicas,
                connected,
            });
        }
        let durability = match (has("aof_enabled:1"), has("aof_enabled:0")) {
            (false, true) => Durability::Volatile,
            _ if replicas == 0 && connected > 0 => Durability::Unconfirmed,
            (false, false) => Durability::Unknown,
            (true, _) if replicas == 0 => Durability::Appended,
            (true, _) if connected > replicas => Durability::PartlyReplicated,
            (true, _) => Durability::Replicated,
        };
        self.durability.send_replace(durability);
        if !std::mem::replace(&mut self.warned, true) {
            warn_of_risks(&has, &address, durability);
        }
        Ok(())
    }

    /// Monitors a connection until it is unusable; returns why.
    async fn monitor(&mut self, live: Live, lost: &Notify) -> &'static str {
        let mut connection = live.connection;
        loop {
            tokio::select! {
                () = lost.notified() => return "the connection was closed",
                report = self.reported.recv() => if let Some(Report::Replaced) = report {
                    return "the server is not the primary now";
                },
                () = sleep(HEALTH_CHECK_INTERVAL) => {}
            }
            let ping = ::redis::cmd("PING");
            match timeout(self.connect_timeout, ping.query_async::<Value>(&mut connection)).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return "PING failed",
                Err(_) => return "PING timed out",
            }
        }
    }
}

fn warn_of_risks(has: &dyn Fn(&str) -> bool, address: &str, durability: Durability) {
    let advice = match durability {
        Durability::Volatile => "set `appendonly yes` and `appendfsync always`",
        Durability::Unconfirmed => "set `store.replicas`",
        Durability::PartlyReplicated => {
            "with `store.replicas` = the number of replicas that cannot happen, but then writes need all of them"
        }
        _ => "",
    };
    if let (Some(risk), false) = (durability.may_lose(), advice.is_empty()) {
        tracing::warn!(%address, "the store can lose data: {risk} ({advice})");
    }
    if !has("maxmemory:0") && !has("maxmemory_policy:noeviction") {
        tracing::warn!(%address, "the Redis may evict keys when its memory is full (set `maxmemory-policy noeviction`)");
    }
}

/// A connection that is subscribed to the channel, and what the server says of itself.
async fn opened(
    client: Client,
    channel: &str,
    limit: Duration,
    push_receiver: Arc<PushReceiver>,
) -> Result<(MultiplexedConnection, Result<String, RedisError>), RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(limit))
        .set_response_timeout(None)
        .set_push_sender(move |push: PushInfo| {
            push_receiver.receive(&push);
            Ok::<(), std::convert::Infallible>(())
        });
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await?;
    connection.subscribe(channel).await?;
    let info = ::redis::cmd("INFO").query_async::<String>(&mut connection).await;
    Ok((connection, info))
}

/// Whether the server has just been started as the primary. It counts its replication from zero, so
/// that a replica that has not yet followed it would look further ahead to Sentinels.
fn is_settling(info: &str) -> bool {
    let uptime = field(info, "uptime_in_seconds").and_then(|seconds| seconds.parse::<u64>().ok());
    let was_replica = field(info, "master_replid2").is_some_and(|id| id.contains(|digit| digit != '0'));
    !was_replica && uptime.is_some_and(|seconds| seconds < SETTLING.as_secs())
}

/// A field of the answer to `INFO`.
pub(crate) fn field<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// Receives the messages that the server pushes.
struct PushReceiver {
    feed: Feed,
    lost: Notify,
    /// Set when the connection is closed: its remaining messages must not follow changes from a
    /// later connection.
    is_closed: AtomicBool,
}

impl PushReceiver {
    fn new(feed: Feed) -> Self {
        Self {
            feed,
            lost: Notify::new(),
            is_closed: AtomicBool::new(false),
        }
    }

    fn receive(&self, push: &PushInfo) {
        if self.is_closed.load(Ordering::Acquire) {
            return;
        }
        match (&push.kind, push.data.as_slice()) {
            (PushKind::Disconnection, _) => self.lost.notify_one(),
            (PushKind::Message, [_, Value::BulkString(message)]) => {
                self.feed.publish(scripts::notices(message));
            }
            (PushKind::Message, _) => self.feed.publish([Notice::Lagged]),
            _ => {}
        }
    }
}
