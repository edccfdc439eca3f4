//! Configuration of the plugin host.

use std::{ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

use transom_registry::{Registries, network::Reserved, signatures::Signatures};
use transom_store::Store;

use crate::manifest::{limits::Limits, probation::Probation};

/// Which plugin serves which extension point, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bindings {
    /// Matchers that decide which agents may run a task: all of them have to accept an agent. The
    /// first one chooses among the accepted agents.
    pub matchers: Vec<String>,
    /// Filters that decide which events a subscriber of the event stream receives. Each filter
    /// receives the events that the one before it passes.
    pub filters: Vec<String>,
    /// The handler that prepares the first script of a container.
    pub bootstrap: String,
    /// The probe for checks of kind `http`.
    pub http: String,
    /// The probe for checks of kind `tcp`.
    pub tcp: String,
    /// The probe for checks of kind `exec`, if the host runs them.
    pub exec: String,
}

impl Bindings {
    /// Whether the plugin of this name serves an extension point.
    pub(crate) fn contains(&self, name: &str) -> bool {
        let single = [&self.bootstrap, &self.http, &self.tcp, &self.exec];
        let mut all = self.matchers.iter().chain(&self.filters).chain(single);
        all.any(|it| it == name)
    }
}

impl Default for Bindings {
    fn default() -> Self {
        Bindings {
            matchers: vec!["attributes".into()],
            filters: vec!["events".into()],
            bootstrap: "bootstrap".into(),
            http: "check-http".into(),
            tcp: "check-tcp".into(),
            exec: "check-command".into(),
        }
    }
}

/// Settings of the call log, from which new versions are replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// A private directory, created with mode 0700.
    pub dir: PathBuf,
    /// Percentage of the calls that are recorded.
    pub sample_percent: u64,
    /// Maximum size in bytes on disk for each plugin. The oldest records are deleted first. At
    /// least [`Recording::MIN_SIZE`].
    pub max_size: u64,
    /// Maximum age of a record.
    pub max_age: Duration,
    /// Maximum size in bytes of a record. Larger calls are counted and not recorded.
    pub max_record: usize,
}

impl Recording {
    /// The smallest `max_size`.
    pub const MIN_SIZE: u64 = 1 << 20;

    /// The defaults: a tenth of the calls, 64 MiB for each plugin, for a day.
    pub fn new(dir: impl Into<PathBuf>) -> Recording {
        Recording {
            dir: dir.into(),
            sample_percent: 10,
            max_size: 64 << 20,
            max_age: Duration::from_hours(24),
            max_record: 256 << 10,
        }
    }
}

/// Where components are compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Compiler {
    /// On threads of this process, without a memory limit: for command-line tools. A compilation
    /// that exceeds its time limit continues in the background.
    #[default]
    InProcess,
    /// In a separate process for each component.
    Process(CompileProcess),
}

/// A program that calls [`compile_standard_input`](crate::compile_standard_input). It has to come
/// from the same build as the running program, which may be the program itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileProcess {
    /// Its path. `/proc/self/exe` is the running program, even after its file was replaced.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Maximum size in bytes of its writable memory (`RLIMIT_DATA`).
    pub memory: u64,
}

/// Configuration of the plugin host.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of `NAME.wasm` and `NAME.toml`.
    pub dir: PathBuf,
    /// Which plugin serves which extension point.
    pub bindings: Bindings,
    /// Defaults for manifests.
    pub limits: Limits,
    /// Maximum number of instances over all plugins; their address space is reserved at the start.
    /// A call that finds no free slot waits up to its wall-clock limit.
    pub instances: u32,
    /// Interval of directory scans without file events.
    pub rescan: Duration,
    /// Limit of processor time for the compilation of one component, all threads together.
    pub compile_timeout: Duration,
    /// Wall-clock time after which a compilation is given up and retried, because the machine is too
    /// busy.
    pub compile_wall_clock: Duration,
    /// Where components are compiled, and their schemas are evaluated.
    pub compiler: Compiler,
    /// Maximum time that the start waits for the admission of the plugins that are bound to an
    /// extension point. It does not wait for others.
    pub start_timeout: Duration,
    /// Default for manifests.
    pub probation: Probation,
    /// The host's private directory, created with mode 0700: compiled components, versions for
    /// rollbacks and fetched images. `None`: nothing is kept, so that components are compiled and
    /// fetched at each start, and rollbacks are impossible.
    pub private: Option<PathBuf>,
    /// The store of admission records. `None`: records are in memory only, until the daemon stops.
    pub store: Option<Arc<dyn Store>>,
    /// Settings for components from registries.
    pub registries: Registries,
    /// Which signatures components need.
    pub signatures: Signatures,
    /// Settings of the call log. `None`: no calls are recorded.
    pub recording: Option<Recording>,
    /// The daemon's own ports, its store and its masters. A probe or a registry may connect to them
    /// only with a grant or a setting that names exactly that address and port.
    pub reserved: Reserved,
    /// Prefix of the records' keys: `PREFIX/plugins/NAME/SEQUENCE`.
    pub prefix: String,
    /// Looks up an environment variable that a manifest grants. By default in the daemon's
    /// environment.
    pub environment: fn(&str) -> Option<String>,
}

impl Config {
    /// The defaults for `dir`: first-party names, default limits, two minutes of processor time for a compilation, a
    /// scan every 30 s, no store, `.transom` below `dir` as private directory.
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
            compile_wall_clock: Duration::from_mins(20),
            compiler: Compiler::default(),
            start_timeout: Duration::from_mins(2),
            probation: Probation::default(),
            store: None,
            registries: Registries::default(),
            signatures: Signatures::default(),
            recording: None,
            reserved: Reserved::default(),
            prefix: "transom".to_owned(),
            environment: |name| std::env::var(name).ok(),
        }
    }
}
