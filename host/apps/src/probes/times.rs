//! When a probe is made. Pure: times are milliseconds on a clock of the caller.

use crate::model::{Check, HealthCheck, ReadinessCheck};

/// The times of a repeated probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// When the first attempt of the task is due. Negative if that was before the clock's zero.
    first: i64,
    repeat: Repeat,
    /// Whether a new leader makes an attempt within [`HEALTH_DELAY`], because results are not stored.
    hastens: bool,
}

/// The time, in milliseconds, within which a new leader probes the health of all tasks.
const HEALTH_DELAY: u64 = 5_000;

/// When the next attempt is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    /// At fixed times that are derived from the first attempt, the interval and the task's id. A
    /// new leader computes the same times, and those of different tasks differ.
    Grid { interval: u64, phase: u64 },
    /// After this pause, counted from the end of the last attempt.
    AfterCompletion { pause: u64 },
}

/// The reason why a probe begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// Its task runs.
    TaskRuns,
    /// This daemon has become the leader; the task was started under an earlier leader.
    NewLeader,
    /// Its definition has changed.
    Changed,
}

impl Times {
    /// Every `interval` seconds, from `delay` milliseconds after the task's `start`.
    fn grid(task: &str, start: i64, delay: u64, interval: u32) -> Self {
        let interval = u64::from(interval.max(1)) * 1000;
        Self {
            first: start.saturating_add_unsigned(delay),
            repeat: Repeat::Grid {
                interval,
                phase: 1 + stable_hash(task) % interval,
            },
            hastens: false,
        }
    }

    pub(super) fn of_check(check: &Check, task: &str, start: i64) -> Self {
        Self::grid(
            task,
            start,
            u64::from(check.delay_seconds) * 1000,
            check.interval_seconds,
        )
    }

    pub(super) fn of_health(check: &HealthCheck, task: &str, start: i64) -> Self {
        let delay = crate::health::first_attempt(check).as_millis() as u64;
        Self {
            hastens: true,
            ..Self::grid(task, start, delay, check.interval_seconds)
        }
    }

    pub(super) fn of_readiness(check: &ReadinessCheck, now: u64) -> Self {
        Self {
            first: i64::try_from(now).unwrap_or(i64::MAX),
            repeat: Repeat::AfterCompletion {
                pause: u64::from(check.interval_seconds.max(1)) * 1000,
            },
            hastens: false,
        }
    }

    /// When the first attempt under this leader is due.
    pub(super) fn begin(self, occasion: Occasion, now: u64) -> u64 {
        let first = u64::try_from(self.first).unwrap_or(0);
        let passed = self.first < i64::try_from(now).unwrap_or(i64::MAX);
        match occasion {
            Occasion::Changed => now,
            Occasion::NewLeader if passed => match self.repeat {
                Repeat::Grid { interval, phase } if self.hastens => {
                    now.saturating_add(phase % interval.min(HEALTH_DELAY))
                }
                _ => self.next(now),
            },
            Occasion::TaskRuns | Occasion::NewLeader => first.max(now),
        }
    }

    /// When the attempt after one that ended `now` is due. Attempts that were due in between are
    /// skipped.
    pub(super) fn next(self, now: u64) -> u64 {
        match self.repeat {
            Repeat::AfterCompletion { pause } => now.saturating_add(pause),
            Repeat::Grid { interval, phase } => {
                let origin = self.first.saturating_add_unsigned(phase);
                let now = i64::try_from(now).unwrap_or(i64::MAX);
                if now < origin {
                    return u64::try_from(origin).unwrap_or(0);
                }
                let step = i64::try_from(interval).unwrap_or(i64::MAX);
                let next = now.saturating_add(step - (now.saturating_sub(origin)) % step);
                u64::try_from(next).unwrap_or(0)
            }
        }
    }
}

