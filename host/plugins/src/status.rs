//! What operators see of the plugins: [`Status`] for tables, [`Change`] for those who follow.

use serde::Serialize;

/// Where a plugin stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Calls are answered.
    Serving,
    /// The file is there, no version of it was admitted.
    Refused,
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
    /// Why the files as they are now were refused; an older version may serve meanwhile.
    pub refusal: Option<String>,
    /// Calls or attempts in progress.
    pub in_flight: u64,
    /// Live instances.
    pub instances: u64,
    /// Calls since the start.
    pub calls: u64,
    /// Traps since the start.
    pub traps: u64,
    /// Calls that went over wall-clock or processor time.
    pub timeouts: u64,
    /// Steps to destinations that were not granted.
    pub denials: u64,
    /// Log lines dropped.
    pub log_drops: u64,
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
    /// The files were taken away.
    Removed {
        /// The plugin.
        name: String,
    },
}
