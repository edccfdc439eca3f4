//! Follows the cluster: turns its event stream into zones.
//!
//! One task owns the model. While the stream is open, it applies each event and publishes a new
//! zone shortly after a change; a burst of events becomes one zone, and large zones are built on a
//! blocking thread. The stream does not report everything (such as lost agents without tasks), so every
//! `refresh_seconds` the snapshot of a second subscription is compared with the model. Events that
//! the first one reports meanwhile are applied to the snapshot first, which may be older than they are;
//! then the second one is closed, because it would report them again.
//!
//! A lost stream is reopened with growing, jittered delays while the last zone stays in service. A
//! new leader ends the delay. Where a master has no stream (see [`source`](crate::source)), its
//! state document is polled every `refresh_seconds`, and the stream is retried from time to time.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use transom_cluster::operator::{Event, Stream};
use transom_cluster::{Client, Error, LeaderChanges, MasterChanges};
use transom_common::{ambient, error_chain};

use crate::changes::{self, Changes};
use crate::cluster::ClusterModel;
use crate::cluster::document::{Document, Leading};
use crate::cluster::operator::Effect;
use crate::host_resolver::HostResolver;
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::shared::Shared;
use crate::source::{Attempts, Failure, Next, Source, StreamTimeouts};
use crate::zone::{Zone, ZoneInputs};
use crate::zone_config::{ResolvedHosts, ZoneConfig};

/// The timeout of the snapshot at the start of a stream; the master of a large cluster needs time to
/// write it.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_mins(2);
/// The timeout of the leader's address. It is short, because the tasks are more important.
const LEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The delay from a change to its zone, so that a burst of events becomes one zone.
const DEBOUNCE: Duration = Duration::from_millis(10);
/// The interval of polls while a master may be recovering or the first zone waits for agents, and the
/// delay of the full comparison after the last agent has registered.
const RECOVERY_POLL: Duration = Duration::from_secs(1);
/// The maximum number of events during a full comparison, which are kept until its end.
const MAX_EVENTS_OF_COMPARISON: usize = 10_000;
/// The size of the journal for incremental transfers, in records.
const JOURNAL_RECORDS: usize = 20_000;

/// A stream, and the model from its snapshot.
type Opened = (Stream, ClusterModel);
type Opening = Pin<Box<dyn Future<Output = Result<Opened, StreamLost>> + Send>>;

/// Why the stream could not be opened, or was lost.
#[derive(Debug, thiserror::Error)]
enum StreamLost {
    #[error("the master closed the event stream")]
    Ended,
    #[error("timeout waiting for the snapshot of the event stream")]
    NoSnapshot,
    #[error("the event stream failed")]
    Cluster(#[source] Error),
}

impl StreamLost {
    fn failure(&self) -> Failure {
        match self {
            Self::Ended | Self::NoSnapshot => Failure::Broken,
            Self::Cluster(error) if error.is_not_found() => Failure::NotFound,
            Self::Cluster(error) if error.is_not_ready() => Failure::NotReady,
            Self::Cluster(error) if error.is_transient() => Failure::Broken,
            Self::Cluster(_) => Failure::Rejected,
        }
    }

    /// Whether the only reason is a new, known leader.
    fn is_leader_change(&self) -> bool {
        matches!(self, Self::Cluster(Error::LeaderMoved { .. }))
    }
}

pub(crate) struct ClusterFollower {
    client: Client,
    /// Changes of the leader, where ZooKeeper reports them.
    leaders: LeaderChanges,
    /// Changes of the registered masters, leader or not.
    registered: MasterChanges,
    zone_config: Arc<ZoneConfig>,
    /// The size of the journal in records; 0: no journal.
    journal_records: usize,
    refresh: Duration,
    stream_timeouts: StreamTimeouts,
    shared: Arc<Shared>,
    metrics: Metrics,
    cluster: ClusterModel,
    /// The time of the next poll of the state document.
    poll_at: Instant,
    /// Whether the records in service came from a stream.
    from_stream: bool,
    /// When the first model was read.
    first_model: Option<Instant>,
    /// The election in the last document if that was empty, and the time of the first such document.
    empty_document: Option<(f64, Instant)>,
    pub(crate) resolver: HostResolver,
    /// The addresses of host names in the last zone.
    hosts: Arc<ResolvedHosts>,
    /// Changes since the last zone.
    changes: Changes,
    /// When the next zone is due, if any.
    publish_at: Option<Instant>,
    /// How long the last zone took to build: the delay before the next full rebuild.
    build_time: Duration,
}

impl ClusterFollower {
    pub(crate) fn new(
        client: Client,
        zone_config: ZoneConfig,
        refresh_seconds: u64,
        stream_timeouts: StreamTimeouts,
        shared: Arc<Shared>,
        metrics: Metrics,
    ) -> Self {
        Self {
            leaders: client.leader_changes(),
            registered: client.master_changes(),
            client,
            zone_config: Arc::new(zone_config),
            journal_records: 0,
            refresh: Duration::from_secs(refresh_seconds),
            stream_timeouts,
            shared,
            metrics,
            cluster: ClusterModel::default(),
            poll_at: Instant::now(),
            from_stream: false,
            first_model: None,
            empty_document: None,
            resolver: HostResolver::default(),
            hosts: Arc::default(),
            changes: Changes::everything(),
            publish_at: None,
            build_time: Duration::ZERO,
        }
    }

