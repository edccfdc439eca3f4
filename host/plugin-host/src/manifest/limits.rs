//! Limits of a plugin. The host's [`Limits`] are the defaults; a manifest's `[limits]` overrides
//! them.

use std::time::Duration;

/// Maximum linear memory that a manifest may grant. The slots of the engine's pool have this size.
pub(crate) const MAX_MEMORY: u64 = 512 << 20;
/// Maximum table elements that a manifest may grant.
pub(crate) const MAX_TABLE: u64 = 50_000;

/// Maximum duration of a call that a manifest may grant.
pub(crate) const MAX_CALL_DURATION: Duration = Duration::from_hours(1);
/// Maximum duration of an attempt that a manifest may grant.
pub(crate) const MAX_ATTEMPT_DURATION: Duration = Duration::from_hours(24);
/// Maximum size of a component; larger files are not read.
pub(crate) const MAX_COMPONENT_SIZE: u64 = transom_registry::MAX_COMPONENT_SIZE;
/// Maximum size of a manifest.
pub(crate) const MAX_MANIFEST: u64 = 1 << 20;

/// Maximum number of instances of a plugin.
pub(crate) const MAX_INSTANCES: usize = 32;

/// How calls are distributed over instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instances {
    /// This number of instances is kept, and each runs one call at a time.
    Kept(usize),
    /// Each call has a new instance, configured before the call and dropped after it; each attempt
    /// of a probe keeps one to its end. At most 32 exist at a time, and further calls wait. Each
    /// call loads agent sets and views again.
    PerCall,
}

/// Limits of one plugin. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Wall-clock time of one call, host functions included; also the maximum wait in the queue.
    pub wall_clock: Duration,
    /// Processor time of the guest in one call.
    pub cpu: Duration,
    /// Linear memory of an instance.
    pub memory: u64,
    /// Elements of a table of an instance.
    pub table: u64,
    /// Bytes that one call may return to the host.
    pub output: u64,
    /// Instances.
    pub instances: Instances,
    /// Calls after which a kept instance is replaced.
    pub max_calls_per_instance: u64,
    /// Concurrent calls and attempts.
    pub concurrency: usize,
    /// Steps of one attempt.
    pub steps: u32,
    /// Maximum duration of one attempt, even if its request specifies a longer one.
    pub attempt_time: Duration,
    /// Bytes that one attempt may receive.
    pub attempt_input: u64,
    /// Bytes that one attempt may send.
    pub attempt_output: u64,
    /// Log lines per second. A burst may have the same number again.
    pub log_lines: u32,
    /// Bytes of one log line; longer lines are truncated.
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
