//! Following the cluster: its stream of events becomes zones.
//!
//! One task owns the model. While the stream lives, each event is applied, and a moment after a change that matters a new
//! zone is made of the old one and put into service; a burst of events is one zone, and what changes much is made on a
//! thread of its own. The stream does not tell
//! everything (agents that are gone), so every `refresh_seconds` a second subscription is opened beside the first one and
//! takes its place with its own snapshot: a full comparison without a gap.
//!
//! A lost stream is opened again with growing, jittered pauses while the last zone stays in service. News of another leader
//! ends a pause, and a stream that ends for that reason is followed by the new leader's at once. Where a master has no
//! stream (it is old or restricted; [`source`](crate::source) says how that is told from one that is starting), its state
//! document is read every `refresh_seconds` instead, and the stream is tried again from time to time.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use transom_cluster::operator::{Event, Stream};
use transom_cluster::{Client, Error, LeaderChanges, MasterChanges};

use crate::changes::{self, Changes};
use crate::cluster::Cluster;
use crate::cluster::document::{Document, Leading};
use crate::cluster::operator::Effect;
use crate::metrics::Metrics;
use crate::resolve::Names;
use crate::rules::{Hosts, Rules};
use crate::shared::Shared;
use crate::source::{Attempts, Failure, Next, Patience, Source};
use crate::zone::{MadeFrom, Zone};

/// The stream begins with a snapshot of the whole cluster, which may take a large one some time to write.
const SNAPSHOT_WITHIN: Duration = Duration::from_mins(2);
/// Who leads is worth less waiting than what runs.
const LEADER_WITHIN: Duration = Duration::from_secs(10);
/// From a change to its zone, so that a burst of events is one zone.
const GATHER: Duration = Duration::from_millis(10);
/// Records of the last changes that are remembered for incremental transfers.
const KEPT: usize = 20_000;

/// A stream with the model its snapshot made.
type Opened = (Stream, Cluster);
type Opening = Pin<Box<dyn Future<Output = Result<Opened, Lost>> + Send>>;

/// Why there is no stream, or none any more.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("the master ended the stream")]
    Ended,
    #[error("the stream did not begin with a snapshot in time")]
    NoSnapshot,
    #[error("the cluster cannot be followed")]
    Cluster(#[source] Error),
}

impl Lost {
    fn failure(&self) -> Failure {
        match self {
            Self::Ended | Self::NoSnapshot => Failure::Broken,
            Self::Cluster(error) if error.is_not_found() => Failure::NotFound,
            Self::Cluster(error) if error.is_not_ready() => Failure::NotReady,
            Self::Cluster(error) if error.is_transient() => Failure::Broken,
            Self::Cluster(_) => Failure::Refused,
        }
    }

    /// Nothing is wrong but that another master leads now, who is known.
    fn is_only_a_move(&self) -> bool {
        matches!(self, Self::Cluster(Error::LeaderMoved { .. }))
    }
}

pub(crate) struct Watch {
    client: Client,
    /// News of other leaders, where ZooKeeper tells them.
    leaders: LeaderChanges,
    /// News of other masters, leading or not.
    registered: MasterChanges,
    rules: Arc<Rules>,
    /// Records of the last changes that are remembered.
    kept: usize,
    refresh: Duration,
    patience: Patience,
    shared: Arc<Shared>,
    metrics: Metrics,
    cluster: Cluster,
    /// When the state document is to be read again, while it is polled.
    poll_at: Instant,
    /// Whether the records in service came from a stream.
    from_stream: bool,
    names: Names,
    /// The addresses of host names in the last zone.
    hosts: Arc<Hosts>,
    /// What is not as it was in the last zone.
    changes: Changes,
    /// When a zone is due, if one is.
    due: Option<Instant>,
    /// How long the last zone took to make: as long is waited before the next one that is made from nothing.
    took: Duration,
}

