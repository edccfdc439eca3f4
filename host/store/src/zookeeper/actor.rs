//! The only task that reads and writes the log. It follows the entries of all daemons, and combines
//! waiting requests into one entry.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, OptionFuture};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use transom_common::ambient::{self, blocking};
use transom_common::{Backoff, error_chain};
use uuid::Uuid;

use super::ensemble::{Appended, Current, Ensemble, Pieces, STAGED_PIECES};
use super::records::{Record, encode};
use super::settings::Settings;
use super::snapshot::{self, MAX_BYTES, MAX_ENTRIES};
use super::state::{Draft, State};
use crate::leases::{HeldLease, LeaseOperation};
use crate::watch::Feed;
use crate::{Batch, Cause, Entry, Error, Notice, Result};

/// The delay between failed sessions, with jitter.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
/// A session that lasted longer counts as success.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// The most requests and bytes of one entry, except for a single request that is larger.
const MAX_GROUP: usize = 1024;
const MAX_GROUP_BYTES: usize = 1 << 20;
/// While requests arrive faster than one by one, entries are at least this far apart: each costs the
/// ensemble a transaction with a sync on most of its disks.
const PACE: Duration = Duration::from_millis(20);

type Reply<T> = oneshot::Sender<Result<T>>;

/// A request, and the channel for its answer.
#[derive(Debug)]
pub(super) enum Request {
    Get(String, Reply<Option<Entry>>),
    Scan(String, Reply<Vec<Entry>>),
    Commit(Batch, Reply<Vec<u64>>),
    Lease(String, LeaseOperation, Reply<Option<HeldLease>>),
}

/// What a request changes.
#[derive(Debug)]
enum Outcome {
    /// It reads what is there then.
    Read,
    Commit(Result<Vec<u64>>),
    Lease(Result<Option<HeldLease>>),
}

impl Request {
    /// Whether nobody waits for the answer.
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Get(_, reply) => reply.is_closed(),
            Self::Scan(_, reply) => reply.is_closed(),
            Self::Commit(_, reply) => reply.is_closed(),
            Self::Lease(_, _, reply) => reply.is_closed(),
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Commit(batch, _) => {
                let changes = batch.changes().iter();
                let sizes =
                    changes.map(|change| change.key.len() + change.value.as_ref().map_or(0, Bytes::len));
                sizes.sum()
            }
            _ => 0,
        }
    }

    fn fail(self, error: Error) {
        match self {
            Self::Get(_, reply) => drop(reply.send(Err(error))),
            Self::Scan(_, reply) => drop(reply.send(Err(error))),
            Self::Commit(_, reply) => drop(reply.send(Err(error))),
            Self::Lease(_, _, reply) => drop(reply.send(Err(error))),
        }
    }
}

/// An entry that may be in the log, and the requests of which it consists.
#[derive(Debug)]
struct Attempt {
    id: Uuid,
    position: u64,
    /// Leases that it grants count from here.
    began: Instant,
    records: Vec<Record>,
    encoded: Bytes,
    /// Where its pieces are, if it is large.
    staged: Option<Pieces>,
    /// Whether an earlier try got no answer, so that the log may have it.
    is_unknown: bool,
    group: Vec<(Request, Outcome)>,
}

/// The log as far as it is known.
#[derive(Debug)]
struct Log {
    state: State,
    current: Current,
    /// The version of the node that `current` is from.
    version: i32,
    /// The bytes of the entries after the snapshot.
    sizes: VecDeque<u64>,
    bytes: u64,
    /// Whether the last entry is this daemon's, which then writes a snapshot if one is due.
    is_own: bool,
}

pub(super) struct Actor {
    settings: Settings,
    requests: mpsc::Receiver<Request>,
    feed: Feed,
    log: Option<Log>,
    group: Vec<Request>,
    attempt: Option<Attempt>,
    /// The names of staged pieces of attempts that are not in the log.
    unused: Vec<String>,
    /// When the last entry was begun, if it had several requests.
    paced: Option<Instant>,
    /// The last failure, while there is no session.
    failure: Option<String>,
    snapshots: JoinSet<Result<(), Cause>>,
    /// No snapshot is due before the log has so many entries: the last one failed.
    retry_at: usize,
}

