//! Which plugin is from where, what was fetched of it, and when it is asked for again. Knows no registry and no clock.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{fetch_error::FetchError, image::Fetched, pull::FetchRequest};
use crate::{status, version_context::seconds_now};

/// After a first failure that may pass; doubled with each that follows.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_mins(1);

/// What there is of a source now.
#[derive(Clone, Debug)]
pub(crate) enum FetchState {
    /// This, whatever has happened since it was fetched.
    Fetched(Fetched),
    /// It was not asked for to the end yet.
    Pending,
    /// It could not be had.
    Failed(FetchError),
}

#[derive(Debug, Default)]
pub(super) struct FetchSchedule {
    entries: BTreeMap<String, Entry>,
    /// Counts wishes, so that the answer to an earlier one is known for that.
    requests: u64,
}

#[derive(Debug)]
struct Entry {
    request: FetchRequest,
    number: u64,
    have: Option<Fetched>,
    error: Option<FetchError>,
    failures: u32,
    /// When it is asked for next; none while it is, and for a digest that is here.
    due: Option<Instant>,
    /// The number of the wish that is being fetched.
    running: Option<u64>,
    /// Asked for while it ran: once more then.
    again: bool,
    /// Seconds since 1970.
    checked_at: Option<u64>,
}

/// One thing to fetch.
#[derive(Clone, Debug)]
pub(super) struct FetchTask {
    pub(super) name: String,
    pub(super) request: FetchRequest,
    pub(super) have: Option<Fetched>,
    number: u64,
}

/// What came of an errand, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FetchOutcome {
    /// Something else than before.
    Changed {
        digest: String,
    },
    /// As it was; only the registry answers again.
    Recovered,
    Failed(FetchError),
    /// Nothing to log.
    Unchanged,
}

impl FetchSchedule {
    /// Whether this is what the plugin wished for already.
    pub(super) fn has(&self, name: &str, request: &FetchRequest) -> bool {
        self.entries.get(name).is_some_and(|it| it.request == *request)
    }

    /// What an entry has, when it is of the same source as the wish.
    pub(super) fn fetched_from(&self, name: &str, request: &FetchRequest) -> Option<Fetched> {
        let entry = self.entries.get(name)?;
        (entry.request.source == request.source).then(|| entry.have.clone())?
    }

    /// A plugin's wish from now on. `have`: what was fetched earlier of the same source. `due`: none where that is all there can be.
    pub(super) fn set_request(
        &mut self,
        name: &str,
        request: FetchRequest,
        have: Option<Fetched>,
        due: Option<Instant>,
    ) {
        self.requests += 1;
        // The answer to the wish before is on its way; it frees the place.
        let running = self.entries.get(name).and_then(|it| it.running);
        let entry = Entry {
            request,
            number: self.requests,
            have,
            error: None,
            failures: 0,
            due,
            running,
            again: false,
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
            Some(Entry { have: Some(have), .. }) => FetchState::Fetched(have.clone()),
            Some(Entry {
                error: Some(error), ..
            }) => FetchState::Failed(error.clone()),
            _ => FetchState::Pending,
        }
    }

    pub(super) fn status(&self, name: &str) -> Option<status::Source> {
        let entry = self.entries.get(name)?;
        let image = entry.have.as_ref().map(|it| &it.image);
        Some(status::Source {
            reference: entry.request.source.to_string(),
            digest: image.map(|it| it.digest()),
            state: match (&entry.error, &entry.have, entry.checked_at) {
                (Some(_), _, _) => status::Fetching::Failed,
                (None, Some(_), Some(_)) => status::Fetching::Current,
                // A digest is not something else later.
                (None, Some(_), None) if entry.due.is_none() && entry.running.is_none() => {
                    status::Fetching::Current
                }
                _ => status::Fetching::Pending,
            },
            checked_at: entry.checked_at,
            error: entry.error.as_ref().map(ToString::to_string),
        })
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.entries.keys()
    }

    /// Everything is asked for again at once, tags and what could not be had.
    pub(super) fn refresh(&mut self, now: Instant) {
        for entry in self.entries.values_mut() {
            let settled =
                entry.request.source.digest().is_some() && entry.due.is_none() && entry.running.is_none();
            if settled {
                continue;
            }
            if entry.running.is_some() {
                entry.again = true;
            } else {
                entry.due = Some(now);
            }
        }
    }

    /// At most `places` errands that are due, and when the next one will be.
    pub(super) fn due(&mut self, now: Instant, places: usize) -> (Vec<FetchTask>, Option<Instant>) {
        let mut tasks = Vec::new();
        let mut next: Option<Instant> = None;
        for (name, entry) in &mut self.entries {
            let Some(due) = entry.due.filter(|_| entry.running.is_none()) else {
                continue;
            };
            if due > now {
                next = Some(next.map_or(due, |next| next.min(due)));
            } else if tasks.len() < places {
                entry.running = Some(entry.number);
                entry.due = None;
                tasks.push(FetchTask {
                    name: name.clone(),
                    request: entry.request.clone(),
                    have: entry.have.clone(),
                    number: entry.number,
                });
            }
        }
        (tasks, next)
    }

    /// What an errand came back with, and whether it is complete: signatures may still come.
    pub(super) fn done(
        &mut self,
        task: &FetchTask,
        result: Result<(Fetched, bool), FetchError>,
        policy: &RetryPolicy,
        now: Instant,
    ) -> FetchOutcome {
        let Some(entry) = self.entries.get_mut(&task.name) else {
            return FetchOutcome::Unchanged;
        };
        if entry.running == Some(task.number) {
            entry.running = None;
        }
        if entry.number != task.number {
            // The answer to an earlier wish.
            return FetchOutcome::Unchanged;
        }
        let again = std::mem::take(&mut entry.again);
        entry.checked_at = Some(seconds_now());
        let (outcome, due) = match result {
            Ok((fetched, complete)) => {
                let error = entry.error.take();
                entry.failures = 0;
                let same = entry.have.as_ref().is_some_and(|it| it.image == fetched.image);
                let digest = fetched.image.digest();
                entry.have = Some(fetched);
                let outcome = match (same, error) {
                    (false, _) => FetchOutcome::Changed { digest },
                    (true, Some(_)) => FetchOutcome::Recovered,
                    (true, None) => FetchOutcome::Unchanged,
                };
                let settled = complete && entry.request.source.digest().is_some();
                (outcome, (!settled).then(|| now + policy.refresh))
            }
            Err(error) => {
                entry.failures = entry.failures.saturating_add(1);
                let pause = policy.after(&error, entry.failures);
                let outcome = if entry.error.as_ref() == Some(&error) {
                    FetchOutcome::Unchanged
                } else {
                    FetchOutcome::Failed(error.clone())
                };
                entry.error = Some(error);
                (outcome, Some(now + pause))
            }
        };
        entry.due = if again { Some(now) } else { due };
        outcome
    }
}

/// How long nothing is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryPolicy {
    pub(super) refresh: Duration,
    /// Between a half and one: those that failed together do not come back together.
    pub(super) spread: f64,
}

impl RetryPolicy {
    fn after(&self, error: &FetchError, failures: u32) -> Duration {
        if !error.passes() {
            return self.refresh;
        }
        let doubled = MIN_RETRY_DELAY.saturating_mul(1 << failures.saturating_sub(1).min(16));
        doubled
            .min(MAX_RETRY_DELAY)
            .min(self.refresh)
            .mul_f64(self.spread)
    }
}

#[cfg(test)]
#[path = "fetch_schedule_tests.rs"]
mod tests;
