//! The state of plugins for operators: [`Status`] for tables, [`Change`] for subscribers.

use serde::Serialize;
use transom_registry::{Attestation, SourceStatus};

/// The state of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It serves calls.
    Serving,
    /// Its files exist, but no version has been admitted.
    // The documented key.
    #[serde(rename = "refused")]
    Rejected,
    /// Its component is being fetched.
    Fetching,
    /// Its first version is being admitted, or waits for admission.
    Admitting,
    /// It failed repeatedly and is out of service until new files are admitted.
    Disabled,
}

/// The last call that ended in a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trap {
    /// Seconds since 1970.
    pub at: u64,
    /// The error that its caller received.
    pub fault: String,
    /// The stack in the component, innermost frame first; at most 32 frames, none if no guest code
    /// was running.
    pub backtrace: Vec<String>,
}

/// How a new version runs alongside the serving one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RolloutKind {
    /// It repeats calls that the serving version has answered.
    Shadow,
    /// It answers a share of the calls.
    Canary,
}

/// A version that runs alongside the serving one, with its counts so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rollout {
    /// How it runs.
    pub kind: RolloutKind,
    /// The plugin's own version.
    pub version: String,
    /// `sha256:` and its component's digest.
    pub digest: String,
    /// Start time: seconds since 1970.
    pub since: u64,
    /// Whether it is promoted automatically; otherwise an operator promotes it.
    pub automatic: bool,
    /// Its share in percent: of the tasks, queries, apps or containers for a canary, of the calls
    /// for a shadow.
    pub percent: u64,
    /// Calls and attempts that it answered.
    pub calls: u64,
    /// Answers compared with those of the serving version.
    pub compared: u64,
    /// Compared answers that differ.
    pub differences: u64,
    /// Calls that failed on it: traps, timeouts and invalid results. The number for a canary
    /// includes its start and unfinished attempts.
    pub faults: u64,
    /// Calls that were not compared, because the queue was full, the data had changed, or a
    /// canary's call failed when it was repeated on the serving version.
    pub dropped: u64,
    /// 99th percentile of its calls: microseconds in an instance, within 25 %, without the slowest
    /// call of each instance of a canary.
    pub p99_micros: Option<u64>,
    /// The same percentile of the serving version since the start of the other one.
    pub serving_p99_micros: Option<u64>,
    /// The unmet conditions for its promotion, a line each. Empty: it is being promoted.
    pub missing: Vec<String>,
    /// The newest differences, and failures of a shadow, oldest first; at most 16.
    pub samples: Vec<Difference>,
}

/// A difference between the answers of two versions. Each text is one line of bounded length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The call; empty for a failure.
    pub question: String,
    /// The answer of the serving version.
    pub serving: String,
    /// The answer of the shadow or the canary.
    pub candidate: String,
}

/// Sampled calls of a plugin for the call log, counted since the daemon's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Recorded {
    /// Calls that were written.
    pub recorded: u64,
    /// Calls that were dropped because the queue was full.
    pub dropped: u64,
    /// Calls that were larger than a record may be.
    pub too_large: u64,
    /// Calls that could not be written.
    pub failed: u64,
}