/// FNV-1a, whose results are the same in every version and process, so that all leaders compute the
/// same times.
fn stable_hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn grid(task: &str, start: i64, delay: u64) -> Times {
        Times::grid(task, start, delay, 60)
    }

    #[test]
    fn first_attempt_is_due_relative_to_the_start_of_the_task() {
        for (occasion, start, delay, now, expected) in [
            (Occasion::TaskRuns, 1_000, 0, 1_000, 1_000),
            (Occasion::TaskRuns, 1_000, 15_000, 1_500, 16_000),
            (Occasion::TaskRuns, 1_000, 15_000, 20_000, 20_000),
            (Occasion::TaskRuns, -90_000, 15_000, 0, 0),
            (Occasion::NewLeader, 1_000, 15_000, 1_500, 16_000),
            (Occasion::Changed, 1_000, 15_000, 1_500, 1_500),
        ] {
            let found = grid("a", start, delay).begin(occasion, now);
            assert_eq!(found, expected, "{occasion:?} {start} {delay} {now}");
        }
    }

    #[test]
    fn attempts_of_a_task_follow_each_other_at_the_interval() {
        let times = grid("a", 0, 15_000);
        let second = times.next(15_200);
        assert!((15_200..=75_000).contains(&second), "{second}");
        assert_eq!(times.next(second + 10), second + 60_000);
        assert_eq!(times.next(second + 60_000), second + 120_000);
        // An attempt that took longer than the interval: the ones in between are skipped.
        assert_eq!(times.next(second + 130_000), second + 180_000);
    }

    /// The zero of a new leader's clock differs.
    #[test]
    fn new_leader_continues_the_attempts_of_the_earlier_one() {
        let times = grid("a", 0, 15_000);
        let taken_over = 80_000;
        let later = grid("a", -taken_over, 15_000);
        let found = later.begin(Occasion::NewLeader, 0) + taken_over as u64;
        assert_eq!(found, times.next(taken_over as u64));
    }

    #[test]
    fn attempts_of_tasks_that_started_together_do_not_coincide() {
        let due = |occasion, start| -> BTreeSet<u64> {
            let tasks = (0..1000).map(|task| format!("app.instance-{task}._app.1"));
            tasks
                .map(|task| {
                    let times = grid(&task, start, 0);
                    if occasion == Occasion::NewLeader {
                        times.begin(occasion, 0) / 1000
                    } else {
                        times.next(0) / 1000
                    }
                })
                .collect()
        };
        // The attempts are spread over all sixty seconds of the interval.
        assert!(due(Occasion::TaskRuns, 0).len() >= 60);
        assert!(due(Occasion::NewLeader, -3_600_000).len() >= 60);
    }

    /// Until then the health of the tasks is unknown.
    #[test]
    fn new_leader_probes_the_health_of_all_tasks_within_seconds() {
        let check = |interval: u32| {
            let check = serde_json::json!({"intervalSeconds": interval, "gracePeriodSeconds": 0});
            let body = serde_json::json!({"id": "/a", "cmd": "sleep 1", "healthChecks": [check]});
            crate::testing::app(&body).health_checks.remove(0)
        };
        for (interval, latest) in [(60, 5_000), (2, 2_000)] {
            let check = check(interval);
            let due: BTreeSet<u64> = (0..1000)
                .map(|task| {
                    let times = Times::of_health(&check, &format!("app.instance-{task}._app.1"), -3_600_000);
                    times.begin(Occasion::NewLeader, 1_000) - 1_000
                })
                .collect();
            assert!(due.iter().all(|due| *due < latest), "{due:?}");
            assert!(due.len() > 300, "they are spread: {due:?}");
            let young = Times::of_health(&check, "a", 900);
            let first = young.begin(Occasion::TaskRuns, 900);
            assert_eq!(
                young.begin(Occasion::NewLeader, 900),
                first,
                "its delay is not over"
            );
        }
    }

    #[test]
    fn readiness_is_probed_immediately_and_again_after_a_pause() {
        let times = Times {
            first: 5_000,
            repeat: Repeat::AfterCompletion { pause: 30_000 },
            hastens: false,
        };
        assert_eq!(times.begin(Occasion::TaskRuns, 5_000), 5_000);
        assert_eq!(times.begin(Occasion::NewLeader, 5_000), 5_000);
        assert_eq!(times.next(9_000), 39_000);
    }
}
