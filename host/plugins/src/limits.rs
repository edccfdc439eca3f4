//! What a plugin may use. The host's [`Limits`] are the defaults; a manifest's `[limits]` overrides them for its plugin.

use std::time::Duration;

/// The most linear memory that a manifest may grant; the engine's pool is made for it.
pub(crate) const MAX_MEMORY: u64 = 512 << 20;
/// The most table elements that a manifest may grant.
pub(crate) const MAX_TABLE: u64 = 50_000;

/// The longest that a manifest may let a call take.
pub(crate) const MAX_CALL: Duration = Duration::from_hours(1);
/// The longest that a manifest may let an attempt take.
pub(crate) const MAX_ATTEMPT: Duration = Duration::from_hours(24);
/// The largest component that a manifest may admit; larger files are not even read.
pub(crate) const MAX_SIZE: u64 = 256 << 20;
/// Bytes of a manifest.
pub(crate) const MAX_MANIFEST: u64 = 1 << 20;

/// The most instances of one plugin, kept or made for a call.
pub(crate) const MAX_INSTANCES: usize = 32;

/// How calls are spread over instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instances {
    /// So many are kept, and each answers one call after the other.
    Kept(usize),
    /// Each call has a fresh one, configured before it and dropped after it; each attempt of a probe has one to its end. No more than 32 at once,
    /// others wait. What is held between two calls (an agent set, a view) is handed over again with each.
    PerCall,
}

/// Limits of one plugin. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Wall-clock time of one call, host functions included; also how long a call may wait in the queue.
    pub wall_clock: Duration,
    /// Processor time of one call: what the guest itself used.
    pub cpu: Duration,
    /// Linear memory of an instance.
    pub memory: u64,
    /// Elements of a table of an instance.
    pub table: u64,
    /// Bytes that one call may hand to the host.
    pub output: u64,
    /// Instances.
    pub instances: Instances,
    /// Calls after which an instance that is kept is replaced.
    pub max_calls_per_instance: u64,
    /// Attempts, or calls, in progress at once.
    pub concurrency: usize,
    /// Steps of one attempt.
    pub steps: u32,
    /// Time of one attempt, whatever its request says.
    pub attempt_time: Duration,
    /// Bytes that one attempt may receive.
    pub attempt_input: u64,
    /// Bytes that one attempt may send.
    pub attempt_output: u64,
    /// Log lines a second, with as many again in a burst.
    pub log_lines: u32,
    /// Bytes of one log line; more is cut off.
    pub log_line: usize,
    /// Bytes of the component's file.
    pub size: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            wall_clock: Duration::from_secs(5),
            cpu: Duration::from_millis(50),
            memory: 64 << 20,
            table: 20_000,
            output: 8 << 20,
            instances: Instances::Kept(2),
            max_calls_per_instance: 100_000,
            concurrency: 10_000,
            steps: 64,
            attempt_time: Duration::from_mins(1),
            attempt_input: 4 << 20,
            attempt_output: 1 << 20,
            log_lines: 50,
            log_line: 4 << 10,
            size: 64 << 20,
        }
    }
}