impl Actor {
    pub(super) fn new(settings: Settings, requests: mpsc::Receiver<Request>, feed: Feed) -> Self {
        Self {
            settings,
            requests,
            feed,
            log: None,
            group: Vec::new(),
            attempt: None,
            unused: Vec::new(),
            paced: None,
            failure: None,
            snapshots: JoinSet::new(),
            retry_at: 0,
        }
    }

    /// Serves requests until every sender is dropped.
    pub(super) async fn run(mut self) {
        let mut failures = 0_u32;
        loop {
            let began = Instant::now();
            let served = AssertUnwindSafe(self.session()).catch_unwind().await;
            let failure = match served {
                Ok(Ok(())) => return,
                Ok(Err(failure)) => error_chain(&*failure),
                Err(_) => {
                    self.log = None;
                    self.give_up_attempt("the ZooKeeper client panicked");
                    "the ZooKeeper client panicked".to_owned()
                }
            };
            if began.elapsed() > STABLE_AFTER {
                failures = 0;
            }
            if self.failure.as_deref() == Some(&*failure) {
                tracing::debug!("{failure}");
            } else {
                tracing::warn!(
                    path = self.settings.root,
                    "the store is not available; reconnecting: {failure}"
                );
            }
            self.failure = Some(failure);
            // The first loss of a session is usually that of one server: another one may answer at once.
            if failures > 0 {
                self.reject_all();
            }
            let pause = tokio::time::sleep(BACKOFF.jittered(failures));
            let is_open = self.rejecting(pause).await.is_some();
            if !is_open {
                return;
            }
            failures = failures.saturating_add(1);
        }
    }

    fn unavailable(&self) -> Error {
        let failure = self.failure.clone().unwrap_or_default();
        Error::Unavailable {
            what: "read or write",
            source: failure.into(),
        }
    }

    /// Answers all requests that wait with the last failure. What the log may have stays known.
    fn reject_all(&mut self) {
        let mut waiting: Vec<Request> = self.group.drain(..).collect();
        if let Some(attempt) = &mut self.attempt {
            waiting.extend(attempt.group.drain(..).map(|(request, _)| request));
        }
        while let Ok(request) = self.requests.try_recv() {
            waiting.push(request);
        }
        for request in waiting {
            request.fail(self.unavailable());
        }
    }

    /// Waits for `what`. Requests meanwhile get the last failure, if there is one. `None`: the store was
    /// closed.
    async fn rejecting<T>(&mut self, what: impl Future<Output = T>) -> Option<T> {
        let mut what = std::pin::pin!(what);
        loop {
            tokio::select! {
                biased;
                done = &mut what => return Some(done),
                request = self.requests.recv() => match (request, &self.failure) {
                    (None, _) => return None,
                    (Some(request), None) => self.group.push(request),
                    (Some(request), Some(_)) => request.fail(self.unavailable()),
                }
            }
        }
    }

    /// Runs until the session is lost, or the store is closed.
    async fn session(&mut self) -> Result<(), Cause> {
        let settings = self.settings.clone();
        let Some(ensemble) = self.rejecting(Ensemble::connect(&settings)).await else {
            return Ok(());
        };
        let ensemble = ensemble?;
        // In microseconds, as a Redis: even an ensemble that lost its data assigns no version twice.
        let first = u64::try_from(ambient::now().as_microsecond()).unwrap_or_default();
        ensemble.prepare(first, settings.world_access).await?;
        self.catch_up(&ensemble).await?;
        if self.failure.take().is_some() {
            tracing::info!(path = settings.root, "the store is available again");
        }
        self.serve(&ensemble).await
    }

