//! Causes for which no agent can run an instance, however long it waits.

use transom_framework::feasibility::{AgentTotal, Unplaceable};
use transom_scheduler::{PendingSnapshot, PendingSpec, Reason, Reservation, Reservations};

use super::Failing;
use crate::core::term::Handles;
use crate::time::Moment;

/// What an instance is called in sentences.
const NOUN: &str = "instance";

/// Why no agent can run the pending instances of an app or pod, as far as that is known.
pub(crate) fn failing(
    handles: &Handles,
    pending: &PendingSnapshot,
    name: &str,
    now: Moment,
) -> Option<Failing> {
    let pending = pending.spec(name)?;
    let away = || {
        let totals = handles.feasibility.totals();
        volumes_away(&pending, &handles.scheduler.reservations(), &totals)
    };
    let port_taken = || Unplaceable::port_taken(&pending, NOUN, &handles.scheduler.tasks(), now.timestamp());
    let found = away()
        .or_else(|| handles.feasibility.unplaceable(&pending, NOUN))
        .or_else(port_taken)?;
    Some(Failing {
        name: found.name,
        kind: found.kind,
        count: u32::try_from(found.tasks).unwrap_or(u32::MAX),
        since: found.since,
        agents: Vec::new(),
        message: found.message,
        advice: found.advice.to_owned(),
        stderr: Vec::new(),
    })
}

/// Whether volumes are on an agent that is not active. `agents`: the active ones, if they are known.
fn volumes_away(
    pending: &PendingSpec<'_>,
    reservations: &Reservations,
    agents: &[AgentTotal],
) -> Option<Unplaceable> {
    if pending.spec().volumes.is_empty() || agents.is_empty() {
        return None;
    }
    let is_away = |one: &Reservation| {
        one.run_spec == pending.run_spec
            && !one.releasing
            && !agents.iter().any(|agent| agent.id == one.agent.id.as_str())
    };
    let away = reservations.values().find(|one| is_away(one))?;
    let detail = format!(
        "volumes of an instance are on {}, which is not among the {} active agents",
        away.agent.hostname,
        agents.len()
    );
    let found = Unplaceable::new(pending, NOUN, "the agent of its volumes is away", &detail);
    Some(Unplaceable {
        kind: "volume-agent-away",
        advice: Reason::NoCorrespondingReservationFound.words().advice,
        ..found
    })
}
