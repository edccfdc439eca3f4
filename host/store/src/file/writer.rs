//! The only thread that writes. It combines many batches into one transaction with one sync. It
//! also owns the leases, so that fences are checked in the order of all requests.

use std::sync::Arc;
use std::time::Instant;

use redb::Database;
use tokio::sync::{mpsc, oneshot};
use transom_common::error_chain;

use super::batch_check::check;
use super::large_batches::{Commit, LargeBatches, Step};
use super::table::OpenTables;
use crate::leases::{HeldLease, LeaseOperation, Leases};
use crate::watch::Feed;
use crate::{Batch, Change, Error, Notice, Result};

/// The maximum number of requests in one transaction, which bounds the latency of the first one.
const MAX_GROUP_REQUESTS: usize = 256;

/// A request to the writer, and the channel for its reply.
pub(super) enum Request {
    Commit(Commit),
    Lease {
        name: String,
        operation: LeaseOperation,
        reply: oneshot::Sender<Result<Option<HeldLease>>>,
    },
}

impl Request {
    /// Reports to the caller that no request of its group was applied.
    fn fail(self, failure: &Arc<redb::Error>) {
        let error = Error::Unavailable {
            what: "write",
            source: Box::new(Arc::clone(failure)),
        };
        match self {
            Self::Commit(Commit { reply, .. }) => drop(reply.send(Err(error))),
            Self::Lease { reply, .. } => drop(reply.send(Err(error))),
        }
    }
}

/// The result of a request.
enum RequestOutcome {
    Commit(Result<Vec<u64>>),
    Lease(Result<Option<HeldLease>>),
}

/// The state of the writer's thread.
pub(super) struct Writer {
    pub(super) database: Arc<Database>,
    pub(super) leases: Leases,
    pub(super) feed: Feed,
    pub(super) large: LargeBatches,
}

impl Writer {
    /// Serves requests until every sender is dropped.
    pub(super) fn run(mut self, mut waiting: mpsc::Receiver<Request>) {
        let mut group = Vec::with_capacity(MAX_GROUP_REQUESTS);
        let mut has_failed = false;
        loop {
            // After a failure, the journal is left as it is until the next request.
            if self.large.is_idle() || has_failed {
                match waiting.blocking_recv() {
                    Some(request) => group.extend(self.admit(request)),
                    None => return,
                }
            }
            self.receive(&mut waiting, &mut group);
            has_failed = !self.write(&mut group);
        }
    }

    /// Takes the requests that have arrived, as many as the group and the large batches have room for.
    pub(super) fn receive(&mut self, waiting: &mut mpsc::Receiver<Request>, group: &mut Vec<Request>) {
        while group.len() < MAX_GROUP_REQUESTS
            && self.large.has_room()
            && let Ok(request) = waiting.try_recv()
        {
            group.extend(self.admit(request));
        }
    }

    /// Adds a request to the large batches if it belongs there; returns any other.
    pub(super) fn admit(&mut self, request: Request) -> Option<Request> {
        match request {
            Request::Commit(commit) => self.large.admit(commit).map(Request::Commit),
            lease @ Request::Lease { .. } => Some(lease),
        }
    }

    /// Serves a group of requests, with a step for the large batches. Returns whether the transaction
    /// was committed.
    pub(super) fn write(&mut self, group: &mut Vec<Request>) -> bool {
        let mut leases = self.leases.clone();
        match commit(&self.database, &mut leases, group, &self.large) {
            Ok((outcomes, step)) => {
                self.leases = leases;
                for (request, outcome) in group.drain(..).zip(outcomes) {
                    self.settle(request, outcome);
                }
                if let Some((commit, outcome)) = self.large.follow(step) {
                    self.settle(Request::Commit(commit), RequestOutcome::Commit(outcome));
                }
                true
            }
            Err(failure) => {
                group.extend(self.large.fail().map(Request::Commit));
                tracing::error!(
                    error = error_chain(&failure),
                    requests = group.len(),
                    "writing to the embedded store failed"
                );
                let failure = Arc::new(failure);
                group.drain(..).for_each(|request| request.fail(&failure));
                false
            }
        }
    }

    /// Notifies watchers and callers.
    fn settle(&self, request: Request, outcome: RequestOutcome) {
        // If the caller no longer waits, its request was applied nevertheless, and the reply is
        // dropped.
        match (request, outcome) {
            (Request::Commit(Commit { batch, reply }), RequestOutcome::Commit(outcome)) => {
                if let Ok(versions) = &outcome {
                    self.feed.publish(notices(batch, versions));
                }
                let _ = reply.send(outcome);
            }
            (Request::Lease { reply, .. }, RequestOutcome::Lease(outcome)) => drop(reply.send(outcome)),
            // Each outcome belongs to one request; a dropped sender reports to its caller that the
            // store is closed.
            (Request::Commit(_), RequestOutcome::Lease(_))
            | (Request::Lease { .. }, RequestOutcome::Commit(_)) => {}
        }
    }
}

fn notices(batch: Batch, versions: &[u64]) -> impl Iterator<Item = Notice> {
    let changes = batch.into_changes().into_iter().zip(versions);
    changes.map(|(change, version)| Notice::Changed {
        key: change.key,
        version: change.value.is_some().then_some(*version),
    })
}

/// Applies every valid request, in order, and does a step for the large batches, in one durable
/// transaction. Each inner result belongs to one request. The outer error means that none was applied.
/// It invalidates rejections too, because a batch may have been compared with a change of an earlier
/// batch that was rolled back.
fn commit(
    database: &Database,
    leases: &mut Leases,
    group: &[Request],
    large: &LargeBatches,
) -> std::result::Result<(Vec<RequestOutcome>, Step), redb::Error> {
    let transaction = database.begin_write()?;
    let mut outcomes = Vec::with_capacity(group.len());
    let (fencing, changed, step);
    {
        let mut tables = OpenTables::new(&transaction)?;
        let before = tables.last_version()?;
        let (mut last, mut deleted) = (before, false);
        fencing = leases.last();
        for request in group {
            outcomes.push(match request {
                Request::Lease { name, operation, .. } => {
                    RequestOutcome::Lease(leases.apply(name, operation, Instant::now()))
                }
                Request::Commit(Commit { batch, .. }) => {
                    RequestOutcome::Commit(match check(&tables, leases, batch, last)? {
                        Ok(versions) => {
                            apply(&mut tables, batch.changes(), &versions)?;
                            last = versions.iter().copied().max().unwrap_or(0).max(last);
                            deleted |= versions.contains(&0);
                            Ok(versions)
                        }
                        Err(rejection) => Err(rejection),
                    })
                }
            });
        }
        step = large.step(&mut tables, leases, &mut last)?;
        if last != before {
            tables.set_last_version(last)?;
        }
        if leases.last() != fencing {
            tables.set_last_fencing(leases.last())?;
        }
        let is_written = deleted || !matches!(step, Step::Nothing);
        changed = is_written || last != before || leases.last() != fencing;
    }
    if changed {
        transaction.commit()?;
    } else {
        // A group of renewals and rejections only needs no sync.
        transaction.abort()?;
    }
    Ok((outcomes, step))
}

fn apply(
    tables: &mut OpenTables<'_>,
    changes: &[Change],
    versions: &[u64],
) -> std::result::Result<(), redb::Error> {
    for (change, version) in changes.iter().zip(versions) {
        match &change.value {
            Some(value) => tables.put(&change.key, value, *version)?,
            None => tables.delete(&change.key)?,
        }
    }
    Ok(())
}
