//! Instances on agents that the master does not reach. Pure.

use transom_replicas::Condition;

use super::{Failing, to_seconds};
use crate::core::counts::InstanceCounts;
use crate::core::spec_view::SpecView;
use crate::model::UnreachableStrategy;
use crate::time::Moment;

/// The number of agents that a sentence names.
const MAX_AGENTS: usize = 3;
const CONDITIONS: [Condition; 2] = [Condition::Unreachable, Condition::UnreachableInactive];

/// How many instances are on agents that the master does not reach.
pub(super) fn count(counts: &InstanceCounts) -> u32 {
    CONDITIONS.iter().map(|condition| counts.of(*condition)).sum()
}

/// The problem of these instances, if there are any.
pub(super) fn failing(view: &SpecView) -> Option<Failing> {
    let count = count(&view.counts);
    if count == 0 {
        return None;
    }
    let away = view.instances.values();
    let away = away.filter(|instance| CONDITIONS.contains(&instance.condition()));
    let (mut agents, mut since) = (Vec::new(), None::<Moment>);
    for instance in away {
        let at = Moment::from(instance.replica.since);
        since = Some(since.map_or(at, |since| since.min(at)));
        let host = instance.record().map(|record| record.agent.hostname.clone());
        let host = host.filter(|host| agents.len() < MAX_AGENTS && !agents.contains(host));
        agents.extend(host);
    }
    let since = since?;
    let spec = &view.record.spec;
    let replaced = match spec.unreachable_strategy() {
        UnreachableStrategy::Disabled(_) => {
            "`unreachableStrategy` is `disabled`, so they are not replaced.".to_owned()
        }
        UnreachableStrategy::Enabled {
            inactive_after_seconds,
            ..
        } => format!("They are replaced after {inactive_after_seconds} s (`inactiveAfterSeconds`)."),
    };
    Some(Failing {
        name: spec.id().to_string(),
        kind: "unreachable",
        count,
        since: since.timestamp(),
        message: format!(
            "{}: agent unreachable: {count} of {} instances since {} on {}",
            spec.id(),
            view.instances.len(),
            to_seconds(since),
            agents.join(", ")
        ),
        advice: format!(
            "Check the agent's machine and its network; `transom agents list` shows its state. {replaced}"
        ),
        agents,
        stderr: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::instance::Instance;
    use crate::testing::{app, record};

    #[test]
    fn instances_on_unreachable_agents_are_counted_with_agent_and_time() {
        for (strategy, advice) in [
            (json!("disabled"), "they are not replaced"),
            (
                json!({"inactiveAfterSeconds": 60, "expungeAfterSeconds": 90}),
                "replaced after 60 s",
            ),
        ] {
            let body = json!({"id": "/a", "cmd": "run", "unreachableStrategy": strategy});
            let mut view = SpecView::of(app(&body).into());
            assert_eq!(failing(&view), None);
            for (second, condition) in [
                (7, Condition::Running),
                (9, Condition::Unreachable),
                (5, Condition::UnreachableInactive),
            ] {
                let spec = &view.record.spec;
                let mut instance = Instance::new(spec.id(), spec.version(), Moment::now());
                instance.replica.condition = condition;
                instance.replica.since = jiff::Timestamp::from_second(second).unwrap();
                instance.set_record(&Arc::new(record(instance.task())));
                view.counts.add(&instance);
                view.instances.insert(instance.id.clone(), Arc::new(instance));
            }
            assert!(super::super::is_candidate(&view));
            let found = Failing::of(&view, Moment::now()).unwrap();
            let host = &found.agents[0];
            let expected =
                format!("/a: agent unreachable: 2 of 3 instances since 1970-01-01T00:00:05Z on {host}");
            assert_eq!((found.kind, found.message), ("unreachable", expected));
            assert!(found.advice.contains(advice), "{}", found.advice);
        }
    }
}