impl Watch {
    pub(crate) fn new(
        client: Client,
        rules: Rules,
        refresh_seconds: u64,
        patience: Patience,
        shared: Arc<Shared>,
        metrics: Metrics,
    ) -> Self {
        Self {
            leaders: client.leader_changes(),
            registered: client.master_changes(),
            client,
            rules: Arc::new(rules),
            kept: 0,
            refresh: Duration::from_secs(refresh_seconds),
            patience,
            shared,
            metrics,
            cluster: Cluster::default(),
            poll_at: Instant::now(),
            from_stream: false,
            names: Names::default(),
            hosts: Arc::default(),
            changes: Changes::everything(),
            due: None,
            took: Duration::ZERO,
        }
    }

    /// Remembers the last changes, for those who follow the zone by transfers.
    pub(crate) fn remembering(self) -> Self {
        Self { kept: KEPT, ..self }
    }

    /// Follows the cluster until told to stop.
    pub(crate) async fn run(mut self, token: CancellationToken) {
        token.run_until_cancelled(self.follow_for_ever()).await;
    }

    async fn follow_for_ever(&mut self) {
        let mut attempts = Attempts::new(self.patience);
        let mut again = false;
        loop {
            let lost = match open(self.client.clone()).await {
                Ok(opened) => {
                    if again {
                        self.metrics.reconnects.inc();
                    }
                    again = true;
                    attempts.succeeded();
                    self.poll_at = Instant::now();
                    self.switch_to_stream();
                    self.follow(opened).await
                }
                Err(lost) => lost,
            };
            if lost.is_only_a_move() {
                tracing::info!(reason = chain(&lost), "following the new leader");
                continue;
            }
            let next = attempts.failed(lost.failure(), self.from_stream, Instant::now());
            if attempts.failures() == 1 {
                let error = chain(&lost);
                if again {
                    tracing::warn!(
                        error,
                        "lost the cluster's stream of events; the last zone stays in service"
                    );
                } else {
                    tracing::warn!(
                        error,
                        "the cluster's stream of events cannot be opened yet; trying again"
                    );
                }
            }
            if self.until_retry(next, &lost).await {
                attempts.other_master();
            }
        }
    }

    /// Waits until the stream is to be tried again, and polls the state document meanwhile if that is to be done. Whether
    /// another master leads.
    async fn until_retry(&mut self, next: Next, lost: &Lost) -> bool {
        let retry_at = Instant::now() + next.retry;
        if !next.poll {
            self.switch_to_none();
            return self.idle(retry_at.min(Instant::now() + self.refresh)).await;
        }
        loop {
            if self.poll_at <= Instant::now() {
                if !self.read_document().await {
                    self.switch_to_none();
                    return self.idle(retry_at.min(Instant::now() + self.refresh)).await;
                }
                self.poll_at = Instant::now() + self.refresh;
                self.switch_to_polling(lost);
            }
            if self.idle(retry_at.min(self.poll_at)).await {
                self.poll_at = Instant::now();
                return true;
            }
            if retry_at <= Instant::now() {
                return false;
            }
        }
    }

    fn switch_to_stream(&mut self) {
        self.from_stream = true;
        if self.switch(Source::Stream) == Source::Polling {
            tracing::info!(
                "following the cluster's stream of events; polling of the state document has ended"
            );
        } else {
            tracing::info!("following the cluster's stream of events");
        }
    }

    fn switch_to_polling(&mut self, lost: &Lost) {
        self.from_stream = false;
        if self.switch(Source::Polling) != Source::Polling {
            tracing::warn!(
                reason = chain(lost),
                refresh_seconds = self.refresh.as_secs(),
                "polling the master's state document, because its stream of events cannot be followed: changes show \
                 only with the next poll"
            );
        }
    }

    /// The loss of a stream has been logged already.
    fn switch_to_none(&self) {
        if self.switch(Source::None) == Source::Polling {
            tracing::warn!("polling of the state document has ended; the last zone stays in service");
        }
    }

    /// Sets what records come from, and returns what that was before.
    fn switch(&self, source: Source) -> Source {
        self.metrics.set_source(source);
        self.shared.source.replace(source)
    }

