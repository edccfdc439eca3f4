//! The open connections of a port, of HTTP or DNS.
//!
//! A port never stops accepting: once it has its maximum, a new connection replaces an idle one.
//! [`table`] has the rules. If none has to make room, because all are busy, some new connections wait
//! for a place, and further ones are closed. Replaced and rejected connections are counted in the metrics and logged at
//! most once a minute.

mod table;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use self::table::{ConnectionTable, Id};
use crate::port_metrics::{ConnectionAction, PORT_METRICS};
use crate::throttle::Throttle;

/// How long a new connection waits while all others are busy.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The address of this machine that a client connected to; an extension of each request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalAddr(pub(crate) SocketAddr);

/// The connections of a port. Clones are the same.
#[derive(Clone, Debug)]
pub struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    port: &'static str,
    max: usize,
    table: Mutex<ConnectionTable<CancellationToken>>,
    /// Notified when a connection is idle or has ended.
    room: Notify,
    /// The places of connections that wait.
    waiting: Semaphore,
    log: Throttle,
}

impl Connections {
    /// A port with this name for logs and metrics, and at most `max` connections.
    pub fn new(port: &'static str, max: usize) -> Self {
        PORT_METRICS.describe_connections(port);
        Self(Arc::new(Shared {
            port,
            max,
            table: Mutex::new(ConnectionTable::new(max)),
            room: Notify::new(),
            waiting: Semaphore::new(max.div_ceil(4).min(Semaphore::MAX_PERMITS)),
            log: Throttle::once(),
        }))
    }

    /// The place of a new connection; `None` if the port has its maximum and no other connection has to
    /// make room. Then it may [wait](Self::wait).
    pub async fn admit(&self, client: SocketAddr) -> Option<ConnectionSlot> {
        if self.table().is_full() {
            // Connections that were accepted before get the chance to read a request that has arrived.
            tokio::task::yield_now().await;
        }
        self.insert(client)
    }

    /// Waits for a place, after [`admit`](Self::admit) gave none; `None` if the connection has to be
    /// closed.
    pub async fn wait(&self, client: SocketAddr) -> Option<ConnectionSlot> {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        if let Ok(_waiting) = self.0.waiting.try_acquire() {
            while timeout_at(deadline, self.0.room.notified()).await.is_ok() {
                if let Some(slot) = self.insert(client) {
                    return Some(slot);
                }
            }
        }
        self.record(ConnectionAction::Rejected, client.ip());
        None
    }

    fn insert(&self, client: SocketAddr) -> Option<ConnectionSlot> {
        let evicted = CancellationToken::new();
        let inserted = {
            let mut table = self.table();
            let inserted = table.insert(client.ip(), evicted.clone());
            if let Some((_, Some(evicted))) = &inserted {
                // Cancelled under the lock, so that `begin` never admits a request of it.
                evicted.payload.cancel();
            }
            inserted
        };
        let (id, replaced) = inserted?;
        if let Some(replaced) = replaced {
            self.record(ConnectionAction::Evicted, replaced.client);
        }
        Some(ConnectionSlot(Arc::new(Slot {
            id,
            evicted,
            connections: self.clone(),
        })))
    }

    /// Closes an idle connection, so that the process gets a file descriptor back. Returns whether
    /// there was one.
    pub fn relieve(&self) -> bool {
        let evicted = self.table().evict();
        let Some(evicted) = evicted else { return false };
        evicted.payload.cancel();
        self.record(ConnectionAction::Evicted, evicted.client);
        true
    }

    /// The number of open connections.
    pub fn count(&self) -> usize {
        self.table().len()
    }

    fn record(&self, action: ConnectionAction, client: IpAddr) {
        PORT_METRICS.connection(self.0.port, action);
        let Some(unlogged) = self.0.log.pass() else { return };
        let (network, count) = self
            .table()
            .largest()
            .map_or_else(Default::default, |(network, count)| (network.to_string(), count));
        tracing::warn!(
            listener = self.0.port,
            max = self.0.max,
            last = %client.to_canonical(),
            largest_network = network,
            its_connections = count,
            earlier = unlogged,
            "the port has its maximum number of connections; idle connections are closed for new ones"
        );
    }

    fn table(&self) -> MutexGuard<'_, ConnectionTable<CancellationToken>> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a connection in its port, until the last clone is dropped.
#[derive(Clone, Debug)]
pub struct ConnectionSlot(Arc<Slot>);

#[derive(Debug)]
struct Slot {
    id: Id,
    evicted: CancellationToken,
    connections: Connections,
}

impl ConnectionSlot {
    /// Marks that a request has arrived. Returns false if the connection is being closed: the request
    /// must not be handled.
    pub fn begin(&self) -> bool {
        let mut table = self.0.connections.table();
        table.begin(self.0.id);
        !self.0.evicted.is_cancelled()
    }

    /// Marks that all responses have been written.
    pub fn end(&self) {
        self.0.connections.table().end(self.0.id);
        self.0.connections.0.room.notify_one();
    }

    /// Marks that a request had valid credentials, so that the connection is kept longer than others.
    pub fn authenticated(&self) {
        self.0.connections.table().authenticated(self.0.id);
    }

    /// Gives the place back while the connection stays open, because another budget counts it now.
    pub fn release(&self) {
        self.0.connections.table().remove(self.0.id);
        self.0.connections.0.room.notify_one();
    }

    /// Returns when the connection has to be closed for another one.
    pub async fn evicted(&self) {
        self.0.evicted.cancelled().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.table().remove(self.id);
        self.connections.0.room.notify_one();
    }
}