    async fn serve(&mut self, ensemble: &Ensemble) -> Result<(), Cause> {
        let mut watched: Option<(u64, BoxFuture<'_, ()>)> = None;
        loop {
            self.write_group(ensemble).await?;
            if let Ok(request) = self.requests.try_recv() {
                self.gather(request).await;
                continue;
            }
            self.begin_snapshot(ensemble);
            let Some(log) = &self.log else {
                return Ok(());
            };
            let next = log.state.position + 1;
            if watched.as_ref().is_none_or(|(position, _)| *position != next) {
                let Some(change) = ensemble.watch(next, log.version).await? else {
                    self.catch_up(ensemble).await?;
                    continue;
                };
                watched = Some((next, change.changed().map(drop).boxed()));
            }
            let changed = OptionFuture::from(watched.as_mut().map(|(_, changed)| changed));
            tokio::select! {
                biased;
                request = self.requests.recv() => match request {
                    Some(request) => self.gather(request).await,
                    None => return Ok(()),
                },
                _ = changed => {
                    watched = None;
                    self.catch_up(ensemble).await?;
                }
                Some(written) = self.snapshots.join_next() => self.snapshot_ended(written),
            }
        }
    }

    /// Adds a request, and those that arrive with it.
    async fn gather(&mut self, first: Request) {
        let mut bytes = first.size();
        self.group.push(first);
        let until = self.paced.map(|last| tokio::time::Instant::from_std(last + PACE));
        while self.group.len() < MAX_GROUP && bytes < MAX_GROUP_BYTES {
            let request = match (self.requests.try_recv(), until) {
                (Ok(request), _) => Some(request),
                (Err(_), Some(until)) => tokio::time::timeout_at(until, self.requests.recv())
                    .await
                    .ok()
                    .flatten(),
                (Err(_), None) => None,
            };
            let Some(request) = request else {
                return;
            };
            bytes += request.size();
            self.group.push(request);
        }
    }

    /// Writes and answers until nothing waits.
    async fn write_group(&mut self, ensemble: &Ensemble) -> Result<(), Cause> {
        while self.attempt.is_some() || !self.group.is_empty() {
            if self.attempt.is_some() {
                self.append(ensemble).await?;
                continue;
            }
            let Some(log) = &self.log else {
                return Ok(());
            };
            self.group.retain(|request| !request.is_abandoned());
            let (position, began) = (log.state.position + 1, Instant::now());
            let (records, group) = evaluate(&log.state, std::mem::take(&mut self.group), began);
            self.paced = (group.len() > 1).then_some(began);
            if !records.is_empty() {
                let (records, encoded) = encoded(records).await?;
                self.attempt = Some(Attempt {
                    id: ambient::uuid(),
                    position,
                    began,
                    encoded,
                    records,
                    staged: None,
                    is_unknown: false,
                    group,
                });
                continue;
            }
            // Candidates for a lease ask often, and may learn late that it is free.
            let is_strict = !group
                .iter()
                .all(|(request, _)| matches!(request, Request::Lease(..)));
            let ends = ensemble.ends_before(position, log.version, is_strict).await;
            if let Ok(true) = ends {
                answer(&log.state, group);
                continue;
            }
            self.group.extend(group.into_iter().map(|(request, _)| request));
            if !ends? {
                self.catch_up(ensemble).await?;
            }
        }
        Ok(())
    }

    /// Tries to append the attempt.
    async fn append(&mut self, ensemble: &Ensemble) -> Result<(), Cause> {
        let (Some(attempt), Some(log)) = (&mut self.attempt, &mut self.log) else {
            return Ok(());
        };
        if Ensemble::is_large(&attempt.encoded) && attempt.staged.is_none() {
            let (position, version) = (attempt.position, log.version);
            if !ensemble.ends_before(position, version, false).await? {
                return self.catch_up(ensemble).await;
            }
            let plain = attempt.records.iter().map(|record| record.size() as u64).sum();
            attempt.staged = ensemble
                .write_pieces(STAGED_PIECES, attempt.id, &attempt.encoded, plain)
                .await?;
            if attempt.staged.is_none() {
                attempt.id = ambient::uuid();
                return Ok(());
            }
        }
        let entry = attempt.staged.as_ref().map_or(Ok(&*attempt.encoded), Err);
        let tried = ensemble
            .append(attempt.position, log.version, attempt.id, entry)
            .await
            .inspect_err(|_| attempt.is_unknown = true)?;
        match tried {
            Appended::Done => self.land(),
            Appended::Occupied | Appended::Superseded => self.catch_up(ensemble).await?,
            Appended::Unstaged => (attempt.staged, attempt.id) = (None, ambient::uuid()),
        }
        Ok(())
    }

    /// The attempt is in the log.
    fn land(&mut self) {
        let (Some(attempt), Some(log)) = (self.attempt.take(), &mut self.log) else {
            return;
        };
        log.append(attempt.encoded.len() as u64, true);
        let notices = log.state.apply(attempt.records, attempt.began);
        self.feed.publish(notices);
        answer(&log.state, attempt.group);
    }

    /// Applies what the log has after the known position.
    async fn catch_up(&mut self, ensemble: &Ensemble) -> Result<(), Cause> {
        loop {
            if self.log.is_none() {
                self.load(ensemble).await?;
            }
            let Some(log) = &mut self.log else {
                return Ok(());
            };
            let (entries, mut has_more) = ensemble.read(log.state.position + 1).await?;
            let is_stuck = has_more && entries.is_empty();
            for entry in entries {
                let position = log.state.position + 1;
                if let Some(attempt) = self.attempt.take_if(|attempt| attempt.position == position) {
                    if attempt.id == entry.id {
                        log.append(entry.bytes, true);
                        self.feed.publish(log.state.apply(attempt.records, attempt.began));
                        answer(&log.state, attempt.group);
                        continue;
                    }
                    self.unused.extend(attempt.staged.map(|pieces| pieces.name));
                    let requests = attempt.group.into_iter().map(|(request, _)| request);
                    self.group.extend(requests);
                }
                log.append(entry.bytes, false);
                self.feed.publish(log.state.apply(entry.records, Instant::now()));
            }
            // After the entries: where one is missing, it may have been deleted by then.
            let (current, version) = ensemble.current().await?;
            if current.id != log.current.id {
                tracing::error!(
                    path = self.settings.root,
                    "ZooKeeper has lost the state: there is another store now"
                );
                self.log = None;
                has_more = true;
                self.give_up_attempt("the state is lost");
            } else if version > log.version && current.position > log.state.position {
                tracing::debug!(
                    position = current.position,
                    "the log was read too late: it begins with a later snapshot"
                );
                self.log = None;
                has_more = true;
            } else if version > log.version {
                log.continue_after(current, version);
            } else if is_stuck {
                let position = log.state.position + 1;
                return Err(format!("pieces of the entry {position} of the log are missing").into());
            }
            if !has_more {
                break;
            }
        }
        for name in std::mem::take(&mut self.unused) {
            ensemble.delete_pieces(STAGED_PIECES, &name).await?;
        }
        Ok(())
    }

    /// Forgets an attempt of which nobody can tell any more whether it is in the log.
    fn give_up_attempt(&mut self, why: &'static str) {
        let Some(attempt) = self.attempt.take() else {
            return;
        };
        for (request, _) in attempt.group {
            if attempt.is_unknown {
                request.fail(Error::Unavailable {
                    what: "tell whether it has written",
                    source: why.into(),
                });
            } else {
                self.group.push(request);
            }
        }
    }

    /// Reads the snapshot with which the log begins.
    async fn load(&mut self, ensemble: &Ensemble) -> Result<(), Cause> {
        let (state, current, version) = ensemble.load().await?;
        let passed = |attempt: &Attempt| attempt.position <= state.position;
        if self.attempt.as_ref().is_some_and(passed) {
            self.give_up_attempt("the answer was lost, and others have written much since");
        }
        self.log = Some(Log {
            state,
            current,
            version,
            sizes: VecDeque::new(),
            bytes: 0,
            is_own: false,
        });
        self.feed.publish([Notice::Lagged]);
        Ok(())
    }

    /// Begins a snapshot if the log is long.
    fn begin_snapshot(&mut self, ensemble: &Ensemble) {
        let Some(log) = &self.log else {
            return;
        };
        let last = log.current.snapshot.as_ref().map_or(0, |snapshot| snapshot.bytes);
        let is_long = log.sizes.len() >= MAX_ENTRIES || log.bytes >= MAX_BYTES.max(last);
        if is_long && log.is_own && log.sizes.len() >= self.retry_at && self.snapshots.is_empty() {
            let before = (log.current.clone(), log.version);
            self.snapshots
                .spawn(snapshot::write(ensemble.clone(), log.state.clone(), before));
        }
    }

    fn snapshot_ended(&mut self, ended: Result<Result<(), Cause>, tokio::task::JoinError>) {
        let failure = match ended {
            Ok(Ok(())) => {
                self.retry_at = 0;
                return;
            }
            Ok(Err(failure)) => error_chain(&*failure),
            Err(panic) => panic.to_string(),
        };
        let entries = self.log.as_ref().map_or(0, |log| log.sizes.len());
        self.retry_at = entries + MAX_ENTRIES / 10;
        tracing::warn!("writing a snapshot of the store failed; it is repeated later: {failure}");
    }
}

impl Log {
    fn append(&mut self, bytes: u64, is_own: bool) {
        self.is_own = is_own;
        self.state.position += 1;
        self.sizes.push_back(bytes);
        self.bytes += bytes;
    }

