//! World `check-probe`: an attempt lives in the instance that it started in.

use std::{
    collections::HashMap,
    ops::RangeInclusive,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use wasmtime::component::ResourceAny;

use super::{common, is_object};
use crate::{
    error::CallError,
    runtime::{
        engine::{
            Instance, World,
            bindings::probe::{CheckProbe, CheckProbePre},
            call_meter::Allowance,
            convert::probe as convert,
            guest::Guest,
            instance::{AnswerKind, Reply},
        },
        fault::Fault,
    },
    worlds::{
        probe::{Failure, MAX_OUTCOME, Outcome, Reason, Request},
        step::{Answer, Step},
    },
};

pub(crate) struct Probe;

/// `until`: the deadline of the attempt; none without one.
pub(crate) enum Call {
    /// Starts an attempt and returns its first step.
    Begin {
        request: Arc<Request>,
        until: Option<Instant>,
        reply: Reply<(AttemptHandle, Step)>,
    },
    /// Passes the answer to a step and returns the next step.
    Next {
        key: Key,
        answer: Answer,
        until: Option<Instant>,
        reply: Reply<Next>,
    },
}

/// Grace period of a call after its attempt's timeout, unless its own limit is shorter.
pub(crate) const LAST_WORD: Duration = Duration::from_secs(5);

pub(crate) enum Next {
    Step(Step),
    /// The instance of the attempt is gone by no fault of the attempt: restart it.
    Lost,
}

/// Identifies an attempt: the serial number of its instance and its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    instance: u64,
    attempt: u64,
}

/// Owns an attempt's guest resource; dropping it frees the resource before the instance's next
/// call.
pub(crate) struct AttemptHandle {
    pub(crate) key: Key,
    released: Arc<Released>,
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
pub(crate) struct Released(Mutex<Vec<Key>>);

#[derive(Default)]
pub(crate) struct Attempts {
    attempts: HashMap<u64, ResourceAny>,
    next: u64,
}

impl World for Probe {
    type Pre = CheckProbePre<Guest>;
    type Bindings = CheckProbe;
    type Resources = Attempts;
    type Shared = Released;
    type Call = Call;

    common!(CheckProbePre, transom_plugin_about);

    async fn run(instance: &mut Instance<Self>, shared: &Arc<Released>, call: Call) -> Result<(), Fault> {
        match call {
            Call::Begin {
                request,
                until,
                reply,
            } => {
                let begun = begin(instance, shared, &request, until).await;
                instance.answer_as(reply, begun, |(_, step)| said(step))
            }
            Call::Next {
                key,
                answer,
                until,
                reply,
            } => {
                let Some(attempt) = instance.resources.attempts.get(&key.attempt).copied() else {
                    return instance.answer(reply, Ok(Next::Lost));
                };
                let step = next(instance, attempt, Some(answer), until).await.map(Next::Step);
                instance.answer_as(reply, step, |it| match it {
                    Next::Step(step) => said(step),
                    Next::Lost => AnswerKind::Answer,
                })
            }
        }
    }

    async fn drop_orphans(instance: &mut Instance<Self>, shared: &Released) -> Result<(), Fault> {
        let serial = instance.serial();
        let mine: Vec<Key> = {
            let mut released = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
            let (mine, others) = released.drain(..).partition(|key| key.instance == serial);
            // Of a draining instance, or of one that is gone.
            *released = others;
            released.retain(|key| key.instance + 1 >= serial);
            mine
        };
        for key in mine {
            if let Some(attempt) = instance.resources.attempts.remove(&key.attempt) {
                instance
                    .free(attempt)
                    .await
                    .inspect_err(|fault| instance.context.count(fault))?;
            }
        }
        Ok(())
    }

    fn refuse(call: Call, error: CallError) {
        match call {
            Call::Begin { reply, .. } => drop(reply.send(Err(error))),
            Call::Next { reply, .. } => drop(reply.send(Err(error))),
        }
    }

    fn bound_to(call: &Call) -> Option<u64> {
        match call {
            Call::Begin { .. } => None,
            Call::Next { key, .. } => Some(key.instance),
        }
    }

    fn lost(call: Call) {
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
    released: &Arc<Released>,
    request: &Request,
    until: Option<Instant>,
) -> Result<(AttemptHandle, Step), Fault> {
    let allowance = allowance(instance, until);
    let request = convert::request(request);
    let attempts = instance.bindings.transom_probe_probe().attempt();
    let call = attempts.call_constructor(&mut instance.store, &request);
    let attempt = instance.meter.run(allowance, call).await?;
    instance.resources.next += 1;
    let key = Key {
        instance: instance.serial(),
        attempt: instance.resources.next,
    };
    instance.resources.attempts.insert(key.attempt, attempt);
    let handle = AttemptHandle {
        key,
        released: Arc::clone(released),
    };
    let step = next(instance, attempt, None, until).await?;
    Ok((handle, step))
}

async fn next(
    instance: &mut Instance<Probe>,
    attempt: ResourceAny,
    answer: Option<Answer>,
    until: Option<Instant>,
) -> Result<Step, Fault> {
    let allowance = allowance(instance, until);
    let answer = answer.map(convert::answer);
    let attempts = instance.bindings.transom_probe_probe().attempt();
    let call = attempts.call_next(&mut instance.store, attempt, answer.as_ref());
    let step = instance.meter.run(allowance, call).await.map(convert::step)?;
    match &step {
        // First: it may have megabytes.
        Step::Done(Outcome::Custom(json)) if json.len() > MAX_OUTCOME => {
            Ok(Step::Failed(too_large(&instance.context.name, json.len())))
        }
        Step::Done(Outcome::Custom(json)) if !is_object(json) => Err(Fault::Malformed(
            "the custom outcome is not a JSON object".to_owned(),
        )),
        Step::Done(Outcome::Http(status)) if !STATUSES.contains(status) => {
            let (least, most) = (STATUSES.start(), STATUSES.end());
            Err(Fault::Malformed(format!(
                "{status} as an HTTP status code: expected one from {least} to {most}"
            )))
        }
        _ => Ok(step),
    }
}

/// The attempt has failed. The instance is intact, and the version gets no fault.
fn too_large(plugin: &str, bytes: usize) -> Failure {
    Failure {
        reason: Reason::Plugin,
        message: format!("plugin `{plugin}`: result too large: {bytes} bytes, at most {MAX_OUTCOME}"),
    }
}

/// Valid HTTP status codes.
const STATUSES: RangeInclusive<u16> = 100..=599;

/// A call ends at the latest with its attempt: a call that does not return is a fault, whatever its
/// own limit.
fn allowance(instance: &mut Instance<Probe>, until: Option<Instant>) -> Allowance {
    let allowance = instance.allowance();
    let left = until.map(|until| until.saturating_duration_since(Instant::now()).max(LAST_WORD));
    Allowance {
        wall_clock: left.map_or(allowance.wall_clock, |left| left.min(allowance.wall_clock)),
        ..allowance
    }
}

fn said(step: &Step) -> AnswerKind {
    match step {
        Step::Done(_) => AnswerKind::Answer,
        Step::Failed(_) => AnswerKind::Refusal,
        _ => AnswerKind::Part,
    }
}
