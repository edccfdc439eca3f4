//! What the plugin host is told at start.

use std::{path::PathBuf, time::Duration};

use crate::limits::Limits;

/// Which plugin serves which extension point, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uses {
    /// Which agents may run a task.
    pub matcher: String,
    /// What a subscriber of the event stream sees.
    pub filter: String,
    /// What a container of the orchestration framework runs first.
    pub bootstrap: String,
    /// Checks of kind `http`.
    pub http: String,
    /// Checks of kind `tcp`.
    pub tcp: String,
    /// Checks of kind `exec`, where the host looks.
    pub exec: String,
}

impl Default for Uses {
    fn default() -> Self {
        Uses {
            matcher: "attributes".into(),
            filter: "events".into(),
            bootstrap: "bootstrap".into(),
            http: "check-http".into(),
            tcp: "check-tcp".into(),
            exec: "check-command".into(),
        }
    }
}

/// Configuration of the plugin host.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of `NAME.wasm` with `NAME.toml` beside it.
    pub dir: PathBuf,
    /// Which plugin serves what.
    pub uses: Uses,
    /// Defaults for what manifests leave out.
    pub limits: Limits,
    /// How often the directory is read even when nothing was noticed.
    pub rescan: Duration,
}

impl Config {
    /// The defaults for `dir`: first-party names, default limits, a rescan every 30 s.
    pub fn new(dir: impl Into<PathBuf>) -> Config {
        Config {
            dir: dir.into(),
            uses: Uses::default(),
            limits: Limits::default(),
            rescan: Duration::from_secs(30),
        }
    }
}