    /// Applies events until the stream is lost.
    async fn follow(&mut self, opened: Opened) -> Lost {
        let mut stream = self.adopt(opened).await;
        let mut refresh = Instant::now() + self.refresh;
        let mut second: Option<Opening> = None;
        loop {
            tokio::select! {
                event = stream.next() => match event {
                    Ok(Some(event)) => self.apply(&event),
                    Ok(None) => return Lost::Ended,
                    // One event that makes no sense; the stream goes on behind it.
                    Err(error @ (Error::Decode { .. } | Error::Incomplete { .. })) => self.skip(&error),
                    Err(error) => return Lost::Cluster(error),
                },
                () = sleep_until(self.due.unwrap_or_else(Instant::now)), if self.due.is_some() => self.publish().await,
                differs = self.names.answered() => if differs { self.found() },
                _ = self.registered.next() => self.enlist(),
                () = sleep_until(refresh), if second.is_none() => second = Some(Box::pin(open(self.client.clone()))),
                opened = async { match second.as_mut() { Some(opening) => opening.await, None => std::future::pending().await } } => {
                    second = None;
                    refresh = Instant::now() + self.refresh;
                    match opened {
                        Ok(opened) => stream = self.adopt(opened).await,
                        // The first stream still tells what happens.
                        Err(lost) => tracing::debug!(error = chain(&lost), "no full comparison this time"),
                    }
                }
            }
        }
    }

    /// Takes a snapshot for the model, and puts its zone into service.
    async fn adopt(&mut self, (stream, cluster): Opened) -> Stream {
        let leader = cluster.leader.clone().or_else(|| self.cluster.leader.take());
        self.compare(Cluster { leader, ..cluster }).await;
        stream
    }

    /// A full comparison: what differs was not told, or not understood.
    async fn compare(&mut self, mut cluster: Cluster) {
        self.shared.confirmed.touch();
        cluster.masters = self.registered_now();
        let served = self.shared.zone.load_full();
        if let Some(zone) = &served {
            let (model, seen, zone) = (self.cluster.clone(), cluster.clone(), Arc::clone(zone));
            let comparing = move || {
                let drift = changes::drift(&model, &seen);
                // Against the zone, not the model: what is about to change anyway is in both.
                (drift, Changes::between(&zone.made_from().cluster, &seen))
            };
            // All of a large cluster takes its time.
            let Ok((drift, since)) = tokio::task::spawn_blocking(comparing).await else {
                // Only when the runtime ends.
                return;
            };
            if drift > 0 {
                tracing::debug!(drift, "entries were not as the stream had told");
                self.metrics.resync_differences.inc_by(drift as u64);
            }
            if !self.changes.is_everything() {
                self.changes = since;
            }
        }
        let skips_differ = self.cluster.skipped != cluster.skipped;
        self.cluster = cluster;
        if served.is_none() || skips_differ || !self.changes.is_empty() {
            self.publish().await;
        } else {
            self.names.ask(&self.cluster, self.refresh);
        }
    }

    fn apply(&mut self, event: &Event) {
        self.shared.confirmed.touch();
        for effect in [self.cluster.apply(event), self.cluster.remove_lost_agent(event)] {
            match effect {
                Effect::Same => continue,
                Effect::Task(framework, task) => self.changes.task(framework, task),
                Effect::Framework(framework) => self.changes.framework(framework),
                Effect::Agent(agent) => self.changes.agent(agent),
            }
            self.changed();
        }
    }

    /// Addresses of host names are other ones than before.
    fn found(&mut self) {
        self.changes.all();
        self.changed();
    }

    /// Other masters are registered.
    fn enlist(&mut self) {
        // Before the cluster was heard of there is nothing to change.
        if self.shared.zone.load().is_some() {
            self.cluster.masters = self.registered_now();
            self.changes.masters();
            self.changed();
        }
    }

    fn registered_now(&self) -> Vec<String> {
        let masters = self.client.registered_masters();
        masters.iter().map(ToString::to_string).collect()
    }

    fn skip(&mut self, error: &Error) {
        tracing::warn!(error = chain(error), "an event of the cluster is left out");
        self.cluster.skipped += 1;
        self.changed();
    }

    fn changed(&mut self) {
        // What is made anew takes long, and is not made again and again; a change is not.
        let wait = if self.changes.is_everything() {
            GATHER.max(self.took)
        } else {
            GATHER
        };
        self.due.get_or_insert_with(|| Instant::now() + wait);
    }