    /// Keeps a journal of changes for incremental transfers.
    pub(crate) fn with_journal(self) -> Self {
        Self {
            journal_records: JOURNAL_RECORDS,
            ..self
        }
    }

    /// Follows the cluster until the token is cancelled.
    pub(crate) async fn run(mut self, token: CancellationToken) {
        token.run_until_cancelled(self.follow()).await;
    }

    async fn follow(&mut self) {
        let mut attempts = Attempts::new(self.stream_timeouts);
        let mut connected_before = false;
        loop {
            let lost = match open(self.client.clone()).await {
                Ok(opened) => {
                    if connected_before {
                        self.metrics.reconnects.inc();
                    }
                    connected_before = true;
                    attempts.succeeded();
                    self.poll_at = Instant::now();
                    self.switch_to_stream();
                    self.follow_stream(opened).await
                }
                Err(lost) => lost,
            };
            if lost.is_leader_change() {
                tracing::info!(reason = error_chain(&lost), "following the new leader");
                continue;
            }
            let next = attempts.failed(lost.failure(), self.from_stream, Instant::now());
            if attempts.failures() == 1 {
                let error = error_chain(&lost);
                if connected_before {
                    tracing::warn!(error, "lost the event stream; the last zone stays in service");
                } else {
                    tracing::warn!(error, "cannot open the event stream; retrying");
                }
            }
            if self.wait_for_retry(next, &lost).await {
                attempts.other_master();
            }
        }
    }

