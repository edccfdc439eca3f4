//! One session with ZooKeeper after another: what is registered is read, and read again whenever that changed.

use super::registration::{self, Format, Master};
use super::{View, ZooKeeper};
use rand::Rng;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use zookeeper_client::{Client, Error, OneshotWatcher, SessionState, StateWatcher};

/// The wait after the first failure; it doubles with each further one.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(100);
/// The longest wait: a leader is not found later than this after ZooKeeper is back.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// So many masters are read; more than a handful is not a cluster's.
const MAX_MASTERS: usize = 64;
/// How long the end of a session may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a session ended, for the log and for those who wait for a leader.
type Lost = String;

/// Keeps a session until cancelled.
pub(super) async fn keep(
    zookeeper: Arc<ZooKeeper>,
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
            known: HashMap::new(),
        };
        let began = Instant::now();
        // A task of its own, so that a panic within the client's library is a lost session like any other.
        let mut running = JoinSet::new();
        running.spawn(session.run(token.clone()));
        let lost = match running.join_next().await {
            Some(Ok(Some(lost))) => lost,
            Some(Ok(None)) | None => return,
            Some(Err(error)) => format!("its client failed: {error}"),
        };
        if began.elapsed() > session_timeout {
            failures = 0;
        }
        tell_lost(&zookeeper, &lost, &views);
        let wait = pause(failures);
        failures = failures.saturating_add(1);
        tokio::select! {
            () = token.cancelled() => return,
            () = sleep(wait) => {}
        }
    }
}

/// Between half and all of what doubles with each failure.
fn pause(failures: u32) -> Duration {
    let longest = FIRST_RETRY_DELAY
        .saturating_mul(1 << failures.min(16))
        .min(MAX_RETRY_DELAY);
    longest.mul_f64(rand::rng().random_range(0.5..=1.0))
}

/// Says that a session is over and what holds until the next: once for each reason.
fn tell_lost(zookeeper: &ZooKeeper, lost: &str, views: &watch::Sender<Arc<View>>) {
    let news = doubt(views, lost);
    match (news, views.borrow().leader()) {
        (true, Some(leader)) => {
            tracing::warn!(%zookeeper, %leader, "{lost}; keeping the last known leader");
        }
        (true, None) => tracing::warn!(%zookeeper, "{lost}; no leading master is known"),
        (false, _) => tracing::debug!(%zookeeper, "{lost}"),
    }
}

/// Notes that what is known may no longer be true; whether that was news.
fn doubt(views: &watch::Sender<Arc<View>>, why: &str) -> bool {
    views.send_if_modified(|view| {
        let news = view.trouble.as_deref() != Some(why);
        if news {
            Arc::make_mut(view).trouble = Some(why.to_owned());
        }
        news
    })
}

struct Session {
    zookeeper: Arc<ZooKeeper>,
    timeout: Duration,
    views: watch::Sender<Arc<View>>,
    /// Registrations read before; they never change. What is wrong with those that cannot be used.
    known: HashMap<String, Result<Arc<Master>, String>>,
}

