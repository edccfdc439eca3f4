//! The fetch schedule: each plugin's source, its fetched image, and when it is fetched again. Pure:
//! no network, no clock.
#![deny(clippy::disallowed_methods, reason = "rules take the time as a parameter")]

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use transom_common::Backoff;

use super::{
    pull::FetchRequest,
    status::{FetchStatus, SourceStatus},
};
use crate::oci::{FetchError, Fetched};

/// Delays after temporary failures.
const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));

/// The state of a source.
#[derive(Clone, Debug)]
pub enum FetchState {
    /// Fetched, regardless of later failures.
    Fetched(Fetched),
    /// The first fetch has not finished.
    Pending,
    /// The first fetch failed.
    Failed(FetchError),
}

#[derive(Debug, Default)]
pub(super) struct FetchSchedule {
    entries: BTreeMap<String, Entry>,
    /// Counts requests, to detect results of outdated ones.
    requests: u64,
}

#[derive(Debug)]
struct Entry {
    request: FetchRequest,
    number: u64,
    fetched: Option<Fetched>,
    error: Option<FetchError>,
    failures: u32,
    /// When to fetch next; `None` during a fetch, and for a digest that was fetched completely.
    due: Option<Instant>,
    /// The number of the request that is being fetched.
    running: Option<u64>,
    /// Whether a refresh was requested during the running fetch, so that another fetch follows it.
    refresh_requested: bool,
    /// Seconds since 1970.
    checked_at: Option<u64>,
}

/// A fetch to execute.
#[derive(Clone, Debug)]
pub(super) struct FetchTask {
    pub(super) name: String,
    pub(super) request: FetchRequest,
    pub(super) previous: Option<Fetched>,
    number: u64,
}

/// The result of a fetch, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FetchOutcome {
    /// Another image than before.
    Changed {
        digest: String,
    },
    /// The same image after a failure.
    Recovered,
    Failed(FetchError),
    /// Nothing to log.
    Unchanged,
}

impl FetchSchedule {
    /// Whether this is the plugin's current request.
    pub(super) fn is_current(&self, name: &str, request: &FetchRequest) -> bool {
        self.entries.get(name).is_some_and(|it| it.request == *request)
    }

    /// The fetched image, if it is of the same source as the request.
    pub(super) fn fetched_from(&self, name: &str, request: &FetchRequest) -> Option<Fetched> {
        let entry = self.entries.get(name)?;
        (entry.request.source == request.source).then(|| entry.fetched.clone())?
    }

    /// Sets a plugin's request. `previous`: an image fetched earlier from the same source. `due`: none
    /// if nothing is left to fetch.
    pub(super) fn set_request(
        &mut self,
        name: &str,
        request: FetchRequest,
        previous: Option<Fetched>,
        due: Option<Instant>,
    ) {
        self.requests += 1;
        // A fetch of the previous request may still run.
        let running = self.entries.get(name).and_then(|it| it.running);
        let entry = Entry {
            request,
            number: self.requests,
            fetched: previous,
            error: None,
            failures: 0,
            due,
            running,
            refresh_requested: false,
            checked_at: None,
        };
        self.entries.insert(name.to_owned(), entry);
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.entries.remove(name);
    }

    pub(super) fn keep_only(&mut self, keep: impl Fn(&str) -> bool) {
        self.entries.retain(|name, _| keep(name));
    }

    pub(super) fn state(&self, name: &str) -> FetchState {
        match self.entries.get(name) {
            Some(Entry {
                fetched: Some(fetched),
                ..
            }) => FetchState::Fetched(fetched.clone()),
            Some(Entry {
                error: Some(error), ..
            }) => FetchState::Failed(error.clone()),
            _ => FetchState::Pending,
        }
    }

    pub(super) fn status(&self, name: &str) -> Option<SourceStatus> {
        let entry = self.entries.get(name)?;
        let image = entry.fetched.as_ref().map(|it| &it.image);
        Some(SourceStatus {
            reference: entry.request.source.to_string(),
            digest: image.map(|it| it.digest()),
            state: match (&entry.error, &entry.fetched, entry.checked_at) {
                (Some(_), _, _) => FetchStatus::Failed,
                (None, Some(_), Some(_)) => FetchStatus::Current,
                // The content of a digest never changes, so the registry is not contacted.
                (None, Some(_), None) if entry.due.is_none() && entry.running.is_none() => {
                    FetchStatus::Current
                }
                _ => FetchStatus::Pending,
            },
            checked_at: entry.checked_at,
            error: entry.error.as_ref().map(ToString::to_string),
        })
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.entries.keys()
    }

