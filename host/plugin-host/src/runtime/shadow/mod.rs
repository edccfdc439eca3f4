//! Repeated calls: a call that one version has answered is repeated on another one, and the answers
//! are compared. Candidates use it (see [`super::candidate`]).

pub(crate) mod calls;
mod compare;

use crate::{
    error::CallError,
    observe::status::Difference,
    runtime::{
        candidate::share::KeyHash,
        engine::{Reply, World},
        pool::Version,
        recording::ObservedCall,
    },
};

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Same,
    /// `serving` holds the first answer, `candidate` the repeated one.
    Different(Difference),
    /// The data has changed since the first call, so the answers cannot be compared.
    Stale,
}

/// A world whose results can be compared.
pub(crate) trait Comparable: World {
    /// A call and its first answer.
    type Sample: Send + 'static;

    /// Repeats the call on `version` and compares the answers.
    fn compare(
        version: &Version<Self>,
        sample: Self::Sample,
    ) -> impl Future<Output = Result<Comparison, CallError>> + Send;
}

/// A call that can be repeated on another version.
pub(crate) trait RepeatableCall<W: Comparable>: Clone + Send {
    /// The answer.
    type Answer: Clone + Send;

    /// The preferred instance, which has the agent set loaded or the query open. `None`: any
    /// instance.
    fn preferred_instance(&self) -> Option<usize> {
        None
    }

    /// Adds what the call is about to the hash that decides whether a canary answers it.
    fn key(&self, hash: &mut KeyHash);

    fn call(self, reply: Reply<Self::Answer>) -> W::Call;

    /// Returns the call with its first answer, for comparison.
    fn sample(self, first: Self::Answer) -> W::Sample;

    /// Returns the call for the call log. The answer is `None` if the call ended in a fault.
    fn observed(self, answer: Option<Self::Answer>) -> ObservedCall;
}

/// Runs a call on a version.
pub(crate) async fn repeat<W: Comparable, C: RepeatableCall<W>>(
    version: &Version<W>,
    call: C,
) -> Result<C::Answer, CallError> {
    let mut instance = match call.preferred_instance() {
        Some(preferred) => version.near(preferred),
        None => version.least_loaded(),
    };
    version.ask(&mut instance, |reply| call.call(reply)).await
}
