//! World `check-probe`: an attempt lives in the instance that it started in.

use std::{
    collections::HashMap,
    ops::RangeInclusive,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use transom_plugin_cases::json::{NO_OBJECT, is_object};
use wasmtime::component::ResourceAny;

use super::common;
use crate::{
    error::CallError,
    fault::Fault,
    runtime::engine::{
        Instance, World,
        bindings::probe::{CheckProbe, CheckProbePre},
        call_meter::Allowance,
        convert::probe as convert,
        guest::Guest,
        instance::{AnswerKind, Reply},
    },
    worlds::{
        probe::{Failure, MAX_OUTCOME, Outcome, Reason, Request},
        step::{Answer, Step},
    },
};

pub(crate) struct Probe;

/// A call. `deadline` is that of the attempt, if it has one.
pub(crate) enum Call {
    /// Starts an attempt and returns its first step.
    Begin {
        request: Arc<Request>,
        deadline: Option<Instant>,
        reply: Reply<(AttemptHandle, Step)>,
    },
    /// Passes the answer to a step and returns the next step.
    Next {
        key: AttemptKey,
        answer: Answer,
        deadline: Option<Instant>,
        reply: Reply<Next>,
    },
}

/// Minimum time limit of a call whose attempt's deadline is near or has passed, unless the call's own
/// limit is shorter.
pub(crate) const LATE_CALL_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) enum Next {
    Step(Step),
    /// The attempt's instance no longer exists, for a reason unrelated to the attempt: the caller can
    /// restart the attempt.
    Lost,
}

/// Identifies an attempt: the serial number of its instance, and its own number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AttemptKey {
    instance: u64,
    attempt: u64,
}

/// Owns an attempt's guest resource; dropping it frees the resource before the instance's next
/// call.
pub(crate) struct AttemptHandle {
    pub(crate) key: AttemptKey,
    released: Arc<ReleasedAttempts>,
}

impl Drop for AttemptHandle {
    fn drop(&mut self) {
        self.released
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(self.key);
    }
}

/// Attempts released since the last call.
#[derive(Default)]
pub(crate) struct ReleasedAttempts(Mutex<Vec<AttemptKey>>);

#[derive(Default)]
pub(crate) struct Attempts {
    attempts: HashMap<u64, ResourceAny>,
    next: u64,
}

impl World for Probe {
    type Pre = CheckProbePre<Guest>;
    type Bindings = CheckProbe;
    type Resources = Attempts;
    type Shared = ReleasedAttempts;
    type Call = Call;

    common!(CheckProbePre, transom_plugin_about);

    async fn run(
        instance: &mut Instance<Self>,
        shared: &Arc<ReleasedAttempts>,
        call: Call,
    ) -> Result<(), Fault> {
        match call {
            Call::Begin {
                request,
                deadline,
                reply,
            } => {
                let begun = begin(instance, shared, &request, deadline).await;
                instance.answer_as(reply, begun, |(_, step)| answer_kind(step))
            }
            Call::Next {
                key,
                answer,
                deadline,
                reply,
            } => {
                let Some(attempt) = instance.resources.attempts.get(&key.attempt).copied() else {
                    return instance.answer(reply, Ok(Next::Lost));
                };
                let step = next(instance, attempt, Some(answer), deadline)
                    .await
                    .map(Next::Step);
                instance.answer_as(reply, step, |it| match it {
                    Next::Step(step) => answer_kind(step),
                    Next::Lost => AnswerKind::Answer,
                })
            }
        }
    }

    async fn drop_orphans(instance: &mut Instance<Self>, shared: &ReleasedAttempts) -> Result<(), Fault> {
        let serial = instance.serial();
        let own_keys: Vec<AttemptKey> = {
            let mut released = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
            let (own_keys, others) = released.drain(..).partition(|key| key.instance == serial);
            // Keys of a draining instance are retained, those of an instance that no longer exists are
            // discarded.
            *released = others;
            released.retain(|key| key.instance + 1 >= serial);
            own_keys
        };
        for key in own_keys {
            if let Some(attempt) = instance.resources.attempts.remove(&key.attempt) {
                instance
                    .free(attempt)
                    .await
                    .inspect_err(|fault| instance.context.count_fault(fault))?;
            }
        }
        Ok(())
    }

