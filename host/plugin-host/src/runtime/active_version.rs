//! [`ActiveVersion`]: the version that answers an extension point's calls, and its candidate.

use std::sync::Arc;

use super::{
    candidate::{Candidate, share::KeyHash},
    engine::World,
    pool::Version,
    shadow::{RepeatableCall, call_sample, repeat},
};
use crate::error::CallError;

/// The serving version, and a shadow or a canary if there is one.
pub(crate) struct ActiveVersion<W: World> {
    primary: Arc<Version<W>>,
    candidate: Option<Arc<Candidate<W>>>,
}

impl<W: World> Clone for ActiveVersion<W> {
    fn clone(&self) -> Self {
        ActiveVersion {
            primary: Arc::clone(&self.primary),
            candidate: self.candidate.clone(),
        }
    }
}

impl<W: World> ActiveVersion<W> {
    pub(crate) fn new(version: Version<W>) -> ActiveVersion<W> {
        ActiveVersion {
            primary: Arc::new(version),
            candidate: None,
        }
    }

    /// Returns the same version with another candidate, or with none.
    pub(crate) fn with_candidate(&self, candidate: Option<Candidate<W>>) -> ActiveVersion<W> {
        ActiveVersion {
            primary: Arc::clone(&self.primary),
            candidate: candidate.map(Arc::new),
        }
    }

    pub(crate) fn primary(&self) -> &Arc<Version<W>> {
        &self.primary
    }

    pub(crate) fn candidate(&self) -> Option<&Candidate<W>> {
        self.candidate.as_deref()
    }

    /// Returns the canary, if it answers the calls with this key.
    pub(crate) fn canary(&self, key: impl FnOnce(&mut KeyHash)) -> Option<&Arc<Candidate<W>>> {
        self.candidate.as_ref().filter(|it| it.is_in_share(key))
    }

    /// Counts the call. Returns the shadow, if this call is in its sample.
    pub(crate) fn shadow(&self) -> Option<&Arc<Candidate<W>>> {
        self.candidate
            .as_ref()
            .filter(|it| it.is_shadow() && it.should_sample())
    }

    /// Runs a call on the serving version, or on the canary if the call is in its share. A call
    /// that fails on the canary is repeated on the serving version. Afterwards, a call in the
    /// candidate's sample is repeated on the other version, and a call in the log's sample is
    /// recorded; the caller waits for neither.
    pub(crate) async fn ask<C: RepeatableCall<W>>(&self, call: C) -> Result<C::Answer, CallError> {
        if let Some(canary) = self.canary(|hash| call.key(hash)) {
            match call_and_compare(
                &canary.version,
                call.clone(),
                canary.should_sample().then_some(canary),
            )
            .await
            {
                Ok(answer) => {
                    canary.stats.count_answer();
                    return Ok(answer);
                }
                Err(error) if error.is_fault() => canary.stats.count_failure(),
                // The canary did not execute the call.
                Err(_) => {}
            }
        }
        call_and_compare(&self.primary, call, self.shadow()).await
    }
}

/// Runs a call on a version. A `candidate` receives the answer for comparison.
async fn call_and_compare<W: World, C: RepeatableCall<W>>(
    version: &Arc<Version<W>>,
    call: C,
    candidate: Option<&Arc<Candidate<W>>>,
) -> Result<C::Answer, CallError> {
    let Some(candidate) = candidate else {
        return call_and_record(version, call).await;
    };
    let sampled_call = call.clone();
    let answer = call_and_record(version, call).await?;
    candidate.submit(call_sample(sampled_call, answer.clone()));
    Ok(answer)
}

/// Runs a call on a version, and records it if it is in the sample of the log.
async fn call_and_record<W: World, C: RepeatableCall<W>>(
    version: &Arc<Version<W>>,
    call: C,
) -> Result<C::Answer, CallError> {
    let context = &version.context;
    let _in_flight = context.begin_call()?;
    let Some((recorder, began)) = context.recorder().and_then(|it| Some((it, it.begin()?))) else {
        return repeat(version, call).await;
    };
    let observed = call.clone();
    let answer = repeat(version, call).await;
    if answer.as_ref().err().is_none_or(CallError::is_fault) {
        let observed = observed.observed(answer.as_ref().ok().cloned());
        recorder.end(
            began,
            observed,
            answer.as_ref().err(),
            context.metrics.memory_peak(),
        );
    }
    answer
}
