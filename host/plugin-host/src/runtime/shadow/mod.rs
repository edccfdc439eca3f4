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
    /// `serving` is the first answer, `candidate` the repeated one.
    Different(Difference),
    /// The data has changed since.
    Stale,
}

/// A world whose results can be compared.
pub(crate) trait Comparable: World {
    /// A call and its first answer.
    type Sample: Send + 'static;

    /// Repeats the call on `version` and compares.
    fn compare(
        version: &Version<Self>,
        sample: Self::Sample,
    ) -> impl Future<Output = Result<Comparison, CallError>> + Send;
}

/// A call that can be repeated on another version.
pub(crate) trait RepeatableCall<W: Comparable>: Clone + Send {
    /// The result.
    type Answer: Clone + Send;

    /// The instance to prefer, because it has an agent set or a query open. None: any.
    fn preferred_instance(&self) -> Option<usize> {
        None
    }

    /// What the call is about: whether a canary answers it.
    fn key(&self, hash: &mut KeyHash);

    fn call(self, reply: Reply<Self::Answer>) -> W::Call;

    /// The call with its answer, for the comparison.
    fn sample(self, first: Self::Answer) -> W::Sample;

    /// The call for the call log. None: it ended in a fault.
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