impl Session {
    /// Until it is lost (why) or cancelled (none).
    async fn run(mut self, token: CancellationToken) -> Option<Lost> {
        let client = tokio::select! {
            () = token.cancelled() => return None,
            connected = self.connect() => match connected {
                Ok(client) => client,
                Err(lost) => return Some(lost),
            },
        };
        let mut states = client.state_watcher();
        let outcome = tokio::select! {
            () = token.cancelled() => None,
            lost = self.follow(&client, &mut states) => Some(lost),
        };
        // The client's own task ends when it has told ZooKeeper so.
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

    /// What an error means to an operator.
    fn lost(&self, error: &Error) -> Lost {
        match error {
            Error::NoAuth | Error::AuthFailed => format!(
                "ZooKeeper does not let {} be read; check user and password in [cluster] master",
                self.zookeeper.path
            ),
            Error::SessionExpired => "the session with ZooKeeper has expired".to_owned(),
            Error::NoHosts | Error::Timeout | Error::ConnectionLoss => {
                "ZooKeeper cannot be reached".to_owned()
            }
            other => format!("ZooKeeper cannot be used: {other}"),
        }
    }

    /// Reads, publishes and waits for a change, again and again.
    async fn follow(&mut self, client: &Client, states: &mut StateWatcher) -> Lost {
        loop {
            // Requests are answered or fail within the session's time; this is for what nobody thought of.
            let read = match timeout(self.timeout.saturating_mul(3), self.read(client)).await {
                Ok(read) => read,
                Err(_) => Err(Error::Timeout),
            };
            let change = match read {
                Ok(change) => change,
                // Something changed between two of its questions, or the connection did: the session may live on.
                Err(Error::NoNode) => continue,
                Err(error) => return self.lost(&error),
            };
            if let Err(error) = self.wait(change, states).await {
                return self.lost(&error);
            }
        }
    }

    /// Until something changed.
    async fn wait(&self, change: OneshotWatcher, states: &mut StateWatcher) -> Result<(), Error> {
        let mut change = std::pin::pin!(change.changed());
        loop {
            let state = tokio::select! {
                event = &mut change => event.session_state,
                state = states.changed() => match state {
                    SessionState::Disconnected => {
                        tell_lost(&self.zookeeper, "ZooKeeper is away", &self.views);
                        continue;
                    }
                    SessionState::SyncConnected | SessionState::ConnectedReadOnly => {
                        tracing::info!(zookeeper = %self.zookeeper, "reconnected to ZooKeeper");
                        // What has happened meanwhile comes through the watch, if this server knows of it; a look is cheap.
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

    /// Reads what is registered and publishes it; what is given tells when to read again.
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
        self.known
            .retain(|node, _| nodes.iter().any(|(listed, _)| listed == node));
        let mut read = Vec::with_capacity(nodes.len());
        for (node, form) in nodes {
            if let Some(master) = self.registered(client, &path, &node, form).await? {
                read.push(master);
            }
        }
        let nobody = read
            .is_empty()
            .then(|| format!("no master is registered at {path}"));
        self.publish(read, nobody);
        Ok(watcher)
    }

    /// One registration; none when it is gone by now, which the watch on the list tells as well.
    async fn registered(
        &mut self,
        client: &Client,
        path: &str,
        node: &str,
        form: Format,
    ) -> Result<Option<Result<Arc<Master>, String>>, Error> {
        if let Some(known) = self.known.get(node) {
            return Ok(Some(known.clone()));
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
        self.known.insert(node.to_owned(), master.clone());
        Ok(Some(master))
    }

    /// Makes it known, if it is news.
    fn publish(&self, read: Vec<Result<Arc<Master>, String>>, trouble: Option<String>) {
        let first_leads = read.first().is_some_and(Result::is_ok);
        let unread = read.first().and_then(|first| first.as_ref().err().cloned());
        let view = View {
            masters: read.into_iter().flatten().collect(),
            first_leads,
            trouble: trouble.or(unread),
        };
        let before = Arc::clone(&self.views.borrow());
        if *before == view {
            return;
        }
        match (view.leader(), before.leader()) {
            (Some(now), Some(then)) if now.node == then.node => {
                if before.trouble.is_some() {
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
                let why = view.trouble.as_deref().unwrap_or("no master is registered");
                tracing::warn!(zookeeper = %self.zookeeper, "no master leads: {why}");
            }
        }
        self.views.send_replace(Arc::new(view));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_vary() {
        for (failures, longest) in [(0, 100), (1, 200), (3, 800), (6, 5000), (u32::MAX, 5000)] {
            let longest = Duration::from_millis(longest);
            let pauses: Vec<_> = (0..50).map(|_| pause(failures)).collect();
            assert!(
                pauses.iter().all(|pause| (longest / 2..=longest).contains(pause)),
                "{failures}: {pauses:?}"
            );
            assert!(
                pauses.iter().any(|pause| *pause != pauses[0]),
                "{failures}: no jitter"
            );
        }
    }
}