    /// Where there is no stream: everything, once. Whether it could be had.
    async fn read_document(&mut self) -> bool {
        match timeout(SNAPSHOT_WITHIN, self.client.state_as::<Document>()).await {
            Ok(Ok(document)) => {
                self.compare(document.cluster).await;
                true
            }
            Ok(Err(error)) => {
                tracing::debug!(error = chain(&error), "no state document either");
                false
            }
            Err(_) => false,
        }
    }

    /// Waits, while names that were asked for may still come, and no longer than until there is another leader. Whether
    /// there is one.
    async fn idle(&mut self, until: Instant) -> bool {
        loop {
            tokio::select! {
                () = sleep_until(until) => return false,
                leader = self.leaders.next() => {
                    tracing::info!(%leader, "another master leads; asking it");
                    return true;
                }
                () = sleep_until(self.due.unwrap_or_else(Instant::now)), if self.due.is_some() => self.publish().await,
                differs = self.names.answered() => if differs { self.found() },
                _ = self.registered.next() => self.enlist(),
            }
        }
    }

    /// Makes a zone of the model and puts it into service.
    async fn publish(&mut self) {
        self.due = None;
        self.names.ask(&self.cluster, self.refresh);
        let began = Instant::now();
        let changes = std::mem::take(&mut self.changes);
        if changes.is_everything() {
            self.hosts = Arc::new(self.names.known.clone());
        }
        let served = self.shared.zone.load_full();
        let serial = next_serial(served.as_ref().map(|zone| zone.serial()));
        let from = served.unwrap_or_else(|| Arc::new(Zone::empty(Arc::clone(&self.rules))));
        let to = MadeFrom {
            cluster: self.cluster.clone(),
            hosts: Arc::clone(&self.hosts),
            rules: Arc::clone(&self.rules),
        };
        let large = changes.is_large();
        let kept = self.kept;
        let making = move || Arc::new(changes::apply(&from, to, changes, serial, kept));
        let made = if large {
            tokio::task::spawn_blocking(making).await
        } else {
            Ok(making())
        };
        match made {
            Ok(zone) => {
                let serial = zone.serial();
                tracing::debug!(
                    serial,
                    records = zone.records(),
                    skipped = zone.skipped(),
                    "a new zone"
                );
                let before = self.shared.zone.swap(Some(zone));
                self.shared
                    .serial
                    .send_if_modified(|last| std::mem::replace(last, serial) != serial);
                if large {
                    // A large one takes its time to be taken down.
                    tokio::task::spawn_blocking(move || drop(before));
                }
                self.metrics.zone_updates.inc();
            }
            // Only when the runtime ends or the making itself panicked; then all of it is made anew.
            Err(error) => {
                self.changes.all();
                tracing::error!(%error, "a zone could not be made");
            }
        }
        self.took = began.elapsed();
    }
}

/// Opens a stream and reads the snapshot it begins with. Who leads is asked for separately, as the snapshot does not say.
async fn open(client: Client) -> Result<Opened, Lost> {
    let begin = async {
        let mut stream = client.watch().await.map_err(Lost::Cluster)?;
        let snapshot = stream.snapshot(Cluster::default()).await;
        let cluster = snapshot.map_err(Lost::Cluster)?.ok_or(Lost::Ended)?;
        Ok((stream, cluster))
    };
    let (stream, mut cluster) = timeout(SNAPSHOT_WITHIN, begin)
        .await
        .map_err(|_| Lost::NoSnapshot)??;
    match timeout(LEADER_WITHIN, client.state_as::<Leading>()).await {
        Ok(Ok(leading)) => cluster.leader = leading.endpoint(),
        Ok(Err(error)) => tracing::debug!(error = chain(&error), "the leader is not known for now"),
        Err(_) => tracing::debug!("the leader is not known for now: no state document in time"),
    }
    Ok((stream, cluster))
}

/// Seconds since 1970, as resolvers expect of such zones, and always more than before.
fn next_serial(last: Option<u32>) -> u32 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs() as u32);
    last.map_or(now, |last| now.max(last.wrapping_add(1)))
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |cause| cause.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_only_grow() {
        let now = next_serial(None);
        assert!(next_serial(Some(now + 100)) == now + 101);
        assert!(next_serial(Some(5)) >= now);
    }
}
