//! The context that all parts of an admitted version share: name, limits, grants, log, metrics and
//! health.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    error::CallError,
    fault::Fault,
    grants::Grants,
    guest_log::GuestLog,
    health::Health,
    limits::Limits,
    manifest::Manifest,
    metrics::{CallOutcome, GaugeGuard, VersionMetrics},
    status::Trap,
    version_stats::VersionStats,
    world::WorldName,
};

#[derive(Debug)]
pub(crate) struct VersionContext {
    pub(crate) name: String,
    /// The version label; empty for a trial instance.
    pub(crate) version: String,
    pub(crate) world: WorldName,
    pub(crate) limits: Limits,
    pub(crate) grants: Grants,
    /// The JSON document for `configure`.
    pub(crate) config: String,
    /// The granted variables, with their values at admission.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) log: Arc<GuestLog>,
    pub(crate) metrics: VersionMetrics,
    pub(crate) stats: VersionStats,
    pub(crate) health: Health,
    /// One permit for each call or attempt in progress.
    places: Arc<Semaphore>,
}

/// Metrics and health of a starting version.
#[derive(Debug)]
pub(crate) struct VersionTelemetry {
    pub(crate) metrics: VersionMetrics,
    pub(crate) health: Health,
}

/// A call or attempt in progress.
#[derive(Debug)]
pub(crate) struct InFlight {
    _counted: GaugeGuard,
    _place: OwnedSemaphorePermit,
}

/// A call waiting for an instance.
#[derive(Debug)]
pub(crate) struct Queued {
    context: Arc<VersionContext>,
    since: Instant,
    _counted: GaugeGuard,
}

impl Queued {
    /// The call has an instance.
    pub(crate) fn served(self) {
        let waited = self.since.elapsed();
        self.context.metrics.waited(waited);
        self.context.stats.wait.add(waited);
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.context.stats.queue.fetch_sub(1, Relaxed);
    }
}

impl VersionContext {
    pub(crate) fn new(
        name: &str,
        version: &str,
        manifest: &Manifest,
        environment: Vec<(String, String)>,
        post: VersionTelemetry,
    ) -> VersionContext {
        let VersionTelemetry { metrics, health } = post;
        let limits = manifest.limits.clone();
        let log = GuestLog::new(name, limits.log_lines, limits.log_line, metrics.clone());
        VersionContext {
            name: name.to_owned(),
            version: version.to_owned(),
            world: manifest.world,
            places: Arc::new(Semaphore::new(limits.concurrency)),
            grants: manifest.grants.clone(),
            config: manifest.config.to_string(),
            environment,
            log: Arc::new(log),
            metrics,
            stats: VersionStats::default(),
            health,
            limits,
        }
    }

    /// Registers a call in progress, or fails if the limit is reached.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<InFlight, CallError> {
        let place = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|_| CallError::Busy {
                name: self.name.clone(),
                message: format!(
                    "{} calls are in progress (limits.concurrency)",
                    self.limits.concurrency
                ),
            })
            .inspect_err(|_| self.metrics.called(CallOutcome::Busy))?;
        Ok(InFlight {
            _counted: self.metrics.in_flight(),
            _place: place,
        })
    }

    /// Registers a call that waits for an instance.
    pub(crate) fn queued(self: &Arc<Self>) -> Queued {
        self.stats.queue.fetch_add(1, Relaxed);
        Queued {
            context: Arc::clone(self),
            since: Instant::now(),
            _counted: self.metrics.queued(),
        }
    }

    /// Adds processor time of guests.
    pub(crate) fn used(&self, cpu: Duration) {
        self.metrics.used(cpu);
        self.stats.used(cpu);
    }

    /// Calls in progress on this version.
    pub(crate) fn in_flight(&self) -> u64 {
        self.limits
            .concurrency
            .saturating_sub(self.places.available_permits()) as u64
    }

    /// Counts and logs a fault; returns the caller's error.
    pub(crate) fn fault(&self, fault: &Fault) -> CallError {
        self.count(fault);
        let error = fault.to_error(&self.name);
        tracing::warn!(
            plugin = self.name,
            "plugin call failed, replacing the instance: {error}"
        );
        error
    }

    pub(crate) fn count(&self, fault: &Fault) {
        self.metrics.called(fault.into());
        let fault_text = fault.to_error(&self.name).to_string();
        self.health.faulted(&self.name, &fault_text);
        self.stats.faulted(Trap {
            at: seconds_now(),
            fault: fault_text,
            backtrace: fault.frames().to_vec(),
        });
    }

    /// Counts an attempt that the component did not finish as a timeout.
    pub(crate) fn unfinished(&self, what: &str) {
        tracing::warn!(plugin = self.name, "{what}");
        self.metrics.unfinished();
        self.health.faulted(&self.name, what);
        self.stats.faulted(Trap {
            at: seconds_now(),
            fault: what.to_owned(),
            backtrace: Vec::new(),
        });
    }

    /// Counts a denied access and logs it, up to a rate limit.
    pub(crate) fn denied(&self, wanted: &str, why: Option<&str>, run_spec: Option<&str>) {
        self.metrics.denied();
        let Some(unsaid) = self.log.may_say_denial() else {
            return;
        };
        tracing::warn!(
            plugin = self.name,
            run_spec,
            wanted,
            why,
            unsaid,
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
