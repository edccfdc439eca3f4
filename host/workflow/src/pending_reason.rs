//! Why a job is pending, as a code, a sentence, and what no agent can satisfy. Pure.

use serde_json::{Value, json};
use transom_framework::feasibility::{
    ConstraintFit, Feasibility, Shortage, counted_agents as agents, shortage,
};
use transom_scheduler::{Reason, ReasonKind, Reasons};

use crate::Settings;
use crate::launch;
use crate::model::Spec;

/// A code for programs, a sentence for users, and the constraints and the resources that no active
/// agent can satisfy.
#[derive(Debug, PartialEq)]
pub(crate) struct PendingReason {
    pub(crate) code: Reason,
    pub(crate) message: String,
    pub(crate) unsatisfied: Vec<String>,
    pub(crate) short: Vec<&'static str>,
}

impl PendingReason {
    /// The reason as the queue's response contains it.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "code": self.code.as_str(),
            "message": self.message,
            "advice": self.code.words().advice,
            "unsatisfied_constraints": self.unsatisfied,
            "unsatisfied_resources": self.short,
        })
    }
}

/// The reason of a job that the scheduler does not know yet.
pub(crate) fn unknown() -> PendingReason {
    PendingReason {
        code: Reason::NoOffers,
        message: "queued a moment ago; not matched yet".to_owned(),
        unsatisfied: Vec::new(),
        short: Vec::new(),
    }
}

/// The reason of a job with the scheduler's reasons, if it has any yet.
pub(crate) fn of_job(
    spec: &Spec,
    defaults: &Settings,
    reasons: Option<&Reasons>,
    feasibility: &Feasibility,
) -> PendingReason {
    let constraints = launch::constraints(spec, defaults);
    let mut reason = reasons.map_or_else(unknown, |reasons| {
        let fit = feasibility.of(&launch::expressions(&constraints));
        explain(reasons, &constraints, fit.as_ref())
    });
    let short = shortage("the job", launch::amounts(spec), &feasibility.totals());
    if let Some(Shortage {
        code,
        resources,
        message,
    }) = short
    {
        reason.message = format!("{message}; {}", reason.message);
        (reason.code, reason.short) = (code, resources);
    }
    reason
}

/// Explains the result of the last round. `constraints`: the constraints of the job, in the order
/// in which the matcher was called with them. `fit`: how all active agents satisfy them, if known.
pub(crate) fn explain(
    reasons: &Reasons,
    constraints: &[String],
    fit: Option<&ConstraintFit>,
) -> PendingReason {
    let unsatisfied = fit.map_or_else(Vec::new, |fit| fit.unsatisfied.clone());
    let mut sentences: Vec<String> = fit.map(ConstraintFit::unsatisfied_everywhere).unwrap_or_default();
    sentences.extend(
        reasons
            .last
            .iter()
            .filter(|(reason, _)| **reason != Reason::UnfulfilledConstraint)
            .map(|(reason, count)| reason.counted(*count, reasons.last_offers)),
    );
    sentences.extend(rejections(reasons, constraints, &unsatisfied));
    sentences.extend(reasons.message.clone());
    if sentences.is_empty() {
        sentences.push(Reasons::NOT_MATCHED.to_owned());
    }
    let last = reasons.last.iter().max_by_key(|(_, count)| **count);
    let last = last.map_or(Reason::NoOffers, |(reason, _)| *reason);
    // Obstacles come first, then constraints that no agent satisfies, then the lack of offers.
    let is_obstacle = last != Reason::NoOffers && last.words().kind == ReasonKind::Obstacle;
    let hopeless = fit.is_some_and(|fit| fit.fitting == 0);
    let code = if hopeless && !is_obstacle {
        Reason::UnfulfilledConstraint
    } else {
        last
    };
    PendingReason {
        code,
        message: sentences.join("; "),
        unsatisfied,
        short: Vec::new(),
    }
}