    /// There is another snapshot, of a part of what is known.
    fn continue_after(&mut self, current: Current, version: i32) {
        let entries = self.state.position.saturating_sub(current.position);
        while self.sizes.len() as u64 > entries {
            self.bytes -= self.sizes.pop_front().unwrap_or_default();
        }
        (self.current, self.version) = (current, version);
    }
}

/// Records with their encoding. Large ones are compressed on another thread.
async fn encoded(records: Vec<Record>) -> Result<(Vec<Record>, Bytes), Cause> {
    let size: usize = records.iter().map(Record::size).sum();
    if size <= MAX_GROUP_BYTES {
        let encoded = encode(&records)?;
        return Ok((records, encoded.into()));
    }
    let encoded = blocking(move || {
        let encoded = encode(&records);
        (records, encoded)
    });
    let (records, encoded) = encoded.await.ok_or(Error::Closed)?;
    Ok((records, encoded?.into()))
}

/// What requests change, in their order.
fn evaluate(state: &State, group: Vec<Request>, now: Instant) -> (Vec<Record>, Vec<(Request, Outcome)>) {
    let mut draft = Draft::new(state, now);
    let outcomes = group.into_iter().map(|request| {
        let outcome = match &request {
            Request::Get(..) | Request::Scan(..) => Outcome::Read,
            Request::Commit(batch, _) => Outcome::Commit(draft.commit(batch)),
            Request::Lease(name, operation, _) => Outcome::Lease(draft.lease(name, operation)),
        };
        (request, outcome)
    });
    let outcomes = outcomes.collect();
    (draft.into_records(), outcomes)
}

fn answer(state: &State, group: Vec<(Request, Outcome)>) {
    for (request, outcome) in group {
        match (request, outcome) {
            (Request::Get(key, reply), _) => drop(reply.send(Ok(state.get(&key)))),
            (Request::Scan(prefix, reply), _) => drop(reply.send(Ok(state.scan(&prefix)))),
            (Request::Commit(_, reply), Outcome::Commit(outcome)) => drop(reply.send(outcome)),
            (Request::Lease(_, _, reply), Outcome::Lease(outcome)) => drop(reply.send(outcome)),
            // Each outcome belongs to one request.
            (Request::Commit(..) | Request::Lease(..), _) => {}
        }
    }
}
