//! What operators see of the plugins: [`Status`] for tables, [`Change`] for those who follow.

use serde::Serialize;

/// A component that is fetched from a registry, and how that goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Source {
    /// `oci://…`, as the manifest says it.
    pub reference: String,
    /// `sha256:` and the digest of the image manifest that was fetched last.
    pub digest: Option<String>,
    /// How it goes.
    pub state: Fetching,
    /// When the registry was asked last: seconds since 1970.
    pub checked_at: Option<u64>,
    /// Why it could not be had, the last time. What was fetched earlier serves meanwhile.
    pub error: Option<String>,
}

/// How fetching a component goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fetching {
    /// The registry was not asked to the end yet.
    Pending,
    /// What was fetched is what the source was when it was asked last.
    Current,
    /// It could not be had, the last time.
    Failed,
}

/// Where a plugin stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Calls are answered.
    Serving,
    /// The file is there, no version of it was admitted.
    Refused,
    /// Its component is still being fetched.
    Fetching,
    /// Its component is being compiled and tried out, or waits for that; none served before.
    Admitting,
    /// It kept failing and was taken out of service, until something new is admitted.
    Disabled,
}

/// The last call that ended in a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trap {
    /// Seconds since 1970.
    pub at: u64,
    /// What its caller was told.
    pub fault: String,
    /// Where in the component it was stopped, innermost first; at most 32 frames, none where no code of it was stopped.
    pub backtrace: Vec<String>,
}

/// A version that answers beside the one that serves, and how its answers compare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shadow {
    /// The plugin's own version.
    pub version: String,
    /// `sha256:` and its component's digest.
    pub digest: String,
    /// Since when: seconds since 1970.
    pub since: u64,
    /// Whether it will serve by itself once it agreed for long enough; otherwise when an operator promotes it.
    pub auto: bool,
    /// Answers that were compared.
    pub compared: u64,
    /// Of these, those that were not the same.
    pub differences: u64,
    /// Of these, those that it gave no answer to.
    pub failures: u64,
    /// Calls that were not compared: too many waited, or what was asked about changed meanwhile.
    pub dropped: u64,
    /// The newest differences and failures, oldest first; at most 16.
    pub samples: Vec<Difference>,
}

/// Where two versions' answers part. Each text is one line of bounded length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What was asked; empty for a failure.
    pub question: String,
    /// What the version that serves answered.
    pub serving: String,
    /// What the one beside it answered.
    pub shadow: String,
}

/// One plugin, as an operator's table shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The file's name without `.wasm`.
    pub name: String,
    /// The world it implements: `check-probe`; none when it was refused before that was known.
    pub world: Option<String>,
    /// The plugin's own version.
    pub version: Option<String>,
    /// One line.
    pub summary: Option<String>,
    /// `sha256:` and the digest of the component that serves.
    pub digest: Option<String>,
    /// When it was admitted: seconds since 1970.
    pub admitted_at: Option<u64>,
    /// Whether it serves.
    pub state: State,
    /// Since when the files as they are now are being admitted, or wait for their turn: seconds since 1970. None: they are admitted or refused.
    pub admitting: Option<u64>,
    /// Why the files as they are now were refused; an older version may serve meanwhile.
    pub refusal: Option<String>,
    /// Why it was disabled.
    pub disabled_reason: Option<String>,
    /// Seconds for which the version before it is still ready to return. None: it is not on probation.
    pub probation: Option<u64>,
    /// Calls or attempts in progress, on all of its versions.
    pub in_flight: u64,
    /// Those on the version that serves.
    pub in_flight_now: u64,
    /// Live instances, of all of its versions.
    pub instances: u64,
    /// Calls since the version that serves began to; one that was disabled keeps its counts. So with the next four.
    pub calls: u64,
    /// Of these, those that trapped, or gave an answer that cannot be used.
    pub traps: u64,
    /// Those that went over wall-clock or processor time, and attempts of probes that went over their steps or did not end with their time.
    pub timeouts: u64,
    /// Steps to destinations that were not granted.
    pub denials: u64,
    /// Log lines dropped.
    pub log_drops: u64,
    /// Of the calls on the version that serves, half took no longer than this: microseconds in its instance, exact to a fifth.
    pub p50_micros: Option<u64>,
    /// Ninety-nine of a hundred took no longer than this.
    pub p99_micros: Option<u64>,
    /// Calls that wait for an instance of the version that serves.
    pub queue: u64,
    /// Ninety-nine of a hundred of its calls waited no longer than this until they had one: microseconds.
    pub queue_p99_micros: Option<u64>,
    /// Processor time that its guests used since it began to serve, starting them included: milliseconds.
    pub cpu_millis: u64,
    /// Ninety-nine of a hundred of its calls used no more than this: microseconds.
    pub cpu_p99_micros: Option<u64>,
    /// Bytes of linear memory that the largest instance of the version that serves came to.
    pub memory_peak: u64,
    /// The last fault of the version that serves.
    pub last_trap: Option<Trap>,
    /// The version that answers beside the one that serves.
    pub shadow: Option<Shadow>,
    /// Where the component is fetched from; none for a file in the directory.
    pub source: Option<Source>,
    /// The key that signed the version that serves: its name and digest. None where no key is configured.
    pub signed_by: Option<String>,
}

/// What happened to a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "change")]
pub enum Change {
    /// A version serves from now on.
    Admitted {
        /// The plugin.
        name: String,
        /// Its own version.
        version: String,
        /// `sha256:` and the component's digest.
        digest: String,
    },
    /// The files as they are now were refused; a version that served goes on serving.
    Refused {
        /// The plugin.
        name: String,
        /// Why, for an operator.
        reason: String,
    },
    /// A version answers beside the one that serves from now on, and is compared with it; see the manifest's `rollout`.
    Shadowing {
        /// The plugin.
        name: String,
        /// The new version.
        version: String,
        /// `sha256:` and its component's digest.
        digest: String,
    },
    /// The files were taken away.
    Removed {
        /// The plugin.
        name: String,
    },
    /// An earlier version serves again: because the one after it failed on probation, or because an operator said so.
    RolledBack {
        /// The plugin.
        name: String,
        /// The version that serves from now on.
        version: String,
        /// `sha256:` and that component's digest.
        digest: String,
        /// The digest of the component that served until now; none when none did.
        from: Option<String>,
        /// Why, for an operator.
        reason: String,
    },
    /// It kept failing and serves no more, until something new is admitted. Its extension point answers without it, as its manifest's
    /// `on-disabled` says.
    Disabled {
        /// The plugin.
        name: String,
        /// The digest of the component that served until now.
        digest: String,
        /// Why, for an operator.
        reason: String,
        /// Whether everything is let through meanwhile; otherwise every call is refused.
        passes: bool,
    },
}

impl Change {
    /// The plugin that it happened to.
    pub fn plugin(&self) -> &str {
        match self {
            Change::Admitted { name, .. }
            | Change::Refused { name, .. }
            | Change::Shadowing { name, .. }
            | Change::Removed { name }
            | Change::RolledBack { name, .. }
            | Change::Disabled { name, .. } => name,
        }
    }
}
