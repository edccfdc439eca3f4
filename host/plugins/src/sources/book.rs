//! Which plugin is from where, what was fetched of it, and when it is asked for again. Knows no registry and no clock.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{fetch_error::FetchError, image::Fetched, pull::Wish};
use crate::{plugin::seconds_now, status};

/// After a first failure that may pass; doubled with each that follows.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// What there is of a source now.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// This, whatever has happened since it was fetched.
    Here(Fetched),
    /// It was not asked for to the end yet.
    Underway,
    /// It could not be had.
    Failed(FetchError),
}

#[derive(Debug, Default)]
pub(super) struct Book {
    entries: BTreeMap<String, Entry>,
    /// Counts wishes, so that the answer to an earlier one is known for that.
    wishes: u64,
}

#[derive(Debug)]
struct Entry {
    wish: Wish,
    number: u64,
    have: Option<Fetched>,
    trouble: Option<FetchError>,
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
pub(super) struct Errand {
    pub(super) name: String,
    pub(super) wish: Wish,
    pub(super) have: Option<Fetched>,
    number: u64,
}

/// What came of an errand, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Something else than before.
    Came {
        digest: String,
    },
    /// As it was; only the registry answers again.
    Recovered,
    Failed(FetchError),
    /// Nothing to say.
    None,
}

impl Book {
    /// Whether this is what the plugin wished for already.
    pub(super) fn has(&self, name: &str, wish: &Wish) -> bool {
        self.entries.get(name).is_some_and(|it| it.wish == *wish)
    }

    /// What an entry has, when it is of the same source as the wish.
    pub(super) fn of_same_source(&self, name: &str, wish: &Wish) -> Option<Fetched> {
        let entry = self.entries.get(name)?;
        (entry.wish.source == wish.source).then(|| entry.have.clone())?
    }

    /// A plugin's wish from now on. `have`: what was fetched earlier of the same source. `due`: none where that is all there can be.
    pub(super) fn wish(&mut self, name: &str, wish: Wish, have: Option<Fetched>, due: Option<Instant>) {
        self.wishes += 1;
        // The answer to the wish before is on its way; it frees the place.
        let running = self.entries.get(name).and_then(|it| it.running);
        let entry = Entry {
            wish,
            number: self.wishes,
            have,
            trouble: None,
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

    pub(super) fn found(&self, name: &str) -> Found {
        match self.entries.get(name) {
            Some(Entry { have: Some(have), .. }) => Found::Here(have.clone()),
            Some(Entry {
                trouble: Some(trouble),
                ..
            }) => Found::Failed(trouble.clone()),
            _ => Found::Underway,
        }
    }

    pub(super) fn status(&self, name: &str) -> Option<status::Source> {
        let entry = self.entries.get(name)?;
        let image = entry.have.as_ref().map(|it| &it.image);
        Some(status::Source {
            reference: entry.wish.source.to_string(),
            digest: image.map(|it| it.digest()),
            state: match (&entry.trouble, &entry.have, entry.checked_at) {
                (Some(_), _, _) => status::Fetching::Failed,
                (None, Some(_), Some(_)) => status::Fetching::Current,
                // A digest is not something else later.
                (None, Some(_), None) if entry.due.is_none() && entry.running.is_none() => {
                    status::Fetching::Current
                }
                _ => status::Fetching::Underway,
            },
            checked_at: entry.checked_at,
            trouble: entry.trouble.as_ref().map(ToString::to_string),
        })
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.entries.keys()
    }

    /// Everything is asked for again at once, tags and what could not be had.
    pub(super) fn refresh(&mut self, now: Instant) {
        for entry in self.entries.values_mut() {
            let settled =
                entry.wish.source.digest().is_some() && entry.due.is_none() && entry.running.is_none();
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
    pub(super) fn due(&mut self, now: Instant, places: usize) -> (Vec<Errand>, Option<Instant>) {
        let mut errands = Vec::new();
        let mut next: Option<Instant> = None;
        for (name, entry) in &mut self.entries {
            let Some(due) = entry.due.filter(|_| entry.running.is_none()) else {
                continue;
            };
            if due > now {
                next = Some(next.map_or(due, |next| next.min(due)));
            } else if errands.len() < places {
                entry.running = Some(entry.number);
                entry.due = None;
                errands.push(Errand {
                    name: name.clone(),
                    wish: entry.wish.clone(),
                    have: entry.have.clone(),
                    number: entry.number,
                });
            }
        }
        (errands, next)
    }

    /// What an errand came back with, and whether it is complete: signatures may still come.
    pub(super) fn done(
        &mut self,
        errand: &Errand,
        result: Result<(Fetched, bool), FetchError>,
        pauses: &Pauses,
        now: Instant,
    ) -> News {
        let Some(entry) = self.entries.get_mut(&errand.name) else {
            return News::None;
        };
        if entry.running == Some(errand.number) {
            entry.running = None;
        }
        if entry.number != errand.number {
            // The answer to an earlier wish.
            return News::None;
        }
        let again = std::mem::take(&mut entry.again);
        entry.checked_at = Some(seconds_now());
        let (news, due) = match result {
            Ok((fetched, complete)) => {
                let trouble = entry.trouble.take();
                entry.failures = 0;
                let same = entry.have.as_ref().is_some_and(|it| it.image == fetched.image);
                let digest = fetched.image.digest();
                entry.have = Some(fetched);
                let news = match (same, trouble) {
                    (false, _) => News::Came { digest },
                    (true, Some(_)) => News::Recovered,
                    (true, None) => News::None,
                };
                let settled = complete && entry.wish.source.digest().is_some();
                (news, (!settled).then(|| now + pauses.refresh))
            }
            Err(error) => {
                entry.failures = entry.failures.saturating_add(1);
                let pause = pauses.after(&error, entry.failures);
                let news = if entry.trouble.as_ref() == Some(&error) {
                    News::None
                } else {
                    News::Failed(error.clone())
                };
                entry.trouble = Some(error);
                (news, Some(now + pause))
            }
        };
        entry.due = if again { Some(now) } else { due };
        news
    }
}

/// How long nothing is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses {
    pub(super) refresh: Duration,
    /// Between a half and one: those that failed together do not come back together.
    pub(super) spread: f64,
}

impl Pauses {
    fn after(&self, error: &FetchError, failures: u32) -> Duration {
        if !error.passes() {
            return self.refresh;
        }
        let doubled = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16));
        doubled.min(LONGEST_PAUSE).min(self.refresh).mul_f64(self.spread)
    }
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
