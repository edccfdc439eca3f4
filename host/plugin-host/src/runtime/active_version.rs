//! [`ActiveVersion`]: the version that answers an extension point's calls, with its shadow.

use std::sync::Arc;

use super::{
    pool::Version,
    recording::is_fault,
    shadow::{Comparable, RepeatableCall, Shadow, repeat},
    version_context::InFlight,
};
use crate::error::CallError;

/// The serving version, and its shadow if there is one.
pub(crate) struct ActiveVersion<W: Comparable> {
    primary: Arc<Version<W>>,
    shadow: Option<Arc<Shadow<W>>>,
}

impl<W: Comparable> Clone for ActiveVersion<W> {
    fn clone(&self) -> Self {
        ActiveVersion {
            primary: Arc::clone(&self.primary),
            shadow: self.shadow.clone(),
        }
    }
}

/// A call in progress.
pub(crate) struct EnteredCall<W: Comparable> {
    _in_flight: InFlight,
    /// The shadow version, if this call is in the sample.
    pub(crate) shadow: Option<Arc<Shadow<W>>>,
}

impl<W: Comparable> ActiveVersion<W> {
    pub(crate) fn alone(version: Version<W>) -> ActiveVersion<W> {
        ActiveVersion {
            primary: Arc::new(version),
            shadow: None,
        }
    }

    /// The same version with this shadow in place of the present one.
    pub(crate) fn with_shadow(&self, shadow: Shadow<W>) -> ActiveVersion<W> {
        ActiveVersion {
            primary: Arc::clone(&self.primary),
            shadow: Some(Arc::new(shadow)),
        }
    }

    pub(crate) fn primary(&self) -> &Arc<Version<W>> {
        &self.primary
    }

    pub(crate) fn shadow(&self) -> Option<&Shadow<W>> {
        self.shadow.as_deref()
    }

    /// Registers a call in progress, or fails if the limit is reached.
    pub(crate) fn enter(&self) -> Result<EnteredCall<W>, CallError> {
        let in_flight = self.primary.context.enter()?;
        Ok(EnteredCall {
            _in_flight: in_flight,
            shadow: self.shadow.as_ref().filter(|it| it.wants()).cloned(),
        })
    }

    /// Runs a call on the serving version. A call in the sample of the shadow is repeated on it
    /// afterwards, and one in the sample of the log is recorded; the caller waits for neither.
    pub(crate) async fn ask<C: RepeatableCall<W>>(&self, call: C) -> Result<C::Answer, CallError> {
        let entered = self.enter()?;
        let sampled = entered.shadow.as_ref().map(|shadow| (shadow, call.clone()));
        let context = &self.primary.context;
        let recorded = context.recorder().and_then(|recorder| {
            let began = recorder.begin()?;
            Some((recorder, began, call.clone()))
        });
        let answer = repeat(&self.primary, call).await;
        if let Some((recorder, began, call)) = recorded
            && answer.as_ref().err().is_none_or(is_fault)
        {
            let call = call.observed(answer.as_ref().ok().cloned());
            recorder.end(began, call, answer.as_ref().err(), context.metrics.memory_peak());
        }
        let answer = answer?;
        if let Some((shadow, call)) = sampled {
            shadow.submit(call.sample(answer.clone()));
        }
        Ok(answer)
    }
}
