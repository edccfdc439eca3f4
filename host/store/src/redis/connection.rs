//! The connection to the server, and the task that maintains it.
//!
//! The task connects, subscribes to the channel of changes, probes the server every few seconds,
//! and reconnects after a failure. A call depends on the state of the connection. If it is
//! connected, the call uses it. During the first attempt after a loss, the call waits. If it is
//! unavailable, the call fails immediately.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, Client, ErrorKind, PushInfo, PushKind, RedisError, ServerErrorKind, Value,
};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use transom_common::{Backoff, error_chain};

use super::scripts;
use crate::watch::Feed;
use crate::{Cause, Durability, Notice};

/// The interval of probes on an idle connection.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The delay between failed attempts, with jitter, so that daemons that lost the same server do not
/// reconnect at the same time.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
/// A connection that ended sooner counts as a failed attempt.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// Why the server is unavailable.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Outage {
    #[error("cannot connect to the Redis at {address}")]
    Rejected {
        address: Arc<str>,
        #[source]
        source: RedisError,
    },
    #[error("timeout: the Redis at {address} did not answer within {after:?}")]
    Silent { address: Arc<str>, after: Duration },
    #[error("the Redis at {address} {why}")]
    Unfit { address: Arc<str>, why: &'static str },
    #[error("the store is closed")]
    Closed,
}

#[derive(Clone)]
enum State {
    Connecting,
    Up(MultiplexedConnection),
    Down(Outage),
}

/// A report of a call to the task that maintains the connection.
#[derive(Debug)]
enum Report {
    /// A call received no reply: the task probes the server.
    Silent,
    /// The server has become a replica: the task reconnects, to find the server that accepts
    /// writes.
    Demoted,
}

/// The connection. Dropping it ends its task.
#[derive(Debug)]
pub(super) struct Link {
    address: Arc<str>,
    state: watch::Receiver<State>,
    reports: mpsc::Sender<Report>,
    durability: watch::Receiver<Durability>,
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
    pub(super) fn start(
        client: Client,
        address: Arc<str>,
        channel: Arc<str>,
        feed: Feed,
        connect_timeout: Duration,
    ) -> Self {
        let (state, state_receiver) = watch::channel(State::Connecting);
        // One pending report is enough.
        let (reports, reported) = mpsc::channel(1);
        let (durability_sender, durability) = watch::channel(Durability::Unknown);
        let reconnector = Reconnector {
            client,
            address: Arc::clone(&address),
            channel,
            feed,
            connect_timeout,
            state,
            reported,
            durability: durability_sender,
            warned: false,
        };
        Self {
            address,
            state: state_receiver,
            reports,
            durability,
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
    pub(super) async fn connection(&self) -> Result<MultiplexedConnection, Outage> {
        let mut state = self.state.clone();
        let settled = state
            .wait_for(|state| !matches!(state, State::Connecting))
            .await
            .map_err(|_| Outage::Closed)?;
        match &*settled {
            State::Up(connection) => Ok(connection.clone()),
            State::Down(outage) => Err(outage.clone()),
            State::Connecting => Err(Outage::Closed),
        }
    }

    /// Reports that a call received no reply.
    pub(super) fn report_silence(&self) {
        // A full channel means that a probe is already pending.
        let _ = self.reports.try_send(Report::Silent);
    }

    /// Reports an error reply. The task notices a broken connection without a report.
    pub(super) fn report_error(&self, error: &RedisError) {
        if error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly) {
            let _ = self.reports.try_send(Report::Demoted);
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
    client: Client,
    address: Arc<str>,
    channel: Arc<str>,
    feed: Feed,
    connect_timeout: Duration,
    state: watch::Sender<State>,
    reported: mpsc::Receiver<Report>,
    durability: watch::Sender<Durability>,
    /// Whether warnings about the server's configuration have been logged.
    warned: bool,
}

impl Reconnector {
    async fn run(mut self) {
        let mut failures = 0_u32;
        loop {
            let push_receiver = Arc::new(PushReceiver::new(self.feed.clone()));
            match self.connect(Arc::clone(&push_receiver)).await {
                Ok(connection) => {
                    tracing::info!(address = %self.address, "connected to the store");
                    let since = Instant::now();
                    // Changes published before the subscription were missed; later ones are
                    // received. The notice is sent before calls succeed, so that a watch that
                    // begins afterwards receives no notice of earlier changes.
                    self.feed.publish([Notice::Lagged]);
                    self.state.send_replace(State::Up(connection.clone()));
                    let why = self.monitor(connection, &push_receiver.lost).await;
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

    /// One attempt: connect, authenticate, subscribe, check the server.
    async fn connect(&mut self, push_receiver: Arc<PushReceiver>) -> Result<MultiplexedConnection, Outage> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(None)
            .set_push_sender(move |push: PushInfo| {
                push_receiver.receive(&push);
                Ok::<(), std::convert::Infallible>(())
            });
        let attempt = async {
            let mut connection = self
                .client
                .get_multiplexed_async_connection_with_config(&config)
                .await?;
            connection.subscribe(&*self.channel).await?;
            let info = ::redis::cmd("INFO").query_async::<String>(&mut connection).await;
            Ok((connection, info))
        };
        let (connection, info) = timeout(self.connect_timeout, attempt)
            .await
            .map_err(|_| Outage::Silent {
                address: Arc::clone(&self.address),
                after: self.connect_timeout,
            })?
            .map_err(|source| Outage::Rejected {
                address: Arc::clone(&self.address),
                source,
            })?;
        match info {
            Ok(info) => self.check_server(&info)?,
            // The user may lack the permission. The settings are then unknown, which is not an
            // error.
            Err(error) => tracing::debug!(
                error = error_chain(&error),
                "cannot read the configuration of the Redis"
            ),
        }
        Ok(connection)
    }

    /// Reads the server's settings: rejects an unsuitable server, and logs risky settings once.
    fn check_server(&mut self, info: &str) -> Result<(), Outage> {
        let has = |line: &str| info.lines().any(|info_line| info_line == line);
        let unfit = |why| Outage::Unfit {
            address: Arc::clone(&self.address),
            why,
        };
        if has("loading:1") {
            return Err(unfit("is still loading its dataset"));
        }
        if has("role:slave") {
            return Err(unfit("is a replica, which cannot be written to"));
        }
        let durability = match (has("aof_enabled:1"), has("aof_enabled:0")) {
            (true, _) => Durability::Appended,
            (false, true) => Durability::Volatile,
            (false, false) => Durability::Unknown,
        };
        self.durability.send_replace(durability);
        if !std::mem::replace(&mut self.warned, true) {
            if has("aof_enabled:0") {
                tracing::warn!(address = %self.address, "the Redis has no append-only file: the last writes \
                    are lost when it crashes (set `appendonly yes` and `appendfsync always`)");
            }
            if !has("maxmemory:0") && !has("maxmemory_policy:noeviction") {
                tracing::warn!(address = %self.address, "the Redis may evict keys when its memory is full (set \
                    `maxmemory-policy noeviction`)");
            }
        }
        Ok(())
    }

    /// Monitors a connection until it is unusable; returns why.
    async fn monitor(&mut self, mut connection: MultiplexedConnection, lost: &Notify) -> &'static str {
        loop {
            tokio::select! {
                () = lost.notified() => return "the connection was closed",
                report = self.reported.recv() => if let Some(Report::Demoted) = report {
                    return "the server is a replica now";
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