    /// Waits until the next attempt to open the stream, polling the state document meanwhile if
    /// `next.poll` is set. Returns whether the leader has changed.
    async fn wait_for_retry(&mut self, next: Next, lost: &StreamLost) -> bool {
        let retry_at = Instant::now() + next.retry;
        if !next.poll {
            self.switch_to_none();
            return self.idle(retry_at.min(Instant::now() + self.refresh)).await;
        }
        loop {
            if self.poll_at <= Instant::now() {
                let read = self.read_document().await;
                let recovers = !read && self.empty_document.is_some() || self.first_zone_waits().is_some();
                let refresh = if recovers {
                    RECOVERY_POLL.min(self.refresh)
                } else {
                    self.refresh
                };
                if !read {
                    self.switch_to_none();
                    return self.idle(retry_at.min(Instant::now() + refresh)).await;
                }
                self.poll_at = Instant::now() + refresh;
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
            tracing::info!("following the event stream; no longer polling the state document");
        } else {
            tracing::info!("following the event stream");
        }
    }

    fn switch_to_polling(&mut self, lost: &StreamLost) {
        self.from_stream = false;
        if self.switch(Source::Polling) != Source::Polling {
            tracing::warn!(
                reason = error_chain(lost),
                refresh_seconds = self.refresh.as_secs(),
                "polling the state document because the event stream is unavailable; changes appear with the next poll"
            );
        }
    }

    /// Sets the source to none. Logs only the end of polling: the loss of a stream has been logged.
    fn switch_to_none(&self) {
        if self.switch(Source::None) == Source::Polling {
            tracing::warn!("polling the state document failed; the last zone stays in service");
        }
    }

    /// Sets the source of the records and returns the previous one.
    fn switch(&self, source: Source) -> Source {
        self.metrics.set_source(source);
        self.shared.source.replace(source)
    }

    /// Applies events until the stream is lost.
    async fn follow_stream(&mut self, opened: Opened) -> StreamLost {
        let (mut stream, cluster) = opened;
        self.use_snapshot(cluster, &[]).await;
        let mut refresh = Instant::now() + self.refresh;
        let mut second: Option<Opening> = None;
        // Events since the second subscription began.
        let mut meanwhile = Vec::new();
        loop {
            // Zones first, which are some time apart, so that a burst of events does not delay them.
            tokio::select! {
                biased;
                () = sleep_until(self.publish_at.unwrap_or_else(Instant::now)), if self.publish_at.is_some() => self.publish().await,
                differs = self.resolver.addresses_changed() => if differs { self.addresses_changed() },
                _ = self.registered.next() => self.update_masters(),
                () = sleep_until(refresh), if second.is_none() => second = Some(Box::pin(open(self.client.clone()))),
                event = stream.next() => match event {
                    Ok(Some(event)) => {
                        let awaited = !self.cluster.recovered.is_empty();
                        self.apply(&event);
                        if awaited && self.cluster.recovered.is_empty() {
                            // Tasks that ended while their agent was not registered have no event.
                            refresh = refresh.min(Instant::now() + RECOVERY_POLL);
                        }
                        if second.is_some() && !matches!(event, Event::Heartbeat) {
                            meanwhile.push(event);
                        }
                        if meanwhile.len() > MAX_EVENTS_OF_COMPARISON {
                            tracing::warn!(
                                events = meanwhile.len(),
                                "full comparison abandoned: too many events have arrived since it began; retrying at the next refresh"
                            );
                            (second, meanwhile) = (None, Vec::new());
                            refresh = Instant::now() + self.refresh;
                        }
                    }
                    Ok(None) => return StreamLost::Ended,
                    // One invalid event; the stream continues after it.
                    Err(error @ (Error::Decode { .. } | Error::Incomplete { .. })) => self.skip_event(&error),
                    Err(error) => return StreamLost::Cluster(error),
                },
                // After the events that have arrived, which may be older than its snapshot.
                opened = async { match second.as_mut() { Some(opening) => opening.await, None => std::future::pending().await } } => {
                    second = None;
                    let meanwhile = std::mem::take(&mut meanwhile);
                    refresh = Instant::now() + self.refresh;
                    match opened {
                        Ok((_second, cluster)) => self.use_snapshot(cluster, &meanwhile).await,
                        // The first stream is still open.
                        Err(lost) => tracing::debug!(error = error_chain(&lost), "full comparison failed; retrying at the next refresh"),
                    }
                }
            }
        }
    }

    /// Replaces the model by a snapshot with later events and publishes its zone.
    async fn use_snapshot(&mut self, mut cluster: ClusterModel, later: &[Event]) {
        cluster.leader = cluster.leader.or_else(|| self.cluster.leader.take());
        // Before the events, because an agent's tasks follow the event of its return.
        cluster.keep_recovered(&self.cluster);
        for event in later {
            cluster.apply(event);
            cluster.remove_lost_agent(event);
        }
        self.compare(cluster).await;
    }

    /// A full comparison: counts the differences that the stream missed.
    async fn compare(&mut self, mut cluster: ClusterModel) {
        self.shared.confirmed.touch();
        cluster.masters = self.registered_now();
        self.first_model.get_or_insert_with(Instant::now);
        let served = self.shared.zone.load_full();
        if let Some(zone) = &served {
            let (model, polled, zone) = (self.cluster.clone(), cluster.clone(), Arc::clone(zone));
            let comparing = move || {
                let differences = changes::missed_changes(&model, &polled);
                // Compared with the zone, not the model, which may have changes that are not
                // published yet.
                (differences, Changes::between(&zone.inputs().cluster, &polled))
            };
            // Slow for a large cluster.
            let Some((differences, since)) = ambient::blocking(comparing).await else {
                return;
            };
            if differences > 0 {
                tracing::debug!(
                    differences,
                    "full comparison corrected entries that the event stream missed"
                );
                self.metrics.resync_differences.inc_by(differences as u64);
            }
            if !self.changes.is_everything() {
                self.changes = since;
            }
        }
        let skips_differ = self.cluster.invalid_entries != cluster.invalid_entries;
        self.cluster = cluster;
        self.shared.problem.set(self.problem());
        if served.is_none() || skips_differ || !self.changes.is_empty() {
            self.publish().await;
        } else {
            self.resolver.refresh(&self.cluster, self.refresh, false);
        }
    }

    fn apply(&mut self, event: &Event) {
        self.shared.confirmed.touch();
        for effect in [self.cluster.apply(event), self.cluster.remove_lost_agent(event)] {
            match effect {
                Effect::Unchanged => continue,
                Effect::Task(framework, task) => self.changes.add_task(framework, task),
                Effect::Framework(framework) => self.changes.add_framework(framework),
                Effect::Agent(agent) => self.changes.add_agent(agent),
            }
            self.schedule_publish();
        }
    }

    /// Schedules a full rebuild, because the addresses of host names have changed.
    fn addresses_changed(&mut self) {
        self.changes.add_everything();
        self.schedule_publish();
    }

    /// Schedules an update of the masters' records, because the registered masters have changed.
    fn update_masters(&mut self) {
        // Without a first zone there is nothing to change.
        if self.shared.zone.load().is_some() {
            self.cluster.masters = self.registered_now();
            self.changes.add_masters();
            self.schedule_publish();
        }
    }

    fn registered_now(&self) -> Vec<String> {
        let masters = self.client.registered_masters();
        masters.iter().map(ToString::to_string).collect()
    }

    fn skip_event(&mut self, error: &Error) {
        tracing::warn!(error = error_chain(error), "ignoring an invalid cluster event");
        self.cluster.invalid_entries += 1;
        self.schedule_publish();
    }

    fn schedule_publish(&mut self) {
        // A full rebuild takes long, so rebuilds are spaced by their own duration.
        let wait = if self.changes.is_everything() {
            DEBOUNCE.max(self.build_time)
        } else {
            DEBOUNCE
        };
        let due = Instant::now() + wait;
        self.publish_at = Some(self.publish_at.map_or(due, |earlier| earlier.min(due)));
    }

    /// Reads the state document once, in place of the stream. Returns whether that succeeded.
    async fn read_document(&mut self) -> bool {
        match timeout(SNAPSHOT_TIMEOUT, self.client.state_as::<Document>()).await {
            Ok(Ok(document)) if self.may_be_recovering(&document) => {
                tracing::debug!("the state document is empty because its master may be recovering");
                false
            }
            Ok(Ok(document)) => {
                let mut cluster = document.cluster;
                cluster.hides_tasks = hides_tasks(&self.client, &cluster).await;
                cluster.keep_recovered(&self.cluster);
                self.compare(cluster).await;
                true
            }
            Ok(Err(error)) => {
                tracing::debug!(error = error_chain(&error), "cannot read the state document");
                false
            }
            Err(_) => false,
        }
    }

    /// Whether a document is empty because its master has been elected and has not read its registry.
    /// After some time it counts as the document of an empty cluster.
    fn may_be_recovering(&mut self, document: &Document) -> bool {
        let Some(elected) = document.elected.filter(|_| document.is_empty()) else {
            self.empty_document = None;
            return false;
        };
        let now = Instant::now();
        let seen = self
            .empty_document
            .filter(|(before, _)| before.total_cmp(&elected).is_eq());
        let (_, since) = *self.empty_document.insert(seen.unwrap_or((elected, now)));
        now < since + self.stream_timeouts.not_found
    }

    /// Until when the first zone waits for agents that have not registered with a new leader. Without
    /// them and their tasks it would say that these do not exist.
    fn first_zone_waits(&self) -> Option<Instant> {
        if self.cluster.recovered.is_empty() || self.shared.zone.load().is_some() {
            return None;
        }
        let until = self.first_model? + self.stream_timeouts.agents;
        (until > Instant::now()).then_some(until)
    }

    fn problem(&self) -> Option<Problem> {
        if self.first_zone_waits().is_some() {
            return Some(Problem::AwaitedAgents(self.cluster.recovered.len()));
        }
        (self.cluster.hides_tasks && !self.cluster.has_tasks()).then_some(Problem::HiddenTasks)
    }

    /// Waits until `until` or a new leader while handling name lookups and changes of masters.
    /// Returns whether there is a new leader.
    async fn idle(&mut self, until: Instant) -> bool {
        loop {
            tokio::select! {
                biased;
                () = sleep_until(until) => return false,
                leader = self.leaders.next() => {
                    tracing::info!(%leader, "the leading master changed; reconnecting");
                    return true;
                }
                () = sleep_until(self.publish_at.unwrap_or_else(Instant::now)), if self.publish_at.is_some() => self.publish().await,
                differs = self.resolver.addresses_changed() => if differs { self.addresses_changed() },
                _ = self.registered.next() => self.update_masters(),
            }
        }
    }

    /// Builds a zone of the model and publishes it.
    async fn publish(&mut self) {
        self.publish_at = self.first_zone_waits();
        self.shared.problem.set(self.problem());
        if self.publish_at.is_some() {
            return;
        }
        let names_differ = self.changes.may_change_hosts();
        self.resolver.refresh(&self.cluster, self.refresh, names_differ);
        let began = Instant::now();
        let changes = std::mem::take(&mut self.changes);
        if changes.is_everything() {
            self.hosts = Arc::new(self.resolver.addresses.clone());
        }
        let served = self.shared.zone.load_full();
        let serial = next_serial(served.as_ref().map(|zone| zone.serial()));
        let from = served.unwrap_or_else(|| Arc::new(Zone::empty(Arc::clone(&self.zone_config))));
        let to = ZoneInputs {
            cluster: self.cluster.clone(),
            hosts: Arc::clone(&self.hosts),
            zone_config: Arc::clone(&self.zone_config),
        };
        let large = changes.is_large();
        let journal_records = self.journal_records;
        let building = move || Arc::new(changes::apply(&from, to, changes, serial, journal_records));
        let built = if large {
            ambient::blocking(building).await
        } else {
            Some(building())
        };
        if let Some(zone) = built {
            tracing::debug!(
                serial = zone.serial(),
                records = zone.records(),
                invalid_entries = zone.invalid_entries(),
                "new zone published"
            );
            let before = self.shared.publish(zone);
            if large {
                // Dropping a large zone is slow, and nobody waits for it.
                tokio::spawn(ambient::blocking(move || drop(before)));
            }
            self.metrics.zone_updates.inc();
        } else {
            // Only if the runtime stops or building panicked; then the next zone is a full rebuild.
            self.changes.add_everything();
            tracing::error!("building a zone failed; retrying with a full rebuild");
        }
        self.build_time = began.elapsed();
    }
}

/// Opens a stream and reads its snapshot, then the leader's address, which the snapshot lacks.
async fn open(client: Client) -> Result<Opened, StreamLost> {
    let begin = async {
        let mut stream = client.watch().await.map_err(StreamLost::Cluster)?;
        let snapshot = stream.snapshot(ClusterModel::default()).await;
        let cluster = snapshot.map_err(StreamLost::Cluster)?.ok_or(StreamLost::Ended)?;
        Ok((stream, cluster))
    };
    let (stream, mut cluster) = timeout(SNAPSHOT_TIMEOUT, begin)
        .await
        .map_err(|_| StreamLost::NoSnapshot)??;
    match timeout(LEADER_TIMEOUT, client.state_as::<Leading>()).await {
        Ok(Ok(leading)) => cluster.leader = leading.endpoint(),
        Ok(Err(error)) => tracing::debug!(error = error_chain(&error), "cannot read the leader's address"),
        Err(_) => tracing::debug!("timeout reading the leader's address"),
    }
    cluster.hides_tasks = hides_tasks(&client, &cluster).await;
    Ok((stream, cluster))
}

/// Whether the master hides tasks from this principal. Read only if it lists none, when the document is
/// small.
async fn hides_tasks(client: &Client, cluster: &ClusterModel) -> bool {
    if cluster.has_tasks() || cluster.agents.is_empty() {
        return false;
    }
    match timeout(LEADER_TIMEOUT, client.state()).await {
        Ok(Ok(state)) => state.hides_tasks(),
        Ok(Err(_)) | Err(_) => false,
    }
}

/// Seconds since 1970, always more than the last serial.
fn next_serial(last: Option<u32>) -> u32 {
    let now = ambient::now().as_second() as u32;
    last.map_or(now, |last| now.max(last.wrapping_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_serial_always_exceeds_the_last_one() {
        let now = next_serial(None);
        assert!(next_serial(Some(now + 100)) == now + 101);
        assert!(next_serial(Some(5)) >= now);
    }
}
