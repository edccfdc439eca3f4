//! The one thread that writes: many batches, one transaction, one sync.

use std::collections::HashMap;

use redb::Database;
use tokio::sync::{mpsc, oneshot};

use super::table::Open;
use crate::{Batch, Change, Error, Result};

/// Batches that go into one transaction at most, so that the first of them does not wait for ever.
const GROUP: usize = 256;

/// A batch and whoever waits for it.
pub(super) struct Request {
    pub(super) batch: Batch,
    pub(super) reply: oneshot::Sender<Result<Vec<u64>>>,
}

/// Serves batches until every sender is gone.
pub(super) fn run(database: &Database, mut waiting: mpsc::Receiver<Request>) {
    let mut group = Vec::with_capacity(GROUP);
    while waiting.blocking_recv_many(&mut group, GROUP) > 0 {
        let (batches, replies): (Vec<_>, Vec<_>) = group.drain(..).map(|r| (r.batch, r.reply)).unzip();
        match commit(database, &batches) {
            Ok(outcomes) => {
                for (reply, outcome) in replies.into_iter().zip(outcomes) {
                    // A caller that went away still had its batch made; nobody is left to be told.
                    let _ = reply.send(outcome);
                }
            }
            Err(failure) => {
                tracing::error!(error = %failure, batches = batches.len(), "the store could not write");
                let failure = std::sync::Arc::new(failure);
                for reply in replies {
                    let source = Box::new(std::sync::Arc::clone(&failure));
                    let _ = reply.send(Err(Error::Unavailable {
                        what: "write",
                        source,
                    }));
                }
            }
        }
    }
}

/// Makes every batch that finds what it expects, in order, in one durable transaction. The inner results are each
/// batch's own; the outer error means that none of them happened, refusals included: what a batch was compared with may
/// have been an earlier batch's change that is now gone.
fn commit(database: &Database, batches: &[Batch]) -> std::result::Result<Vec<Result<Vec<u64>>>, redb::Error> {
    let transaction = database.begin_write()?;
    let mut outcomes = Vec::with_capacity(batches.len());
    {
        let mut tables = Open::new(&transaction)?;
        let before = tables.last_version()?;
        let mut last = before;
        for batch in batches {
            outcomes.push(match check(&tables, batch.changes(), last)? {
                Ok(versions) => {
                    apply(&mut tables, batch.changes(), &versions)?;
                    last = versions.iter().copied().max().unwrap_or(0).max(last);
                    Ok(versions)
                }
                Err(refusal) => Err(refusal),
            });
        }
        if last != before {
            tables.set_last_version(last)?;
        }
    }
    transaction.commit()?;
    Ok(outcomes)
}

/// Compares every change with what it would find, and says which version each would get. Changes nothing, so a refused
/// batch leaves no trace in the transaction it shares.
fn check(
    tables: &Open<'_>,
    changes: &[Change],
    last: u64,
) -> std::result::Result<Result<Vec<u64>>, redb::Error> {
    let mut versions = Vec::with_capacity(changes.len());
    let mut left_by_earlier: HashMap<&str, Option<u64>> = HashMap::new();
    let mut next = last;
    for Change { key, value, expect } in changes {
        let found = match left_by_earlier.get(key.as_str()) {
            Some(found) => *found,
            None => match tables.version(key)? {
                Ok(found) => found,
                Err(corrupt) => return Ok(Err(corrupt)),
            },
        };
        if !expect.accepts(found) {
            return Ok(Err(Error::Conflict {
                key: key.clone(),
                found,
            }));
        }
        if value.is_some() {
            next += 1;
            versions.push(next);
            left_by_earlier.insert(key, Some(next));
        } else {
            versions.push(0);
            left_by_earlier.insert(key, None);
        }
    }
    Ok(Ok(versions))
}

fn apply(
    tables: &mut Open<'_>,
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
