//! Retries with exponential, jittered backoff, for one operation or for many tasks. The code reads
//! no clock; `now` is an argument.

use std::collections::{BTreeSet, HashMap};

use tokio::time::Instant;
use transom_cluster::TaskId;
use transom_common::Backoff;

/// One operation that is retried after a failure.
#[derive(Debug)]
pub(crate) struct Retry {
    backoff: Backoff,
    attempt: u32,
    due_at: Option<Instant>,
}

impl Retry {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            attempt: 0,
            due_at: None,
        }
    }

    /// Records a failure and starts the backoff.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.due_at = Some(now + self.backoff.jittered(self.attempt));
        self.attempt = self.attempt.saturating_add(1);
    }

    /// Records a success and ends the backoff.
    pub(crate) fn succeeded(&mut self) {
        self.attempt = 0;
        self.due_at = None;
    }

    /// Whether the operation failed and its backoff has not passed.
    pub(crate) fn is_backing_off(&self, now: Instant) -> bool {
        self.due_at.is_some_and(|at| at > now)
    }

    /// Whether the last attempt failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.attempt > 0
    }

    /// The time at which the backoff ends; `None` if it has ended.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        self.due_at.filter(|at| *at > now)
    }

    /// Whether the backoff has passed. True once after each failure.
    pub(crate) fn take_due(&mut self, now: Instant) -> bool {
        self.due_at.take_if(|at| *at <= now).is_some()
    }

    /// Ends the backoff now.
    pub(crate) fn end_backoff(&mut self, now: Instant) {
        if let Some(at) = &mut self.due_at {
            *at = now.min(*at);
        }
    }
}

/// Tasks for which a call is repeated until it is answered: kills, reconciliation.
#[derive(Debug)]
pub(crate) struct Schedule {
    backoff: Backoff,
    entries: HashMap<TaskId, Entry>,
    /// The same tasks ordered by time, because all tasks of a framework may be scheduled while they
    /// are answered one by one.
    by_due: BTreeSet<(Instant, TaskId)>,
}

#[derive(Debug)]
struct Entry {
    due: Instant,
    attempt: u32,
}

impl Schedule {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            entries: HashMap::new(),
            by_due: BTreeSet::new(),
        }
    }

    /// Schedules the first attempt at `due`. A task that is already scheduled starts over, but no
    /// later than before.
    pub(crate) fn schedule(&mut self, task: TaskId, due: Instant) {
        let entry = self.entries.entry(task.clone());
        let entry = entry.or_insert(Entry { due, attempt: 0 });
        let mut key = (entry.due, task);
        self.by_due.remove(&key);
        entry.due = entry.due.min(due);
        entry.attempt = 0;
        key.0 = entry.due;
        self.by_due.insert(key);
    }

    pub(crate) fn remove(&mut self, task: &TaskId) {
        if let Some(entry) = self.entries.remove(task) {
            self.by_due.remove(&(entry.due, task.clone()));
        }
    }

    pub(crate) fn contains(&self, task: &TaskId) -> bool {
        self.entries.contains_key(task)
    }

    /// The tasks that are due, each rescheduled.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<TaskId> {
        let mut due = Vec::new();
        while self.by_due.first().is_some_and(|(at, _)| *at <= now) {
            due.extend(self.by_due.pop_first().map(|(_, task)| task));
        }
        for task in &due {
            if let Some(entry) = self.entries.get_mut(task) {
                entry.due = now + self.backoff.jittered(entry.attempt);
                entry.attempt = entry.attempt.saturating_add(1);
                self.by_due.insert((entry.due, task.clone()));
            }
        }
        due.sort_unstable();
        due
    }

    /// The time at which the next task is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.by_due.first().map(|(due, _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BACKOFF: Backoff = Backoff {
        base: Duration::from_secs(1),
        max: Duration::from_mins(1),
    };

    #[test]
    fn retry_is_due_once_per_failure() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut retry = Retry::new(BACKOFF);
        assert!(!retry.is_backing_off(now) && !retry.is_failing() && !retry.take_due(now));
        retry.failed(now);
        assert!(retry.is_backing_off(now) && retry.is_failing() && retry.next(now).is_some());
        assert!(!retry.take_due(now) && retry.take_due(later) && !retry.take_due(later));
        assert!(retry.is_failing());
        retry.failed(later);
        retry.end_backoff(later);
        assert!(!retry.is_backing_off(later) && retry.take_due(later));
        retry.succeeded();
        assert!(!retry.is_failing() && retry.next(now).is_none());
    }

    #[test]
    fn schedule_repeats_with_backoff_until_removed() {
        let start = Instant::now();
        let (one, two) = (TaskId::from("1"), TaskId::from("2"));
        let mut schedule = Schedule::new(BACKOFF);
        schedule.schedule(two.clone(), start);
        schedule.schedule(one.clone(), start);
        schedule.schedule(one.clone(), start + Duration::from_secs(9));
        assert_eq!(schedule.take_due(start), [one.clone(), two.clone()]);
        assert_eq!(schedule.take_due(start), []);
        schedule.remove(&two);
        let second = start + Duration::from_secs(1);
        assert_eq!(schedule.take_due(second), std::slice::from_ref(&one));
        assert!(
            schedule
                .next()
                .is_some_and(|next| next >= second + Duration::from_secs(1))
        );
        schedule.remove(&one);
        assert_eq!(schedule.next(), None);
    }
}
