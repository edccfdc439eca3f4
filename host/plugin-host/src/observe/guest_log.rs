//! A plugin's log: writes its lines to `tracing` with the plugin's name and version, up to a rate
//! limit.
//!
//! Lines over the limit are dropped and counted. Their number is logged before the next line that
//! passes. All instances of a version share one budget.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use transom_common::text::push_printable;

use crate::observe::version_metrics::VersionMetrics;

/// Maximum number of logged denials per second. All denials are counted.
const DENIALS_PER_SECOND: u32 = 10;

/// Severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Trace => "trace",
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }
    }
}

#[derive(Debug)]
pub(crate) struct GuestLog {
    plugin: String,
    version: Mutex<String>,
    line_bytes: usize,
    bucket: Mutex<Bucket>,
    /// A separate budget for the host's messages about denials, so that a guest that floods its log
    /// cannot hide them.
    denials: Mutex<Bucket>,
    metrics: VersionMetrics,
}

impl GuestLog {
    pub(crate) fn new(
        plugin: &str,
        lines_per_second: u32,
        line_bytes: usize,
        metrics: VersionMetrics,
    ) -> GuestLog {
        GuestLog {
            plugin: plugin.to_owned(),
            version: Mutex::default(),
            line_bytes,
            bucket: Mutex::new(Bucket::new(lines_per_second, Instant::now())),
            denials: Mutex::new(Bucket::new(DENIALS_PER_SECOND, Instant::now())),
            metrics,
        }
    }

    /// Whether the host may log a denial. Returns the number of denials that were not logged since
    /// the last one, or `None` if this one must not be logged either.
    pub(crate) fn try_log_denial(&self) -> Option<u64> {
        let mut bucket = self.denials.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.take(Instant::now())
    }

    /// Sets the version, which is known after `describe`.
    pub(crate) fn set_version(&self, version: &str) {
        version.clone_into(&mut self.version.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn write(&self, level: Level, message: &str) {
        let outcome = self
            .bucket
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(Instant::now());
        let Some(dropped) = outcome else {
            self.metrics.count_log_drop();
            return;
        };
        let version = self
            .version
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let plugin = self.plugin.as_str();
        if dropped > 0 {
            tracing::warn!(target: "transom_plugin_host::guest", plugin, version, dropped, "log lines dropped (limits.log-lines)");
        }
        let message = clean(message, self.line_bytes);
        self.metrics.recent_log().add(level.name(), &message);
        match level {
            Level::Trace => {
                tracing::trace!(target: "transom_plugin_host::guest", plugin, version, "{message}");
            }
            Level::Debug => {
                tracing::debug!(target: "transom_plugin_host::guest", plugin, version, "{message}");
            }
            Level::Info => tracing::info!(target: "transom_plugin_host::guest", plugin, version, "{message}"),
            Level::Warn => tracing::warn!(target: "transom_plugin_host::guest", plugin, version, "{message}"),
            Level::Error => {
                tracing::error!(target: "transom_plugin_host::guest", plugin, version, "{message}");
            }
        }
    }
}

/// Returns the message as one line of at most `max` bytes, escaped so that it cannot imitate
/// another log line or control a terminal.
fn clean(message: &str, max: usize) -> String {
    let mut line = String::with_capacity(message.len().min(max));
    for c in message.chars() {
        let before = line.len();
        push_printable(&mut line, if c.is_whitespace() { ' ' } else { c });
        if line.len() > max {
            line.truncate(before);
            line.push('…');
            break;
        }
    }
    line
}

/// A token bucket. Its burst is twice the rate per second.
#[derive(Debug)]
struct Bucket {
    rate: f64,
    tokens: f64,
    at: Instant,
    dropped: u64,
}

impl Bucket {
    fn new(rate: u32, now: Instant) -> Bucket {
        let rate = f64::from(rate);
        Bucket {
            rate,
            tokens: rate * 2.0,
            at: now,
            dropped: 0,
        }
    }

    /// Takes a token. Returns the number of lines dropped since the last one that passed, or `None`
    /// if this one has to be dropped too.
    fn take(&mut self, now: Instant) -> Option<u64> {
        self.tokens += now.saturating_duration_since(self.at).as_secs_f64() * self.rate;
        self.tokens = self.tokens.min(self.rate * 2.0);
        self.at = now;
        if self.tokens < 1.0 {
            self.dropped += 1;
            return None;
        }
        self.tokens -= 1.0;
        Some(std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn bucket_allows_a_burst_and_then_the_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10, start);
        let passed = (0..100).filter(|_| bucket.take(start).is_some()).count();
        assert_eq!(passed, 20);
        assert_eq!(bucket.take(start + Duration::from_millis(150)), Some(80));
        assert_eq!(bucket.take(start + Duration::from_millis(150)), None);
        assert_eq!(bucket.take(start + Duration::from_millis(300)), Some(1));
    }

    #[test]
    fn log_text_is_escaped_to_one_line_and_truncated() {
        assert_eq!(clean("a\nb\x1b[31m", 100), "a b\\u{1b}[31m");
        assert_eq!(clean("a\u{202e}b\u{2028}c", 100), "a\\u{202e}b c");
        assert_eq!(clean("ab\u{202e}", 6), "ab…", "an escape sequence is not split");
        assert_eq!(clean("äöü", 4), "äö…");
    }
}
