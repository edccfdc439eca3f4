//! What every part of an admitted version shares: name, limits, grants, log, metrics, and how it is doing.

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
    /// As metrics and spans have it; empty for a trial instance.
    pub(crate) version: String,
    pub(crate) world: WorldName,
    pub(crate) limits: Limits,
    pub(crate) grants: Grants,
    /// The JSON document for `configure`.
    pub(crate) config: String,
    /// The variables that are granted, as they were when it was admitted.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) log: Arc<GuestLog>,
    pub(crate) metrics: VersionMetrics,
    pub(crate) stats: VersionStats,
    pub(crate) health: Health,
    /// A permit for each call or attempt in progress.
    places: Arc<Semaphore>,
}

/// What a version begins to serve with.
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

/// A call that waits for an instance.
#[derive(Debug)]
pub(crate) struct Queued {
    context: Arc<VersionContext>,
    since: Instant,
    _counted: GaugeGuard,
}

impl Queued {
    /// It has one.
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

    /// Takes a place among the calls in progress, or says that there is none.
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

    /// A call begins to wait for an instance.
    pub(crate) fn queued(self: &Arc<Self>) -> Queued {
        self.stats.queue.fetch_add(1, Relaxed);
        Queued {
            context: Arc::clone(self),
            since: Instant::now(),
            _counted: self.metrics.queued(),
        }
    }

    /// Guests used the processor for so long.
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

    /// Counts a fault and says it as callers see it.
    pub(crate) fn fault(&self, fault: &Fault) -> CallError {
        self.count(fault);
        let error = fault.to_error(&self.name);
        tracing::warn!(plugin = self.name, "{error}; the instance is replaced");
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

    /// An attempt of several calls did not come to its end, by the component's fault: that counts as a call that does not.
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

    /// The guest asked for what is not granted: counted, and said in the host's log as often as that may be.
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
            "a plugin asked for what is not granted to it"
        );
    }
}

/// Seconds since 1970.
pub(crate) fn seconds_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
