//! Repeated calls: a call that one version has answered is repeated on another one, and the answers
//! are compared as documents ([`transom_plugin_cases::compare`]). Candidates use it (see
//! [`super::candidate`]).

pub(crate) mod calls;

use std::sync::Arc;

use futures::future::BoxFuture;
use transom_plugin_cases::{Difference as AnswerDifference, Masks, compare};

use crate::{
    documents::{ObservedCall, probe::answer_of},
    error::CallError,
    observe::status::Difference,
    runtime::{
        candidate::share::KeyHash,
        engine::{
            Reply, World,
            worlds::probe::{Call as ProbeCall, Next, Probe},
        },
        pool::Version,
    },
    worlds::{
        probe::Request,
        step::{Answer, Step},
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

impl Comparison {
    fn of(difference: Option<AnswerDifference>, call: &ObservedCall) -> Comparison {
        difference.map_or(Comparison::Same, |difference| {
            Comparison::Different(Difference {
                question: difference.question(call.name(), &call.case()),
                serving: difference.first,
                candidate: difference.second,
            })
        })
    }
}

/// A call with its first answer. It is repeated on the given version, and the answers are compared.
pub(crate) type Sample<W> =
    Box<dyn FnOnce(Arc<Version<W>>) -> BoxFuture<'static, Result<Comparison, CallError>> + Send>;

/// A call that can be repeated on another version.
pub(crate) trait RepeatableCall<W: World>: Clone + Send + 'static {
    /// The answer.
    type Answer: Clone + PartialEq + Send;

    /// The preferred instance, which has the agent set loaded or the query open. `None`: any
    /// instance.
    fn preferred_instance(&self) -> Option<usize> {
        None
    }

    /// The revision of the agent set that the call is about.
    fn revision(&self) -> Option<u64> {
        None
    }

    /// Adds what the call is about to the hash that decides whether a canary answers it.
    fn key(&self, hash: &mut KeyHash);

    fn call(self, reply: Reply<Self::Answer>) -> W::Call;

    /// Returns the call for the call log and for comparison. The answer is `None` if the call ended in
    /// a fault.
    fn observed(self, answer: Option<Self::Answer>) -> ObservedCall;
}

/// Runs a call on a version.
pub(crate) async fn repeat<W: World, C: RepeatableCall<W>>(
    version: &Version<W>,
    call: C,
) -> Result<C::Answer, CallError> {
    let mut instance = match call.preferred_instance() {
        Some(preferred) => version.near(preferred),
        None => version.least_loaded(),
    };
    version.ask(&mut instance, |reply| call.call(reply)).await
}

/// Returns the sample of a call.
pub(crate) fn call_sample<W: World, C: RepeatableCall<W>>(call: C, first: C::Answer) -> Sample<W> {
    let revision = call.revision();
    let compared = async move |version: Arc<Version<W>>| {
        let repeated = repeat(&version, call.clone()).await?;
        // Equal answers have equal documents, which need not be created.
        let comparison = if first == repeated {
            Comparison::Same
        } else {
            let first = call.clone().observed(Some(first));
            let repeated = call.clone().observed(Some(repeated));
            let answer = |call: &ObservedCall| call.answer().unwrap_or_default();
            let difference = compare(&answer(&first), &answer(&repeated), Masks::Absent);
            Comparison::of(difference, &first)
        };
        Ok(if call.revision() == revision {
            comparison
        } else {
            Comparison::Stale
        })
    };
    Box::new(move |version| Box::pin(compared(version)))
}

/// Returns the sample of an attempt: its steps with the answers to them, and its last step. It is
/// repeated with the same answers.
pub(crate) fn attempt_sample(request: Arc<Request>, steps: Vec<(Step, Answer)>, end: Step) -> Sample<Probe> {
    let compared = async move |version: Arc<Version<Probe>>| {
        let observed = ObservedCall::Attempt {
            request: Arc::clone(&request),
            steps: Vec::new(),
            end: None,
        };
        let difference =
            |first: &Step, step: &Step| compare(&answer_of(first), &answer_of(step), Masks::Absent);
        let mut handle = version.least_loaded();
        let begin = |reply| ProbeCall::Begin {
            request,
            deadline: None,
            reply,
        };
        let (attempt, mut step) = version.ask(&mut handle, begin).await?;
        for (number, (first, answer)) in (1..).zip(steps) {
            if let Some(difference) = difference(&first, &step) {
                return Ok(Comparison::of(Some(difference.in_step(number)), &observed));
            }
            let key = attempt.key;
            let next = |reply| ProbeCall::Next {
                key,
                answer,
                deadline: None,
                reply,
            };
            step = match version.ask(&mut handle, next).await? {
                Next::Step(step) => step,
                Next::Lost => return Ok(Comparison::Stale),
            };
        }
        Ok(Comparison::of(difference(&end, &step), &observed))
    };
    Box::new(move |version| Box::pin(compared(version)))
}