/// Describes the rejections by each constraint, except for constraints that are reported already.
fn rejections(reasons: &Reasons, constraints: &[String], reported: &[String]) -> Vec<String> {
    let named = |index: &u32| {
        constraints
            .get(*index as usize)
            .map_or_else(|| format!("number {index}"), |text| format!("`{text}`"))
    };
    let mut rejections: Vec<String> = reasons
        .last_constraints
        .iter()
        .filter(|(index, _)| {
            constraints
                .get(**index as usize)
                .is_none_or(|condition| !reported.contains(condition))
        })
        .map(|(index, rejected)| {
            if reasons.last_offers > 0 && *rejected >= reasons.last_offers {
                format!(
                    "no offered agent satisfies the constraint {} ({} offered)",
                    named(index),
                    agents(reasons.last_offers)
                )
            } else {
                format!(
                    "{} rejected by the constraint {}",
                    agents(*rejected),
                    named(index)
                )
            }
        })
        .collect();
    let attributed: u32 = reasons.last_constraints.values().sum();
    let total = reasons.last.get(&Reason::UnfulfilledConstraint).copied();
    if let Some(total) = total.filter(|total| *total > attributed && reasons.message.is_none()) {
        rejections.push(format!("{} rejected by the matcher", agents(total - attributed)));
    }
    rejections
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn reasons(last: &[(Reason, u32)], constraints: &[(u32, u32)], message: Option<&str>) -> Reasons {
        Reasons {
            last: last.iter().copied().collect(),
            last_offers: 3,
            last_constraints: constraints.iter().copied().collect::<BTreeMap<_, _>>(),
            message: message.map(str::to_owned),
            ..Reasons::default()
        }
    }

    #[test]
    fn explain_describes_each_reason() {
        let constraints = ["gpu:true".to_owned(), "rack:r1".to_owned()];
        for (reasons, code, expected) in [
            (Reasons::default(), "NoOffers", "not matched with any offer yet"),
            (
                reasons(&[(Reason::Disconnected, 1)], &[], None),
                "Disconnected",
                "the framework is not registered with the master; retrying",
            ),
            (
                reasons(&[(Reason::UnfulfilledConstraint, 3)], &[(0, 3)], None),
                "UnfulfilledConstraint",
                "no offered agent satisfies the constraint `gpu:true` (3 agents offered)",
            ),
            (
                reasons(
                    &[(Reason::UnfulfilledConstraint, 2), (Reason::InsufficientCpus, 1)],
                    &[(1, 2)],
                    None,
                ),
                "UnfulfilledConstraint",
                "1 of 3 offers have too few CPUs; 2 agents rejected by the constraint `rack:r1`",
            ),
            (
                reasons(
                    &[(Reason::MatcherUnavailable, 1)],
                    &[],
                    Some("no plugin `attributes`"),
                ),
                "MatcherUnavailable",
                "the matcher is unavailable; no plugin `attributes`",
            ),
            (
                reasons(&[(Reason::UnfulfilledConstraint, 3)], &[(0, 1)], None),
                "UnfulfilledConstraint",
                "1 agent rejected by the constraint `gpu:true`; 2 agents rejected by the matcher",
            ),
        ] {
            let reason = explain(&reasons, &constraints, None);
            assert_eq!((reason.code.as_str(), reason.message.as_str()), (code, expected));
            assert_eq!(reason.unsatisfied, Vec::<String>::new());
        }
    }

    #[test]
    fn explain_reports_constraints_that_no_active_agent_satisfies() {
        let constraints = ["gpu:true".to_owned(), "rack:r1".to_owned()];
        let rejected = reasons(&[(Reason::UnfulfilledConstraint, 3)], &[(0, 3)], None);
        let not_enough = reasons(&[(Reason::InsufficientCpus, 3)], &[], None);
        let disconnected = reasons(&[(Reason::Disconnected, 1)], &[], None);
        for (reasons, fitting, unsatisfied, code, expected) in [
            // An unsatisfied constraint is reported once.
            (
                &rejected,
                0,
                vec!["gpu:true"],
                "UnfulfilledConstraint",
                "no active agent satisfies the constraint `gpu:true` (5 agents in the cluster)",
            ),
            // The only agent that satisfies the constraint has no offers now.
            (
                &rejected,
                1,
                vec![],
                "UnfulfilledConstraint",
                "no offered agent satisfies the constraint `gpu:true` (3 agents offered)",
            ),
            // Other reasons of the last round are reported as well.
            (
                &not_enough,
                0,
                vec!["rack:r1"],
                "UnfulfilledConstraint",
                "no active agent satisfies the constraint `rack:r1` (5 agents in the cluster); 3 of 3 offers have too few CPUs",
            ),
            (
                &not_enough,
                0,
                vec![],
                "UnfulfilledConstraint",
                "no active agent satisfies all constraints together (5 agents in the cluster); 3 of 3 offers have too few CPUs",
            ),
            (
                &not_enough,
                2,
                vec![],
                "InsufficientCpus",
                "3 of 3 offers have too few CPUs",
            ),
            (
                &disconnected,
                0,
                vec!["gpu:true"],
                "Disconnected",
                "no active agent satisfies the constraint `gpu:true` (5 agents in the cluster); the framework is not \
                 registered with the master; retrying",
            ),
        ] {
            let fit = ConstraintFit {
                agents: 5,
                fitting,
                unsatisfied: unsatisfied.iter().map(|text| (*text).to_owned()).collect(),
            };
            let reason = explain(reasons, &constraints, Some(&fit));
            assert_eq!((reason.code.as_str(), reason.message.as_str()), (code, expected));
            assert_eq!(reason.unsatisfied, unsatisfied);
        }
    }
}
