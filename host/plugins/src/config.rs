//! What the plugin host is told at start.

use std::{path::PathBuf, sync::Arc, time::Duration};

use transom_store::Store;

use crate::{health::Probation, limits::Limits, reserved::Reserved, sources::Registries, trust::Signatures};

/// Which plugin serves which extension point, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bindings {
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

impl Default for Bindings {
    fn default() -> Self {
        Bindings {
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
    pub bindings: Bindings,
    /// Defaults for what manifests leave out.
    pub limits: Limits,
    /// Instances that can live at once, over all plugins; address space for them is set aside at the start. Who finds all of them taken waits
    /// for as long as a call of its plugin may take.
    pub instances: u32,
    /// How often the directory is read even when nothing was noticed.
    pub rescan: Duration,
    /// For compiling one component, by the clock. What takes longer is refused.
    pub compile_timeout: Duration,
    /// Default for what manifests leave out.
    pub probation: Probation,
    /// A directory of the host's own, made with mode 0700 when it is missing: compiled components, versions to go back to, and what was
    /// fetched. None: nothing is kept, components are compiled and fetched at every start and no record can be gone back to.
    pub private: Option<PathBuf>,
    /// Where records of admissions are kept. None: in memory, until the daemon ends.
    pub store: Option<Arc<dyn Store>>,
    /// How components are fetched whose manifests name a source.
    pub registries: Registries,
    /// Which signatures components need.
    pub signatures: Signatures,
    /// The daemon's own ports, its store and its masters: probes and registries lead there only where exactly that address and
    /// port was named.
    pub reserved: Reserved,
    /// The beginning of the records' keys: `PREFIX/plugins/NAME/SEQUENCE`.
    pub prefix: String,
    /// What a manifest's `environment` grants from: the daemon's own, by default.
    pub environment: fn(&str) -> Option<String>,
}

impl Config {
    /// The defaults for `dir`: first-party names, default limits, two minutes for compiling a component, a rescan every 30 s, no store, `.transom` below `dir` as the host's own.
    pub fn new(dir: impl Into<PathBuf>) -> Config {
        let dir = dir.into();
        Config {
            private: Some(dir.join(".transom")),
            dir,
            bindings: Bindings::default(),
            limits: Limits::default(),
            instances: 256,
            rescan: Duration::from_secs(30),
            compile_timeout: Duration::from_mins(2),
            probation: Probation::default(),
            store: None,
            registries: Registries::default(),
            signatures: Signatures::default(),
            reserved: Reserved::default(),
            prefix: "transom".to_owned(),
            environment: |name| std::env::var(name).ok(),
        }
    }
}
