//! Consecutive sessions with ZooKeeper: registrations are read, and read again after every change.

use super::View;
use super::registration::{self, Format, Master};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use transom_common::{Backoff, ZooKeeperPath};
use zookeeper_client::{Client, Error, OneshotWatcher, SessionState, StateWatcher};

/// The delay between sessions. Its maximum bounds the time to find a leader after an outage of
/// ZooKeeper.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
/// The maximum number of masters to read; real clusters have a handful.
const MAX_MASTERS: usize = 64;
/// The timeout of closing a session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a session ended, for the log and for callers that wait for a leader.
type Lost = String;

/// Keeps a session open until cancelled.
pub(super) async fn maintain(
    zookeeper: Arc<ZooKeeperPath>,
    session_timeout: Duration,
    views: watch::Sender<Arc<View>>,
    token: CancellationToken,
) {
    let mut failures = 0_u32;
    loop {
        let session = Session {
            zookeeper: Arc::clone(&zookeeper),
            timeout: session_timeout,
            views: views.clone(),
            registrations: HashMap::new(),
        };
        let began = Instant::now();
        // In its own task, so that a panic within the client library counts as a lost session.
        let mut running = JoinSet::new();
        running.spawn(session.run(token.clone()));
        let lost = match running.join_next().await {
            Some(Ok(Some(lost))) => lost,
            Some(Ok(None)) | None => return,
            Some(Err(error)) => format!("the ZooKeeper client panicked: {error}"),
        };
        if began.elapsed() > session_timeout {
            failures = 0;
        }
        report_lost(&zookeeper, &lost, &views);
        let wait = BACKOFF.jittered(failures);
        failures = failures.saturating_add(1);
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            () = sleep(wait) => {}
        }
    }
}

/// Logs the end of a session and its consequences: repetitions of a reason only at debug level.
fn report_lost(zookeeper: &ZooKeeperPath, lost: &str, views: &watch::Sender<Arc<View>>) {
    let is_new = mark_outdated(views, lost);
    match (is_new, views.borrow().leader()) {
        (true, Some(leader)) => {
            tracing::warn!(%zookeeper, %leader, "{lost}; keeping the last known leader");
        }
        (true, None) => tracing::warn!(%zookeeper, "{lost}; no leading master is known"),
        (false, _) => tracing::debug!(%zookeeper, "{lost}"),
    }
}

/// Marks the view as possibly outdated; returns whether it was not marked before.
fn mark_outdated(views: &watch::Sender<Arc<View>>, why: &str) -> bool {
    views.send_if_modified(|view| {
        let is_new = view.problem.as_deref() != Some(why);
        if is_new {
            Arc::make_mut(view).problem = Some(why.to_owned());
        }
        is_new
    })
}

struct Session {
    zookeeper: Arc<ZooKeeperPath>,
    timeout: Duration,
    views: watch::Sender<Arc<View>>,
    /// Registrations read before, which never change, with the error of the invalid ones.
    registrations: HashMap<String, Result<Arc<Master>, String>>,
}

impl Session {
    /// Runs until the session is lost (returns why) or cancelled (none).
    async fn run(mut self, token: CancellationToken) -> Option<Lost> {
        let client = tokio::select! {
            biased;
            () = token.cancelled() => return None,
            connected = self.connect() => match connected {
                Ok(client) => client,
                Err(lost) => return Some(lost),
            },
        };
        let mut states = client.state_watcher();
        let outcome = tokio::select! {
            biased;
            () = token.cancelled() => None,
            lost = self.follow(&client, &mut states) => Some(lost),
        };
        // The client's own task ends after it has closed the session.
        drop(client);
        let closed = async {
            while !states.peek_state().is_terminated() {
                states.changed().await;
            }
        };
        if timeout(CLOSE_TIMEOUT, closed).await.is_err() {
            tracing::debug!("closing the ZooKeeper session timed out");
        }
        outcome
    }