    /// Makes all tags and failed fetches due now.
    pub(super) fn refresh(&mut self, now: Instant) {
        for entry in self.entries.values_mut() {
            let is_settled =
                entry.request.source.digest().is_some() && entry.due.is_none() && entry.running.is_none();
            if is_settled {
                continue;
            }
            if entry.running.is_some() {
                entry.refresh_requested = true;
            } else {
                entry.due = Some(now);
            }
        }
    }

    /// Starts at most `max_tasks` due fetches, and returns them with the time at which the next one is
    /// due.
    pub(super) fn due(&mut self, now: Instant, max_tasks: usize) -> (Vec<FetchTask>, Option<Instant>) {
        let mut tasks = Vec::new();
        let mut next: Option<Instant> = None;
        for (name, entry) in &mut self.entries {
            let Some(due) = entry.due.filter(|_| entry.running.is_none()) else {
                continue;
            };
            if due > now {
                next = Some(next.map_or(due, |next| next.min(due)));
            } else if tasks.len() < max_tasks {
                entry.running = Some(entry.number);
                entry.due = None;
                tasks.push(FetchTask {
                    name: name.clone(),
                    request: entry.request.clone(),
                    previous: entry.fetched.clone(),
                    number: entry.number,
                });
            }
        }
        (tasks, next)
    }

    /// Records the result of a fetch. The `bool` in `result`: whether the image is complete, so
    /// that no signature has to be fetched later. `checked_at`: seconds since 1970.
    pub(super) fn finish(
        &mut self,
        task: &FetchTask,
        result: Result<(Fetched, bool), FetchError>,
        policy: &RetryPolicy,
        now: Instant,
        checked_at: u64,
    ) -> FetchOutcome {
        let Some(entry) = self.entries.get_mut(&task.name) else {
            return FetchOutcome::Unchanged;
        };
        if entry.running == Some(task.number) {
            entry.running = None;
        }
        if entry.number != task.number {
            // The result of an outdated request.
            return FetchOutcome::Unchanged;
        }
        let refresh_requested = std::mem::take(&mut entry.refresh_requested);
        entry.checked_at = Some(checked_at);
        let (outcome, due) = match result {
            Ok((fetched, complete)) => {
                let error = entry.error.take();
                entry.failures = 0;
                let is_same = entry.fetched.as_ref().is_some_and(|it| it.image == fetched.image);
                let digest = fetched.image.digest();
                entry.fetched = Some(fetched);
                let outcome = match (is_same, error) {
                    (false, _) => FetchOutcome::Changed { digest },
                    (true, Some(_)) => FetchOutcome::Recovered,
                    (true, None) => FetchOutcome::Unchanged,
                };
                let is_settled = complete && entry.request.source.digest().is_some();
                (outcome, (!is_settled).then(|| now + policy.refresh))
            }
            Err(error) => {
                entry.failures = entry.failures.saturating_add(1);
                let delay = policy.delay_after(&error, entry.failures);
                let outcome = if entry.error.as_ref() == Some(&error) {
                    FetchOutcome::Unchanged
                } else {
                    FetchOutcome::Failed(error.clone())
                };
                entry.error = Some(error);
                (outcome, Some(now + delay))
            }
        };
        entry.due = if refresh_requested { Some(now) } else { due };
        outcome
    }
}

/// Delays between fetches.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryPolicy {
    pub(super) refresh: Duration,
    /// Between 0.5 and 1: jitter for simultaneous failures.
    pub(super) spread: f64,
}

impl RetryPolicy {
    fn delay_after(&self, error: &FetchError, failures: u32) -> Duration {
        if !error.is_temporary() {
            return self.refresh;
        }
        RETRY_BACKOFF
            .after(failures.saturating_sub(1))
            .min(self.refresh)
            .mul_f64(self.spread)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests start now")]
mod tests;