/// One plugin, as an operator's table shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The file's name without `.wasm`.
    pub name: String,
    /// The world it implements, such as `check-probe`. `None` if it was rejected before that was
    /// known.
    pub world: Option<String>,
    /// The plugin's own version.
    pub version: Option<String>,
    /// The plugin's summary in one line.
    pub summary: Option<String>,
    /// `sha256:` and the digest of the serving component.
    pub digest: Option<String>,
    /// When it was admitted: seconds since 1970.
    pub admitted_at: Option<u64>,
    /// Its state.
    pub state: State,
    /// When the admission of the current files began, or when they were queued: seconds since 1970.
    /// `None` if they have already been admitted or rejected.
    pub admitting: Option<u64>,
    /// Why the current files were rejected; an older version may still serve.
    pub refusal: Option<String>,
    /// Why it is disabled.
    pub disabled_reason: Option<String>,
    /// Remaining seconds of probation. None: it is not on probation.
    pub probation: Option<u64>,
    /// Calls and attempts in progress, on all versions.
    pub in_flight: u64,
    /// Of these, on the serving version.
    pub in_flight_now: u64,
    /// Instances of all versions.
    pub instances: u64,
    /// Calls since the activation of the serving version; a disabled one keeps its counts. The same
    /// holds for the next four fields.
    pub calls: u64,
    /// Of these, calls that trapped or returned an invalid result.
    pub traps: u64,
    /// Calls that exceeded wall-clock or processor time, and attempts that exceeded their steps or
    /// their timeout.
    pub timeouts: u64,
    /// Denied steps.
    pub denials: u64,
    /// Log lines dropped.
    pub log_drops: u64,
    /// Median duration of a call on the serving version: microseconds in its instance, within 25 %.
    pub p50_micros: Option<u64>,
    /// 99th percentile of the same.
    pub p99_micros: Option<u64>,
    /// Calls waiting for an instance of the serving version.
    pub queue: u64,
    /// 99th percentile of that wait: microseconds.
    pub queue_p99_micros: Option<u64>,
    /// Processor time used by its guests, their start included: milliseconds.
    pub cpu_millis: u64,
    /// 99th percentile of the processor time of a call: microseconds.
    pub cpu_p99_micros: Option<u64>,
    /// Peak linear memory of its largest instance: bytes.
    pub memory_peak: u64,
    /// The last fault of the serving version.
    pub last_trap: Option<Trap>,
    /// The version that runs alongside the serving one.
    pub rollout: Option<Rollout>,
    /// Counts of the sampled calls for the call log. `None`: its calls are not recorded.
    pub recording: Option<Recorded>,
    /// The registry source. `None` for a file in the directory.
    pub source: Option<SourceStatus>,
    /// The key that signed the serving version: its name and digest. None if no key is configured.
    pub signed_by: Option<String>,
    /// Attestations that the registry attaches to the serving version's image: provenance and
    /// SBOMs.
    pub attestations: Vec<Attestation>,
}

/// A change of a plugin's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "change")]
pub enum Change {
    /// A version was activated.
    Admitted {
        /// The plugin.
        name: String,
        /// Its own version.
        version: String,
        /// `sha256:` and the component's digest.
        digest: String,
    },
    /// The current files were rejected; a serving version stays active.
    // The documented key.
    #[serde(rename = "refused")]
    Rejected {
        /// The plugin.
        name: String,
        /// Why, for an operator.
        reason: String,
    },
    /// A shadow version was started; see the manifest's `rollout`.
    Shadowing {
        /// The plugin.
        name: String,
        /// The new version.
        version: String,
        /// `sha256:` and its component's digest.
        digest: String,
    },
    /// A version was started that answers a share of the calls; see the manifest's `rollout`.
    Canary {
        /// The plugin.
        name: String,
        /// The new version.
        version: String,
        /// `sha256:` and its component's digest.
        digest: String,
    },
    /// A shadow or a canary serves now.
    Promoted {
        /// The plugin.
        name: String,
        /// Its version.
        version: String,
        /// `sha256:` and its component's digest.
        digest: String,
        /// The digest of the component that served before.
        from: String,
        /// Why, for an operator.
        reason: String,
    },
    /// A shadow or a canary was stopped, by the host or by an operator's command; the serving version
    /// stays active.
    Aborted {
        /// The plugin.
        name: String,
        /// The version that was stopped.
        version: String,
        /// `sha256:` and its component's digest.
        digest: String,
        /// Why, for an operator.
        reason: String,
    },
    /// The files were removed.
    Removed {
        /// The plugin.
        name: String,
    },
    /// An earlier version serves again, by probation or by an operator's command.
    RolledBack {
        /// The plugin.
        name: String,
        /// The version that serves now.
        version: String,
        /// `sha256:` and that component's digest.
        digest: String,
        /// The digest of the component that served before; none if none did.
        from: Option<String>,
        /// Why, for an operator.
        reason: String,
    },
    /// It failed repeatedly and is out of service until new files are admitted. Its calls fail.
    Disabled {
        /// The plugin.
        name: String,
        /// The digest of the component that served before.
        digest: String,
        /// Why, for an operator.
        reason: String,
    },
}

impl Change {
    /// The plugin's name.
    pub fn plugin(&self) -> &str {
        match self {
            Change::Admitted { name, .. }
            | Change::Rejected { name, .. }
            | Change::Shadowing { name, .. }
            | Change::Canary { name, .. }
            | Change::Promoted { name, .. }
            | Change::Aborted { name, .. }
            | Change::Removed { name }
            | Change::RolledBack { name, .. }
            | Change::Disabled { name, .. } => name,
        }
    }
}
