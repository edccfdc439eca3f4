//! The newest log lines of a version, for clients that cannot read the daemon's log.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use serde::Serialize;

/// Maximum number of lines kept of one version.
const MAX_LINES: usize = 200;
/// Maximum number of bytes kept of one version. A line may have many kilobytes (`limits.log-line`).
const MAX_BYTES: usize = 64 << 10;

/// A line of a plugin's log as in the daemon's log: on one line, escaped and limited in length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogLine {
    /// Increases with every line of every version and plugin, even after a restart.
    pub sequence: u64,
    /// Seconds since 1970.
    pub at: u64,
    /// `trace`, `debug`, `info`, `warn` or `error`.
    pub level: &'static str,
    /// The text.
    pub message: String,
}

/// The newest lines of one version.
#[derive(Debug, Default)]
pub(crate) struct RecentLog(Mutex<VecDeque<LogLine>>);

impl RecentLog {
    pub(crate) fn add(&self, level: &'static str, message: &str) {
        let (sequence, at) = next_sequence();
        let line = LogLine {
            sequence,
            at,
            level,
            message: message.to_owned(),
        };
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_back(line);
        let mut bytes: usize = lines.iter().map(|it| it.message.len()).sum();
        while lines.len() > 1 && (lines.len() > MAX_LINES || bytes > MAX_BYTES) {
            bytes -= lines.pop_front().map_or(0, |it| it.message.len());
        }
    }

    /// The lines with a greater sequence number, oldest first.
    pub(crate) fn after(&self, sequence: u64) -> Vec<LogLine> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines
            .iter()
            .filter(|it| it.sequence > sequence)
            .cloned()
            .collect()
    }
}

/// Returns a new sequence number and the time in seconds since 1970. The sequence number is the
/// time in microseconds, or the previous number plus one if that is higher.
fn next_sequence() -> (u64, u64) {
    static LAST_SEQUENCE: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let micros = u64::try_from(now.as_micros()).unwrap_or(0);
    let previous = LAST_SEQUENCE.fetch_update(Relaxed, Relaxed, |last| Some(micros.max(last + 1)));
    let previous = previous.unwrap_or_else(|last| last);
    (micros.max(previous + 1), now.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_lines_are_kept_within_both_limits() {
        let log = RecentLog::default();
        for number in 0..MAX_LINES + 10 {
            log.add("info", &number.to_string());
        }
        let lines = log.after(0);
        assert_eq!(lines.len(), MAX_LINES);
        assert_eq!(lines[0].message, "10");
        assert!(lines.is_sorted_by(|a, b| a.sequence < b.sequence));
        assert_eq!(log.after(lines[MAX_LINES - 2].sequence), lines[MAX_LINES - 1..]);

        log.add("warn", &"x".repeat(MAX_BYTES - 3));
        let lengths: Vec<usize> = log.after(0).iter().map(|it| it.message.len()).collect();
        assert_eq!(lengths, [3, MAX_BYTES - 3]);
        log.add("warn", &"y".repeat(MAX_BYTES + 1));
        assert_eq!(
            log.after(0).len(),
            1,
            "a line that is longer than all together may be"
        );
    }

    #[test]
    fn sequence_numbers_increase_over_all_versions() {
        let (one, two) = (RecentLog::default(), RecentLog::default());
        one.add("info", "a");
        two.add("info", "b");
        one.add("info", "c");
        let number = |log: &RecentLog, at: usize| log.after(0)[at].sequence;
        assert!(number(&one, 0) < number(&two, 0) && number(&two, 0) < number(&one, 1));
    }
}
