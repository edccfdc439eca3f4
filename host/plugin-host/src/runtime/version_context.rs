//! The context that all parts of an admitted version share: name, limits, grants, log, metrics and
//! health.

use std::{
    sync::{Arc, OnceLock},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    error::CallError,
    fault::Fault,
    manifest::{Manifest, grants::Grants, limits::Limits},
    observe::{
        guest_log::GuestLog,
        health::{Health, HealthWatch},
        status::Trap,
        version_metrics::{CallOutcome, GaugeGuard, VersionMetrics},
    },
    runtime::recording::Recorder,
    worlds::WorldName,
};

#[derive(Debug)]
pub(crate) struct VersionContext {
    pub(crate) name: String,
    /// The version label, set by the activation.
    label: OnceLock<String>,
    pub(crate) world: WorldName,
    pub(crate) limits: Limits,
    pub(crate) grants: Grants,
    /// The JSON document for `configure`.
    pub(crate) config: String,
    /// The granted variables, with their values at admission.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) log: Arc<GuestLog>,
    pub(crate) metrics: VersionMetrics,
    pub(crate) health: Health,
    /// Set by the activation, if calls are recorded.
    recorder: OnceLock<Recorder>,
    /// One permit for each call or attempt that may be in progress.
    call_permits: Arc<Semaphore>,
}

/// A call or attempt in progress.
#[derive(Debug)]
pub(crate) struct InFlight {
    _counted: GaugeGuard,
    _permit: OwnedSemaphorePermit,
}

/// A call waiting for an instance.
#[derive(Debug)]
pub(crate) struct QueueWait {
    context: Arc<VersionContext>,
    since: Instant,
    _counted: GaugeGuard,
}

impl QueueWait {
    /// Records the wait, because the call has got an instance.
    pub(crate) fn record_wait(self) {
        self.context.metrics.record_wait(self.since.elapsed());
    }
}

impl VersionContext {
    pub(crate) fn new(
        name: &str,
        manifest: &Manifest,
        environment: Vec<(String, String)>,
        metrics: VersionMetrics,
    ) -> VersionContext {
        let limits = manifest.limits.clone();
        let log = GuestLog::new(name, limits.log_lines, limits.log_line, metrics.clone());
        VersionContext {
            name: name.to_owned(),
            label: OnceLock::new(),
            recorder: OnceLock::new(),
            world: manifest.world,
            call_permits: Arc::new(Semaphore::new(limits.concurrency)),
            grants: manifest.grants.clone(),
            config: manifest.config.to_string(),
            environment,
            log: Arc::new(log),
            metrics,
            health: Health::new(manifest.probation),
            limits,
        }
    }

    /// Returns the same context for calls that do not count: it has separate metrics, and its
    /// faults have no consequences.
    pub(crate) fn detached(&self) -> VersionContext {
        VersionContext {
            name: self.name.clone(),
            label: self.label.clone(),
            recorder: OnceLock::new(),
            world: self.world,
            call_permits: Arc::new(Semaphore::new(self.limits.concurrency)),
            grants: self.grants.clone(),
            config: self.config.clone(),
            environment: self.environment.clone(),
            log: Arc::clone(&self.log),
            metrics: VersionMetrics::unexported(),
            health: Health::new(crate::manifest::probation::Probation::default()),
            limits: self.limits.clone(),
        }
    }

    /// Marks the version as serving: its series are shown from now on, and too many faults replace
    /// it.
    pub(crate) fn activate(&self, label: &str, watch: HealthWatch, recorder: Option<Recorder>) {
        self.metrics.export_as(label);
        self.health.watch(watch);
        if let Some(recorder) = recorder {
            // A context is activated once.
            drop(self.recorder.set(recorder));
        }
        self.set_label(label);
    }

    /// `None` if the calls of this version are not recorded.
    pub(crate) fn recorder(&self) -> Option<&Recorder> {
        self.recorder.get()
    }

    /// Sets the version label, which names the version in spans.
    pub(crate) fn set_label(&self, label: &str) {
        // The label of a version never changes.
        let _ = self.label.set(label.to_owned());
    }

    /// The version label; empty for a trial instance.
    pub(crate) fn label(&self) -> &str {
        self.label.get().map_or("", String::as_str)
    }

    /// Registers a call in progress, or fails if the limit is reached.
    pub(crate) fn begin_call(self: &Arc<Self>) -> Result<InFlight, CallError> {
        let permit = Arc::clone(&self.call_permits)
            .try_acquire_owned()
            .map_err(|_| CallError::Busy {
                name: self.name.clone(),
                message: format!(
                    "{} calls are in progress (limits.concurrency)",
                    self.limits.concurrency
                ),
            })
            .inspect_err(|_| self.metrics.count_call(CallOutcome::Busy))?;
        Ok(InFlight {
            _counted: self.metrics.in_flight(),
            _permit: permit,
        })
    }

    /// Registers a call that waits for an instance.
    pub(crate) fn start_wait(self: &Arc<Self>) -> QueueWait {
        QueueWait {
            context: Arc::clone(self),
            since: Instant::now(),
            _counted: self.metrics.queued(),
        }
    }

    /// Calls in progress on this version.
    pub(crate) fn in_flight(&self) -> u64 {
        self.limits
            .concurrency
            .saturating_sub(self.call_permits.available_permits()) as u64
    }

    /// Counts and logs a fault. Returns the error for the caller.
    pub(crate) fn record_fault(&self, fault: &Fault) -> CallError {
        self.count_fault(fault);
        let error = fault.to_error(&self.name);
        tracing::warn!(
            plugin = self.name,
            "plugin call failed, replacing the instance: {error}"
        );
        error
    }

    pub(crate) fn count_fault(&self, fault: &Fault) {
        self.metrics.count_call(fault.into());
        let fault_text = fault.to_error(&self.name).to_string();
        self.health.record_fault(&self.name, &fault_text);
        self.metrics.set_last_fault(Trap {
            at: seconds_now(),
            fault: fault_text,
            backtrace: fault.frames().to_vec(),
        });
    }

    /// Counts an attempt that the component did not finish. It counts as a timeout.
    pub(crate) fn count_unfinished(&self, what: &str) {
        tracing::warn!(plugin = self.name, "{what}");
        self.metrics.count_unfinished();
        self.health.record_fault(&self.name, what);
        self.metrics.set_last_fault(Trap {
            at: seconds_now(),
            fault: what.to_owned(),
            backtrace: Vec::new(),
        });
    }

    /// Counts a denied access and logs it, up to a rate limit.
    pub(crate) fn record_denial(&self, wanted: &str, why: Option<&str>, run_spec: Option<&str>) {
        self.metrics.count_denial();
        let Some(suppressed) = self.log.try_log_denial() else {
            return;
        };
        tracing::warn!(
            plugin = self.name,
            run_spec,
            wanted,
            why,
            suppressed,
            "plugin access denied: not granted"
        );
    }
}

/// Seconds since 1970.
pub(crate) fn seconds_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
