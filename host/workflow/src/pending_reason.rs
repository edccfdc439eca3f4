//! Why a job is pending, as a code, a sentence and the unsatisfied constraints. Pure.

use serde_json::{Value, json};
use transom_scheduler::{Reason, Reasons};

use crate::feasibility::ConstraintFit;

/// A code for programs, a sentence for users, and the constraints that no active agent satisfies.
#[derive(Debug, PartialEq)]
pub(crate) struct PendingReason {
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) unsatisfied: Vec<String>,
}

impl PendingReason {
    /// The reason as the queue's response contains it.
    pub(crate) fn to_json(&self) -> Value {
        json!({"code": self.code, "message": self.message, "unsatisfied_constraints": self.unsatisfied})
    }
}

/// The reason of a job that the scheduler does not know yet.
pub(crate) fn unknown() -> PendingReason {
    PendingReason {
        code: Reason::NoOffers.as_str(),
        message: "queued a moment ago; not matched yet".to_owned(),
        unsatisfied: Vec::new(),
    }
}

/// Explains the result of the last round. `constraints`: the constraints of the job, in the order
/// in which the matcher was called with them. `fit`: how all active agents satisfy them, if known.
pub(crate) fn explain(
    reasons: &Reasons,
    constraints: &[String],
    fit: Option<&ConstraintFit>,
) -> PendingReason {
    let unsatisfied = fit.map_or_else(Vec::new, |fit| fit.unsatisfied.clone());
    let mut sentences: Vec<String> = fit.map(unsatisfied_everywhere).unwrap_or_default();
    sentences.extend(
        reasons
            .last
            .iter()
            .filter(|(reason, _)| **reason != Reason::UnfulfilledConstraint)
            .map(|(reason, count)| sentence(*reason, *count, reasons.last_offers)),
    );
    sentences.extend(rejections(reasons, constraints, &unsatisfied));
    sentences.extend(reasons.message.clone());
    if sentences.is_empty() {
        sentences.push("not matched with any offer yet".to_owned());
    }
    let last = reasons.last.iter().max_by_key(|(_, count)| **count);
    let last = last.map_or(Reason::NoOffers, |(reason, _)| *reason);
    // Reasons that block everything come first, then constraints that no agent satisfies.
    let of_all = [
        Reason::Disconnected,
        Reason::MatcherUnavailable,
        Reason::StoreUnavailable,
    ];
    let hopeless = fit.is_some_and(|fit| fit.fitting == 0);
    let code = if hopeless && !of_all.contains(&last) {
        Reason::UnfulfilledConstraint
    } else {
        last
    };
    PendingReason {
        code: code.as_str(),
        message: sentences.join("; "),
        unsatisfied,
    }
}

/// The constraints that no active agent satisfies.
fn unsatisfied_everywhere(fit: &ConstraintFit) -> Vec<String> {
    let in_all = agents(fit.agents);
    if fit.unsatisfied.is_empty() {
        let together =
            format!("no active agent satisfies all constraints together ({in_all} in the cluster)");
        return (fit.fitting == 0).then_some(together).into_iter().collect();
    }
    let unsatisfied = fit.unsatisfied.iter();
    unsatisfied
        .map(|condition| {
            format!("no active agent satisfies the constraint `{condition}` ({in_all} in the cluster)")
        })
        .collect()
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
        .map(|(index, refused)| {
            if reasons.last_offers > 0 && *refused >= reasons.last_offers {
                format!(
                    "no offered agent satisfies the constraint {} ({} offered)",
                    named(index),
                    agents(reasons.last_offers)
                )
            } else {
                format!("{} rejected by the constraint {}", agents(*refused), named(index))
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

fn sentence(reason: Reason, count: u32, offers: u32) -> String {
    let not_enough = |what: &str| format!("not enough {what} on {count} of {}", self::offers(offers));
    match reason {
        Reason::UnfulfilledRole => format!("{} reserved for other roles", self::offers(count)),
        Reason::AgentMaintenance => format!("{} in maintenance", agents(count)),
        Reason::UnfulfilledConstraint => format!("{} rejected by constraints", agents(count)),
        Reason::InsufficientCpus => not_enough("CPU"),
        Reason::InsufficientMemory => not_enough("memory"),
        Reason::InsufficientDisk => not_enough("disk"),
        Reason::InsufficientGpus => not_enough("GPUs"),
        Reason::InsufficientPorts => not_enough("ports"),
        Reason::Backoff => "the launch is delayed by backoff".to_owned(),
        Reason::NoOffers => "no offers received since the job was queued".to_owned(),
        Reason::Disconnected => "the framework is not registered with the master; retrying".to_owned(),
        Reason::MatcherUnavailable => "the matcher is unavailable".to_owned(),
        Reason::StoreUnavailable => "the state store is unavailable".to_owned(),
        other => other.as_str().to_owned(),
    }
}

fn agents(count: u32) -> String {
    counted(count, "agent")
}

fn offers(count: u32) -> String {
    counted(count, "offer")
}

fn counted(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
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
                "not enough CPU on 1 of 3 offers; 2 agents rejected by the constraint `rack:r1`",
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
            assert_eq!((reason.code, reason.message.as_str()), (code, expected));
            assert_eq!(reason.unsatisfied, Vec::<String>::new());
        }
    }

    #[test]
    fn explain_reports_constraints_that_no_active_agent_satisfies() {
        let constraints = ["gpu:true".to_owned(), "rack:r1".to_owned()];
        let refused = reasons(&[(Reason::UnfulfilledConstraint, 3)], &[(0, 3)], None);
        let not_enough = reasons(&[(Reason::InsufficientCpus, 3)], &[], None);
        let disconnected = reasons(&[(Reason::Disconnected, 1)], &[], None);
        for (reasons, fitting, unsatisfied, code, expected) in [
            // An unsatisfied constraint is reported once.
            (
                &refused,
                0,
                vec!["gpu:true"],
                "UnfulfilledConstraint",
                "no active agent satisfies the constraint `gpu:true` (5 agents in the cluster)",
            ),
            // The only agent that satisfies the constraint has no offers now.
            (
                &refused,
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
                "no active agent satisfies the constraint `rack:r1` (5 agents in the cluster); not enough CPU on 3 of 3 offers",
            ),
            (
                &not_enough,
                0,
                vec![],
                "UnfulfilledConstraint",
                "no active agent satisfies all constraints together (5 agents in the cluster); not enough CPU on 3 of 3 offers",
            ),
            (
                &not_enough,
                2,
                vec![],
                "InsufficientCpus",
                "not enough CPU on 3 of 3 offers",
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
            assert_eq!((reason.code, reason.message.as_str()), (code, expected));
            assert_eq!(reason.unsatisfied, unsatisfied);
        }
    }
}
