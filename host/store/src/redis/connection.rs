//! The connection to the server, and the task that keeps it.
//!
//! The task connects, subscribes to the channel of changes, looks every few seconds whether the server still answers, and
//! connects anew when it does not. A call takes the connection as it is: there, being made for the first time since it
//! was lost (worth waiting for), or known to be out of reach (worth saying at once).

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

use super::scripts;
use crate::watch::Feed;
use crate::{Cause, Notice};

/// How often a quiet connection is tried.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The pause after the first failed attempt; it doubles with each.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// A connection that lasted for less counts as a failed attempt.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// Why the server is out of reach.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Outage {
    #[error("cannot connect to the Redis at {address}")]
    Refused {
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

/// What a call tells the reconnector.
#[derive(Debug)]
enum Doubt {
    /// It got no answer: try whether anybody gets one.
    Silent,
    /// The server has become a replica: find the one that may write.
    Demoted,
}

/// The connection. Dropping it ends the task that keeps it.
#[derive(Debug)]
pub(super) struct Link {
    address: Arc<str>,
    state: watch::Receiver<State>,
    doubts: mpsc::Sender<Doubt>,
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
        let (state, told) = watch::channel(State::Connecting);
        // One doubt is as good as many.
        let (doubts, doubted) = mpsc::channel(1);
        let reconnector = Keeper {
            client,
            address: Arc::clone(&address),
            channel,
            feed,
            connect_timeout,
            state,
            doubted,
            warned: false,
        };
        Self {
            address,
            state: told,
            doubts,
            reconnector: tokio::spawn(reconnector.keep()),
        }
    }

    pub(super) fn address(&self) -> Arc<str> {
        Arc::clone(&self.address)
    }

    /// The connection, once an attempt under way has ended; the caller sets the deadline.
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

    /// A call got no answer.
    pub(super) fn silent(&self) {
        // A full channel means that a doubt is being looked into.
        let _ = self.doubts.try_send(Doubt::Silent);
    }

    /// A call was answered with an error. A broken connection is noticed without being told.
    pub(super) fn failed(&self, error: &RedisError) {
        if error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly) {
            let _ = self.doubts.try_send(Doubt::Demoted);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.reconnector.abort();
    }
}

/// The task's own state.
struct Keeper {
    client: Client,
    address: Arc<str>,
    channel: Arc<str>,
    feed: Feed,
    connect_timeout: Duration,
    state: watch::Sender<State>,
    doubted: mpsc::Receiver<Doubt>,
    /// Whether the log has what is to be said of the server's configuration.
    warned: bool,
}

impl Keeper {
    async fn keep(mut self) {
        let mut failures = 0_u32;
        loop {
            let ear = Arc::new(Ear::new(self.feed.clone()));
            match self.connect(Arc::clone(&ear)).await {
                Ok(connection) => {
                    tracing::info!(address = %self.address, "connected to the store");
                    let since = Instant::now();
                    // What was published until now was not heard; from here on everything is. Told first, so that who
                    // begins to watch once calls are answered is not told of what was before.
                    self.feed.publish([Notice::Lagged]);
                    self.state.send_replace(State::Up(connection.clone()));
                    let why = self.tend(connection, &ear.lost).await;
                    tracing::warn!(address = %self.address, why, "lost the connection to the store");
                    ear.deaf.store(true, Ordering::Release);
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
            sleep(pause(failures)).await;
        }
    }

    /// One attempt: connected, authenticated, subscribed, and found fit.
    async fn connect(&mut self, ear: Arc<Ear>) -> Result<MultiplexedConnection, Outage> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(None)
            .set_push_sender(move |push: PushInfo| {
                ear.hear(&push);
                Ok::<(), std::convert::Infallible>(())
            });
        let attempt = async {
            let mut connection = self
                .client
                .get_multiplexed_async_connection_with_config(&config)
                .await?;
            connection.subscribe(&*self.channel).await?;
            let about = ::redis::cmd("INFO").query_async::<String>(&mut connection).await;
            Ok((connection, about))
        };
        let (connection, about) = timeout(self.connect_timeout, attempt)
            .await
            .map_err(|_| Outage::Silent {
                address: Arc::clone(&self.address),
                after: self.connect_timeout,
            })?
            .map_err(|source| Outage::Refused {
                address: Arc::clone(&self.address),
                source,
            })?;
        match about {
            Ok(about) => self.look_over(&about)?,
            // A user may lack the right to ask; then nothing is known, and nothing is wrong.
            Err(error) => tracing::debug!(%error, "cannot read the configuration of the Redis"),
        }
        Ok(connection)
    }

    /// What the server tells about itself: refuses what cannot serve, and says once what is dangerous.
    fn look_over(&mut self, about: &str) -> Result<(), Outage> {
        let has = |line: &str| about.lines().any(|told| told == line);
        let unfit = |why| Outage::Unfit {
            address: Arc::clone(&self.address),
            why,
        };
        if has("loading:1") {
            return Err(unfit("is still reading its data"));
        }
        if has("role:slave") {
            return Err(unfit("is a replica, which cannot be written to"));
        }
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

    /// Watches over a connection until it is of no use any more; returns why.
    async fn tend(&mut self, mut connection: MultiplexedConnection, lost: &Notify) -> &'static str {
        loop {
            tokio::select! {
                () = lost.notified() => return "it was closed",
                doubt = self.doubted.recv() => if let Some(Doubt::Demoted) = doubt {
                    return "the server is a replica now";
                },
                () = sleep(HEALTH_CHECK_INTERVAL) => {}
            }
            let ping = ::redis::cmd("PING");
            match timeout(self.connect_timeout, ping.query_async::<Value>(&mut connection)).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return "the server refuses to talk",
                Err(_) => return "the server does not answer",
            }
        }
    }
}

/// Takes what a connection is sent without having asked.
struct Ear {
    feed: Feed,
    lost: Notify,
    /// Set once the connection is given up: what it still hears would come after changes that are newer.
    deaf: AtomicBool,
}

impl Ear {
    fn new(feed: Feed) -> Self {
        Self {
            feed,
            lost: Notify::new(),
            deaf: AtomicBool::new(false),
        }
    }

    fn hear(&self, push: &PushInfo) {
        if self.deaf.load(Ordering::Acquire) {
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

/// How long to wait after so many failed attempts in a row.
fn pause(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    match failures {
        0 => Duration::ZERO,
        _ => (FIRST_RETRY_DELAY * 2_u32.pow(doublings)).min(MAX_RETRY_DELAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_bounded() {
        for (failures, milliseconds) in [(0, 0), (1, 100), (2, 200), (6, 3200), (7, 5000), (u32::MAX, 5000)] {
            assert_eq!(pause(failures), Duration::from_millis(milliseconds), "{failures}");
        }
    }
}