    fn reject(call: Call, error: CallError) {
        match call {
            Call::Begin { reply, .. } => drop(reply.send(Err(error))),
            Call::Next { reply, .. } => drop(reply.send(Err(error))),
        }
    }

    fn bound_instance(call: &Call) -> Option<u64> {
        match call {
            Call::Begin { .. } => None,
            Call::Next { key, .. } => Some(key.instance),
        }
    }

    fn reject_lost(call: Call) {
        match call {
            Call::Begin { reply, .. } => drop(reply.send(Err(CallError::Stopped))),
            Call::Next { reply, .. } => drop(reply.send(Ok(Next::Lost))),
        }
    }

    fn has_open_resources(attempts: &Attempts) -> bool {
        !attempts.attempts.is_empty()
    }
}

async fn begin(
    instance: &mut Instance<Probe>,
    released: &Arc<ReleasedAttempts>,
    request: &Request,
    deadline: Option<Instant>,
) -> Result<(AttemptHandle, Step), Fault> {
    let allowance = allowance(instance, deadline);
    let request = convert::request(request);
    let attempts = instance.bindings.transom_probe_probe().attempt();
    let call = attempts.call_constructor(&mut instance.store, &request);
    let attempt = instance.meter.run(allowance, call).await?;
    instance.resources.next += 1;
    let key = AttemptKey {
        instance: instance.serial(),
        attempt: instance.resources.next,
    };
    instance.resources.attempts.insert(key.attempt, attempt);
    let handle = AttemptHandle {
        key,
        released: Arc::clone(released),
    };
    let step = next(instance, attempt, None, deadline).await?;
    Ok((handle, step))
}

async fn next(
    instance: &mut Instance<Probe>,
    attempt: ResourceAny,
    answer: Option<Answer>,
    deadline: Option<Instant>,
) -> Result<Step, Fault> {
    let allowance = allowance(instance, deadline);
    let answer = answer.map(convert::answer);
    let attempts = instance.bindings.transom_probe_probe().attempt();
    let call = attempts.call_next(&mut instance.store, attempt, answer.as_ref());
    let step = instance.meter.run(allowance, call).await.map(convert::step)?;
    match &step {
        // The size is checked before the JSON is parsed, because it may be megabytes.
        Step::Done(Outcome::Custom(json)) if json.len() > MAX_OUTCOME => {
            Ok(Step::Failed(too_large(&instance.context.name, json.len())))
        }
        Step::Done(Outcome::Custom(json)) if !is_object(json) => {
            Err(Fault::Malformed(format!("the custom outcome {NO_OBJECT}")))
        }
        Step::Done(Outcome::Http(status)) if !STATUSES.contains(status) => {
            let (min, max) = (STATUSES.start(), STATUSES.end());
            Err(Fault::Malformed(format!(
                "{status} is not a valid HTTP status code: expected one from {min} to {max}"
            )))
        }
        _ => Ok(step),
    }
}

/// The failure of an attempt whose result is too large. The instance is intact, and the version gets no
/// fault.
fn too_large(plugin: &str, bytes: usize) -> Failure {
    Failure {
        reason: Reason::Plugin,
        message: format!("plugin `{plugin}`: result too large: {bytes} bytes, at most {MAX_OUTCOME}"),
    }
}

/// Valid HTTP status codes.
const STATUSES: RangeInclusive<u16> = 100..=599;

/// The limits of a call. A call may run until its attempt's deadline, but has at least
/// [`LATE_CALL_TIMEOUT`] and at most its own limit; one that does not return in time is a fault.
fn allowance(instance: &mut Instance<Probe>, deadline: Option<Instant>) -> Allowance {
    let allowance = instance.allowance();
    let remaining = deadline.map(|deadline| {
        deadline
            .saturating_duration_since(Instant::now())
            .max(LATE_CALL_TIMEOUT)
    });
    Allowance {
        wall_clock: remaining.map_or(allowance.wall_clock, |remaining| {
            remaining.min(allowance.wall_clock)
        }),
        ..allowance
    }
}

fn answer_kind(step: &Step) -> AnswerKind {
    match step {
        Step::Done(_) => AnswerKind::Answer,
        Step::Failed(_) => AnswerKind::Rejection,
        _ => AnswerKind::Step,
    }
}
