//! What every part of an admitted plugin shares: name, limits, grants, log, metrics.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    error::CallError, fault::Fault, grants::Grants, guest_log::GuestLog, limits::Limits, manifest::Manifest,
    metrics::Stats,
};

#[derive(Debug)]
pub(crate) struct Meta {
    pub(crate) name: String,
    pub(crate) limits: Limits,
    pub(crate) grants: Grants,
    /// The JSON document for `configure`.
    pub(crate) config: serde_json::Value,
    pub(crate) log: Arc<GuestLog>,
    pub(crate) stats: Stats,
    /// A permit for each call or attempt in progress.
    places: Arc<Semaphore>,
}

/// A call or attempt in progress.
#[derive(Debug)]
pub(crate) struct InFlight {
    meta: Arc<Meta>,
    _place: OwnedSemaphorePermit,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.meta.stats.in_flight.dec();
    }
}

impl Meta {
    pub(crate) fn new(name: &str, manifest: Manifest, stats: Stats) -> Meta {
        let limits = manifest.limits;
        let log = GuestLog::new(name, limits.log_lines, limits.log_line, stats.log_drops.clone());
        Meta {
            name: name.to_owned(),
            places: Arc::new(Semaphore::new(limits.concurrency)),
            grants: manifest.grants,
            config: manifest.config,
            log: Arc::new(log),
            stats,
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
            })?;
        self.stats.in_flight.inc();
        Ok(InFlight {
            meta: Arc::clone(self),
            _place: place,
        })
    }

    /// Counts a fault and says it as callers see it.
    pub(crate) fn fault(&self, fault: Fault) -> CallError {
        self.count(&fault);
        let error = fault.into_error(&self.name);
        tracing::warn!(plugin = self.name, "{error}; the instance is replaced");
        error
    }

    pub(crate) fn count(&self, fault: &Fault) {
        match fault {
            Fault::TimedOut(_) | Fault::CpuExhausted(_) => self.stats.timeouts.inc(),
            Fault::Trapped(_) | Fault::OutOfMemory(_) | Fault::Malformed(_) => self.stats.traps.inc(),
        };
    }
}