    async fn connect(&self) -> Result<Client, Lost> {
        let mut connector = Client::connector()
            .with_session_timeout(self.timeout)
            .with_fail_eagerly();
        if let Some(digest) = &self.zookeeper.digest {
            connector = connector.with_auth("digest", digest.as_bytes());
        }
        match timeout(self.timeout, connector.connect(&self.zookeeper.servers)).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(self.lost(&error)),
            Err(_) => Err(self.lost(&Error::Timeout)),
        }
    }

    /// An error as text for operators.
    fn lost(&self, error: &Error) -> Lost {
        match error {
            Error::NoAuth | Error::AuthFailed => format!(
                "ZooKeeper denies reading {}; check user and password in [cluster] master",
                self.zookeeper.path
            ),
            Error::SessionExpired => "the session with ZooKeeper has expired".to_owned(),
            Error::NoHosts | Error::Timeout | Error::ConnectionLoss => {
                "ZooKeeper cannot be reached".to_owned()
            }
            other => format!("ZooKeeper cannot be used: {other}"),
        }
    }

    /// Reads, publishes and waits for a change, in a loop.
    async fn follow(&mut self, client: &Client, states: &mut StateWatcher) -> Lost {
        loop {
            // Requests end within the session's timeout; this timeout covers unforeseen cases.
            let read = match timeout(self.timeout.saturating_mul(3), self.read(client)).await {
                Ok(read) => read,
                Err(_) => Err(Error::Timeout),
            };
            let change = match read {
                Ok(change) => change,
                // A node or the connection changed between two requests: the session may still be
                // usable.
                Err(Error::NoNode) => continue,
                Err(error) => return self.lost(&error),
            };
            if let Err(error) = self.wait(change, states).await {
                return self.lost(&error);
            }
        }
    }

    /// Waits for a change.
    async fn wait(&self, change: OneshotWatcher, states: &mut StateWatcher) -> Result<(), Error> {
        let mut change = std::pin::pin!(change.changed());
        loop {
            let state = tokio::select! {
                biased;
                event = &mut change => event.session_state,
                state = states.changed() => match state {
                    SessionState::Disconnected => {
                        report_lost(&self.zookeeper, "the connection to ZooKeeper is lost", &self.views);
                        continue;
                    }
                    SessionState::SyncConnected | SessionState::ConnectedReadOnly => {
                        tracing::info!(zookeeper = %self.zookeeper, "reconnected to ZooKeeper");
                        // The watch reports changes made meanwhile only if this server knows the
                        // watch, so the registrations are read again, which is cheap.
                        return Ok(());
                    }
                    ended => ended,
                },
            };
            return match state {
                SessionState::Expired => Err(Error::SessionExpired),
                SessionState::AuthFailed => Err(Error::AuthFailed),
                SessionState::Closed => Err(Error::ClientClosed),
                _ => Ok(()),
            };
        }
    }

    /// Reads and publishes the registrations; the returned watcher reports the next change.
    async fn read(&mut self, client: &Client) -> Result<OneshotWatcher, Error> {
        let path = self.zookeeper.path.clone();
        let (children, watcher) = match client.list_and_watch_children(&path).await {
            Ok(listed) => listed,
            Err(Error::NoNode) => {
                let (stat, watcher) = client.check_and_watch_stat(&path).await?;
                if stat.is_some() {
                    return Err(Error::NoNode);
                }
                self.publish(Vec::new(), Some(format!("{path} does not exist in ZooKeeper")));
                return Ok(watcher);
            }
            Err(error) => return Err(error),
        };
        let mut nodes = registration::in_order(children);
        nodes.truncate(MAX_MASTERS);
        self.registrations
            .retain(|node, _| nodes.iter().any(|(listed, _)| listed == node));
        let mut read = Vec::with_capacity(nodes.len());
        for (node, form) in nodes {
            if let Some(master) = self.registered(client, &path, &node, form).await? {
                read.push(master);
            }
        }
        let no_master = read
            .is_empty()
            .then(|| format!("no master is registered at {path}"));
        self.publish(read, no_master);
        Ok(watcher)
    }

    /// One registration; none when it no longer exists, which the watch on the list reports as
    /// well.
    async fn registered(
        &mut self,
        client: &Client,
        path: &str,
        node: &str,
        form: Format,
    ) -> Result<Option<Result<Arc<Master>, String>>, Error> {
        if let Some(registration) = self.registrations.get(node) {
            return Ok(Some(registration.clone()));
        }
        let data = match client.get_data(&format!("{path}/{node}")).await {
            Ok((data, _)) => data,
            Err(Error::NoNode) => return Ok(None),
            Err(error) => return Err(error),
        };
        let master = Master::read(node, form, &data).map(Arc::new).map_err(|why| {
            tracing::error!(zookeeper = %self.zookeeper, node, "ignoring an invalid registration of a master: {why}");
            format!("the registration {node} is invalid: {why}")
        });
        self.registrations.insert(node.to_owned(), master.clone());
        Ok(Some(master))
    }

    /// Publishes the view if it is different.
    fn publish(&self, read: Vec<Result<Arc<Master>, String>>, problem: Option<String>) {
        let has_leader = read.first().is_some_and(Result::is_ok);
        let unread = read.first().and_then(|first| first.as_ref().err().cloned());
        let view = View {
            masters: read.into_iter().flatten().collect(),
            has_leader,
            problem: problem.or(unread),
        };
        let before = Arc::clone(&self.views.borrow());
        if *before == view {
            return;
        }
        match (view.leader(), before.leader()) {
            (Some(now), Some(then)) if now.node == then.node => {
                if before.problem.is_some() {
                    tracing::info!(zookeeper = %self.zookeeper, leader = %now, "reconnected to ZooKeeper; the leader is unchanged");
                }
            }
            (Some(now), Some(then)) => {
                tracing::info!(zookeeper = %self.zookeeper, leader = %now, node = now.node, before = %then, "the leading master changed");
            }
            (Some(now), None) => {
                tracing::info!(zookeeper = %self.zookeeper, leader = %now, node = now.node, "leading master found");
            }
            (None, _) => {
                let why = view.problem.as_deref().unwrap_or("no master is registered");
                tracing::warn!(zookeeper = %self.zookeeper, "no master leads: {why}");
            }
        }
        self.views.send_replace(Arc::new(view));
    }
}
